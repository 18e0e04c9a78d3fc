"""What a run is not to keep: taken out at the end of its work, once those who follow its results have them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import structlog

from evalbus_server.errors import Reason, Unfit
from evalbus_server.model.bounds import Keep
from evalbus_server.model.event import Event
from evalbus_server.model.run import Run, RunState
from evalbus_server.model.summary import Summary
from evalbus_server.runner.disk import clear_disk
from evalbus_server.runner.floor import Floor, Holder
from evalbus_server.store import Extent
from evalbus_server.watch.follow import Idle, Notice
from evalbus_server.wire.summary import summary_to_bytes

HOLDERS_GET = 30.0
"""Seconds that those who follow the results of a run get to take the last of them."""
CUT_TRIES = 50
LAST = (RunState.COMPLETED, RunState.CANCELLED, RunState.ABORTED)
"""States in which a run has nothing left that it would go on from."""

_log = structlog.get_logger("evalbus.run")


async def take_out(floor: Floor, run: Run, summarise: Callable[[Run], Awaitable[Summary]]) -> None:
    """Take out what a run is not to keep, which ends in the state that *run* has.

    A run that may go on keeps what it needs for that: while it is PAUSED or INTERRUPTED the outputs that are not judged
    yet, and the numbers of its scores until it is COMPLETED.
    """
    keep = Keep.of(run.experiment_json)
    if keep.everything:
        return
    await _wait_for_holders(floor, run)
    completed = run.state is RunState.COMPLETED
    if completed and not keep.scores and floor.store.kept_summary(run) is None:
        floor.store.keep_summary(run.id, summary_to_bytes(await summarise(run)))
    for _ in floor.store.scrub_run(run.id, Extent(keep, single_scores=completed, unjudged=run.state in LAST)):
        await asyncio.sleep(0)
    if await clear_disk(floor.store, CUT_TRIES):
        return
    _log.warning("a reader still holds in the log what the run does not keep", run=run.id)


def take_back(floor: Floor, run: Run) -> None:
    """Take out the outputs that are not judged of a run that does not keep them, and is not to go on."""
    keep = Keep.of(run.experiment_json)
    if not keep.outputs:
        for _ in floor.store.scrub_run(run.id, Extent(keep, judged=False, unjudged=True)):
            pass  # no more than were on their way at once
        floor.store.cut_log()  # the rest follows when the run, or another one, comes to its end


async def _wait_for_holders(floor: Floor, run: Run) -> None:
    last = floor.store.run(run.id).last_sequence
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HOLDERS_GET):
            for holder in list(floor.holders.get(run.id, ())):
                await holder.reach(last)


async def held(
    floor: Floor, run_id: str, holder: Holder, following: AsyncIterator[Event | Notice | Idle]
) -> AsyncIterator[Event | Notice | Idle]:
    """What a follower gets who reads the results of each event before it takes the next one."""
    try:
        async with contextlib.aclosing(following) as entries:  # type: ignore[type-var]  # it is a generator
            async for entry in entries:
                yield entry
                if isinstance(entry, Event):
                    holder.take(entry.sequence)
    finally:
        holder.take(None)
        floor.let_go(run_id, holder)


def check_kept(run: Run, *, outputs: bool = False, scores: bool = False) -> None:
    """Check that a run keeps its *outputs*, or its *scores*.

    Raises:
        Unfit: NOT_KEPT.
    """
    keep = Keep.of(run.experiment_json)
    for needed, kept, what in ((outputs, keep.outputs, "outputs"), (scores, keep.scores, "scores")):
        if needed and not kept:
            raise Unfit(Reason.NOT_KEPT, f"run {run.id} does not keep its {what} (keep.{what}): start a new run")


def as_it_stands(summary: Summary, run: Run) -> Summary:
    """Stored numbers with the run as it is now."""
    end = run.ended_at if run.ended_at is not None else run.started_at
    wall_time = 0.0 if run.started_at is None or end is None else max(0.0, end - run.started_at)
    return replace(summary, run=run, wall_time=wall_time, work_time=run.work_time(end))
