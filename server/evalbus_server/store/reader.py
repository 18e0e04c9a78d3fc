"""Reading a database: by the process that writes it, and by any other."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from evalbus import Output, Usage
from evalbus_server.errors import NotFound, Reason
from evalbus_server.model.dataset import DatasetInfo, ItemChange, ItemVersion, VersionInfo
from evalbus_server.model.event import Event
from evalbus_server.model.numbers import RunNumbers
from evalbus_server.model.result_filter import EVERYTHING, ResultFilter
from evalbus_server.model.run import Counts, DatasetVersion, Outcome, Run, RunState
from evalbus_server.model.spent import Spent
from evalbus_server.model.trial import OpenTrial, Outline, StoredItem, StoredResult
from evalbus_server.store import (
    cache,
    compared,
    datasets,
    difference,
    events,
    lock,
    numbers,
    results,
    retry,
    runs,
    spent,
    trials,
)
from evalbus_server.store.cache import Remembered
from evalbus_server.store.connection import Connection
from evalbus_server.store.results import ResultPage
from evalbus_server.store.runs import OfRun, RunFilter

_NEEDS_SOMEBODY = (RunState.QUEUED, RunState.RUNNING)
"""States that do not last without a process that works on the run."""


class Reader:
    """What is stored. Every call reads a page and leaves nothing open, so that no reader holds up the writer."""

    def __init__(self, connection: Connection) -> None:
        """Read over a connection."""
        self._connection = connection
        self._known: dict[str, tuple[int, int, int]] = {}

    @property
    def path(self) -> Path:
        """Where the database lies."""
        return self._connection.path

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def data_version(self) -> int:
        """A number that is another one once a different process has written something."""
        found = self._connection.row("PRAGMA data_version")
        assert found is not None
        return int(found[0])

    def dataset(self, name: str, version: int | None = None) -> DatasetVersion:
        """A dataset at a version, or at its latest.

        Raises:
            NotFound: DATASET_NOT_FOUND, with what there is instead.
        """
        return datasets.find(self._connection, name, version)

    def datasets(self, limit: int = 100, after_name: str = "") -> list[DatasetVersion]:
        """Datasets at their latest versions, by name, those behind *after_name*."""
        return datasets.list_latest(self._connection, limit, after_name)

    def items(self, name: str, version: int, *, after: int = -1, limit: int) -> list[StoredItem]:
        """Items of a dataset version in its order, those behind the position *after*.

        Raises:
            NotFound: DATASET_NOT_FOUND.
        """
        number = datasets.number(self._connection, name)
        return datasets.items(self._connection, number, version, after=after, limit=limit)

    def items_with(
        self, name: str, version: int, tags: Sequence[str], *, after: int = -1, limit: int
    ) -> tuple[list[StoredItem], int | None]:
        """The same for items that have all of *tags*; looks at some thousand items at most, so that it does not hold
        the event loop where few have them. Returns also behind which position to go on; None: these were the last.

        Raises:
            NotFound: DATASET_NOT_FOUND.
        """
        number = datasets.number(self._connection, name)
        return datasets.items_with(self._connection, number, version, tags, after=after, limit=limit)

    def outlines(self, name: str, version: int, *, after: int = -1, limit: int) -> list[Outline]:
        """Items of a dataset version without their content, those behind the position *after*.

        Raises:
            NotFound: DATASET_NOT_FOUND.
        """
        number = datasets.number(self._connection, name)
        return datasets.outlines(self._connection, number, version, after=after, limit=limit)

    def item(self, name: str, version: int, id: str) -> StoredItem:
        """An item of a dataset version by its id.

        Raises:
            NotFound: DATASET_NOT_FOUND, ITEM_NOT_FOUND.
        """
        found = datasets.item(self._connection, datasets.number(self._connection, name), version, id)
        if found is None:
            raise NotFound(Reason.ITEM_NOT_FOUND, f"version {version} of the dataset {name!r} has no item {id!r}")
        return found

    def dataset_info(self, name: str) -> DatasetInfo:
        """A dataset at its latest version, with description, metadata and schemas.

        Raises:
            NotFound: DATASET_NOT_FOUND.
        """
        return datasets.info(self._connection, name)

    def dataset_versions(self, name: str, *, before: int | None = None, limit: int = 100) -> list[VersionInfo]:
        """Versions of a dataset, the newest first, those older than *before*.

        Raises:
            NotFound: DATASET_NOT_FOUND.
        """
        return datasets.versions(self._connection, name, before, limit)

    def item_history(self, name: str, id: str) -> list[ItemVersion]:
        """What an item was, the newest first; a time in which it was not there has a tombstone.

        Raises:
            NotFound: DATASET_NOT_FOUND; ITEM_NOT_FOUND: it never was there.
        """
        return datasets.history(self._connection, name, id)

    def dataset_changes(self, name: str, a: int, b: int, *, first: int = 0) -> Iterator[tuple[int, list[ItemChange]]]:
        """What differs from version *a* to *b*, by position from *first* on, a stretch at each step.

        Each step comes with the position at which the next one begins.

        Raises:
            NotFound: DATASET_NOT_FOUND: there is no such dataset or version.
        """
        for version in (a, b):
            datasets.find(self._connection, name, version)
        dataset = datasets.number(self._connection, name)
        for changes in difference.differences(self._connection, dataset, a, b, first):
            first += difference.STRETCH
            yield first, changes

    def last_position(self, name: str, version: int) -> int:
        """The position of the last item of a dataset version; -1 if there is none.

        Raises:
            NotFound: DATASET_NOT_FOUND.
        """
        return datasets.last_position(self._connection, datasets.number(self._connection, name), version)

    def own_scorers(self, name: str, version: int, *, after: int, last: int) -> list[tuple[int, tuple[str, ...]]]:
        """The items behind the position *after*, up to *last*, that name scorers of their own, by position, and whom.

        Raises:
            NotFound: DATASET_NOT_FOUND.
        """
        dataset = datasets.number(self._connection, name)
        return datasets.own_scorers(self._connection, dataset, version, after=after, last=last)

    def run_of_request(self, request_id: str) -> Run | None:
        """The run that a request made, if it has made one."""
        found = self._connection.row("SELECT id FROM run WHERE request_id = ?", (request_id,))
        return None if found is None else self.run(found[0])

    def run(self, run_id: str) -> Run:
        """A run by its id, or by six or more characters with which no other id begins.

        Raises:
            NotFound: RUN_NOT_FOUND.
        """
        return self._as_shown([runs.find(self._connection, run_id)])[0]

    def runs(self, filter: RunFilter | None = None, limit: int = 100, before: str | None = None) -> list[Run]:
        """Runs, the newest first; those older than the run *before*.

        Raises:
            NotFound: RUN_NOT_FOUND, about *before*.
        """
        filter = filter or RunFilter()
        states = None if filter.state is None else self._stored_states(filter.state)
        return self._as_shown(runs.page(self._connection, filter, states, limit=limit, before=before))

    def kept_summary(self, run: Run) -> bytes | None:
        """The numbers of a run whose scores are gone, as they were stored; None for any other."""
        found = self._connection.row("SELECT body FROM kept_summary WHERE run = ?", (self._numbers(run.id)[0],))
        return None if found is None else found[0]

    def results_of(self, run: Run, trial_ids: Sequence[int]) -> list[StoredResult]:
        """The results of some trials of a run, whole, in their order; all of them must have one."""
        return results.of_trials(self._of(run), trial_ids)

    def open_items(self, run: Run, epoch: int, *, after: int, limit: int, fresh: bool) -> list[StoredItem]:
        """The next items that have to be asked in an epoch: selected, behind the position *after*, and without an
        output or a result; *fresh*: that none has one is known. Fewer than *limit* are the last.
        """
        found: list[StoredItem] = []
        while len(found) < limit and after < run.selection.last:
            page, after = self.open_page(run, epoch, after=after, limit=limit - len(found), fresh=fresh)
            found += page
        return found

    def open_page(self, run: Run, epoch: int, *, after: int, limit: int, fresh: bool) -> tuple[list[StoredItem], int]:
        """The same, but looks at some thousand items at most, so that a run of which little is selected or much is
        done does not hold the event loop; returns also the last position that was looked at (of a list, the place).
        There is nothing behind the selection's last one.
        """
        return trials.open_page(self._of(run), epoch, after=after, limit=limit, fresh=fresh)

    def unscored(self, run: Run, scorer: int, *, after: int, limit: int) -> tuple[list[tuple[int, OpenTrial]], int]:
        """Looks at the next *limit* outputs in the order of their commits, those behind number *after*; returns those
        that the scorer has not scored, each with its number, and the number of the last that was looked at.
        """
        return trials.unscored(self._of(run), scorer, after=after, limit=limit)

    def unjudged(self, run: Run, *, after: int, limit: int) -> tuple[list[tuple[int, OpenTrial]], int]:
        """The same for outputs that have all their scores and no result yet."""
        return trials.unjudged(self._of(run), after=after, limit=limit)

    def cached(self, keys: Sequence[str]) -> dict[str, Remembered]:
        """Outputs that targets gave before, by what they were asked with."""
        return cache.find(self._connection, keys)

    def cached_count(self) -> int:
        """How many of them are remembered."""
        return cache.count(self._connection)

    def earlier(self, run: Run, trial_ids: Sequence[int]) -> dict[int, tuple[int, Usage | None]]:
        """How often the target was asked in vain for each of some trials, and what that consumed."""
        return trials.earlier(self._of(run), trial_ids)

    def others(self, run_id: str, trials: Sequence[OpenTrial]) -> dict[int, Output | str]:
        """The outputs that another run has of the items and epochs of some trials, or why there is none to compare with."""
        try:
            return compared.others(self._of(self.run(run_id)), trials)
        except NotFound:
            return dict.fromkeys((trial.trial_id for trial in trials), f"run {run_id} is there no longer")

    def has_failed_attempts(self, run: Run) -> bool:
        """Whether an attempt of a run has failed, of its target or of a scorer."""
        return trials.has_failed_attempts(self._of(run))

    def retries_left(self, run: Run) -> int:
        """How many results of a run are still to be replaced."""
        return retry.left(self._connection, self._numbers(run.id)[0])

    def output_count(self, run: Run) -> int:
        """How many outputs of a run are stored."""
        found = self._connection.row("SELECT count(*) FROM output WHERE run = ?", (self._numbers(run.id)[2],))
        return found[0] if found else 0

    def answered_count(self, run: Run) -> int:
        """How many trials of a run have an output, or ended without one and are not to be retried."""
        number, _, outputs = self._numbers(run.id)
        return trials.answered(self._connection, number, outputs)

    def waiting_count(self, run: Run) -> int:
        """How many outputs of a run are stored that have not all their scores."""
        number, _, outputs = self._numbers(run.id)
        return trials.waiting(self._connection, number, outputs)

    def counts(self, run: Run) -> Counts:
        """The counts of a run, from its results."""
        return runs.count_results(self._connection, self._numbers(run.id)[0], run.counts.planned)

    def events(self, run_id: str, *, after: int, limit: int) -> list[Event]:
        """Events of a run in order, those behind the number *after*.

        Raises:
            NotFound: RUN_NOT_FOUND.
        """
        return events.page(self._connection, self._numbers(run_id)[0], after=after, limit=limit)

    def last_sequence(self, run_id: str) -> int:
        """The number of the run's last event.

        Raises:
            NotFound: RUN_NOT_FOUND.
        """
        found = self._connection.row("SELECT last_sequence FROM progress WHERE run = ?", (self._numbers(run_id)[0],))
        assert found is not None
        return int(found[0])

    def results(  # noqa: PLR0913  # What may be left out, by name.
        self,
        run: Run,
        *,
        outcomes: Sequence[Outcome] = (),
        item_glob: str = "",
        after: tuple[int, int] | None = None,
        limit: int = 100,
        max_bytes: int = 1 << 20,
    ) -> list[StoredResult]:
        """The next results in dataset order, then epoch, behind *after* (position, epoch).

        *outcomes* () and *item_glob* "" leave nothing out. They are about *max_bytes* of content at most, but one
        result comes in any case.
        """
        filter = ResultFilter(tuple(outcomes), item_glob)
        found: list[StoredResult] = []
        while True:
            page = self.result_page(run, filter, after=after, limit=limit - len(found), max_bytes=max_bytes)
            found += page.results
            after = page.place
            max_bytes -= page.size
            if after is None or max_bytes <= 0 or len(found) == limit:
                return found

    def result_page(  # What may be left out, by name.
        self,
        run: Run,
        filter: ResultFilter = EVERYTHING,
        *,
        after: tuple[int, int] | None = None,
        limit: int = 100,
        max_bytes: int = 1 << 20,
    ) -> ResultPage:
        """The next results that are wanted, behind *after*. It looks at some hundred only, so that a page may be empty
        though others follow.
        """
        return results.page(self._of(run), results.Wanted(filter, after, limit, max_bytes))

    def numbers(self, run: Run) -> RunNumbers:
        """The numbers of a run, in one go: for a run of 100,000 trials that takes a good part of a second."""
        pages = self._number_pages(run)
        while True:
            try:
                next(pages)
            except StopIteration as end:
                return _numbers_in(end)

    async def numbers_in_turns(self, run: Run) -> RunNumbers:
        """The same, letting the event loop run after every page."""
        pages = self._number_pages(run)
        while True:
            try:
                next(pages)
            except StopIteration as end:
                return _numbers_in(end)
            await asyncio.sleep(0)

    async def spent(self, run: Run, currency: str) -> Spent:
        """What a run has consumed so far, also by trials without a result; lets the event loop run after every page."""
        pages = spent.read(self._of(run), currency)
        while True:
            try:
                next(pages)
            except StopIteration as end:
                consumed: Spent = end.value
                return consumed
            await asyncio.sleep(0)

    def __enter__(self) -> Self:
        """The reader itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _number_pages(self, run: Run) -> Generator[None, None, RunNumbers]:
        return numbers.read(self._of(run))

    def _of(self, run: Run) -> OfRun:
        return OfRun(self._connection, run, *self._numbers(run.id))

    def _numbers(self, run_id: str) -> tuple[int, int, int]:
        """The numbers by which rows refer to a run, its dataset and its outputs; they never change."""
        found = self._known.get(run_id)
        if found is None:
            found = self._known[run_id] = runs.numbers(self._connection, run_id)
        return found

    def _as_shown(self, found: list[Run]) -> list[Run]:
        """A run that needs somebody and has nobody is INTERRUPTED, though nobody was there to say so."""
        if not any(run.state in _NEEDS_SOMEBODY for run in found) or self._is_attended():
            return found
        return [runs.left_alone(self._connection, run) if run.state in _NEEDS_SOMEBODY else run for run in found]

    def _stored_states(self, state: RunState) -> tuple[RunState, ...]:
        """The states in the database that are shown as *state*."""
        if self._is_attended():
            return (state,)
        if state is RunState.INTERRUPTED:
            return (state, *_NEEDS_SOMEBODY)
        return () if state in _NEEDS_SOMEBODY else (state,)

    def _is_attended(self) -> bool:
        return lock.is_held(self.path)


def _numbers_in(end: StopIteration) -> RunNumbers:
    found = end.value
    assert isinstance(found, RunNumbers)
    return found
