"""A server as the command line asks it with `--server A`: what comes back are the server's own values.

So everything that prints a run from a database prints one from a server as well.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import Any

from evalbus import CallFailed, Item, wire
from evalbus._connection import START_LIMIT, Connection, Tls
from evalbus.v1 import dataset_pb2, run_pb2
from evalbus_server.dataset.read import read_batches
from evalbus_server.dataset.select import Selector
from evalbus_server.model.dataset import Origin
from evalbus_server.model.dataset_use import DatasetUse
from evalbus_server.model.event import Event
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.result_filter import EVERYTHING, ResultFilter
from evalbus_server.model.run import Run
from evalbus_server.model.summary import Summary
from evalbus_server.model.trial import StoredResult
from evalbus_server.runner.line import Progress
from evalbus_server.runner.origin import named_by_file, origin_of
from evalbus_server.runner.plan import FIRST_ITEMS, Plan, dataset_name
from evalbus_server.settings import TOKEN_VARIABLE
from evalbus_server.store import RunFilter
from evalbus_server.watch.follow import Idle
from evalbus_server.wire.event import event_from_proto
from evalbus_server.wire.experiment import MOST_INLINE, experiment_from_proto, experiment_to_proto
from evalbus_server.wire.result import result_from_proto
from evalbus_server.wire.result_filter import filter_to_proto
from evalbus_server.wire.run import counts_from_proto, dataset_of_plan, planned_keys, run_from_proto
from evalbus_server.wire.summary import summary_from_proto

PATIENCE = 300.0
"""Seconds that a watcher tries to find a server again."""
ENCRYPTED = "https://"
LATEST = ("latest", "last")
LONGEST_PAGE = 500
_WHOLE = 500
"""Items that stand for themselves in a plan; of further ones only those whose scorers differ from all others."""


class Remote:
    """A server. Use it with `async with`; every call raises CallFailed for what the server could not do."""

    def __init__(self, address: str, environ: Mapping[str, str]) -> None:
        """*address* is `host:port` or `unix:/path`, with `https://` in front if the way is encrypted.

        The token is $EVALBUS_TOKEN. gRPC takes root certificates from $GRPC_DEFAULT_SSL_ROOTS_FILE_PATH.
        """
        tls = Tls() if address.startswith(ENCRYPTED) else None
        self._server = Connection(
            address.removeprefix(ENCRYPTED), environ.get(TOKEN_VARIABLE), tls, token_is=TOKEN_VARIABLE
        )

    async def __aenter__(self) -> Remote:
        """The server itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Hang up; what the server does goes on."""
        await self._server.close()

    # --- starting -----------------------------------------------------------------------------------------------

    async def start(self, experiment: Experiment, *, request_id: str = "") -> Run:
        """Start a run; a dataset that is not stored is uploaded first, under its own name.

        Raises:
            Invalid: the dataset cannot be read.
            Conflict: another file of the same name is one already.
            CallFailed: what hinders the run.
        """
        if experiment.dataset.source != "stored":
            experiment = await self._upload(experiment)
        request = run_pb2.StartRunRequest(experiment=experiment_to_proto(experiment), request_id=request_id)
        response = await self._server.ask(self._server.runs.StartRun, request, START_LIMIT)
        return run_from_proto(response.run, experiment)

    async def _upload(self, experiment: Experiment) -> Experiment:
        """The same experiment over a dataset of the server."""
        name = dataset_name(experiment)
        known = await self._info(name) if named_by_file(experiment) else None
        origin = origin_of(experiment, name, "" if known is None else known.origin) or Origin("")
        response = await self._server.upload(name, _items(experiment), origin=origin.file, moved_from=origin.moved_from)
        return experiment.over(response.dataset.name, response.dataset.version)

    async def plan(self, experiment: Experiment) -> Plan:
        """What a run would do. A dataset that is not stored is read but not uploaded: a few items stand for it.

        Raises:
            Invalid: the dataset cannot be read.
            CallFailed: what would hinder the run.
        """
        sample = _Sample(experiment.scorers_from == "items")
        read = experiment.dataset.source != "stored"
        if read:
            use = experiment.dataset
            selector = Selector(use.items, use.limit, use.tags)
            for item in _items(experiment):
                if selector.takes(item.id, item.tags):
                    sample.add(item)
            dataset = DatasetUse(records=(), scorers=await self._default_scorers(experiment))
            experiment = experiment.model_copy(update={"dataset": dataset})
        message = experiment_to_proto(experiment, sample.items)
        request = run_pb2.StartRunRequest(experiment=message, validate_only=True)
        response = await self._server.ask(self._server.runs.StartRun, request, START_LIMIT)
        return _plan(response.plan, sample if read else None)

    async def _default_scorers(self, experiment: Experiment) -> tuple[str, ...] | None:
        """Who judges items that name nobody, of a dataset that may be stored under its name already."""
        named = experiment.dataset.scorers
        if named is not None or experiment.scorers_from == "run":
            return named
        known = await self._info(dataset_name(experiment))
        return None if known is None else tuple(known.scorers)

    async def _info(self, name: str) -> dataset_pb2.DatasetInfo | None:
        """What the server knows of a dataset; None: there is none of this name."""
        try:
            response = await self._server.ask(
                self._server.datasets.GetDataset, dataset_pb2.GetDatasetRequest(name=name)
            )
        except CallFailed as failed:
            if failed.reason != "DATASET_NOT_FOUND":
                raise
            return None
        return response.dataset.info  # type: ignore[no-any-return]

    # --- runs ---------------------------------------------------------------------------------------------------

    async def run(self, run_id: str) -> Run:
        """A run by its id, the beginning of it, or `latest`.

        Raises:
            CallFailed: RUN_NOT_FOUND.
        """
        if run_id in LATEST:
            newest = await self.runs(RunFilter(), 1)
            if not newest:
                raise CallFailed("RUN_NOT_FOUND", "the server has no run; start one with evalbus run FILE", "NOT_FOUND")
            run_id = newest[0].id
        response = await self._server.ask(self._server.runs.GetRun, run_pb2.GetRunRequest(run_id=run_id))
        experiment, _ = experiment_from_proto(response.experiment)
        return run_from_proto(response.run, experiment)

    async def runs(self, wanted: RunFilter, limit: int) -> list[Run]:
        """Runs, the newest first, so many at most."""
        request = run_pb2.ListRunsRequest(
            experiment=wanted.experiment,
            dataset=wanted.dataset,
            tag=wanted.tag,
            state=run_pb2.RunState.ValueType(wanted.state or 0),
            page_size=min(limit, LONGEST_PAGE),
        )
        found: list[Run] = []
        async with aclosing(self._server.pages(self._server.runs.ListRuns, request)) as pages:
            async for page in pages:
                found += [run_from_proto(message) for message in page.runs]
                if len(found) >= limit:
                    break
        return found[:limit]

    async def cancel(self, run_id: str) -> Run:
        """Cancel a run.

        Raises:
            CallFailed: RUN_NOT_FOUND, RUN_NOT_HERE.
        """
        response = await self._server.ask(self._server.runs.CancelRun, run_pb2.CancelRunRequest(run_id=run_id))
        return run_from_proto(response.run)

    async def pause(self, run_id: str) -> Run:
        """Pause a run.

        Raises:
            CallFailed: RUN_NOT_FOUND, RUN_NOT_HERE.
        """
        response = await self._server.ask(self._server.runs.PauseRun, run_pb2.PauseRunRequest(run_id=run_id))
        return run_from_proto(response.run)

    async def resume(self, run_id: str, *, accept_changed: bool = False) -> Run:
        """Go on with a run.

        Raises:
            CallFailed: RUN_NOT_FOUND, RUN_NOT_RESUMABLE, PLUGIN_CHANGED, or what hinders a plugin.
        """
        request = run_pb2.ResumeRunRequest(run_id=run_id, accept_changed=accept_changed)
        response = await self._server.ask(self._server.runs.ResumeRun, request, START_LIMIT)
        return run_from_proto(response.run)

    async def retry(self, run_id: str, *, accept_changed: bool = False) -> Run:
        """Ask again what is ERRORED.

        Raises:
            CallFailed: RUN_NOT_FOUND, RUN_AT_WORK, NOTHING_TO_RUN, PLUGIN_CHANGED, or what hinders a plugin.
        """
        request = run_pb2.RetryRunRequest(run_id=run_id, accept_changed=accept_changed)
        response = await self._server.ask(self._server.runs.RetryRun, request, START_LIMIT)
        return run_from_proto(response.run)

    async def rescore(self, run_id: str, experiment: Experiment) -> Run:
        """Score the outputs of a run anew.

        Raises:
            CallFailed: RUN_NOT_FOUND, RUN_INCOMPLETE, or what hinders the new run.
        """
        request = run_pb2.RescoreRunRequest(run_id=run_id, experiment=experiment_to_proto(experiment))
        response = await self._server.ask(self._server.runs.RescoreRun, request, START_LIMIT)
        return run_from_proto(response.run, experiment)

    async def update_limits(self, run_id: str, settings: Mapping[str, Any]) -> Run:
        """Change limits of a run, by path.

        Raises:
            CallFailed: RUN_NOT_FOUND, EXPERIMENT_INVALID.
        """
        told = [run_pb2.LimitSetting(path=path, value=json.dumps(value)) for path, value in settings.items()]
        request = run_pb2.UpdateLimitsRequest(run_id=run_id, settings=told)
        return run_from_proto((await self._server.ask(self._server.runs.UpdateLimits, request)).run)

    async def delete(self, run_id: str) -> None:
        """Delete a run.

        Raises:
            CallFailed: RUN_NOT_FOUND, RUN_AT_WORK, RUN_IN_USE.
        """
        await self._server.ask(self._server.runs.DeleteRun, run_pb2.DeleteRunRequest(run_id=run_id))

    async def cached(self, *, clear: bool) -> int:
        """How many answers of targets are remembered; *clear* forgets them."""
        request = run_pb2.ClearCacheRequest(validate_only=not clear)
        response = await self._server.ask(self._server.runs.ClearCache, request)
        return int(response.answers)

    async def watch(self, run_id: str, after: int = 0) -> AsyncGenerator[Event | Progress | Idle, None]:
        """Follow a run to its end, from any event on; it finds a server again that was restarted meanwhile.

        Raises:
            CallFailed: RUN_NOT_FOUND, SEQUENCE_OUT_OF_RANGE, or the server is gone.
        """
        async with aclosing(self._server.watch(run_id, after, PATIENCE)) as messages:
            async for message in messages:
                match message.WhichOneof("message"):
                    case "event" if (event := event_from_proto(message.event)) is not None:
                        yield event
                    case "progress":
                        yield _progress(message.progress)
                    case "idle":
                        yield Idle(message.idle.last_sequence)

    async def results(
        self, run: Run, filter: ResultFilter = EVERYTHING
    ) -> AsyncGenerator[tuple[StoredResult, Run], None]:
        """Results in dataset order, then epoch, each with the run as it must be read: with the score keys it refers to.

        Raises:
            CallFailed: RUN_NOT_FOUND.
        """
        request = filter_to_proto(filter)
        request.run_id, request.page_size = run.id, LONGEST_PAGE
        async for page in self._server.pages(self._server.runs.ListResults, request):
            for message in page.results:
                result, keys = result_from_proto(message)
                yield result, replace(run, score_keys=keys)

    async def summary(self, run: Run) -> Summary:
        """The numbers of a run, computed by the server.

        Raises:
            CallFailed: RUN_NOT_FOUND.
        """
        response = await self._server.ask(self._server.runs.GetSummary, run_pb2.GetSummaryRequest(run_id=run.id))
        experiment = Experiment.from_json(run.experiment_json) if run.experiment_json else None
        return summary_from_proto(response.summary, experiment)


def _items(experiment: Experiment) -> Iterator[Item]:
    return chain.from_iterable(read_batches(experiment.dataset))


class _Sample:
    """Items that stand for all: the first one; or one for each list of scorers that items have of their own."""

    def __init__(self, by_scorers: bool) -> None:
        self._by_scorers = by_scorers
        self._seen: set[tuple[str, ...] | None] = set()
        self.items: list[Item] = []
        self.first: list[str] = []
        self.count = 0

    def add(self, item: Item) -> None:
        self.count += 1
        if len(self.first) < FIRST_ITEMS:
            self.first.append(item.id)
        if self._by_scorers and len(self.items) < MOST_INLINE and (self.fits_whole or item.scorers not in self._seen):
            self._seen.add(item.scorers)
            self.items.append(Item(str(self.count), "", scorers=item.scorers))
        elif not self.items:
            self.items = [item]

    @property
    def fits_whole(self) -> bool:
        return len(self.items) < _WHOLE


def _plan(message: run_pb2.Plan, sample: _Sample | None) -> Plan:
    """A plan as the runner says it; what the server does not know of items that it has only a *sample* of is here."""
    items = None if sample is None else sample.count
    return Plan(
        items=message.items if items is None else items,
        epochs=message.epochs,
        plugins=tuple(wire.plugin_info_from_proto(plugin) for plugin in message.plugins),
        keys=planned_keys(message),
        has_target=message.target_calls > 0,
        tasks=round(message.scorer_calls * (1 if items is None else items / message.items) / message.epochs),
        dataset=dataset_of_plan(message) if sample is None else None,
        first_items=tuple(message.first_items if sample is None else sample.first),
        warnings=tuple(message.warnings),
    )


def _progress(message: run_pb2.RunProgress) -> Progress:
    means = [(score.key, score.n, score.mean if score.HasField("mean") else None) for score in message.scores]
    return Progress(counts_from_proto(message.counts), message.answered, message.in_flight, means)
