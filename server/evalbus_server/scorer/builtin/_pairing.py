"""Which steps fit those that are expected, by name and by the arguments that a step expects."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from evalbus import Score
from evalbus_server.scorer.builtin._calls import Step, holds
from evalbus_server.scorer.builtin._compared import unjudged

MOST_PAIRS = 300_000
"""Pairs of arguments compared for one score at most. Only `holds` compares pairs: arguments that are to be the same are
looked up."""


class TooManyPairs(Exception):
    """Comparing would take too long."""

    def score(self) -> Score:
        """What a scorer says then."""
        message = f"steps whose arguments make more than {MOST_PAIRS:,} pairs are not compared; map a part of them"
        return unjudged("TOO_MANY_STEPS", message)


def in_any_order(taken: Sequence[Step], wanted: Sequence[Step], compare: str, work: int) -> list[Step | None]:
    """For each step wanted one that fits, or None. None is used twice, and as many find one as can.

    *work* is how many pairs may be compared.

    Raises:
        TooManyPairs: it is not enough.
    """
    found: list[int | None] = [None] * len(wanted)
    places = _Places(taken)
    # The same arguments fit best: what holds more would do elsewhere too.
    left = []
    for number, step in enumerate(wanted):
        if step.arguments is not None:
            place = places.take_same(step)
            found[number] = place
            if place is None:
                left.append(number)
    if compare == "holds":
        for number, place in _most(taken, wanted, left, places, work).items():
            found[number] = place
            places.take(place)
    # Those that take any arguments come last, so that they take no step that another one needs.
    for number, step in enumerate(wanted):
        if step.arguments is None:
            found[number] = places.take_any(step.name)
    return [None if place is None else taken[place] for place in found]


def in_order(taken: Sequence[Step], wanted: Sequence[Step], compare: str, work: int) -> list[Step | None]:
    """For each step wanted the first one that fits after the one found last, or None.

    Raises:
        TooManyPairs: *work*, the pairs that may be compared, is not enough.
    """
    places = _Places(taken)
    found: list[Step | None] = []
    start = 0
    for step in wanted:
        place = None
        if step.arguments is None:
            place = next(places.named(step.name, start), None)
        elif compare == "same":
            place = places.same(step, start)
        else:
            for each in places.named(step.name, start):
                work -= 1
                if work < 0:
                    raise TooManyPairs
                if holds(taken[each].arguments, step.arguments):
                    place = each
                    break
        found.append(None if place is None else taken[place])
        start = start if place is None else place + 1
    return found


class _Places:
    """Where steps stand, by name and arguments, and which of them are taken."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._taken: set[int] = set()
        self._named: dict[str, list[int]] = defaultdict(list)
        self._same: dict[Hashable, list[int]] = defaultdict(list)
        self._next: dict[Hashable, int] = defaultdict(int)
        for place, step in enumerate(steps):
            self._named[step.name].append(place)
            self._same[_key(step)].append(place)

    def named(self, name: str, start: int = 0) -> Iterator[int]:
        """The places of a name that are free, from *start* on."""
        places = self._named.get(name, [])
        return (places[at] for at in range(bisect_left(places, start), len(places)) if places[at] not in self._taken)

    def same(self, step: Step, start: int) -> int | None:
        """The first place of the same step from *start* on."""
        places = self._same.get(_key(step), [])
        at = bisect_left(places, start)
        return places[at] if at < len(places) else None

    def take(self, place: int) -> None:
        """Have a place taken."""
        self._taken.add(place)

    def take_same(self, step: Step) -> int | None:
        """Take the next place of the same step."""
        key = _key(step)
        return self._take_next(key, self._same.get(key, []))

    def take_any(self, name: str) -> int | None:
        """Take the next place of a name that is free."""
        return self._take_next(name, self._named.get(name, []))

    def _take_next(self, key: Hashable, places: Sequence[int]) -> int | None:
        for at in range(self._next[key], len(places)):
            if places[at] not in self._taken:
                self._next[key] = at + 1
                self._taken.add(places[at])
                return places[at]
        self._next[key] = len(places)
        return None


def _key(step: Step) -> tuple[str, Hashable]:
    return step.name, _frozen(step.arguments)


def _frozen(document: Any) -> Hashable:
    """The same for documents that say the same, and for no others: as `same` compares them."""
    if isinstance(document, dict):
        return frozenset((key, _frozen(value)) for key, value in document.items())
    if isinstance(document, list):
        return tuple(map(_frozen, document))
    if isinstance(document, bool):
        return _TRUE if document else _FALSE
    found: Hashable = document
    return found


_TRUE, _FALSE = object(), object()
"""Not 1 and 0, which they are equal to."""


def _most(
    taken: Sequence[Step], wanted: Sequence[Step], left: Sequence[int], places: _Places, work: int
) -> dict[int, int]:
    """Places for as many as can have one of those that are left, each place once: by augmenting paths."""
    fitting: dict[int, list[int]] = {}
    for number in left:
        step = wanted[number]
        fits = []
        for place in places.named(step.name):
            work -= 1
            if work < 0:
                raise TooManyPairs
            if holds(taken[place].arguments, step.arguments):
                fits.append(place)
        fitting[number] = fits
    place_of: dict[int, int] = {}
    owner_of: dict[int, int] = {}
    dead: set[int] = set()
    for number in left:
        _give_place(number, fitting, place_of, owner_of, dead)
    return place_of


def _give_place(
    number: int, fitting: dict[int, list[int]], place_of: dict[int, int], owner_of: dict[int, int], dead: set[int]
) -> None:
    """Give a step a place, and others another one for it if need be; *dead* are places from which no way leads on."""
    asked_by: dict[int, int] = {}
    waiting = deque((number,))
    while waiting:
        asking = waiting.popleft()
        for place in fitting[asking]:
            if place in asked_by or place in dead:
                continue
            asked_by[place] = asking
            if place in owner_of:
                waiting.append(owner_of[place])
                continue
            free: int | None = place
            while free is not None:
                taker = asked_by[free]
                owner_of[free] = taker
                before = place_of.get(taker)
                place_of[taker] = free
                free = before
            return
    dead.update(asked_by)
