"""Which scorers judge a trial, in a run that leaves this to its items: an item's own, else the dataset's, never both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_REMEMBERED = 10_000
"""So many different lists of names are looked up once only."""


class Assigned(NamedTuple):
    """Who judges a trial."""

    scorers: int
    """Bit i is set if scorer i of the run does."""
    unknown: str = ""
    """A name that no scorer of the run has: the trial is not asked."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a run needs to know of its scorers to tell who judges what."""

    names: tuple[str, ...]
    """What the scorers are called, by their positions in the run."""
    default: tuple[str, ...] = ()
    """The dataset's own scorers: they judge items that name none."""
    builtins: tuple[str, ...] = ()
    """Those of the names, the last ones, that the experiment does not declare."""
    _found: dict[tuple[str, ...], Assigned] = field(default_factory=dict, compare=False, repr=False)

    def of(self, own: Sequence[str] | None) -> Assigned:
        """Who judges an item with these scorers of its own; None if it names none, () if it wants none."""
        names = self.default if own is None else tuple(own)
        found = self._found.get(names)
        if found is None:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            found = self._found[names] = self._look_up(names)
        return found

    def _look_up(self, names: tuple[str, ...]) -> Assigned:
        places = {name: place for place, name in enumerate(self.names)}
        scorers, unknown = 0, ""
        for name in names:
            place = places.get(name)
            if place is None:
                unknown = unknown or name
            else:
                scorers |= 1 << place
        return Assigned(scorers, unknown)
