"""Which line of a file an item came from, in a few bytes for most files: lines that follow each other evenly are one entry."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class LineIndex:
    """The lines of items in their order."""

    def __init__(self) -> None:
        """Nothing is noted yet."""
        self._count = 0
        self._firsts = array("q")
        self._lines = array("q")
        self._steps = array("q")

    def note(self, line: int) -> None:
        """The line of the next item."""
        place = self._count
        self._count += 1
        if self._firsts:
            first, begun, step = self._firsts[-1], self._lines[-1], self._steps[-1]
            if place - first == 1:
                self._steps[-1] = line - begun
                return
            if begun + step * (place - first) == line:
                return
        self._firsts.append(place)
        self._lines.append(line)
        self._steps.append(0)

    def line(self, place: int) -> int:
        """The line of the item at a place, from 0."""
        run = bisect_right(self._firsts, place) - 1
        return self._lines[run] + self._steps[run] * (place - self._firsts[run])

    @property
    def size(self) -> int:
        """How many entries it has."""
        return len(self._firsts)
