"""Which items of a dataset are meant: patterns on the raw id, tags, a limit; and a shuffled order."""

from __future__ import annotations

import fnmatch
import random
import re
from array import array
from collections.abc import Collection, Iterator, Sequence

_AT_ONCE = 10_000
"""Places that one step of a shuffle looks at."""


class Selector:
    """Takes items in dataset order: those whose id matches and that have the tags, up to a limit."""

    def __init__(self, patterns: Sequence[str] = (), limit: int | None = None, tags: Sequence[str] = ()) -> None:
        """*patterns* are `*`, `?` and `[…]` on the id as it is (`1` is neither `01` nor `10`); () takes each."""
        self._matches = re.compile("|".join(map(fnmatch.translate, patterns))).match if patterns else None
        self._limit = limit
        self._tags = frozenset(tags)
        self.taken = 0
        """How many it has taken."""

    @property
    def full(self) -> bool:
        """Whether the limit is reached, so that it takes no more."""
        return self.taken == self._limit

    def takes(self, id: str, tags: Collection[str] = ()) -> bool:
        """Whether it takes the next item, which has *tags*."""
        if self.full or (self._matches is not None and self._matches(id) is None) or not self._tags.issubset(tags):
            return False
        self.taken += 1
        return True


def shuffle(places: array[int], seed: int) -> Iterator[None]:
    """Shuffle in place as `random.Random(seed).shuffle` does, some of it at each step."""
    draw = random.Random(seed).randrange
    for last in range(len(places) - 1, 0, -1):
        other = draw(last + 1)
        places[last], places[other] = places[other], places[last]
        if not last % _AT_ONCE:
            yield
