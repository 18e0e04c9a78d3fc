"""Ending: who stops a run before it is done says as what it ends, and how long trials in flight get."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from evalbus_server.errors import Reason, Unfit
from evalbus_server.model.run import Run, RunState, Verdict
from evalbus_server.runner.floor import Floor, Working
from evalbus_server.runner.keep import take_back
from evalbus_server.runner.summarise import summarise_at_once

GRACE = 10.0
"""Seconds that trials in flight get when a run is stopped, before they are cancelled."""
RETRY_CANCELLED = "CANCELLED: the retry of the run; what it has not replaced stands"
RETRY_ENDED = "; the retry of the run has ended, and what it has not replaced stands"
STOPPED_BEFORE = "INTERRUPTED: stopped before it was done"
MILDER: dict[RunState, tuple[RunState | None, ...]] = {
    RunState.PAUSED: (None,),
    RunState.INTERRUPTED: (None, RunState.PAUSED),
    RunState.ABORTED: (None, RunState.PAUSED),
    RunState.CANCELLED: (None, RunState.PAUSED, RunState.INTERRUPTED),
}
"""For each end that a run may be asked for: the ends which it takes the place of while trials are still in flight."""


def cancel(floor: Floor, run_id: str) -> Run:
    """Cancel a run: nothing more is asked, and what is in flight is cancelled."""
    floor.unstored.store()
    run = floor.store.run(run_id)
    working = floor.working.get(run.id)
    if working is None:
        about_to_go_on = run.id in floor.resuming and run.state is RunState.INTERRUPTED
        if run.state is RunState.PAUSED or about_to_go_on:
            run = _cancel_at_rest(floor, run)
            floor.bell.ring(run.id)
            return run
        if run.state.over:
            return run
        raise Unfit(Reason.RUN_NOT_HERE, f"run {run.id} is carried out by another process; ask that one")
    end(working, RunState.CANCELLED, "CANCELLED: on request", grace=0.0)
    return floor.store.run(run.id)


def _cancel_at_rest(floor: Floor, run: Run) -> Run:
    if run.counts.pending == 0:
        if not floor.store.retries_left(run):  # all is done but its end, which comes by itself
            return run
        floor.store.give_up_retry(run.id)
        verdict = summarise_at_once(floor, replace(run, state=RunState.COMPLETED)).verdict
        return floor.store.change_state(run.id, RunState.COMPLETED, reason=RETRY_CANCELLED, verdict=verdict)
    take_back(floor, run)
    reason = "CANCELLED: on request, while nothing was asked"
    return floor.store.change_state(run.id, RunState.CANCELLED, reason=reason, verdict=Verdict.INCONCLUSIVE)


def pause(floor: Floor, run_id: str) -> Run:
    """Pause a run: nothing more is asked, and what is in flight finishes."""
    run = floor.store.run(run_id)
    working = floor.working.get(run.id)
    if working is None:
        if run.state is RunState.PAUSED:
            return run
        raise Unfit(Reason.RUN_NOT_HERE, f"run {run.id} is {run.state.name} and not at work here: nothing to pause")
    end(working, RunState.PAUSED, "PAUSED: on request", grace=None)
    return floor.store.run(run.id)


async def stop(floor: Floor, run_id: str, grace: float, reason: str = STOPPED_BEFORE) -> None:
    """Interrupt a run that is at work here, and wait for its end."""
    working = floor.working.get(run_id)
    if working is not None:
        end(working, RunState.INTERRUPTED, reason, grace=grace)
        await working.over.wait()


async def stop_all(floor: Floor, grace: float) -> None:
    """Interrupt all runs, since this process ends, and wait for their ends."""
    reason = "STOPPED: the server ended before it was done"
    await asyncio.gather(*(stop(floor, run_id, grace, reason) for run_id in list(floor.working)))


def end(working: Working, state: RunState, reason: str, *, grace: float | None) -> None:
    """Let a run end in *state*; trials in flight get *grace* seconds, or as long as they take (None)."""
    if working.ending in MILDER[state]:
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
