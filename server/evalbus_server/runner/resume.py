"""Resuming: a run that has halted goes on as what it was, and only what is missing is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import structlog

from evalbus_server.errors import Reason, ServerError, Unfit
from evalbus_server.model.run import Run, RunState
from evalbus_server.runner.changes import in_force
from evalbus_server.runner.crew import Call, Crew
from evalbus_server.runner.floor import AT_ONCE, Admit, Floor, Given, as_it_is
from evalbus_server.runner.session import go_to_work

RESUMABLE = (RunState.PAUSED, RunState.INTERRUPTED, RunState.ABORTED, RunState.CANCELLED)

_log = structlog.get_logger("evalbus.run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms work on a run begins again."""

    accept_changed: bool = False
    """Also though a plugin is another version or build than before."""
    given: Given
    admit: Admit = as_it_is


@dataclass(frozen=True, slots=True)
class Again:
    """How work on a run begins again."""

    check: Callable[[Run], None]
    """Raises if it may not."""
    queue: Callable[[Run], None]
    """Stores that it is QUEUED."""
    by_itself: bool = False
    """Nobody asks for it, so nobody can be told that there is no place for it."""


async def resume(floor: Floor, run_id: str, terms: Terms) -> Run:
    """Go on with a run that is PAUSED, INTERRUPTED, ABORTED or CANCELLED."""

    def check(run: Run) -> None:
        if run.id in floor.working or run.state not in RESUMABLE:
            states = ", ".join(state.name for state in RESUMABLE)
            message = f"run {run.id} is {run.state.name}; what can be resumed is {states}"
            raise Unfit(Reason.RUN_NOT_RESUMABLE, message)

    def queue(run: Run) -> None:
        floor.store.change_state(run.id, RunState.QUEUED, reason="RESUMED: on request")

    return await begin_again(floor, run_id, Again(check, queue), terms)


def take_up_stopped(floor: Floor) -> tuple[str, ...]:
    """The runs that a server left behind when it ended; watchers wait for them from now on."""
    stopped = tuple(floor.store.stopped_runs())
    floor.resuming.update(stopped)
    return stopped


async def resume_stopped(floor: Floor, run_ids: Iterable[str], terms: Terms) -> None:
    """Go on with runs that were taken up; one that cannot go on stays INTERRUPTED, and the log says why."""
    places = asyncio.Semaphore(AT_ONCE)

    def check(run: Run) -> None:
        if run.state is not RunState.INTERRUPTED:
            raise Unfit(Reason.RUN_NOT_RESUMABLE, f"run {run.id} is {run.state.name} by now")

    def queue(run: Run) -> None:
        floor.store.change_state(run.id, RunState.QUEUED, reason="RESUMED: by itself, since the server is there again")

    async def go_on(run_id: str) -> None:
        try:
            async with places:
                await begin_again(floor, run_id, Again(check, queue, by_itself=True), terms)
        except ServerError as error:
            _log.warning("the run does not go on by itself", run=run_id, reason=error.reason, error=str(error))
        finally:
            floor.resuming.discard(run_id)
            floor.bell.ring(run_id)

    async with asyncio.TaskGroup() as group:
        for run_id in run_ids:
            group.create_task(go_on(run_id))


async def begin_again(floor: Floor, run_id: str, again: Again, terms: Terms) -> Run:
    """Reach the plugins of a run anew, check that they are what they were, and let the run go to work."""
    floor.unstored.store()
    run = floor.store.run(run_id)
    async with floor.lock(run.id):
        run = floor.store.run(run.id)
        again.check(run)
        with nullcontext() if again.by_itself else floor.place():
            return await _begin(floor, run, again, terms)


async def _begin(floor: Floor, run: Run, again: Again, terms: Terms) -> Run:
    call = Call(terms.admit(in_force(run)), run.id, run.session + 1, run.selection.items, terms.given)
    crew = Crew(call, floor.means)
    await floor.bring_together(crew)
    try:
        _check_same(run, crew, accept_changed=terms.accept_changed)
        again.check(floor.store.run(run.id))  # reaching the plugins took time
        again.queue(run)
        run = floor.store.run(run.id)
        experiment = in_force(run)  # and so its limits may be others by now
        crew.change(experiment)
    except BaseException:
        await crew.dismiss()
        raise
    go_to_work(floor, run, crew, experiment)
    floor.bell.ring(run.id)
    return run


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
