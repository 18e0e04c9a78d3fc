"""Writing a database: one process does, and holds its lock; one object does in it, on the event loop."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalbus import Item
from evalbus_server.errors import Reason, StoreTrouble
from evalbus_server.model.bounds import Keep
from evalbus_server.model.dataset import DatasetInfo, Edited, InfoChange, Purged
from evalbus_server.model.event import ContentPurged, LimitsChanged, StateChanged
from evalbus_server.model.numbers import RunMetric
from evalbus_server.model.run import DatasetVersion, Run, RunState, Verdict
from evalbus_server.model.trial import Changes, position_of
from evalbus_server.store import cache, commit, datasets, edits, numbers, purge, removal, retry, runs, scrub, traces
from evalbus_server.store.checkpoint import Checkpointer
from evalbus_server.store.commit import Committed, Stamp
from evalbus_server.store.connection import check_place, connect_reading, connect_writing
from evalbus_server.store.documents import dumps
from evalbus_server.store.lock import Lock
from evalbus_server.store.reader import Reader
from evalbus_server.store.runs import Standing
from evalbus_server.store.scrub import Extent
from evalbus_server.store.selected import Positions
from evalbus_server.store.staging import Restoration, Upload

_LONGEST_PAUSE = 0.005
"""Seconds between two commits under load, at most; four times what the last one took if that is less."""
_LOOKED_AFTER = 1.0
"""Seconds of writing after which it is looked whether the file is still there."""
_TRIES = 50
_BETWEEN_TRIES = 0.01
"""Seconds between two tries to wipe, while a reader, or the thread that moves the log, is at it."""


def open_store(path: str | Path, *, clock: Callable[[], float] = time.time) -> Store:
    """Open a database for writing; makes the file, or brings it up to date.

    Raises:
        StoreTrouble: DATABASE_LOCKED (another process writes it), DATABASE_READ_ONLY, DATABASE_INVALID, DATABASE_NEWER,
            DATABASE_FULL.
    """
    return Store(Path(path).resolve(), clock)


def open_reader(path: str | Path) -> Reader:
    """Open a database for reading, whoever writes it meanwhile.

    Raises:
        StoreTrouble: DATABASE_INVALID (also if there is none), DATABASE_NEWER.
    """
    return Reader(connect_reading(Path(path).resolve()))


class Store(Reader):
    """A database that this process writes."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Open it; see open_store."""
        check_place(path)
        self._lock = Lock(path)
        try:
            super().__init__(connect_writing(path))
        except BaseException:
            self._lock.release()
            raise
        self._clock = clock
        self._standings: dict[str, Standing] = {}
        self._uploads: set[str] = set()
        self._purged: dict[int, frozenset[int]] = {}
        """Positions of purged items, by run."""
        self._era = self._begin_era()
        self._has_purged = purge.is_any(self._connection)
        unfinished = self._has_purged and purge.finish(self._connection, self._note_purged)
        self._files = _identities(path)
        self._looked = time.monotonic()
        self._lost = False
        self._closed = False
        self._next_commit = 0.0
        self._checkpointer = Checkpointer(path)
        self._connection.note_commit = self._checkpointer.note_commit
        self._checkpointer.note_commit()  # What was written before, and by those before.
        if unfinished:
            self._clear_disk()

    def close(self) -> None:
        """Close the database in order, and let go of it; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        self._checkpointer.close()
        try:
            if not self._lost:
                with self._connection.transaction(durable=True):
                    self._connection.execute("UPDATE recovery SET clean = 1")
        except StoreTrouble:
            pass  # Then the next one to open it takes the careful way.
        finally:
            super().close()
            self._lock.release()

    def check(self) -> None:
        """See whether what is written still lands in the file that has its name.

        Raises:
            StoreTrouble: DATABASE_LOST: it was deleted or replaced.
        """
        self._looked = time.monotonic()
        if not self._lost:
            self._lost = _identities(self.path) != self._files
        if self._lost:
            raise StoreTrouble(
                Reason.DATABASE_LOST, f"{self.path} was deleted or replaced while it was open: nothing more is stored"
            )

    def upload(self, name: str) -> Upload:
        """Begin the next version of a dataset.

        Raises:
            Conflict: another upload of it is under way.
        """
        self._refuse_busy(name)
        upload = Upload(self._connection, name, self._clock, self._end_upload)
        self._uploads.add(name)
        return upload

    def publish(self, name: str, batches: Iterable[list[Item]]) -> tuple[DatasetVersion, bool]:
        """Store items as the next version of a dataset, all or nothing.

        Returns the version and True; or, if nothing differs from the latest version, that one and False.

        Raises:
            Invalid: DATASET_INVALID: an id comes a second time, or an item has a part that cannot be stored.
            Conflict: an upload of the dataset is under way.
        """
        with self.upload(name) as upload:
            for batch in batches:
                upload.add(batch)
            return upload.finish()

    def create_dataset(self, name: str, change: InfoChange) -> DatasetInfo:
        """Make a dataset without items: its version is 0.

        Raises:
            Conflict: DATASET_EXISTS.
        """
        self._refuse_busy(name)
        with self._connection.transaction(durable=True):
            edits.create(self._connection, name, self._clock())
        datasets.change_info(self._connection, name, change)
        return self.dataset_info(name)

    def change_dataset(self, name: str, change: InfoChange) -> DatasetInfo:
        """Change what does not belong to a version.

        Raises:
            NotFound: DATASET_NOT_FOUND.
        """
        datasets.change_info(self._connection, name, change)
        return self.dataset_info(name)

    def origin_of(self, name: str) -> str | None:
        """The file that gave a dataset its name; None if somebody named it, or there is none."""
        return datasets.origin(self._connection, name)

    def note_origin(self, name: str, origin: str) -> None:
        """Note the file that gives a dataset its name."""
        datasets.note_origin(self._connection, name, origin)

    def delete_dataset(self, name: str) -> Iterator[None]:
        """Delete a dataset with all its versions: it is gone after the first step, and its items after the last.

        Raises:
            NotFound: DATASET_NOT_FOUND.
            Unfit: DATASET_IN_USE: runs have used it.
            Conflict: DATASET_BUSY.
        """
        self._refuse_busy(name)
        return edits.delete_dataset(self._connection, name)

    def add_items(self, name: str, items: Sequence[Item]) -> Edited:
        """Add items behind all others; see edits.add for its errors."""
        self._make_ready(name)
        return edits.add(self._connection, name, items, self._clock())

    def update_items(self, name: str, items: Sequence[Item]) -> Edited:
        """Put items in the place of those with their ids; see edits.update for its errors."""
        self._make_ready(name)
        return edits.update(self._connection, name, items, self._clock())

    def delete_items(self, name: str, ids: Sequence[str]) -> Edited:
        """Take items out; see edits.delete for its errors."""
        self._make_ready(name)
        return edits.delete(self._connection, name, ids, self._clock())

    def restoration(self, name: str, version: int) -> Restoration:
        """Begin to make an earlier version the latest again.

        Raises:
            NotFound: DATASET_NOT_FOUND: there is no such version.
            Conflict: DATASET_BUSY.
        """
        self._make_ready(name)
        restoration = Restoration(self._connection, self.dataset(name, version), self._clock, self._end_upload)
        self._uploads.add(name)
        return restoration

    def purge_items(self, name: str, ids: Sequence[str]) -> Purged:
        """Take the content of items out of everything; see purge.py. Call `cut_log` until it is gone from the disk too.

        Raises:
            NotFound: DATASET_NOT_FOUND, ITEM_NOT_FOUND.
            Conflict: DATASET_BUSY.
        """
        steps = self.purging(name, ids)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            return _purged_in(end)

    def purging(self, name: str, ids: Sequence[str]) -> Generator[None, None, Purged]:
        """The same in steps, between which the event loop may run. Nobody changes the dataset meanwhile.

        Who stops in between gets the rest at once.

        Raises:
            NotFound: DATASET_NOT_FOUND, ITEM_NOT_FOUND: at the first step; nothing was purged.
            Conflict: DATASET_BUSY: at the first step.
        """
        self._make_ready(name)
        self._uploads.add(name)
        reached: set[str] = set()
        try:
            steps = purge.begin(
                self._connection,
                name,
                list(dict.fromkeys(ids)),
                self._clock(),
                lambda run, trials: reached.add(self._note_purged(run, trials)),
            )
            self._has_purged = True
            self._purged.clear()
            try:
                purged = yield from steps
            except GeneratorExit:
                purge.finish(self._connection, self._note_purged)
                raise
            return replace(purged, runs=frozenset(reached - {""}))
        finally:
            self._end_upload(name)

    def _note_purged(self, run: int, trials: Sequence[int]) -> str:
        """Store the event of a purge in the open transaction; the id of the run, "" if it is being deleted."""
        found = self._connection.row("SELECT r.id FROM run r JOIN progress p ON p.run = r.n WHERE r.n = ?", (run,))
        if found is None:
            return ""
        standing = runs.standing(self._connection, run)
        fact = ContentPurged(tuple(trials), standing.counts)
        runs.add_fact(self._connection, fact, standing, now=self._clock(), era=self._era)
        self._standings.pop(found[0], None)
        return str(found[0])

    def cut_log(self) -> bool:
        """Let nothing of what was overwritten be left in the log; False: a reader needs it just now."""
        cut = self._connection.cut_log()
        if cut:
            self._checkpointer.note_all_moved()
        return cut

    def wipe(self) -> Iterator[bool]:
        """Overwrite what may be left in the file of rows that were moved before they were overwritten; see traces.py.

        Step by step; each says whether it could be done, or has to wait for a reader.

        Raises:
            StoreTrouble: the file cannot be written.
        """
        self.check()
        return traces.wipe(self._connection, self.cut_log)

    def remember(self, run_id: str, answers: Sequence[tuple[str, int]]) -> None:
        """Remember stored outputs of a run, (key, trial id) each, but those of purged items; see cache.py.

        Raises:
            NotFound: RUN_NOT_FOUND.
            StoreTrouble: nothing of it is stored.
        """
        number, gone = self._numbers(run_id)[0], self.purged(run_id)
        kept = [(key, trial_id) for key, trial_id in answers if position_of(trial_id) not in gone]
        cache.remember(self._connection, number, kept)

    def purged(self, run_id: str) -> frozenset[int]:
        """The positions of a run's items whose content was purged: there is nothing to ask or to judge.

        Raises:
            NotFound: RUN_NOT_FOUND.
        """
        return self._purged_positions(self._numbers(run_id)[0]) if self._has_purged else frozenset()

    def forget_cached(self, keep: int = 0) -> Iterator[int]:
        """Forget all remembered outputs but the *keep* newest, in steps that tell how many they took."""
        return cache.forget(self._connection, keep)

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
        self._purged.pop(number, None)
        return steps

    def finish_deletions(self) -> None:
        """Delete what is left of runs whose deletion was broken off; for the time right after opening."""
        removal.finish(self._connection)

    def begin_session(self, run_id: str) -> Run:
        """Begin to work on a run: it is RUNNING, with a session number that it never had.

        Raises:
            NotFound: RUN_NOT_FOUND.
            StoreTrouble: it is not stored.
        """
        return self._change(run_id, RunState.RUNNING, "", None, sessions=1)

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

    def _scrub_orphan(self, run_id: str) -> None:
        keep = Keep.of(self.run(run_id).experiment_json)
        if not keep.everything:
            for _ in self.scrub_run(run_id, Extent(keep)):
                pass
            self._clear_disk()

    def _clear_disk(self) -> None:
        """Let nothing be left on the disk of what was overwritten before anybody works here, unless somebody reads it."""
        tries = _TRIES
        with contextlib.suppress(StoreTrouble):
            for wiped in self.wipe():
                if not wiped:
                    tries -= 1
                    if not tries:
                        return
                    time.sleep(_BETWEEN_TRIES)

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
            if self._has_purged:
                changes = self._without_purged(standing.run, changes)
            committed, after = commit.commit(self._connection, standing, changes, stamp, at_once=at_once)
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

    @property
    def excludes_commits(self) -> bool:
        """Whether a commit would wait now, and hold the event loop, instead of a moment later."""
        return self._checkpointer.excludes_commits

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

    def _standing(self, run_id: str) -> Standing:
        found = self._standings.get(run_id)
        if found is None:
            found = self._standings[run_id] = runs.standing(self._connection, self._numbers(run_id)[0])
        return found

    def _without_purged(self, run: int, changes: Changes) -> Changes:
        found = self._purged_positions(run)
        return purge.scrubbed(changes, found) if found else changes

    def _purged_positions(self, run: int) -> frozenset[int]:
        found = self._purged.get(run)
        if found is None:
            found = self._purged[run] = purge.positions(self._connection, run)
        return found

    def _refuse_busy(self, name: str) -> None:
        if name in self._uploads:
            raise datasets.refuse_busy(name)

    def _make_ready(self, name: str) -> None:
        """See that nothing of a dataset's next version is there: neither on its way, nor left by a process that died."""
        self._refuse_busy(name)
        if edits.is_staged(self._connection, name):
            self.upload(name).abort()

    def _end_upload(self, name: str) -> None:
        self._uploads.discard(name)

    def _begin_era(self) -> int:
        with self._connection.transaction(durable=True):
            self._connection.execute("UPDATE recovery SET era = era + 1 - clean, clean = 0")
            found = self._connection.row("SELECT era FROM recovery")
        assert found is not None
        return int(found[0])

    def _is_attended(self) -> bool:
        return True


def _identities(path: Path) -> list[tuple[int, int] | None]:
    """Which files have the names of the database and of its log."""
    found: list[tuple[int, int] | None] = []
    for name in (path, f"{path}-wal"):
        try:
            status = os.stat(name)
            found.append((status.st_dev, status.st_ino))
        except OSError:
            found.append(None)
    return found


def _purged_in(end: StopIteration) -> Purged:
    purged = end.value
    assert isinstance(purged, Purged)
    return purged
