"""Which items of a dataset are meant: patterns on the raw id, and a limit."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence


class Selector:
    """Takes items in dataset order: those whose id matches, up to a limit."""

    def __init__(self, patterns: Sequence[str] = (), limit: int | None = None) -> None:
        """*patterns* are `*`, `?` and `[…]` on the id as it is (`1` is neither `01` nor `10`); () takes each."""
        self._matches = re.compile("|".join(map(fnmatch.translate, patterns))).match if patterns else None
        self._limit = limit
        self.taken = 0
        """How many it has taken."""

    @property
    def full(self) -> bool:
        """Whether the limit is reached, so that it takes no more."""
        return self.taken == self._limit

    def takes(self, id: str) -> bool:
        """Whether it takes the next item."""
        if self.full or (self._matches is not None and self._matches(id) is None):
            return False
        self.taken += 1
        return True
