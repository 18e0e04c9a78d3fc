"""Very many values in ascending order, without ever sorting them all at once: that would hold the event loop."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from evalbus_server.aggregate.steps import STEP, Steps
from evalbus_server.model.numbers import Values

_SEEN = 16
"""So many values of each part show where the others lie, and every eighth of them is a mark: then a piece is about
half as large as a part."""
_MARKED = 8


class Piece(NamedTuple):
    """Some of the values: every other one is smaller than all of these, or larger."""

    below: list[float]
    """Those below the mark, in no order."""
    mark: float
    times: int
    """How often the mark itself comes."""


class Ordered:
    """Values as if they were in ascending order.

    They are in sorted parts. Marks, some of the values, cut all parts at the same places, and only what lies between
    two marks is put together when it is asked for. A value so frequent that it would fill a piece is itself a mark,
    and is only counted.
    """

    def __init__(self, parts: list[Values], marks: list[float], upto: list[int]) -> None:
        """Take sorted parts; ascending marks, the last of them the largest value; and how many are up to each."""
        self._parts = parts
        self._marks = marks
        self._upto = upto
        self._sorted: tuple[int, list[float]] = (-1, [])
        """The piece that was asked for last, since neighbours are asked for together."""

    def __len__(self) -> int:
        """How many there are."""
        return self._upto[-1] if self._upto else 0

    def __getitem__(self, rank: int) -> float:
        """The value that comes after *rank* others."""
        place = bisect_right(self._upto, rank)
        if self._sorted[0] != place:
            self._sorted = place, sorted(self._between(place))
        below = self._sorted[1]
        first = self._upto[place - 1] if place else 0
        return below[rank - first] if rank - first < len(below) else self._marks[place]

    @property
    def low(self) -> float:
        """The smallest of at least one."""
        return min(part[0] for part in self._parts)

    @property
    def high(self) -> float:
        """The largest."""
        return self._marks[-1]

    def count_below(self, value: float) -> int:
        """How many are smaller."""
        return sum(bisect_left(part, value) for part in self._parts)

    def count_upto(self, value: float) -> int:
        """How many are not larger."""
        return sum(bisect_right(part, value) for part in self._parts)

    def pieces(self) -> Iterator[Piece]:
        """All of them, from the smallest to the largest."""
        before = 0
        for place, (mark, upto) in enumerate(zip(self._marks, self._upto, strict=True)):
            below = self._between(place)
            yield Piece(below, mark, upto - before - len(below))
            before = upto

    def _between(self, place: int) -> list[float]:
        """What lies between a mark and the one before it."""
        low, high = self._marks[place - 1] if place else -math.inf, self._marks[place]
        found: list[float] = []
        for part in self._parts:
            found += part[bisect_right(part, low) : bisect_left(part, high)]
        return found


def in_order(values: Values) -> Steps[Ordered]:
    """The values in ascending order."""
    parts: list[Values] = []
    for start in range(0, len(values), STEP):
        parts.append(array("d", sorted(values[start : start + STEP])))
        yield
    marks = _marks(parts)
    upto: list[int] = []
    for place, mark in enumerate(marks):
        upto.append(sum(bisect_right(part, mark) for part in parts))
        if place % _SEEN == 0:
            yield
    return Ordered(parts, marks, upto)


def _marks(parts: list[Values]) -> list[float]:
    if not parts:
        return []
    seen: list[float] = []
    for place, part in enumerate(parts):
        gap = math.ceil(len(part) / _SEEN)
        # Each part begins elsewhere, or all would show about the same values, with wide gaps between them.
        seen += part[gap * place // len(parts) :: gap]
    seen.sort()
    return sorted({*seen[::_MARKED], max(part[-1] for part in parts)})
