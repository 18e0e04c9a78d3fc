"""The purges of a database that this process writes: their steps, their events, and what they keep out later."""

from __future__ import annotations

from collections.abc import Callable, Generator, MutableMapping, Sequence
from dataclasses import replace

from evalbus_server.model.dataset import Purged
from evalbus_server.model.event import ContentPurged
from evalbus_server.model.trial import Changes
from evalbus_server.store import purge, runs
from evalbus_server.store.connection import Connection
from evalbus_server.store.runs import Standing

_NONE: frozenset[int] = frozenset()


class Purges:
    """Knows which items of which runs were purged. Without any purge it costs a commit nothing."""

    def __init__(
        self, connection: Connection, clock: Callable[[], float], era: int, standings: MutableMapping[str, Standing]
    ) -> None:
        """*standings* of runs are dropped once a purge has given them an event."""
        self._connection = connection
        self._clock = clock
        self._era = era
        self._standings = standings
        self._positions: dict[int, frozenset[int]] = {}
        """Positions of purged items, by run."""
        self._any = purge.is_any(connection)

    def finish(self) -> bool:
        """Finish what was broken off, for the time right after opening; whether there was anything."""
        return self._any and purge.finish(self._connection, self._note)

    def steps(self, name: str, ids: Sequence[str]) -> Generator[None, None, Purged]:
        """Purge items of a dataset, step by step; who stops in between gets the rest at once.

        Raises:
            NotFound: DATASET_NOT_FOUND, ITEM_NOT_FOUND: at the first step; nothing was purged.
        """
        reached: set[str] = set()
        steps = purge.begin(
            self._connection,
            name,
            list(dict.fromkeys(ids)),
            self._clock(),
            lambda run, trials: reached.add(self._note(run, trials)),
        )
        self._any = True
        self._positions.clear()
        try:
            purged = yield from steps
        except GeneratorExit:
            purge.finish(self._connection, self._note)
            raise
        return replace(purged, runs=frozenset(reached - {""}))

    def positions(self, run: int) -> frozenset[int]:
        """The positions of a run's purged items."""
        if not self._any:
            return _NONE
        found = self._positions.get(run)
        if found is None:
            found = self._positions[run] = purge.positions(self._connection, run)
        return found

    def scrubbed(self, run: int, changes: Changes) -> Changes:
        """What is stored of that which happened to trials of a run: no content of purged items."""
        found = self.positions(run)
        return purge.scrubbed(changes, found) if found else changes

    def forget(self, run: int) -> None:
        """Know no more of a run that is deleted."""
        self._positions.pop(run, None)

    def _note(self, run: int, trials: Sequence[int]) -> str:
        """Store the event of a purge in the open transaction; the id of the run, "" if it is being deleted."""
        found = self._connection.row("SELECT r.id FROM run r JOIN progress p ON p.run = r.n WHERE r.n = ?", (run,))
        if found is None:
            return ""
        standing = runs.standing(self._connection, run)
        fact = ContentPurged(tuple(trials), standing.counts)
        runs.add_fact(self._connection, fact, standing, now=self._clock(), era=self._era)
        self._standings.pop(found[0], None)
        return str(found[0])
