"""Runs: start, plan, cancel, stop, read, watch. Each run at work here is one task, and owns all it starts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

import structlog

from evalbus import Item, PluginInfo, Usage
from evalbus._definition import Plugin as Definition
from evalbus_server.aggregate.criteria import check_criteria
from evalbus_server.aggregate.judge import check_scores, judge
from evalbus_server.aggregate.reduce import parse_reducer
from evalbus_server.aggregate.steps import Work
from evalbus_server.aggregate.summary import summarise_in_steps
from evalbus_server.dataset.select import Selector
from evalbus_server.errors import Conflict, Invalid, NotFound, Reason, ServerError, StoreTrouble, Unfit
from evalbus_server.model.event import Event
from evalbus_server.model.experiment import Experiment, Limits
from evalbus_server.model.run import Counts, DatasetVersion, Run, RunState, ScoreKey, Selection, Verdict
from evalbus_server.model.summary import Summary
from evalbus_server.model.trial import EPOCHS, Changes
from evalbus_server.runner.changes import changed, in_force
from evalbus_server.runner.crew import Call, Crew, Means
from evalbus_server.runner.limits import Watchdog
from evalbus_server.runner.line import Line, window_for
from evalbus_server.scorer.panel import Panel, Seat
from evalbus_server.store import RunLog, Store
from evalbus_server.watch.bell import Bell
from evalbus_server.watch.follow import Followed, Idle, Notice, follow

RESUMABLE = (RunState.PAUSED, RunState.INTERRUPTED, RunState.ABORTED, RunState.CANCELLED)
AT_ONCE = 8
"""More runs than this wait their turn."""
GRACE = 10.0
"""Seconds that trials in flight get when a run is stopped, before they are cancelled."""
PAGE = 1000

_log = structlog.get_logger("evalbus.run")

Given = Mapping[str, Definition[Any, Any]]


def _as_it_is(experiment: Experiment) -> Experiment:
    return experiment


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do."""

    items: int
    epochs: int
    plugins: tuple[PluginInfo, ...]
    keys: tuple[ScoreKey, ...]
    has_target: bool
    scorers: int

    @property
    def trials(self) -> int:
        """Trials in all."""
        return self.items * self.epochs


@dataclass(frozen=True, slots=True)
class Again:
    """How work on a run that has halted begins again."""

    check: Callable[[Run], None]
    """Raises if it may not."""
    queue: Callable[[Run], None]
    """Stores that it is QUEUED."""
    accept_changed: bool
    given: Given
    admit: Callable[[Experiment], Experiment]


@dataclass(slots=True)
class Working:
    """A run at work here."""

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


class Runs:
    """The runs of one store."""

    def __init__(
        self,
        store: Store,
        means: Means,
        bell: Bell,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """*means* is what plugins are made with."""
        self._store = store
        self._means = means
        self._bell = bell
        self._clock = clock
        self._working: dict[str, Working] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._starting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # as long as somebody holds one

    # --- starting -----------------------------------------------------------------------------------------------

    async def plan(
        self, experiment: Experiment, items: Iterable[Item] | None = None, given: Given | None = None
    ) -> Plan:
        """Check everything that can be checked before a run, without storing anything.

        *items* are those of a dataset that is not stored yet.

        Raises:
            ServerError: what would hinder the run; the message says what to do.
        """
        if items is None:
            dataset = self._dataset(experiment)
            selection = await self._select(experiment, dataset)
            count = selection.items
        else:
            selector = Selector(experiment.dataset.items, experiment.dataset.limit)
            count = sum(1 for item in items if selector.takes(item.id))
        _check_size(experiment, count)
        crew = Crew(Call(experiment, "validation", 1, count, given or {}), self._means)
        await crew.assemble()
        try:
            self._check_criteria(experiment, crew.keys)
            infos = tuple(crew.infos)
            return Plan(
                count, experiment.epochs.count, infos, crew.keys, experiment.target is not None, len(crew.scorers)
            )
        finally:
            await crew.dismiss()

    async def start(self, experiment: Experiment, *, request_id: str = "", given: Given | None = None) -> Run:
        """Start a run over a stored dataset, and return once it is stored; the work goes on by itself.

        The same *request_id* with the same experiment gives the same run.

        Raises:
            ServerError: what hinders the run; no trial was asked.
        """
        if not request_id:
            return await self._start(experiment, "", given or {})
        async with self._starting.setdefault(request_id, asyncio.Lock()):
            earlier = self._store.run_of_request(request_id)
            if earlier is not None:
                if _asked(earlier) != _asked_digest(experiment):
                    message = f"the request id {request_id!r} was used for another experiment; take a new one"
                    raise Conflict(Reason.REQUEST_ID_REUSED, message)
                return earlier
            return await self._start(experiment, request_id, given or {})

    async def rescore(self, run_id: str, experiment: Experiment, *, given: Given | None = None) -> Run:
        """Score the outputs of a finished run anew, in a run of its own: nobody asks the target.

        *experiment* gives name, scorers, criteria, reducer and limits; the rest is the run's. Where the target had
        failed, its failures are taken over.

        Raises:
            NotFound: there is no such run.
            Unfit: RUN_INCOMPLETE: it is not COMPLETED.
            ServerError: what hinders the new run, as at the start.
        """
        source = self._store.run(run_id)
        if source.id in self._working or source.state is not RunState.COMPLETED:
            message = f"run {source.id} is {source.state.name}; only a COMPLETED run has all outputs to be scored"
            raise Unfit(Reason.RUN_INCOMPLETE, message)
        return await self._start(rescoring(source, experiment), "", given or {}, source.id)

    async def _start(self, experiment: Experiment, request_id: str, given: Given, source: str = "") -> Run:
        dataset = self._dataset(experiment)
        selection = await self._select(experiment, dataset)
        _check_size(experiment, selection.items)
        experiment = experiment.over(dataset.name, dataset.version)
        run_id = new_run_id(self._clock())
        crew = Crew(Call(experiment, run_id, 1, selection.items, given), self._means)
        await crew.assemble()
        try:
            self._check_criteria(experiment, crew.keys)
            run = self._store.create_run(
                Run(
                    id=run_id,
                    name=experiment.name,
                    state=RunState.QUEUED,
                    created_at=self._clock(),
                    dataset=dataset,
                    selection=selection,
                    epochs=experiment.epochs.count,
                    experiment_json=experiment.canonical_json(),
                    digest=experiment.digest(),
                    score_keys=crew.keys,
                    plugins=crew.identities,
                    counts=Counts(planned=selection.items * experiment.epochs.count),
                    tags=experiment.tags,
                    request_id=request_id,
                    source=source,
                )
            )
        except BaseException:
            await crew.dismiss()
            raise
        self._begin(run, crew, experiment)
        return run

    def _begin(self, run: Run, crew: Crew, experiment: Experiment) -> None:
        working = Working(run, crew, experiment)
        self._working[run.id] = working
        working.task = asyncio.create_task(self._work(working), name=f"run {run.id}")

    async def resume(
        self,
        run_id: str,
        *,
        accept_changed: bool = False,
        given: Given | None = None,
        admit: Callable[[Experiment], Experiment] = _as_it_is,
    ) -> Run:
        """Go on with a run that is PAUSED, INTERRUPTED, ABORTED or CANCELLED: only what is missing is done.

        Everything else is as it was: experiment, dataset version, selection, settings. *accept_changed* goes on even
        though a plugin is another version or build than before. *admit* refuses what an experiment may not do here.

        Raises:
            NotFound: there is no such run.
            Unfit: RUN_NOT_RESUMABLE, or PLUGIN_CHANGED.
            ServerError: a plugin hinders it, as at the start.
        """

        def queue(run: Run) -> None:
            self._store.change_state(run.id, RunState.QUEUED, reason="RESUMED: on request")

        def check(run: Run) -> None:
            if run.id in self._working or run.state not in RESUMABLE:
                states = ", ".join(state.name for state in RESUMABLE)
                message = f"run {run.id} is {run.state.name}; what can be resumed is {states}"
                raise Unfit(Reason.RUN_NOT_RESUMABLE, message)

        return await self._go_on(run_id, Again(check, queue, accept_changed, given or {}, admit))

    async def retry(
        self,
        run_id: str,
        *,
        accept_changed: bool = False,
        given: Given | None = None,
        admit: Callable[[Experiment], Experiment] = _as_it_is,
    ) -> Run:
        """Ask again what is ERRORED in a run that is over: the target where it failed, else the scorers that failed.

        Each result stands until the new one is stored; what is pending is asked too. The rest as in `resume`.

        Raises:
            NotFound: there is no such run.
            Unfit: RUN_AT_WORK, NOTHING_TO_RUN (nothing is ERRORED), or PLUGIN_CHANGED.
            ServerError: a plugin hinders it, as at the start.
        """

        def check(run: Run) -> None:
            self._check_over(run, "retried")
            if not run.counts.errored:
                raise Unfit(Reason.NOTHING_TO_RUN, f"run {run.id} has no ERRORED result: there is nothing to ask again")

        def queue(run: Run) -> None:
            if not self._store.queue_retry(run.id, "RETRIED: on request"):
                message = f"run {run.id} scores the outputs of run {run.source}, and where that has none there is nothing to ask again"
                raise Unfit(Reason.NOTHING_TO_RUN, message)

        return await self._go_on(run_id, Again(check, queue, accept_changed, given or {}, admit))

    def _check_over(self, run: Run, done: str) -> None:
        if run.id in self._working or not run.state.over:
            message = f"run {run.id} is {run.state.name}; only a run that is over can be {done}"
            raise Unfit(Reason.RUN_AT_WORK, message)

    async def _go_on(self, run_id: str, again: Again) -> Run:
        run = self._store.run(run_id)
        async with self._starting.setdefault(run.id, asyncio.Lock()):
            run = self._store.run(run.id)
            again.check(run)
            experiment = again.admit(in_force(run))
            call = Call(experiment, run.id, run.session + 1, run.selection.items, again.given)
            crew = Crew(call, self._means)
            await crew.assemble()
            try:
                _check_same(run, crew, accept_changed=again.accept_changed)
                again.queue(run)
                run = self._store.run(run.id)
            except BaseException:
                await crew.dismiss()
                raise
            self._begin(run, crew, experiment)
            self._bell.ring(run.id)
        return run

    def _dataset(self, experiment: Experiment) -> DatasetVersion:
        use = experiment.dataset
        if use.source != "stored" or use.name is None:
            raise Invalid(Reason.EXPERIMENT_INVALID, "dataset: it is not stored yet; upload it first", field="dataset")
        return self._store.dataset(use.name, use.version)

    async def _select(self, experiment: Experiment, dataset: DatasetVersion) -> Selection:
        """Count the selected items, and find the last one."""
        use = experiment.dataset
        if not use.items and use.limit is None:
            return Selection((), dataset.items, self._store.last_position(dataset.name, dataset.version))
        selector = Selector(use.items, use.limit)
        after = last = -1
        count = 0
        while page := self._store.items(dataset.name, dataset.version, after=after, limit=PAGE):
            after = page[-1].position
            for stored in page:
                if selector.takes(stored.id):
                    count, last = count + 1, stored.position
            if selector.full:
                break
            await asyncio.sleep(0)
        return Selection(use.items, count, last)

    def _check_criteria(self, experiment: Experiment, keys: tuple[ScoreKey, ...]) -> None:
        check_criteria(experiment.criteria, keys, experiment.epochs.count)
        for index, criterion in enumerate(experiment.criteria):
            if criterion.baseline is not None:
                try:
                    baseline = self._store.run(criterion.baseline)
                except ServerError as error:
                    message = f"criteria[{index}].baseline: {error}"
                    raise Invalid(Reason.EXPERIMENT_INVALID, message, field=f"criteria[{index}].baseline") from None
                if baseline.state is not RunState.COMPLETED:
                    message = f"criteria[{index}].baseline: run {baseline.id} is {baseline.state.name}, not COMPLETED"
                    raise Invalid(Reason.EXPERIMENT_INVALID, message, field=f"criteria[{index}].baseline")

    # --- working ------------------------------------------------------------------------------------------------

    async def _work(self, working: Working) -> None:
        """Carry a run out, from its turn to its end."""
        run_id = working.run.id
        state, reason = RunState.INTERRUPTED, ""
        try:
            async with self._turn(working):
                if working.ending is None:
                    working.run = self._store.begin_session(run_id)
                    self._bell.ring(run_id)
                    _log.info("run started", run=run_id, trials=working.run.counts.planned)
                    await self._carry(working)
                state, reason = self._end_of(working)
        except asyncio.CancelledError:
            state, reason = RunState.INTERRUPTED, "STOPPED: the server ended"
            raise
        except Exception as error:  # a trouble of a plugin or the store, or a fault of ours: the server goes on
            state, reason = RunState.ABORTED, _told(error, run_id)
        finally:
            if working.hard is not None:
                working.hard.cancel()
            await working.crew.dismiss()
            await self._close(working, state, reason)

    @asynccontextmanager
    async def _turn(self, working: Working) -> AsyncIterator[None]:
        """A turn of a run; one that is asked to end before it has one waits no longer, and has none."""
        turn = asyncio.ensure_future(self._turns.acquire())
        end = asyncio.ensure_future(working.asked_to_end.wait())
        try:
            await asyncio.wait({turn, end}, return_when=asyncio.FIRST_COMPLETED)
            yield
        finally:
            end.cancel()
            if turn.done():
                self._turns.release()
            else:
                turn.cancel()

    async def _carry(self, working: Working) -> None:
        run, crew, store = working.run, working.crew, self._store
        stored = store.output_count(run)
        used = await self._used(run, working.experiment.limits) if stored else Usage()
        experiment = working.experiment
        limits = experiment.limits
        loop = asyncio.get_running_loop()

        def abort(constant: str, sentence: str) -> None:
            self._end(working, RunState.ABORTED, f"{constant}: {sentence}", grace=0.0)

        watchdog = working.watchdog = Watchdog(limits, abort, used)
        fresh = stored == 0 and run.counts.done == 0
        line = Line(
            run,
            open_page=lambda epoch, after, limit: store.open_page(run, epoch, after=after, limit=limit, fresh=fresh),
            judge=judge,
            watchdog=watchdog,
            answered=stored,
        )
        if store.retries_left(run):
            line.earlier = lambda trial_ids: store.earlier(run, trial_ids)
        seats = []
        for index, (exchange, use) in enumerate(zip(crew.scorers, experiment.scorers, strict=True)):
            keys = tuple((place, key) for place, key in enumerate(run.score_keys) if key.scorer == index)
            seats.append(Seat(index, exchange, keys, crew.scorer_info(index), crew.paths[index], use.sampling))
        panel = Panel(
            seats,
            unscored=lambda scorer, after, limit: store.unscored(run, scorer, after=after, limit=limit),
            check=check_scores,
            scored=line.scored,
            window=window_for(max((use.concurrency for use in experiment.scorers), default=1)),
        )

        def committed(changes: Changes, done: Any) -> None:
            line.committed(changes, done)
            if done.sequence is not None:
                self._bell.ring(run.id)

        log = RunLog(store, run, committed, line.failed)
        crew.on_target, crew.on_scorer = line.target_answered, panel.answered
        line.connect(crew.target, panel, log)
        working.line = line
        if working.ending is not None:
            return  # somebody ended it while it was being put together
        deadline = None if limits.deadline is None else loop.call_later(limits.deadline, watchdog.deadline_passed)
        try:
            if stored:
                await self._judge_stored(run, line)
            panel.resume(stored)
            await line.carry()
        finally:
            if deadline is not None:
                deadline.cancel()
            if line.faults and not line.broken:
                store.add_protocol_faults(run.id, line.faults)

    async def _judge_stored(self, run: Run, line: Line) -> None:
        """Make results of scores that an earlier session stored just before its end."""
        after = 0
        while True:
            page, looked_at = self._store.unjudged(run, after=after, limit=PAGE)
            if looked_at == after:
                return
            line.judge_stored(trial for _, trial in page)
            after = looked_at
            await asyncio.sleep(0)

    async def _used(self, run: Run, limits: Limits) -> Usage:
        """What earlier sessions consumed, if there is a budget."""
        if limits.tokens is None and limits.cost is None:
            return Usage()
        return (await self._store.numbers_in_turns(run)).usage

    def _end_of(self, working: Working) -> tuple[RunState, str]:
        """The state of a run whose line has ended in order."""
        counts = working.run.counts if working.line is None else working.line.counts
        left = counts.pending + self._store.retries_left(working.run)
        if left == 0:
            return RunState.COMPLETED, ""
        if working.ending is not None:
            return working.ending, working.reason
        return RunState.ABORTED, f"{Reason.INTERNAL}: {left} trials are left over"

    async def _close(self, working: Working, state: RunState, reason: str) -> None:
        """Store the end of a run with its verdict, and tell everybody."""
        run_id = working.run.id
        try:
            verdict = await self._verdict(replace(self._store.run(run_id), state=state)) if state.over else None
            self._store.change_state(run_id, state, reason=reason, verdict=verdict)
            _log.info("run ended", run=run_id, state=state.name, reason=reason.partition(":")[0])
        except StoreTrouble as trouble:
            _log.error("the end of the run could not be stored", run=run_id, reason=trouble.reason)
            working.run = replace(working.run, state=RunState.ABORTED, reason=f"{trouble.reason}: {trouble}")
        else:
            working.run = self._store.run(run_id)
        finally:
            self._working.pop(run_id, None)
            working.over.set()
            self._bell.ring(run_id)

    async def _verdict(self, run: Run) -> Verdict:
        """What the criteria say at the end; INCONCLUSIVE if the numbers cannot be made, since the end counts more."""
        try:
            return (await self._summarise(run)).verdict
        except StoreTrouble:
            raise
        except Exception:  # a baseline that is gone, or a fault of ours
            _log.exception("the verdict could not be made", run=run.id)
            return Verdict.INCONCLUSIVE

    # --- ending -------------------------------------------------------------------------------------------------

    def cancel(self, run_id: str) -> Run:
        """Cancel a run: nothing more is asked, what is in flight is cancelled, what is stored stays.

        Raises:
            NotFound: there is no such run.
            Unfit: another process carries it out.
        """
        run = self._store.run(run_id)
        working = self._working.get(run.id)
        if working is None:
            if run.state.over:
                return run
            if run.state is RunState.PAUSED:
                reason, verdict = "CANCELLED: on request, while it was paused", Verdict.INCONCLUSIVE
                run = self._store.change_state(run.id, RunState.CANCELLED, reason=reason, verdict=verdict)
                self._bell.ring(run.id)
                return run
            raise Unfit(Reason.RUN_NOT_HERE, f"run {run.id} is carried out by another process; ask that one")
        self._end(working, RunState.CANCELLED, "CANCELLED: on request", grace=0.0)
        return self._store.run(run.id)

    def pause(self, run_id: str) -> Run:
        """Pause a run: nothing more is asked, what is in flight finishes, then it is PAUSED until it is resumed.

        Raises:
            NotFound: there is no such run.
            Unfit: it is not at work here.
        """
        run = self._store.run(run_id)
        working = self._working.get(run.id)
        if working is None:
            if run.state is RunState.PAUSED:
                return run
            raise Unfit(Reason.RUN_NOT_HERE, f"run {run.id} is {run.state.name} and not at work here: nothing to pause")
        self._end(working, RunState.PAUSED, "PAUSED: on request", grace=None)
        return self._store.run(run.id)

    async def delete(self, run_id: str) -> None:
        """Delete a run that is over, with all that is stored of it.

        Raises:
            NotFound: there is no such run.
            Unfit: RUN_AT_WORK; RUN_IN_USE: another run scores its outputs.
        """
        run = self._store.run(run_id)
        async with self._starting.setdefault(run.id, asyncio.Lock()):  # nobody resumes it meanwhile
            self._check_over(self._store.run(run.id), "deleted")
            for _ in self._store.delete_run(run.id):
                await asyncio.sleep(0)

    def change_limits(
        self,
        run_id: str,
        settings: Mapping[str, Any],
        *,
        admit: Callable[[Experiment], Experiment] = _as_it_is,
    ) -> Run:
        """Change limits of a run, by their paths: at once if it is at work here, else from when it goes on.

        Raises:
            NotFound: there is no such run.
            Invalid: a path is none that may change, or a value does not fit; nothing was changed.
        """
        run = self._store.run(run_id)
        experiment = admit(changed(in_force(run), settings))
        run = self._store.change_limits(run.id, settings)
        working = self._working.get(run.id)
        if working is not None:
            working.experiment = experiment
            working.crew.change(experiment)
            if working.watchdog is not None:
                working.watchdog.change(experiment.limits)
            if working.line is not None:
                working.line.widen()
        self._bell.ring(run.id)
        return run

    async def stop(self, run_id: str, *, grace: float = GRACE) -> None:
        """Interrupt a run: trials in flight get *grace* seconds, then they are cancelled. It can be resumed."""
        working = self._working.get(run_id)
        if working is not None:
            self._end(working, RunState.INTERRUPTED, "INTERRUPTED: stopped before it was done", grace=grace)
            await working.over.wait()

    async def close(self, *, grace: float = GRACE) -> None:
        """Interrupt all runs and wait for their ends."""
        await asyncio.gather(*(self.stop(run_id, grace=grace) for run_id in list(self._working)))

    def _end(self, working: Working, state: RunState, reason: str, *, grace: float | None) -> None:
        """Let a run end in *state*; trials in flight get *grace* seconds, or as long as they take (None)."""
        if working.ending is None or working.ending is RunState.PAUSED:
            working.ending, working.reason = state, reason
            working.asked_to_end.set()
        line = working.line
        if line is None:
            return
        if grace == 0:
            line.cancel()
            return
        line.stop()
        if grace is not None and working.hard is None:
            working.hard = asyncio.get_running_loop().call_later(grace, line.cancel)

    # --- reading ------------------------------------------------------------------------------------------------

    def get(self, run_id: str) -> Run:
        """One run as it is now."""
        run = self._store.run(run_id)
        working = self._working.get(run.id)
        return run if working is None or working.line is None else replace(run, counts=working.line.counts)

    async def wait(self, run_id: str) -> Run:
        """The run once it is over, if it is at work here."""
        working = self._working.get(run_id)
        if working is not None:
            await working.over.wait()
            return working.run
        return self._store.run(run_id)

    async def summary(self, run_id: str) -> Summary:
        """The numbers of a run, computed from what is stored."""
        return await self._summarise(self._store.run(run_id))

    async def _summarise(self, run: Run) -> Summary:
        experiment = Experiment.from_json(run.experiment_json)
        numbers = replace(await self._store.numbers_in_turns(run), run=run)
        baselines = {}
        for criterion in experiment.criteria:
            if criterion.baseline is not None and criterion.baseline not in baselines:
                with suppress(NotFound):  # its criterion says so
                    other = self._store.run(criterion.baseline)
                    baselines[criterion.baseline] = await self._store.numbers_in_turns(other)
        reducer = parse_reducer(experiment.epochs.reducer, experiment.epochs.count)
        work = Work(summarise_in_steps(numbers, experiment.criteria, reducer, baselines=baselines, now=self._clock()))
        for _ in work:
            await asyncio.sleep(0)
        return work.result

    def watch(self, run_id: str, after: int) -> AsyncIterator[Event | Notice | Idle]:
        """Follow a run from any event on; see `watch/follow.py`.

        Raises:
            NotFound: there is no such run.
            Invalid: *after* is beyond the last event.
        """
        run = self._store.run(run_id)
        if after > run.last_sequence:
            message = f"the last event of run {run.id} is {run.last_sequence}, so nothing can follow {after}; watch without a sequence"
            raise Invalid(Reason.SEQUENCE_OUT_OF_RANGE, message)
        followed = Followed(
            events=lambda run_id, after, limit: self._store.events(run_id, after=after, limit=limit),
            run=self._store.run,
            progress=self.progress,
            bell=self._bell,
        )
        return follow(followed, run.id, after)

    def progress(self, run_id: str) -> Any:
        """How a run that is at work here goes; None for any other."""
        working = self._working.get(run_id)
        return None if working is None or working.line is None else working.line.progress()

    @property
    def working(self) -> tuple[str, ...]:
        """The runs at work here."""
        return tuple(self._working)


def rescoring(source: Run, experiment: Experiment) -> Experiment:
    """An experiment over the outputs of a run: its scorers, over what the run had asked.

    Raises:
        Invalid: it has no scorers, or does not fit the run's epochs.
    """
    if not experiment.scorers:
        raise Invalid(Reason.EXPERIMENT_INVALID, "scorers: there must be one, or nothing is scored", field="scorers")
    epochs = experiment.epochs.model_copy(update={"count": source.epochs})
    dataset = Experiment.from_json(source.experiment_json).dataset
    over = experiment.model_copy(update={"dataset": dataset, "target": None, "epochs": epochs})
    return Experiment.from_json(over.canonical_json())


def new_run_id(now: float) -> str:
    """An id that sorts by time of creation: milliseconds in hexadecimal, then 40 random bits."""
    return f"r{int(now * 1000):011x}{os.urandom(5).hex()}"


def _check_size(experiment: Experiment, items: int) -> None:
    if items == 0:
        chosen = " with these `items` and `limit`" if experiment.dataset.items or experiment.dataset.limit else ""
        raise Unfit(Reason.NOTHING_TO_RUN, f"nothing to run: the dataset has no item{chosen}", field="dataset")
    if experiment.epochs.count > EPOCHS:
        raise Invalid(Reason.EXPERIMENT_INVALID, f"epochs: at most {EPOCHS}", field="epochs.count")


def _check_same(run: Run, crew: Crew, *, accept_changed: bool) -> None:
    """A run's results belong together only if its plugins stayed what they were.

    Raises:
        Unfit: PLUGIN_CHANGED.
    """
    if crew.keys != run.score_keys:
        message = f"the scorers of run {run.id} declare other scores than before: start a new run"
        raise Unfit(Reason.PLUGIN_CHANGED, message)
    for before, now in zip(run.plugins, crew.identities, strict=True):
        if before != now and not accept_changed:
            what = "version" if before.version != now.version else "build"
            message = f"plugin {now.name!r} has another {what} than when run {run.id} began: start a new run, or accept it (--accept-changed)"
            raise Unfit(Reason.PLUGIN_CHANGED, message)


def _told(error: BaseException, run_id: str) -> str:
    """Why a run could not go on, from what its line raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ServerError):
        return f"{error.reason}: {error}"
    _log.error("run failed", run=run_id, exc_info=error)
    return f"{Reason.INTERNAL}: {error!r}"


def _asked(run: Run) -> str:
    return _asked_digest(Experiment.from_json(run.experiment_json))


def _asked_digest(experiment: Experiment) -> str:
    """The digest of an experiment without the version that its dataset had when it started."""
    return experiment.model_copy(update={"dataset": experiment.dataset.model_copy(update={"version": None})}).digest()
