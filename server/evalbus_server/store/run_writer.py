"""Writing what happens to runs and their trials, on the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalbus_server.model.bounds import Keep
from evalbus_server.model.event import LimitsChanged, StateChanged
from evalbus_server.model.numbers import RunMetric
from evalbus_server.model.run import Run, RunState, Verdict
from evalbus_server.model.trial import Changes, position_of
from evalbus_server.store import cache, commit, numbers, removal, retry, runs, scrub
from evalbus_server.store.commit import Committed, Stamp
from evalbus_server.store.documents import dumps
from evalbus_server.store.purges import Purges
from evalbus_server.store.runs import Standing
from evalbus_server.store.scrub import Extent
from evalbus_server.store.selected import Positions
from evalbus_server.store.writer import Writer

_LONGEST_PAUSE = 0.005
"""Seconds between two commits under load, at most; four times what the last one took if that is less."""
_LOOKED_AFTER = 1.0
"""Seconds of writing after which it is looked whether the file is still there."""


class RunWriter(Writer):
    """A database of which the runs are written."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Open it, and finish purges that were broken off; see open_store."""
        super().__init__(path, clock)
        self._standings: dict[str, Standing] = {}
        self._next_commit = 0.0
        try:
            self._purges = Purges(self._connection, clock, self._era, self._standings)
            if self._purges.finish():
                self._clear_disk()
        except BaseException:
            self.close()
            raise

    def create_run(self, run: Run, chosen: Positions = ()) -> Run:
        """Store a new run, QUEUED, with its first event; or find the one that the same request made before.

        *chosen* are the positions of its items, in the order in which they are asked, if its selection is listed.

        Raises:
            NotFound: DATASET_NOT_FOUND.
            Conflict: REQUEST_ID_REUSED: the request made a run of another experiment.
        """
        return runs.create(self._connection, run, chosen, now=self._clock(), era=self._era)

    def change_state(self, run_id: str, state: RunState, *, reason: str = "", verdict: Verdict | None = None) -> Run:
        """Change the state of a run, with an event.

        Raises:
            NotFound: RUN_NOT_FOUND.
            StoreTrouble: it is not stored.
        """
        return self._change(run_id, state, reason, verdict)

    def begin_session(self, run_id: str) -> Run:
        """Begin to work on a run: it is RUNNING, with a session number that it never had.

        Raises:
            NotFound: RUN_NOT_FOUND.
            StoreTrouble: it is not stored.
        """
        return self._change(run_id, RunState.RUNNING, "", None, sessions=1)

    def queue_retry(self, run_id: str, reason: str, *, kept: bool = True) -> int:
        """Mark the ERRORED results of a run to be replaced, and make it QUEUED, with an event; returns how many.

        Without any, nothing changes. *kept*: its outputs are, so that scorers can be asked about them again.

        Raises:
            NotFound: RUN_NOT_FOUND.
            StoreTrouble: it is not stored.
        """
        self.check()
        run = self.run(run_id)
        number, _, outputs = self._numbers(run_id)
        with self._connection.transaction(durable=True):
            marked = retry.mark(self._connection, number, outputs, run.score_keys, kept=kept)
            if marked:
                standing = runs.standing(self._connection, number)
                fact = StateChanged(RunState.QUEUED, standing.counts, reason)
                runs.set_state(self._connection, fact, standing, now=self._clock(), era=self._era)
        self._standings.pop(run_id, None)
        return marked

    def give_up_retry(self, run_id: str) -> None:
        """Let results stand that were to be replaced and are not yet.

        Raises:
            NotFound: RUN_NOT_FOUND.
        """
        of = self._of(self.run(run_id))
        with self._connection.transaction(durable=True):
            retry.give_up(of, self._clock())
        self._standings.pop(run_id, None)

    def set_metrics(self, run_id: str, metrics: Mapping[int, Sequence[RunMetric]]) -> None:
        """Store the numbers over all trials of a run, by score key, in the place of those that it has.

        Raises:
            NotFound: RUN_NOT_FOUND.
            StoreTrouble: it is not stored.
        """
        self.check()
        number = self._numbers(run_id)[0]
        with self._connection.transaction(durable=True):
            numbers.write_metrics(self._connection, number, metrics)

    def change_limits(self, run_id: str, settings: Mapping[str, Any]) -> Run:
        """Note what is set anew in the limits of a run, by path, with an event.

        Raises:
            NotFound: RUN_NOT_FOUND.
            StoreTrouble: it is not stored.
        """
        self.check()
        run = self.run(run_id)
        standing = self._standing(run.id)
        told = tuple((path, dumps(value)) for path, value in settings.items())
        with self._connection.transaction(durable=True):
            fact = LimitsChanged(told, standing.counts)
            after = runs.change_limits(self._connection, fact, standing, now=self._clock(), era=self._era)
        self._standings[run.id] = after
        return self.run(run.id)

    def scrub_run(self, run_id: str, extent: Extent) -> Iterator[None]:
        """Take out what a run is not to keep, step by step; see scrub.py. Call `cut_log` afterwards.

        Raises:
            NotFound: RUN_NOT_FOUND.
        """
        self.check()
        run = self.run(run_id)
        self._standings.pop(run.id, None)
        return scrub.scrub(self._of(run), extent, self._clock())

    def keep_summary(self, run_id: str, body: bytes) -> None:
        """Store the numbers of a run whose scores will go.

        Raises:
            NotFound: RUN_NOT_FOUND.
        """
        with self._connection.transaction(durable=True):
            self._connection.execute(
                "INSERT OR REPLACE INTO kept_summary VALUES (?, ?)", (self._numbers(run_id)[0], body)
            )

    def delete_run(self, run_id: str) -> Iterator[None]:
        """Delete a run: it is gone after the first step, and all its rows after the last.

        Raises:
            NotFound: RUN_NOT_FOUND.
            Unfit: RUN_IN_USE: another run scores its outputs.
        """
        self.check()
        run = self.run(run_id)
        number = self._numbers(run.id)[0]
        steps = removal.delete(self._connection, number, run.id)
        next(steps)
        self._standings.pop(run.id, None)
        self._known.pop(run.id, None)
        self._purges.forget(number)
        return steps

    def finish_deletions(self) -> None:
        """Delete what is left of runs whose deletion was broken off; for the time right after opening."""
        removal.finish(self._connection)

    def interrupt_orphans(self) -> list[str]:
        """Make runs INTERRUPTED that are RUNNING or QUEUED, since the process that worked on them is gone.

        For the time right after opening; returns their ids.
        """
        found = self._connection.rows(
            "SELECT r.id FROM progress p JOIN run r ON r.n = p.run WHERE p.state IN (?, ?) ORDER BY r.n",
            (RunState.QUEUED, RunState.RUNNING),
        )
        orphans = [row[0] for row in found]
        for run_id in orphans:
            self._change(run_id, RunState.INTERRUPTED, runs.PROCESS_ENDED, Verdict.INCONCLUSIVE, alone=True)
            self._scrub_orphan(run_id)
        return orphans

    def stopped_runs(self) -> list[str]:
        """The runs that are INTERRUPTED because the process that worked on them ended, the oldest first."""
        return runs.stopped(self._connection)

    def add_protocol_faults(self, run_id: str, n: int) -> None:
        """Count faults against the contract that plugins made in a run.

        Raises:
            NotFound: RUN_NOT_FOUND.
        """
        run = self._numbers(run_id)[0]
        with self._connection.transaction():
            self._connection.execute(
                "UPDATE progress SET protocol_faults = protocol_faults + ? WHERE run = ?", (n, run)
            )

    def remember(self, run_id: str, answers: Sequence[tuple[str, int]]) -> None:
        """Remember stored outputs of a run, (key, trial id) each, but those of purged items; see cache.py.

        Raises:
            NotFound: RUN_NOT_FOUND.
            StoreTrouble: nothing of it is stored.
        """
        number, gone = self._numbers(run_id)[0], self.purged(run_id)
        kept = [(key, trial_id) for key, trial_id in answers if position_of(trial_id) not in gone]
        cache.remember(self._connection, number, kept)

    def forget_cached(self, keep: int = 0) -> Iterator[int]:
        """Forget all remembered outputs but the *keep* newest, in steps that tell how many they took."""
        return cache.forget(self._connection, keep)

    def purged(self, run_id: str) -> frozenset[int]:
        """The positions of a run's items whose content was purged: there is nothing to ask or to judge.

        Raises:
            NotFound: RUN_NOT_FOUND.
        """
        return self._purges.positions(self._numbers(run_id)[0])

    def commit(self, run_id: str, changes: Changes, *, at_once: bool = False) -> Committed:
        """Store what happened to trials of a run, all or nothing, with one event about the results.

        A second output or result of a trial is left out and named in the answer: the first one stands. Holds the event
        loop: at most 256 trials or 1 MiB at once, as RunLog does.

        Raises:
            NotFound: RUN_NOT_FOUND.
            StoreTrouble: nothing of it is stored; DATABASE_LOCKED: somebody else writes, and *at_once* says not to wait
                (or it has lasted a second).
        """
        begun = time.monotonic()
        if self._lost or begun - self._looked >= _LOOKED_AFTER:
            self.check()
        standing = self._standing(run_id)
        try:
            stamp = Stamp(self._clock(), self._era)
            kept = self._purges.scrubbed(standing.run, changes)
            committed, after = commit.commit(self._connection, standing, kept, stamp, at_once=at_once)
        except BaseException:
            del self._standings[run_id]  # Nobody knows how far a failed commit came: it is read again.
            raise
        self._standings[run_id] = after
        ended = time.monotonic()
        self._next_commit = ended + min(_LONGEST_PAUSE, 4 * (ended - begun))
        return committed

    @property
    def next_commit(self) -> float:
        """When the next commit may begin without holding the event loop too often, on the clock of time.monotonic."""
        return self._next_commit

    def _change(  # noqa: PLR0913  # the parts of a fact
        self,
        run_id: str,
        state: RunState,
        reason: str,
        verdict: Verdict | None,
        *,
        sessions: int = 0,
        alone: bool = False,
    ) -> Run:
        self.check()
        standing = self._standing(run_id)
        fact = StateChanged(state, standing.counts, reason, verdict)
        with self._connection.transaction(durable=True):
            after = runs.set_state(self._connection, fact, standing, now=self._clock(), era=self._era, alone=alone)
            if sessions:
                self._connection.execute(
                    "UPDATE progress SET session = session + ? WHERE run = ?", (sessions, standing.run)
                )
        if state.over:
            self._standings.pop(run_id, None)
        else:
            self._standings[run_id] = after
        self.check()
        return self.run(run_id)

    def _scrub_orphan(self, run_id: str) -> None:
        keep = Keep.of(self.run(run_id).experiment_json)
        if not keep.everything:
            for _ in self.scrub_run(run_id, Extent(keep)):
                pass
            self._clear_disk()

    def _standing(self, run_id: str) -> Standing:
        found = self._standings.get(run_id)
        if found is None:
            found = self._standings[run_id] = runs.standing(self._connection, self._numbers(run_id)[0])
        return found
