"""Runs: all that may be asked of the runs of one store. How each of it is done stands in a module of that name."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from evalbus import Item
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.event import Event
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Run, RunState
from evalbus_server.model.summary import Summary
from evalbus_server.runner import end
from evalbus_server.runner.cache import clear
from evalbus_server.runner.changes import change_limits
from evalbus_server.runner.crew import Means
from evalbus_server.runner.delete import delete
from evalbus_server.runner.end import GRACE
from evalbus_server.runner.floor import Admit, Floor, Given, as_it_is
from evalbus_server.runner.keep import held
from evalbus_server.runner.plan import Plan, plan
from evalbus_server.runner.rescore import rescore
from evalbus_server.runner.resume import Terms, resume, resume_stopped, take_up_stopped
from evalbus_server.runner.retry import retry
from evalbus_server.runner.start import Publish, start
from evalbus_server.runner.summarise import summarise
from evalbus_server.store import Store
from evalbus_server.watch.bell import Bell
from evalbus_server.watch.follow import Followed, Idle, Notice, follow


class Runs:
    """The runs of one store."""

    def __init__(
        self,
        store: Store,
        means: Means,
        bell: Bell,
        *,
        clock: Callable[[], float] = time.time,
        most_open: int | None = None,
    ) -> None:
        """*means* is what plugins are made with; *most_open* runs may be QUEUED or RUNNING at once."""
        self._floor = Floor(store, means, bell, clock, most_open)

    # --- beginning ----------------------------------------------------------------------------------------------

    async def plan(
        self, experiment: Experiment, items: Iterable[Item] | None = None, given: Given | None = None
    ) -> Plan:
        """Check everything that can be checked before a run, without storing anything.

        *items* are those of a dataset that is not stored yet.

        Raises:
            ServerError: what would hinder the run; the message says what to do.
        """
        return await plan(self._floor, experiment, items, given or {})

    async def start(
        self,
        experiment: Experiment,
        *,
        request_id: str = "",
        given: Given | None = None,
        publish: Publish | None = None,
    ) -> Run:
        """Start a run over a stored dataset, and return once it is stored; the work goes on by itself.

        The same *request_id* with the same experiment gives the same run. *publish* stores the dataset first; it is not
        called when there is no place for the run, nor when the run is there already.

        Raises:
            Unfit: TOO_MANY_RUNS: there is no place for it.
            ServerError: what hinders the run; no trial was asked.
        """
        return await start(self._floor, experiment, request_id, given or {}, publish)

    async def rescore(
        self, run_id: str, experiment: Experiment, *, request_id: str = "", given: Given | None = None
    ) -> Run:
        """Score the outputs of a finished run anew, in a run of its own: nobody asks the target.

        *experiment* gives name, scorers, criteria, reducer and limits; the rest is the run's. Where the target had
        failed, its failures are taken over. The same *request_id* gives the same run, as at the start.

        Raises:
            NotFound: there is no such run.
            Unfit: RUN_INCOMPLETE: it is not COMPLETED; NOT_KEPT: it does not keep its outputs.
            ServerError: what hinders the new run, as at the start.
        """
        return await rescore(self._floor, run_id, experiment, request_id, given or {})

    async def resume(
        self,
        run_id: str,
        *,
        accept_changed: bool = False,
        given: Given | None = None,
        admit: Admit = as_it_is,
    ) -> Run:
        """Go on with a run that is PAUSED, INTERRUPTED, ABORTED or CANCELLED: only what is missing is done.

        Everything else is as it was: experiment, dataset version, selection, settings. *accept_changed* goes on even
        though a plugin is another version or build than before. *admit* refuses what an experiment may not do here.

        Raises:
            NotFound: there is no such run.
            Unfit: RUN_NOT_RESUMABLE, or PLUGIN_CHANGED.
            ServerError: a plugin hinders it, as at the start.
        """
        terms = Terms(accept_changed=accept_changed, given=given or {}, admit=admit)
        return await resume(self._floor, run_id, terms)

    def take_up_stopped(self) -> tuple[str, ...]:
        """The runs that a server left behind when it ended, however it did: to be handed to `resume_stopped`.

        Whoever watches one of them waits until it has gone on, or cannot.
        """
        return take_up_stopped(self._floor)

    async def resume_stopped(self, run_ids: Iterable[str], *, admit: Admit = as_it_is) -> None:
        """Go on with runs that were taken up, as `resume` does; one that cannot stays INTERRUPTED, and is logged."""
        await resume_stopped(self._floor, run_ids, Terms(given={}, admit=admit))

    async def retry(
        self,
        run_id: str,
        *,
        accept_changed: bool = False,
        given: Given | None = None,
        admit: Admit = as_it_is,
    ) -> Run:
        """Ask again what is ERRORED in a run that is over: the target where it failed, else the scorers that failed.

        Each result stands until the new one is stored; what is pending is asked too. The rest as in `resume`.

        Raises:
            NotFound: there is no such run.
            Unfit: RUN_AT_WORK, NOTHING_TO_RUN (nothing is ERRORED), or PLUGIN_CHANGED.
            ServerError: a plugin hinders it, as at the start.
        """
        terms = Terms(accept_changed=accept_changed, given=given or {}, admit=admit)
        return await retry(self._floor, run_id, terms)

    # --- ending, changing ---------------------------------------------------------------------------------------

    def cancel(self, run_id: str) -> Run:
        """Cancel a run: nothing more is asked, what is in flight is cancelled, what is stored stays.

        Raises:
            NotFound: there is no such run.
            Unfit: another process carries it out.
        """
        return end.cancel(self._floor, run_id)

    def pause(self, run_id: str) -> Run:
        """Pause a run: nothing more is asked, what is in flight finishes, then it is PAUSED until it is resumed.

        Raises:
            NotFound: there is no such run.
            Unfit: it is not at work here.
        """
        return end.pause(self._floor, run_id)

    async def stop(self, run_id: str, *, grace: float = GRACE) -> None:
        """Interrupt a run: trials in flight get *grace* seconds, then they are cancelled. It can be resumed."""
        await end.stop(self._floor, run_id, grace)

    async def close(self, *, grace: float = GRACE) -> None:
        """Interrupt all runs, since this process ends, and wait for their ends."""
        await end.stop_all(self._floor, grace)
        self._floor.unstored.close()

    async def delete(self, run_id: str) -> None:
        """Delete a run that is over, with all that is stored of it.

        Raises:
            NotFound: there is no such run.
            Unfit: RUN_AT_WORK; RUN_IN_USE: another run scores its outputs.
        """
        await delete(self._floor, run_id)

    async def clear_cache(self) -> int:
        """Forget all remembered answers of targets; returns how many."""
        return await clear(self._floor.store)

    def change_limits(self, run_id: str, settings: Mapping[str, Any], *, admit: Admit = as_it_is) -> Run:
        """Change limits of a run, by their paths: at once if it is at work here, else from when it goes on.

        Raises:
            NotFound: there is no such run.
            Invalid: a path is none that may change, or a value does not fit; nothing was changed.
        """
        return change_limits(self._floor, run_id, settings, admit)

    # --- reading ------------------------------------------------------------------------------------------------

    def get(self, run_id: str) -> Run:
        """One run as it is now."""
        run = self._floor.store.run(run_id)
        working = self._floor.working.get(run.id)
        return run if working is None or working.line is None else replace(run, counts=working.line.counts)

    async def wait(self, run_id: str) -> Run:
        """The run once it is over, if it is at work here."""
        working = self._floor.working.get(run_id)
        if working is not None:
            await working.over.wait()
            return working.run
        return self._floor.store.run(run_id)

    async def summary(self, run_id: str) -> Summary:
        """The numbers of a run, computed from what is stored."""
        return await summarise(self._floor, self._floor.store.run(run_id))

    def watch(self, run_id: str, after: int, *, results: bool = False) -> AsyncIterator[Event | Notice | Idle]:
        """Follow a run from any event on; see `watch/follow.py`.

        *results*: whoever follows reads the results of each event before taking the next one. A run that does not keep
        them waits at its end until they are read.

        Raises:
            NotFound: there is no such run.
            Invalid: *after* is beyond the last event.
        """
        store = self._floor.store
        run = store.run(run_id)
        if after > run.last_sequence:
            message = f"the last event of run {run.id} is {run.last_sequence}, so nothing can follow {after}; watch without a sequence"
            raise Invalid(Reason.SEQUENCE_OUT_OF_RANGE, message)
        followed = Followed(
            events=lambda run_id, after, limit: store.events(run_id, after=after, limit=limit),
            run=self._followed,
            progress=self.progress,
            bell=self._floor.bell,
        )
        following = follow(followed, run.id, after)
        return held(self._floor, run.id, self._floor.hold(run.id, after), following) if results else following

    def _followed(self, run_id: str) -> Run:
        """A run as its watchers see it: over only if it does not go on by itself."""
        run = self._floor.store.run(run_id)
        return replace(run, state=RunState.QUEUED) if run.id in self._floor.resuming else run

    def progress(self, run_id: str) -> Any:
        """How a run that is at work here goes; None for any other."""
        working = self._floor.working.get(run_id)
        return None if working is None or working.line is None else working.line.progress()

    @property
    def working(self) -> tuple[str, ...]:
        """The runs at work here."""
        return tuple(self._floor.working)
