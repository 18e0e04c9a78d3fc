"""The line: carries every trial from the plan to the log, each exactly once.

    plan ──▶ target ──▶ log (outputs) ──▶ panel of scorers ──▶ judge ──▶ log (results)

It alone knows the whole way. Lists move, not tasks. One window (`window.py`) counts trials from admission to the commit
of their output; the panel has its own from there to the scores. An output is committed before any scorer is asked about
it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from evalbus import Failure, FailureCategory, FailureOrigin, Output, Usage
from evalbus_server.errors import ServerError
from evalbus_server.model.run import Counts, Run, ScoreKey
from evalbus_server.model.trial import (
    CACHED,
    AttemptRecord,
    Changes,
    OpenTrial,
    OutputRecord,
    ResultRecord,
    ScoreRecord,
)
from evalbus_server.plugin.exchange import Exchange
from evalbus_server.plugin.port import Flight
from evalbus_server.runner.assigning import Assigning
from evalbus_server.runner.cache import Cache
from evalbus_server.runner.limits import Watchdog
from evalbus_server.runner.purged import PurgedTrials
from evalbus_server.runner.window import CACHED_PAGE, OpenPage, Window
from evalbus_server.scorer.panel import Panel, Purse, Seat


class Judge(Protocol):
    """Makes the outcome of a trial from its scores."""

    def __call__(
        self, scores: dict[int, Any], keys: Sequence[ScoreKey], target_failure: Failure | None = None
    ) -> tuple[Any, float | None, Failure | None]: ...


class Committed(Protocol):
    """What a commit did."""

    @property
    def last_n(self) -> int: ...
    @property
    def counts(self) -> Counts: ...


class Log(Protocol):
    """Where records go; commits come by themselves, in groups."""

    def add(
        self,
        outputs: Sequence[OutputRecord] = (),
        scores: Sequence[ScoreRecord] = (),
        attempts: Sequence[AttemptRecord] = (),
        results: Sequence[ResultRecord] = (),
    ) -> None: ...
    async def flush(self) -> None: ...


Earlier = Callable[[list[int]], dict[int, tuple[int, Usage | None]]]
"""(trial ids) -> attempts at the target that failed, and what all attempts consumed."""


@dataclass(slots=True)
class Progress:
    """How a run is going, for display. Never stored."""

    counts: Counts
    answered: int
    """Trials that the target has answered, or need not be asked, from the start of the run."""
    in_flight: int
    means: list[tuple[str, int, float | None]]
    """By score key: values in this session, and their mean."""


class Line:
    """One session of one run."""

    def __init__(
        self,
        run: Run,
        *,
        open_page: OpenPage,
        judge: Judge,
        watchdog: Watchdog,
        answered: int = 0,
    ) -> None:
        """*answered* is how many trials need no answer of the target any more."""
        self.run = run
        self.counts = run.counts
        self._judge = judge
        self._watchdog = watchdog
        self._assigning = None if run.assignment is None else Assigning(run.assignment, run.score_keys)
        self._window = Window(run, open_page)
        self._answered = answered
        self.earlier: Earlier | None = None
        """What earlier sessions did about trials that are asked again."""
        self._cache: Cache | None = None
        self.purged = PurgedTrials()
        """Those of items whose content is gone."""
        self._target: Exchange | None = None
        self._purse: Purse | None = None
        self._panel: Panel | None = None
        self._log: Log | None = None
        self._ns = [0] * len(run.score_keys)
        self._sums = [0.0] * len(run.score_keys)
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connect(self, target: Exchange | None, panel: Panel, log: Log, purse: Purse | None = None) -> None:
        """Hand over the stations, which in turn were given this line's methods; *purse* is the target's."""
        self._target = target
        self._purse = purse
        if target is not None:
            self._window.widen(target.concurrency)
            target.sift_with(self._sift_trials)
        self._panel = panel
        for seat in panel.seats:
            seat.exchange.sift_with(partial(self._sift_tasks, seat))
        self._log = log

    def remember(self, cache: Cache) -> None:
        """Spare the target what it has answered before."""
        self._cache = cache
        self._window.page = CACHED_PAGE

    def widen(self) -> None:
        """The target may take more trials, or fewer, than before."""
        if self._target is not None:
            self._window.widen(self._target.concurrency)

    # --- the way ------------------------------------------------------------------------------------------------

    async def carry(self) -> None:
        """Carry every open trial of the run to its result, or until the line is stopped.

        Raises:
            ExceptionGroup: with the ServerError that made going on impossible: a plugin lost for good, the store.
        """
        assert self._panel is not None and self._log is not None
        try:
            async with asyncio.TaskGroup() as belt:
                guard = belt.create_task(self._fail_on_trouble())
                scorers = [belt.create_task(seat.exchange.run()) for seat in self._panel.seats]
                target = None if self._target is None else belt.create_task(self._target.run())
                await self._window.admit(self._panel.room, self._let_in)
                if self._target is not None and target is not None:
                    self._target.finish()
                    await target
                await self._log.flush()
                await self._panel.caught_up()
                self._panel.finish()
                if scorers:
                    await asyncio.wait(scorers)
                guard.cancel()
        except BaseException:
            self.stop()
            raise
        finally:
            if not self.broken:
                await self._log.flush()  # also when a plugin is lost for good: what it answered before then counts
                if self._cache is not None:
                    self._cache.write_down()

    async def _fail_on_trouble(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._trouble

    def _let_in(self, trials: list[OpenTrial]) -> None:
        """Send trials that were let in on their way."""
        if self.earlier is not None:
            came = {trial.trial_id: trial for trial in trials}
            for trial_id, (attempts, usage) in self.earlier(list(came)).items():
                came[trial_id].attempts, came[trial_id].usage = attempts, usage
        if self._assigning is not None:
            trials = self._assign(trials, self._assigning)
        trials, gone = self.purged.split(trials)
        if gone:
            self._end_purged(gone)
            self._answered += len(gone)
        if self._cache is not None:
            trials = self._take_cached(trials, self._cache)
        if self._target is not None:
            self._target.offer([Flight(trial) for trial in trials])
        else:
            self._take_outputs_along(trials)

    def _assign(self, trials: list[OpenTrial], assigning: Assigning) -> list[OpenTrial]:
        """Note who judges each trial; one that names somebody unknown is not asked."""
        fit = [trial for trial in trials if assigning.assign(trial)]
        if len(fit) < len(trials):
            asked = {trial.trial_id for trial in fit}
            self._answered += len(trials) - len(fit)
            self._store(results=[self._result(trial, None) for trial in trials if trial.trial_id not in asked])
        return fit

    # --- purged items -------------------------------------------------------------------------------------------

    def without_purged(self, page: list[tuple[int, OpenTrial]]) -> list[tuple[int, OpenTrial]]:
        """Stored outputs, by number, that can be judged: those of items whose content is gone cannot."""
        assert self._panel is not None
        _, gone = self.purged.split([trial for _, trial in page])
        if not gone:
            return page
        for trial in gone:
            if self._panel.leave(trial.trial_id):
                self.purged.left.add(trial.trial_id)
            else:
                self._end_purged([trial])
        left_out = {trial.trial_id for trial in gone}
        return [(number, trial) for number, trial in page if trial.trial_id not in left_out]

    def _sift_trials(self, flights: list[Flight]) -> list[Flight]:
        """What the target is to be asked of what is about to be sent: items may have been purged since they came in."""
        flights, gone = self.purged.split_flights(flights)
        if gone:
            self._take_failed(-1, gone)
            self._end_purged([flight.trial for flight in gone])
            self._answered += len(gone)
        return flights

    def _sift_tasks(self, seat: Seat, flights: list[Flight]) -> list[Flight]:
        """The same for a scorer. A trial that others still judge ends once they have."""
        flights, gone = self.purged.split_flights(flights)
        if gone:
            assert self._panel is not None
            self._take_failed(seat.index, gone)
            self.purged.left.update(flight.trial.trial_id for flight in gone)
            self._end_purged(self._panel.withdraw(seat, [flight.trial for flight in gone]))
        return flights

    def _take_failed(self, role: int, flights: list[Flight]) -> None:
        """Take failed attempts of flights that are not asked again."""
        self.left(role, flights)
        for flight in flights:
            trial = flight.trial
            if role < 0:
                trial.attempts += len(flight.failures or ())
            if flight.usage is not None:
                trial.usage = flight.usage if trial.usage is None else trial.usage + flight.usage

    def _end_purged(self, trials: Iterable[OpenTrial]) -> None:
        results = [self._result(trial, failure) for trial, failure in self.purged.to_end(trials)]
        if results:
            self._store(results=results)

    # --- answers ------------------------------------------------------------------------------------------------

    def _take_cached(self, trials: list[OpenTrial], cache: Cache) -> list[OpenTrial]:
        """Answer trials that the target answered before; returns the others."""
        outputs: list[OutputRecord] = []
        results: list[ResultRecord] = []
        missing: list[OpenTrial] = []
        for trial, answer in zip(trials, cache.look_up(trials), strict=True):
            if answer is None:
                missing.append(trial)
                continue
            trial.output = answer.output
            self._window.grow(answer.size)
            outputs.append(OutputRecord(trial.trial_id, answer.output, CACHED, trial.attempts, None))
            if self._judged_by_nobody(trial):
                results.append(self._result(trial, None))
        self._answered += len(outputs)
        if outputs:
            self._store(outputs=outputs, results=results)
        return missing

    def _judged_by_nobody(self, trial: OpenTrial) -> bool:
        return not self.run.score_keys or (self._assigning is not None and not trial.waiting)

    def _take_outputs_along(self, trials: list[OpenTrial]) -> None:
        """Without a target the items bring their outputs."""
        outputs: list[OutputRecord] = []
        results: list[ResultRecord] = []
        for trial in trials:
            trial.output = trial.item.output
            if trial.output is None:
                message = f"item {trial.item.id!r} brings no output, and the experiment has no target"
                failure = Failure(FailureCategory.INVALID, message, "OUTPUT_MISSING", FailureOrigin.SERVER, False)
                results.append(self._result(trial, failure))
            else:
                outputs.append(OutputRecord(trial.trial_id, trial.output, 0, 0, None))
                if self._judged_by_nobody(trial):
                    results.append(self._result(trial, None))
        self._answered += len(trials)
        self._store(outputs=outputs, results=results)

    def target_answered(self, flights: list[Flight]) -> None:
        """Take the target's final answers."""
        outputs: list[OutputRecord] = []
        results: list[ResultRecord] = []
        attempts: list[AttemptRecord] = []
        some_unjudged = self._assigning is not None or not self.run.score_keys
        errors = 0
        for flight in flights:
            trial = flight.trial
            failures = flight.failures
            if failures is None:
                trial.attempts += 1
            else:
                attempts.extend(AttemptRecord(trial.trial_id, -1, *failed) for failed in failures[flight.noted :])
                trial.attempts += len(failures) + (not isinstance(flight.result, Failure))
            if flight.usage is not None:
                trial.usage = flight.usage if trial.usage is None else trial.usage + flight.usage
            result = flight.result
            if isinstance(result, Output):
                trial.output = result
                if result.usage is not None:
                    if self._purse is not None:
                        self._purse.spend(result.usage)
                    trial.usage = result.usage if trial.usage is None else trial.usage + result.usage
                outputs.append(OutputRecord(trial.trial_id, result, flight.attempt, trial.attempts, flight.latency))
                if some_unjudged and self._judged_by_nobody(trial):
                    results.append(self._result(trial, None))
            else:
                assert isinstance(result, Failure)
                errors += 1
                results.append(self._result(trial, result))
        self._answered += len(flights)
        self._store(outputs=outputs, results=results, attempts=attempts)
        self._watchdog.target_answered(len(flights), errors)
        if self._purse is not None:
            self._purse.settled(len(flights))

    def scored(self, done: list[OpenTrial], scores: list[ScoreRecord], attempts: list[AttemptRecord]) -> None:
        """Take scores from the panel; *done* are the trials that have them all."""
        ns, sums = self._ns, self._sums
        for record in scores:
            value = record.score.value
            if value is not None:
                ns[record.key] += 1
                sums[record.key] += value
        left = self.purged.left
        results = [self._result(trial, self.purged.failure(trial) if left else None) for trial in done]
        self._store(scores=scores, attempts=attempts, results=results)
        assert self._panel is not None
        self._watchdog.scored(self._panel.seats)

    def left(self, role: int, flights: list[Flight]) -> None:
        """Take failed attempts of trials that have no result yet: if this session ends before, a later one counts them."""
        attempts: list[AttemptRecord] = []
        for flight in flights:
            failures = flight.failures or []
            attempts.extend(AttemptRecord(flight.trial.trial_id, role, *each) for each in failures[flight.noted :])
            flight.noted = len(failures)
        self._store(attempts=attempts)

    def judge_stored(self, trials: Iterable[OpenTrial]) -> None:
        """Make the results of trials whose scores are all stored."""
        self._store(results=[self._result(trial, None) for trial in trials])

    def _result(self, trial: OpenTrial, target_failure: Failure | None) -> ResultRecord:
        if self._assigning is None:
            outcome, weighted, failure = self._judge(trial.scores, self.run.score_keys, target_failure)
        else:
            scores, keys, unknown = self._assigning.to_judge(trial)
            outcome, weighted, failure = self._judge(scores, keys, target_failure or unknown)
        return ResultRecord(trial.trial_id, outcome, weighted, failure, trial.attempts, trial.usage)

    def _store(self, **records: Any) -> None:
        assert self._log is not None
        self._log.add(**records)

    # --- after a commit -----------------------------------------------------------------------------------------

    def committed(self, changes: Changes, committed: Committed) -> None:
        """A commit was made: make room, and let the scorers see the outputs that it stored."""
        assert self._panel is not None
        stored = self._window.leave(changes)
        if self._cache is not None:
            self._window.grow(-self._cache.committed(changes))
        self.counts = committed.counts
        if changes.scores or changes.results:
            self._panel.stored(changes.scores, changes.results)
        if stored and self._panel.seats:
            stored, gone = self.purged.split(stored)
            self._end_purged(trial for trial in gone if not self._judged_by_nobody(trial))
            self._panel.offer(stored, committed.last_n)

    def failed(self, trouble: ServerError) -> None:
        """The store gave up: nothing more is asked, and `carry` raises."""
        self._window.stop()
        if not self._trouble.done():
            self._trouble.set_exception(trouble)

    # --- stopping -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let nothing more in and ask nothing more; what is in flight may finish."""
        assert self._panel is not None
        self._window.stop()
        if self._target is not None:
            self._target.stop()
        self._panel.stop()

    def cancel(self) -> None:
        """Stop, and cancel what is in flight."""
        assert self._panel is not None
        self._window.stop()
        if self._target is not None:
            self._target.cancel()
        self._panel.cancel()

    @property
    def broken(self) -> bool:
        """Whether the store gave up."""
        return self._trouble.done() and not self._trouble.cancelled()  # cancelled: the line has ended in order

    # --- for display --------------------------------------------------------------------------------------------

    @property
    def faults(self) -> int:
        """Broken promises of the plugins in this session."""
        own = 0 if self._target is None else self._target.faults
        return own + (0 if self._panel is None else self._panel.faults)

    def progress(self) -> Progress:
        """How the run is going now."""
        means = [
            (key.key, n, total / n if n else None)
            for key, n, total in zip(self.run.score_keys, self._ns, self._sums, strict=True)
        ]
        in_flight = 0 if self._target is None else self._target.in_flight
        return Progress(self.counts, self._answered, in_flight, means)
