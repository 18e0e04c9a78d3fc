"""One session of a run: its turn, its line with all stations put together, and its end as stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from evalbus_server.aggregate.criteria import verdict_without_numbers
from evalbus_server.aggregate.judge import check_scores, judge
from evalbus_server.errors import Reason, ServerError, StoreTrouble
from evalbus_server.model.bounds import Criterion
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Run, RunState, Verdict
from evalbus_server.model.trial import Changes, OpenTrial
from evalbus_server.runner.cache import Cache
from evalbus_server.runner.crew import Crew
from evalbus_server.runner.end import RETRY_CANCELLED, RETRY_ENDED, end
from evalbus_server.runner.floor import PAGE, Floor, Working
from evalbus_server.runner.keep import take_out
from evalbus_server.runner.limits import Watchdog
from evalbus_server.runner.line import Line
from evalbus_server.runner.measure import measure, unmeasure, wants_metrics
from evalbus_server.runner.summarise import summarise
from evalbus_server.runner.unstored import End
from evalbus_server.runner.window import window_for
from evalbus_server.scorer.panel import Panel, Seat, Unscored
from evalbus_server.store import RunLog, Store

_log = structlog.get_logger("evalbus.run")


def go_to_work(floor: Floor, run: Run, crew: Crew, experiment: Experiment) -> None:
    """Let a run that is QUEUED wait for its turn and be carried out, in a task of its own."""
    working = Working(run, crew, experiment)
    floor.working[run.id] = working
    working.task = asyncio.create_task(_work(floor, working), name=f"run {run.id}")


async def _work(floor: Floor, working: Working) -> None:
    """Carry a run out, from its turn to its end."""
    run_id = working.run.id
    state, reason = RunState.INTERRUPTED, ""
    try:
        async with _turn(floor, working):
            if working.ending is None and await _all_there(working):
                working.run = floor.store.begin_session(run_id)
                if working.run.session > 1 and wants_metrics(working):
                    unmeasure(floor, working)
                floor.bell.ring(run_id)
                _log.info("run started", run=run_id, trials=working.run.counts.planned)
                await _carry(floor, working)
            state, reason = _end_of(floor, working)
            if state is RunState.COMPLETED and wants_metrics(working) and working.crew.resting:
                unmeasure(floor, working)
            elif state is RunState.COMPLETED and wants_metrics(working):
                if reason or working.ending is RunState.ABORTED:  # nobody asked for an end of these numbers, so far
                    working.asked_to_end.clear()
                await measure(floor, working)
    except asyncio.CancelledError:
        state, reason = RunState.INTERRUPTED, "STOPPED: the server ended before it was done"
        raise
    except Exception as error:  # a trouble of a plugin or the store, or a fault of ours: the server goes on
        state, reason = _broken_off(floor, working, _told(error, run_id))
    finally:
        if working.hard is not None:
            working.hard.cancel()
        await working.crew.dismiss()
        await _close(floor, working, state, reason)


@asynccontextmanager
async def _turn(floor: Floor, working: Working) -> AsyncIterator[None]:
    """A turn of a run; one that is asked to end before it has one waits no longer, and has none.

    One that has to wait holds no plugins meanwhile.
    """
    if not floor.turns.locked():
        async with floor.turns:  # at once
            yield
        return
    if not working.crew.resting:
        await working.crew.rest()
    turn = asyncio.ensure_future(floor.turns.acquire())
    asked = asyncio.ensure_future(working.asked_to_end.wait())
    try:
        await asyncio.wait({turn, asked}, return_when=asyncio.FIRST_COMPLETED)
        yield
    finally:
        asked.cancel()
        if turn.done():
            floor.turns.release()
        else:
            turn.cancel()


async def _all_there(working: Working) -> bool:
    """Bring the plugins back if they rest; False if somebody ends the run meanwhile.

    Raises:
        ServerError: one of them hinders it by now.
    """
    if not working.crew.resting:
        return True
    coming = asyncio.ensure_future(working.crew.come_back())
    asked = asyncio.ensure_future(working.asked_to_end.wait())
    try:
        await asyncio.wait({coming, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            return False
        coming.result()
        return working.ending is None
    finally:
        for each in (coming, asked):
            each.cancel()
        await asyncio.gather(coming, asked, return_exceptions=True)


async def _carry(floor: Floor, working: Working) -> None:
    run, crew, store = working.run, working.crew, floor.store
    stored, answered = store.output_count(run), store.answered_count(run)
    experiment = working.experiment
    limits = experiment.limits

    def abort(constant: str, sentence: str) -> None:
        end(working, RunState.ABORTED, f"{constant}: {sentence}", grace=0.0)

    watchdog = working.watchdog = Watchdog(limits, abort)
    crew.budget.abort = abort
    if run.session > 1:  # also where nothing is stored but what failed
        crew.budget.resume(await store.spent(run, limits.currency))
    fresh = stored == 0 and run.counts.done == 0
    line = Line(
        run,
        open_page=lambda epoch, after, limit: store.open_page(run, epoch, after=after, limit=limit, fresh=fresh),
        judge=judge,
        watchdog=watchdog,
        answered=answered,
    )
    if (cache := await _cache_of(floor, working)) is not None:
        line.remember(cache)
    if store.has_failed_attempts(run):
        line.earlier = lambda trial_ids: store.earlier(run, trial_ids)
    line.purged.positions = partial(store.purged, run.id)
    panel = Panel(
        _seats(run, crew, experiment, store),
        unscored=_unscored(store, run, line),
        check=check_scores,
        scored=line.scored,
        window=window_for(max((use.concurrency for use in experiment.scorers), default=1)),
        assigned=run.assignment is not None,
    )

    def committed(changes: Changes, done: Any) -> None:
        line.committed(changes, done)
        if done.sequence is not None:
            floor.bell.ring_softly(run.id)

    log = RunLog(store, run, committed, line.failed)
    crew.on_target, crew.on_scorer, crew.on_left = line.target_answered, panel.answered, line.left
    line.connect(crew.target, panel, log, crew.target_purse)
    working.line = line
    if working.ending is not None:
        return  # somebody ended it while it was being put together
    watchdog.begin()
    try:
        if stored:
            await _judge_stored(floor, run, line)
        panel.resume(stored)
        await line.carry()
    finally:
        watchdog.end()
        if line.faults and not line.broken:
            store.add_protocol_faults(run.id, line.faults)


def _unscored(store: Store, run: Run, line: Line) -> Unscored:
    """Stored outputs that a scorer has not scored, and can."""

    def unscored(scorer: int, after: int, limit: int) -> tuple[list[tuple[int, OpenTrial]], int]:
        page, looked_at = store.unscored(run, scorer, after=after, limit=limit)
        return line.without_purged(page), looked_at

    return unscored


def _seats(run: Run, crew: Crew, experiment: Experiment, store: Store) -> list[Seat]:
    """The places of the scorers in the panel."""
    seats = []
    for index, (exchange, use) in enumerate(zip(crew.scorers, experiment.scorers, strict=True)):
        keys = tuple((place, key) for place, key in enumerate(run.score_keys) if key.scorer == index)
        purse = crew.scorer_purse(index)
        seat = Seat(index, exchange, keys, crew.scorer_info(index), crew.paths[index], use.sampling, purse)
        if use.against is not None:
            seat.others = partial(store.others, use.against)
        seats.append(seat)
    return seats


async def _cache_of(floor: Floor, working: Working) -> Cache | None:
    """What spares the target of a run what it has answered before, if the experiment says so."""
    if not working.experiment.cache or working.crew.target is None:
        return None
    cache = Cache(floor.store, working.run.id, working.crew.target_identity())
    await cache.make_room()
    return cache


async def _judge_stored(floor: Floor, run: Run, line: Line) -> None:
    """Make results of scores that an earlier session stored just before its end."""
    after = 0
    while True:
        page, looked_at = floor.store.unjudged(run, after=after, limit=PAGE)
        if looked_at == after:
            return
        line.judge_stored(trial for _, trial in page)
        after = looked_at
        await asyncio.sleep(0)


def _end_of(floor: Floor, working: Working) -> tuple[RunState, str]:
    """The state of a run whose line has ended in order."""
    counts = working.run.counts if working.line is None else working.line.counts
    left = counts.pending + floor.store.retries_left(working.run)
    if left == 0:
        return RunState.COMPLETED, ""
    if working.ending is RunState.CANCELLED and counts.pending == 0:
        floor.store.give_up_retry(working.run.id)
        return RunState.COMPLETED, RETRY_CANCELLED
    reason = f"{working.reason}{_left_unscored(floor, working)}"
    if working.ending is RunState.ABORTED:
        return _broken_off(floor, working, reason)
    if working.ending is not None:
        return working.ending, reason
    return _broken_off(floor, working, f"{Reason.INTERNAL}: {left} trials are left over")


def _left_unscored(floor: Floor, working: Working) -> str:
    """What the end has left half done, for its reason: scorers are not asked any more either."""
    if not working.experiment.keep.outputs:  # what is not judged is not kept
        return ""
    outputs = floor.store.waiting_count(working.run)
    many = "1 output is stored and not scored" if outputs == 1 else f"{outputs:,} outputs are stored and not scored"
    return f"; {many}" if outputs else ""


def _broken_off(floor: Floor, working: Working, reason: str) -> tuple[RunState, str]:
    """The end of a run that could not go on, or reached a limit: of one with all results, only the retry is over."""
    counts = working.run.counts if working.line is None else working.line.counts
    try:
        if counts.pending or not floor.store.retries_left(working.run):
            return RunState.ABORTED, reason
        floor.store.give_up_retry(working.run.id)
    except StoreTrouble:
        return RunState.ABORTED, reason
    return RunState.COMPLETED, f"{reason}{RETRY_ENDED}"


async def _close(floor: Floor, working: Working, state: RunState, reason: str) -> None:
    """Store the end of a run with its verdict, and tell everybody."""
    run_id = working.run.id
    verdict, ready = None, False
    try:
        ended = replace(floor.store.run(run_id), state=state)
        verdict = await _verdict(floor, working.experiment.criteria, ended) if state.over else None
        if not await _take_out(floor, ended):
            state, reason = RunState.ABORTED, f"{Reason.INTERNAL}: it still keeps what it is not to keep; resume it"
            verdict = Verdict.INCONCLUSIVE
        ready = True
        floor.store.change_state(run_id, state, reason=reason, verdict=verdict)
        _log.info("run ended", run=run_id, state=state.name, reason=reason.partition(":")[0])
    except StoreTrouble as trouble:
        _log.error("the end of the run could not be stored", run=run_id, reason=trouble.reason)
        if state.over and not ready:  # its verdict, or what it is not to keep: whoever resumes it sees to that
            state, reason, verdict = RunState.INTERRUPTED, f"{trouble.reason}: {trouble}", Verdict.INCONCLUSIVE
        floor.unstored.keep(run_id, End(state, reason, verdict))
        working.run = replace(working.run, state=RunState.ABORTED, reason=f"{trouble.reason}: {trouble}")
    else:
        working.run = floor.store.run(run_id)
    finally:
        floor.working.pop(run_id, None)
        working.over.set()
        floor.bell.ring(run_id)


async def _take_out(floor: Floor, run: Run) -> bool:
    """Take out what the run is not to keep; False where that failed by a fault of ours."""
    try:
        await take_out(floor, run, partial(summarise, floor))
    except StoreTrouble:
        raise
    except Exception:
        _log.exception("what the run is not to keep could not be taken out", run=run.id)
        return False
    return True


async def _verdict(floor: Floor, criteria: Sequence[Criterion], run: Run) -> Verdict:
    """What the criteria say at the end; INCONCLUSIVE if the numbers cannot be made, since the end counts more."""
    try:
        return verdict_without_numbers(criteria, run) or (await summarise(floor, run)).verdict
    except StoreTrouble:
        raise
    except Exception:  # a baseline that is gone, or a fault of ours
        _log.exception("the verdict could not be made", run=run.id)
        return Verdict.INCONCLUSIVE


def _told(error: BaseException, run_id: str) -> str:
    """Why a run could not go on, from what its line raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ServerError):
        return f"{error.reason}: {error}"
    _log.error("run failed", run=run_id, exc_info=error)
    return f"{Reason.INTERNAL}: {error!r}"
