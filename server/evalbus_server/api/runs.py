"""RunService: decode, call, encode."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from functools import lru_cache
from typing import Any, TypeAlias

import grpc.aio

from evalbus.v1 import run_pb2, run_pb2_grpc
from evalbus_server.api.pages import Tokens, page_size
from evalbus_server.api.results import result_messages, result_page
from evalbus_server.api.start import Starter
from evalbus_server.errors import Invalid, Reason, Unreachable
from evalbus_server.model.event import Event, TrialsEnded
from evalbus_server.runner.changes import in_force
from evalbus_server.runner.runs import Runs
from evalbus_server.store import RunFilter, Store
from evalbus_server.watch.follow import Idle, Notice
from evalbus_server.wire.event import event_to_proto, progress_to_proto, snapshot_to_proto
from evalbus_server.wire.experiment import experiment_to_proto
from evalbus_server.wire.run import limit_settings, plan_to_proto, run_to_proto, state_filter
from evalbus_server.wire.summary import summary_to_proto

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

PAGE = 50
LONGEST_PAGE = 500


class RunService(run_pb2_grpc.RunServiceServicer):
    """The runs of a store."""

    def __init__(self, store: Store, runs: Runs, starter: Starter) -> None:
        """Serve those of *store*; *runs* are at work on them."""
        self._store = store
        self._runs = runs
        self._starter = starter

    async def StartRun(self, request: run_pb2.StartRunRequest, context: Context) -> run_pb2.StartRunResponse:
        """Start a run, or only plan it."""
        asked = self._starter.asked(request)
        if request.validate_only:
            return run_pb2.StartRunResponse(plan=plan_to_proto(await self._starter.plan(asked)))
        run = await self._starter.start(asked)
        return run_pb2.StartRunResponse(run=run_to_proto(run))

    async def GetRun(self, request: run_pb2.GetRunRequest, context: Context) -> run_pb2.GetRunResponse:
        """A run as it is now."""
        run = self._runs.get(request.run_id)
        experiment = experiment_to_proto(in_force(run))
        return run_pb2.GetRunResponse(run=run_to_proto(run), experiment=experiment)

    async def ListRuns(self, request: run_pb2.ListRunsRequest, context: Context) -> run_pb2.ListRunsResponse:
        """A page of runs, the newest first."""
        wanted = RunFilter(request.experiment, request.dataset, request.tag, state_filter(request.state))
        tokens = Tokens("runs", request.experiment, request.dataset, request.tag, request.state)
        before = tokens.place(request.page_token, [str])
        size = page_size(request.page_size, default=PAGE, most=LONGEST_PAGE)
        found = self._store.runs(wanted, size + 1, before[0] if before else None)  # one more tells of a next page
        return run_pb2.ListRunsResponse(
            runs=[run_to_proto(run) for run in found[:size]],
            next_page_token=tokens.after(found[size - 1].id) if len(found) > size else "",
        )

    async def CancelRun(self, request: run_pb2.CancelRunRequest, context: Context) -> run_pb2.CancelRunResponse:
        """Cancel a run; one that is over is returned as it is."""
        return run_pb2.CancelRunResponse(run=run_to_proto(self._runs.cancel(request.run_id)))

    async def PauseRun(self, request: run_pb2.PauseRunRequest, context: Context) -> run_pb2.PauseRunResponse:
        """Pause a run; what is in flight finishes."""
        return run_pb2.PauseRunResponse(run=run_to_proto(self._runs.pause(request.run_id)))

    async def ResumeRun(self, request: run_pb2.ResumeRunRequest, context: Context) -> run_pb2.ResumeRunResponse:
        """Go on with a run."""
        run = await self._starter.resume(request.run_id, accept_changed=request.accept_changed)
        return run_pb2.ResumeRunResponse(run=run_to_proto(run))

    async def RetryRun(self, request: run_pb2.RetryRunRequest, context: Context) -> run_pb2.RetryRunResponse:
        """Ask again what is ERRORED."""
        run = await self._starter.retry(request.run_id, accept_changed=request.accept_changed)
        return run_pb2.RetryRunResponse(run=run_to_proto(run))

    async def RescoreRun(self, request: run_pb2.RescoreRunRequest, context: Context) -> run_pb2.RescoreRunResponse:
        """Score the outputs of a run anew."""
        return run_pb2.RescoreRunResponse(run=run_to_proto(await self._starter.rescore(request)))

    async def UpdateLimits(
        self, request: run_pb2.UpdateLimitsRequest, context: Context
    ) -> run_pb2.UpdateLimitsResponse:
        """Change limits of a run."""
        run = self._starter.change_limits(request.run_id, limit_settings(request.settings))
        return run_pb2.UpdateLimitsResponse(run=run_to_proto(run))

    async def DeleteRun(self, request: run_pb2.DeleteRunRequest, context: Context) -> run_pb2.DeleteRunResponse:
        """Delete a run that is over."""
        await self._runs.delete(request.run_id)
        return run_pb2.DeleteRunResponse()

    async def ClearCache(self, request: run_pb2.ClearCacheRequest, context: Context) -> run_pb2.ClearCacheResponse:
        """Forget what targets have answered."""
        answers = self._store.cached_count() if request.validate_only else await self._runs.clear_cache()
        return run_pb2.ClearCacheResponse(answers=answers)

    async def WatchRun(
        self, request: run_pb2.WatchRunRequest, context: Context
    ) -> AsyncGenerator[run_pb2.WatchRunResponse, None]:
        """What happens in a run, from any event on."""
        run = self._store.run(request.run_id)
        after = request.after_sequence if request.HasField("after_sequence") else run.last_sequence
        if after < 0:
            message = f"after_sequence must be 0 or more, not {after}"
            raise Invalid(Reason.SEQUENCE_OUT_OF_RANGE, message, field="after_sequence")
        watcher = self._runs.watch(run.id, after, results=request.with_results)
        if not request.HasField("after_sequence"):
            going = self._runs.progress(run.id)
            yield run_pb2.WatchRunResponse(snapshot=snapshot_to_proto(run, going.means if going else ()))
        async with contextlib.aclosing(watcher) as entries:  # type: ignore[type-var]  # it is a generator
            async for entry in entries:
                if isinstance(entry, Event):
                    if request.with_results and isinstance(entry.fact, TrialsEnded):
                        async for results in result_messages(self._store, run, entry.fact):
                            yield run_pb2.WatchRunResponse(results=results)
                    after = entry.sequence
                yield _watched(entry)
        run = self._store.run(run.id)
        if not run.state.over or after < run.last_sequence:
            raise Unreachable(Reason.SERVER_STOPPING, f"the server stops; watch again after event {after}")

    async def ListResults(self, request: run_pb2.ListResultsRequest, context: Context) -> run_pb2.ListResultsResponse:
        """A page of results, in dataset order, then by epoch."""
        return await result_page(self._store, request)

    async def GetSummary(self, request: run_pb2.GetSummaryRequest, context: Context) -> run_pb2.GetSummaryResponse:
        """The numbers of a run, computed now."""
        return run_pb2.GetSummaryResponse(summary=summary_to_proto(await self._runs.summary(request.run_id)))


def _watched(entry: Event | Notice | Idle) -> run_pb2.WatchRunResponse:
    if isinstance(entry, Event):
        return _of_event(entry)
    if isinstance(entry, Notice):
        return run_pb2.WatchRunResponse(progress=progress_to_proto(entry.progress))
    return run_pb2.WatchRunResponse(idle=run_pb2.Idle(last_sequence=entry.last_sequence))


@lru_cache(maxsize=64)
def _of_event(event: Event) -> run_pb2.WatchRunResponse:
    """The message about an event, which is only sent: all watchers of a run are sent the same one."""
    return run_pb2.WatchRunResponse(event=event_to_proto(event))
