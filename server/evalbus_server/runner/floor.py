"""The floor: what all who handle runs share. The store, the means of plugins, and the runs that are at work here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from evalbus._definition import Plugin as Definition
from evalbus_server.errors import Reason, Unfit
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Run, RunState
from evalbus_server.runner.crew import Crew, Means
from evalbus_server.runner.limits import Watchdog
from evalbus_server.runner.line import Line
from evalbus_server.runner.unstored import UnstoredEnds
from evalbus_server.store import Store
from evalbus_server.watch.bell import Bell

AT_ONCE = 8
"""More runs than this wait their turn."""
CHECKED_AT_ONCE = 16
"""The plugins of so many runs are brought up at the same time, if only to be looked at: a process may be started for each."""
PAGE = 1000

Given = Mapping[str, Definition[Any, Any]]
"""Functions that an embedded run is given as plugins, by name."""
Admit = Callable[[Experiment], Experiment]
"""Refuses what an experiment may not do here."""


def as_it_is(experiment: Experiment) -> Experiment:
    """Admit everything."""
    return experiment


@dataclass(slots=True)
class Working:
    """A run at work here: one task, which owns all that it starts."""

    run: Run
    crew: Crew
    experiment: Experiment
    """With the limits in force."""
    task: asyncio.Task[None] | None = None
    line: Line | None = None
    watchdog: Watchdog | None = None
    ending: RunState | None = None
    """How it ends if trials are pending: set by whoever stops it."""
    reason: str = ""
    hard: asyncio.TimerHandle | None = None
    asked_to_end: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Holder:
    """A follower for whose sake a run keeps its results until they are taken."""

    def __init__(self, sequence: int) -> None:
        """It has taken everything up to an event."""
        self._sequence: int | None = sequence
        self._moved = asyncio.Event()

    def take(self, sequence: int | None) -> None:
        """It has taken everything up to an event; None: it wants no more."""
        self._sequence = sequence
        self._moved.set()

    async def reach(self, sequence: int) -> None:
        """Wait until it has taken everything up to an event, or wants no more."""
        while self._sequence is not None and self._sequence < sequence:
            self._moved.clear()
            await self._moved.wait()


class Floor:
    """One store, and who works on it."""

    def __init__(
        self,
        store: Store,
        means: Means,
        bell: Bell,
        clock: Callable[[], float] = time.time,
        most_open: int | None = None,
    ) -> None:
        """*means* is what plugins are made with; *bell* is rung when something was stored of a run; *most_open* runs may
        be QUEUED or RUNNING at once, or any number (None)."""
        self.store = store
        self.means = means
        self.bell = bell
        self.clock = clock
        self.working: dict[str, Working] = {}
        self.unstored = UnstoredEnds(store, bell)
        self.turns = asyncio.Semaphore(AT_ONCE)
        self._checks = asyncio.Semaphore(CHECKED_AT_ONCE)
        self._most_open = most_open
        self._coming = 0
        self.resuming: set[str] = set()
        """Runs that a stopped server left behind, and that go on by themselves in a moment."""
        self.holders: dict[str, WeakSet[Holder]] = {}
        """Who follows the results of a run; weak, since a follower may never begin to follow."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # as long as somebody holds one

    def lock(self, name: str) -> asyncio.Lock:
        """Held by whoever begins or deletes a run, under its id or the request id that it comes from."""
        return self._locks.setdefault(name, asyncio.Lock())

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among the open runs, held from before anything is done for a run until it is at work.

        Raises:
            Unfit: TOO_MANY_RUNS.
        """
        most = self._most_open
        if most is not None and len(self.working) + self._coming >= most:
            message = (
                f"runs that are QUEUED or RUNNING: {most:,}, the most that this server takes (limits.runs of its "
                f"configuration); try again when one is over, or cancel one (evalbus runs list --state queued)"
            )
            raise Unfit(Reason.TOO_MANY_RUNS, message)
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1

    async def bring_together(self, crew: Crew, *, only_looked_at: bool = False) -> None:
        """Assemble a crew, so that what it declares is known. It rests where its run has to wait for its turn, or where it
        was *only_looked_at*.

        Raises:
            ServerError: a plugin hinders it, as in `Crew.assemble`.
        """
        async with self._checks:
            await crew.assemble()
            if only_looked_at or self.turns.locked():
                await crew.rest()

    def hold(self, run_id: str, after: int) -> Holder:
        """A holder of a run who has taken everything up to an event."""
        holder = Holder(after)
        self.holders.setdefault(run_id, WeakSet()).add(holder)
        return holder

    def let_go(self, run_id: str, holder: Holder) -> None:
        """A holder has gone."""
        holders = self.holders.get(run_id)
        if holders is not None:
            holders.discard(holder)
            if not holders:
                del self.holders[run_id]

    def check_over(self, run: Run, done: str) -> None:
        """Check that a run is over, so that it can be *done* something to.

        Raises:
            Unfit: RUN_AT_WORK.
        """
        if run.id in self.working or not run.state.over:
            message = f"run {run.id} is {run.state.name}; only a run that is over can be {done}"
            raise Unfit(Reason.RUN_AT_WORK, message)
