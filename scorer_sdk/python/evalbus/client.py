"""A client of an evaluation server: starts runs, follows them, reads what came out.

    from evalbus import Item
    from evalbus.client import Client

    async with Client("127.0.0.1:50051") as client:
        await client.upload_dataset("sums", [Item("a", "1+1", "2"), Item("b", "2+3", "5")])
        run = await client.start({
            "name": "sums",
            "dataset": {"name": "sums"},
            "target": {"address": "127.0.0.1:50052"},
            "scorers": [{"use": "exact_match", "threshold": 1}],
        })
        async for news in run.watch():
            print(news)
        summary = await run.summary()
        print(summary.run.verdict, summary.pass_rate)

Everything that it returns is a frozen value. Every call raises CallFailed for what the server could not do; its
`reason` is one of the table in proto/README.md.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any

from evalbus import _run_messages as messages
from evalbus._connection import START_LIMIT, Connection, Tls
from evalbus._dataset_calls import DatasetCalls
from evalbus._datasets import (
    ChangeCounts,
    DatasetInfo,
    DatasetVersion,
    Edited,
    ItemChange,
    ItemVersion,
    Purged,
)
from evalbus._errors import CallFailed
from evalbus._experiment import experiment_to_proto
from evalbus._run import (
    Bin,
    ContentPurged,
    Counts,
    CriterionResult,
    Dataset,
    Distribution,
    Event,
    Idle,
    Interval,
    Latency,
    LimitsChanged,
    MetricSummary,
    News,
    Outcome,
    Plan,
    Run,
    RunDataset,
    RunProgress,
    RunState,
    ScoreFilter,
    ScoreProgress,
    ScoreResult,
    ScoreSummary,
    Snapshot,
    StateChanged,
    Summary,
    TrialResult,
    TrialsEnded,
    Upload,
    ValueCount,
    Verdict,
)
from evalbus.v1 import run_pb2

__all__ = [
    "Bin",
    "CallFailed",
    "ChangeCounts",
    "Client",
    "ContentPurged",
    "Counts",
    "CriterionResult",
    "Dataset",
    "DatasetInfo",
    "DatasetVersion",
    "Distribution",
    "Edited",
    "Event",
    "Idle",
    "Interval",
    "ItemChange",
    "ItemVersion",
    "Latency",
    "LimitsChanged",
    "MetricSummary",
    "News",
    "Outcome",
    "Plan",
    "Purged",
    "Run",
    "RunDataset",
    "RunHandle",
    "RunProgress",
    "RunState",
    "ScoreFilter",
    "ScoreProgress",
    "ScoreResult",
    "ScoreSummary",
    "Snapshot",
    "StateChanged",
    "Summary",
    "Tls",
    "TrialResult",
    "TrialsEnded",
    "Upload",
    "ValueCount",
    "Verdict",
]


class Client(DatasetCalls):
    """A connection to a server. Use it with `async with`; nothing is connected before the first call."""

    def __init__(self, address: str, token: str | None = None, *, tls: Tls | bool = False) -> None:
        """*address* is `host:port` or `unix:/path`. *token* is sent as `authorization: Bearer …` with every call.

        Raises:
            OSError: the root certificates cannot be read.
        """
        self._server = Connection(address, token, Tls() if tls is True else tls or None)

    async def __aenter__(self) -> Client:
        """The client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close the connection; what the server does goes on."""
        await self.close()

    async def close(self) -> None:
        """Close the connection; what the server does goes on."""
        await self._server.close()

    # --- runs ---------------------------------------------------------------------------------------------------

    async def start(self, experiment: Mapping[str, Any], *, request_id: str = "") -> RunHandle:
        """Start a run, and return once it is accepted.

        *experiment* is what an experiment file holds, as plain data. Its dataset is `{"name": …}` for one that the
        server has, or `{"records": […]}` with up to 1,000 Items or mappings of their fields. The same *request_id* with
        the same experiment gives the same run, so that a call whose answer was lost can be made again.

        Raises:
            CallFailed: what hinders the run; no trial was asked.
        """
        response = await self._start(experiment, request_id=request_id)
        return RunHandle(self, response.run.id)

    async def plan(self, experiment: Mapping[str, Any]) -> Plan:
        """Check an experiment without starting it: plugins are reached and judge their settings.

        Raises:
            CallFailed: what would hinder the run.
        """
        response = await self._start(experiment, validate_only=True)
        return messages.plan(response.plan)

    async def _start(self, experiment: Mapping[str, Any], **more: Any) -> run_pb2.StartRunResponse:
        request = run_pb2.StartRunRequest(experiment=experiment_to_proto(experiment), **more)
        response: run_pb2.StartRunResponse = await self._server.ask(self._server.runs.StartRun, request, START_LIMIT)
        return response

    async def get(self, run_id: str) -> Run:
        """A run as it is now.

        Raises:
            CallFailed: RUN_NOT_FOUND.
        """
        response = await self._server.ask(self._server.runs.GetRun, run_pb2.GetRunRequest(run_id=run_id))
        return messages.run(response.run)

    def handle(self, run_id: str) -> RunHandle:
        """A handle for a run that was started before. Nothing is asked yet."""
        return RunHandle(self, run_id)

    async def runs(
        self, *, experiment: str = "", dataset: str = "", tag: str = "", state: RunState | None = None
    ) -> AsyncGenerator[Run, None]:
        """All runs to which every filter applies, the newest first, read page by page.

        Raises:
            CallFailed: the server cannot be asked.
        """
        wanted = run_pb2.RunState.ValueType(state or 0)
        request = run_pb2.ListRunsRequest(experiment=experiment, dataset=dataset, tag=tag, state=wanted, page_size=500)
        async for page in self._server.pages(self._server.runs.ListRuns, request):
            for message in page.runs:
                yield messages.run(message)

    async def cancel(self, run_id: str) -> Run:
        """Cancel a run; what is stored stays. Watch it for its end.

        Raises:
            CallFailed: RUN_NOT_FOUND, or RUN_NOT_HERE: another process carries it out.
        """
        response = await self._server.ask(self._server.runs.CancelRun, run_pb2.CancelRunRequest(run_id=run_id))
        return messages.run(response.run)

    async def pause(self, run_id: str) -> Run:
        """Pause a run: trials in flight finish, then it is PAUSED until it is resumed. Watch it for that.

        Raises:
            CallFailed: RUN_NOT_FOUND, or RUN_NOT_HERE: it is not at work there.
        """
        response = await self._server.ask(self._server.runs.PauseRun, run_pb2.PauseRunRequest(run_id=run_id))
        return messages.run(response.run)

    async def resume(self, run_id: str, *, accept_changed: bool = False) -> Run:
        """Go on with a run that is PAUSED, INTERRUPTED, ABORTED or CANCELLED: only what is missing is done.

        *accept_changed* goes on although a plugin is another version or build than when the run began.

        Raises:
            CallFailed: RUN_NOT_FOUND, RUN_NOT_RESUMABLE, PLUGIN_CHANGED, or what hinders a plugin.
        """
        request = run_pb2.ResumeRunRequest(run_id=run_id, accept_changed=accept_changed)
        response = await self._server.ask(self._server.runs.ResumeRun, request, START_LIMIT)
        return messages.run(response.run)

    async def retry(self, run_id: str, *, accept_changed: bool = False) -> Run:
        """Ask again what is ERRORED in a run that is over: the target where it failed, else the scorers that failed.

        Each result stands until the new one takes its place.

        Raises:
            CallFailed: RUN_NOT_FOUND, RUN_AT_WORK, NOTHING_TO_RUN, PLUGIN_CHANGED, or what hinders a plugin.
        """
        request = run_pb2.RetryRunRequest(run_id=run_id, accept_changed=accept_changed)
        response = await self._server.ask(self._server.runs.RetryRun, request, START_LIMIT)
        return messages.run(response.run)

    async def rescore(self, run_id: str, experiment: Mapping[str, Any], *, request_id: str = "") -> RunHandle:
        """Score the outputs of a COMPLETED run anew, in a new run; the target is not asked.

        *experiment* gives scorers, and may give name, criteria, reducer, limits and tags; dataset, target and epochs are
        the run's. The same *request_id* with the same run and experiment gives the same new run, however often it is asked.

        Raises:
            CallFailed: RUN_NOT_FOUND, RUN_INCOMPLETE, NOT_KEPT, REQUEST_ID_REUSED, or what hinders the new run.
        """
        document = {**experiment, "dataset": {"name": "any"}, "target": None}
        request = run_pb2.RescoreRunRequest(
            run_id=run_id, experiment=experiment_to_proto(document), request_id=request_id
        )
        response = await self._server.ask(self._server.runs.RescoreRun, request, START_LIMIT)
        return RunHandle(self, response.run.id)

    async def update_limits(self, run_id: str, settings: Mapping[str, Any]) -> Run:
        """Change limits of a run: at once if it is at work, else from when it goes on.

        *settings* are by path, as in `{"limits.concurrency": 4, "scorers.tone.timeout": "30s"}`.

        Raises:
            CallFailed: RUN_NOT_FOUND, or EXPERIMENT_INVALID: nothing was changed.
        """
        told = [run_pb2.LimitSetting(path=path, value=json.dumps(value)) for path, value in settings.items()]
        request = run_pb2.UpdateLimitsRequest(run_id=run_id, settings=told)
        return messages.run((await self._server.ask(self._server.runs.UpdateLimits, request)).run)

    async def delete(self, run_id: str) -> None:
        """Delete a run that is over, with everything that is stored of it.

        Raises:
            CallFailed: RUN_NOT_FOUND, RUN_AT_WORK, or RUN_IN_USE: another run scores its outputs.
        """
        await self._server.ask(self._server.runs.DeleteRun, run_pb2.DeleteRunRequest(run_id=run_id))

    async def clear_cache(self, *, validate_only: bool = False) -> int:
        """Forget what targets answered in runs with `cache`, and return how many answers there were.

        With *validate_only* none is forgotten.

        Raises:
            CallFailed: the server cannot be asked.
        """
        request = run_pb2.ClearCacheRequest(validate_only=validate_only)
        response = await self._server.ask(self._server.runs.ClearCache, request)
        return int(response.answers)

    async def watch(
        self, run_id: str, after: int | None = None, *, results: bool = False, patience: float = 300.0
    ) -> AsyncGenerator[News, None]:
        """Follow a run to its end: a Snapshot first unless *after* is given, then every event above it, each once.

        Between the events come RunProgress and Idle, which have no number. With *results* the TrialResults come too, each
        once, before the event that tells of them; a run that does not keep them waits until they are taken. When the connection breaks or the server
        is restarted, it connects again with the last number it has seen, and gives up after *patience* seconds without
        success. A server that cannot be reached in the first place is an error at once.

        Raises:
            CallFailed: RUN_NOT_FOUND; SEQUENCE_OUT_OF_RANGE; or the server could not be reached again.
        """
        async with contextlib.aclosing(self._server.watch(run_id, after, patience, with_results=results)) as told:
            async for message in told:
                for result in message.results.results:
                    yield messages.result(result)
                news = messages.news(message)
                if news is not None:
                    yield news

    async def wait(self, run_id: str) -> Run:
        """Wait until a run is over, and return it.

        Raises:
            CallFailed: as `watch`.
        """
        async with contextlib.aclosing(self.watch(run_id)) as news:
            async for _ in news:
                pass
        return await self.get(run_id)

    async def results(  # noqa: PLR0913  # each by name
        self,
        run_id: str,
        *,
        outcomes: Sequence[Outcome] = (),
        item: str = "",
        tags: Sequence[str] = (),
        scores: Sequence[ScoreFilter] = (),
        text: str = "",
    ) -> AsyncGenerator[TrialResult, None]:
        """The results of a run in dataset order, then by epoch, read page by page.

        All others are left out: *outcomes*; *item*, a pattern for ids with `*`, `?`, `[…]`; *tags*, all of which the
        item has; *scores*, conditions which all hold; *text*, which stands in item, output, explanation or failure.

        Raises:
            CallFailed: RUN_NOT_FOUND; REQUEST_INVALID: the run has no such score.
        """
        request = run_pb2.ListResultsRequest(
            run_id=run_id,
            outcomes=[run_pb2.Outcome.ValueType(outcome) for outcome in outcomes],
            item=item,
            tags=tags,
            scores=[messages.score_filter(each) for each in scores],
            text=text,
            page_size=1000,
        )
        async for page in self._server.pages(self._server.runs.ListResults, request):
            for message in page.results:
                yield messages.result(message)

    async def summary(self, run_id: str) -> Summary:
        """The numbers of a run, computed now.

        Raises:
            CallFailed: RUN_NOT_FOUND.
        """
        response = await self._server.ask(self._server.runs.GetSummary, run_pb2.GetSummaryRequest(run_id=run_id))
        return messages.summary(response.summary)


class RunHandle:
    """A run of a server. It goes on whether anybody watches it or not."""

    def __init__(self, client: Client, run_id: str) -> None:
        """Made by Client.start and Client.handle."""
        self._client = client
        self.id = run_id

    async def get(self) -> Run:
        """The run as it is now; see Client.get."""
        return await self._client.get(self.id)

    async def cancel(self) -> Run:
        """Cancel the run; see Client.cancel."""
        return await self._client.cancel(self.id)

    async def pause(self) -> Run:
        """Pause the run; see Client.pause."""
        return await self._client.pause(self.id)

    async def resume(self, *, accept_changed: bool = False) -> Run:
        """Go on with the run; see Client.resume."""
        return await self._client.resume(self.id, accept_changed=accept_changed)

    async def retry(self, *, accept_changed: bool = False) -> Run:
        """Ask again what is ERRORED; see Client.retry."""
        return await self._client.retry(self.id, accept_changed=accept_changed)

    async def rescore(self, experiment: Mapping[str, Any], *, request_id: str = "") -> RunHandle:
        """Score its outputs anew, in a new run; see Client.rescore."""
        return await self._client.rescore(self.id, experiment, request_id=request_id)

    async def update_limits(self, settings: Mapping[str, Any]) -> Run:
        """Change its limits; see Client.update_limits."""
        return await self._client.update_limits(self.id, settings)

    async def delete(self) -> None:
        """Delete it; see Client.delete."""
        await self._client.delete(self.id)

    def watch(self, after: int | None = None, *, results: bool = False) -> AsyncGenerator[News, None]:
        """Follow the run to its end; see Client.watch."""
        return self._client.watch(self.id, after, results=results)

    async def wait(self) -> Run:
        """Wait until the run is over, and return it."""
        return await self._client.wait(self.id)

    def results(
        self,
        *,
        outcomes: Sequence[Outcome] = (),
        item: str = "",
        tags: Sequence[str] = (),
        scores: Sequence[ScoreFilter] = (),
        text: str = "",
    ) -> AsyncGenerator[TrialResult, None]:
        """The results of the run; see Client.results."""
        return self._client.results(self.id, outcomes=outcomes, item=item, tags=tags, scores=scores, text=text)

    async def summary(self) -> Summary:
        """The numbers of the run, computed now."""
        return await self._client.summary(self.id)
