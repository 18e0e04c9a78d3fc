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

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from evalbus import _run_messages as messages
from evalbus import wire
from evalbus._errors import CallFailed
from evalbus._experiment import experiment_to_proto
from evalbus._item import Item
from evalbus._run import (
    Bin,
    Counts,
    CriterionResult,
    Dataset,
    Distribution,
    Event,
    Idle,
    Interval,
    Latency,
    News,
    Outcome,
    Plan,
    Run,
    RunDataset,
    RunProgress,
    RunState,
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
from evalbus.v1 import dataset_pb2, dataset_pb2_grpc, run_pb2, run_pb2_grpc

__all__ = [
    "Bin",
    "CallFailed",
    "Client",
    "Counts",
    "CriterionResult",
    "Dataset",
    "Distribution",
    "Event",
    "Idle",
    "Interval",
    "Latency",
    "News",
    "Outcome",
    "Plan",
    "Run",
    "RunDataset",
    "RunHandle",
    "RunProgress",
    "RunState",
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

T_ = TypeVar("T_")

LARGEST_ITEM = 1024 * 1024
"""Bytes of an encoded item, at most."""
LARGEST_BATCH = 1024 * 1024
MOST_ITEMS = 256

_ANSWER_LIMIT = 60.0
"""Seconds for a call that reads."""
_START_LIMIT = 180.0
"""Seconds for a call that reaches plugins, which may have to be started."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two connections of a watcher."""
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),  # the server says best what is too large
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 10_000),  # a server that has gone without a word is found by pings alone
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True, slots=True)
class Tls:
    """How to trust a server."""

    root_certificates: str | Path | None = None
    """A PEM file; None: the usual ones."""
    server_name: str = ""
    """Expect this name in the certificate instead of the address's."""


class Client:
    """A connection to a server. Use it with `async with`; nothing is connected before the first call."""

    def __init__(self, address: str, token: str | None = None, *, tls: Tls | bool = False) -> None:
        """*address* is `host:port` or `unix:/path`. *token* is sent as `authorization: Bearer …` with every call.

        Raises:
            OSError: the root certificates cannot be read.
        """
        self.address = address
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel = _channel(address, Tls() if tls is True else tls or None)
        self._runs = run_pb2_grpc.RunServiceStub(self._channel)
        self._datasets = dataset_pb2_grpc.DatasetServiceStub(self._channel)

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
        await self._channel.close()

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
        response: run_pb2.StartRunResponse = await self._ask(self._runs.StartRun, request, _START_LIMIT)
        return response

    async def get(self, run_id: str) -> Run:
        """A run as it is now.

        Raises:
            CallFailed: RUN_NOT_FOUND.
        """
        response = await self._ask(self._runs.GetRun, run_pb2.GetRunRequest(run_id=run_id))
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
        async for page in self._pages(self._runs.ListRuns, request):
            for message in page.runs:
                yield messages.run(message)

    async def cancel(self, run_id: str) -> Run:
        """Cancel a run; what is stored stays. Watch it for its end.

        Raises:
            CallFailed: RUN_NOT_FOUND, or RUN_NOT_HERE: another process carries it out.
        """
        response = await self._ask(self._runs.CancelRun, run_pb2.CancelRunRequest(run_id=run_id))
        return messages.run(response.run)

    async def watch(
        self, run_id: str, after: int | None = None, *, patience: float = 300.0
    ) -> AsyncGenerator[News, None]:
        """Follow a run to its end: a Snapshot first unless *after* is given, then every event above it, each once.

        Between the events come RunProgress and Idle, which have no number. When the connection breaks or the server
        is restarted, it connects again with the last number it has seen, and gives up after *patience* seconds without
        success. A server that cannot be reached in the first place is an error at once.

        Raises:
            CallFailed: RUN_NOT_FOUND; SEQUENCE_OUT_OF_RANGE; or the server could not be reached again.
        """
        pause, heard_at = _FIRST_PAUSE, None
        loop = asyncio.get_running_loop()
        while True:
            try:
                request = run_pb2.WatchRunRequest(run_id=run_id, after_sequence=after)
                async for message in self._stream(self._runs.WatchRun, request):
                    pause, heard_at = _FIRST_PAUSE, loop.time()
                    news = messages.news(message)
                    if news is None:
                        continue
                    yield news
                    if isinstance(news, Event):
                        after = news.sequence
                    elif isinstance(news, Snapshot):
                        after = news.run.last_sequence
                return
            except CallFailed as failed:
                if failed.code != "UNAVAILABLE" or heard_at is None or loop.time() - heard_at > patience:
                    raise
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def wait(self, run_id: str) -> Run:
        """Wait until a run is over, and return it.

        Raises:
            CallFailed: as `watch`.
        """
        async with contextlib.aclosing(self.watch(run_id)) as news:
            async for _ in news:
                pass
        return await self.get(run_id)

    async def results(
        self, run_id: str, *, outcomes: Sequence[Outcome] = (), item: str = ""
    ) -> AsyncGenerator[TrialResult, None]:
        """The results of a run in dataset order, then by epoch, read page by page.

        *outcomes* and *item* (a pattern for ids with `*`, `?`, `[…]`) leave others out.

        Raises:
            CallFailed: RUN_NOT_FOUND.
        """
        wanted = [run_pb2.Outcome.ValueType(outcome) for outcome in outcomes]
        request = run_pb2.ListResultsRequest(run_id=run_id, outcomes=wanted, item=item, page_size=1000)
        async for page in self._pages(self._runs.ListResults, request):
            for message in page.results:
                yield messages.result(message)

    async def summary(self, run_id: str) -> Summary:
        """The numbers of a run, computed now.

        Raises:
            CallFailed: RUN_NOT_FOUND.
        """
        response = await self._ask(self._runs.GetSummary, run_pb2.GetSummaryRequest(run_id=run_id))
        return messages.summary(response.summary)

    # --- datasets -----------------------------------------------------------------------------------------------

    async def upload_dataset(self, name: str, items: Iterable[Item] | AsyncIterable[Item]) -> Upload:
        """Make *items* the newest version of a dataset: all of them, or nothing. The same items again change nothing.

        They are read as they are sent, so there may be more than fit into memory.

        Raises:
            CallFailed: DATASET_INVALID, with the item at fault; ITEM_TOO_LARGE.
        """
        call = self._datasets.UploadDataset(metadata=self._metadata)
        try:
            await call.write(dataset_pb2.UploadDatasetRequest(header=dataset_pb2.UploadHeader(name=name)))
            async for batch in _batches(items):
                await call.write(dataset_pb2.UploadDatasetRequest(items=batch))
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the server has ended the call: the answer says why
        except BaseException:
            call.cancel()
            raise
        response = await _answer(call, self.address)
        return Upload(messages.dataset(response.dataset), response.changed)

    async def get_dataset(self, name: str, version: int | None = None) -> Dataset:
        """A dataset at a version, or at its newest.

        Raises:
            CallFailed: DATASET_NOT_FOUND.
        """
        request = dataset_pb2.GetDatasetRequest(name=name, version=version)
        response = await self._ask(self._datasets.GetDataset, request)
        return messages.dataset(response.dataset)

    async def datasets(self) -> AsyncGenerator[Dataset, None]:
        """All datasets at their newest versions, by name, read page by page.

        Raises:
            CallFailed: the server cannot be asked.
        """
        request = dataset_pb2.ListDatasetsRequest(page_size=500)
        async for page in self._pages(self._datasets.ListDatasets, request):
            for message in page.datasets:
                yield messages.dataset(message)

    # --- calls --------------------------------------------------------------------------------------------------

    async def _ask(self, method: Any, request: Any, limit: float = _ANSWER_LIMIT) -> Any:
        return await _answer(method(request, timeout=limit, metadata=self._metadata), self.address)

    async def _pages(self, method: Any, request: Any) -> AsyncGenerator[Any, None]:
        while True:
            page = await self._ask(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def _stream(self, method: Any, request: Any) -> AsyncGenerator[Any, None]:
        call = method(request, metadata=self._metadata)
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise _failed(error, self.address) from None
        finally:
            call.cancel()  # whoever stops listening ends the call


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

    def watch(self, after: int | None = None) -> AsyncGenerator[News, None]:
        """Follow the run to its end; see Client.watch."""
        return self._client.watch(self.id, after)

    async def wait(self) -> Run:
        """Wait until the run is over, and return it."""
        return await self._client.wait(self.id)

    def results(self, *, outcomes: Sequence[Outcome] = (), item: str = "") -> AsyncGenerator[TrialResult, None]:
        """The results of the run; see Client.results."""
        return self._client.results(self.id, outcomes=outcomes, item=item)

    async def summary(self) -> Summary:
        """The numbers of the run, computed now."""
        return await self._client.summary(self.id)


def _channel(address: str, tls: Tls | None) -> grpc.aio.Channel:
    if tls is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    roots = None if tls.root_certificates is None else Path(tls.root_certificates).read_bytes()
    name = (("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name else ()
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(roots), options=(*_OPTIONS, *name))


async def _answer(call: Awaitable[T_], address: str) -> T_:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise _failed(error, address) from None


def _failed(error: grpc.aio.AioRpcError, address: str) -> CallFailed:
    """What a status says: the server's own reason, or one for a call that did not come through."""
    code, said = error.code().name, error.details() or error.code().name
    for detail in _details(error):
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.reason:
            return CallFailed(info.reason, said, code)
    if code == "UNAVAILABLE":
        return CallFailed("SERVER_UNREACHABLE", f"the server at {address} cannot be reached: {said}", code)
    return CallFailed(code, said, code)


def _details(error: grpc.aio.AioRpcError) -> Sequence[Any]:
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # it has what is asked of a call
    except ValueError:  # something on the way has changed the status
        return ()
    return () if status is None else status.details


async def _batches(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[dataset_pb2.ItemBatch, None]:
    batch, size = dataset_pb2.ItemBatch(), 0
    count = 0
    async for item in _each(items):
        count += 1
        message = _message(count, item)
        length = message.ByteSize()
        if length > LARGEST_ITEM:
            text = f"item {count} ({item.id!r}) has {length:,} bytes, which is over the limit of {LARGEST_ITEM:,}; shorten it"
            raise CallFailed("ITEM_TOO_LARGE", text, "RESOURCE_EXHAUSTED")
        if len(batch.items) == MOST_ITEMS or (size and size + length > LARGEST_BATCH):
            yield batch
            batch, size = dataset_pb2.ItemBatch(), 0
        batch.items.append(message)
        size += length
    if batch.items:
        yield batch


def _message(count: int, item: Item) -> Any:
    try:
        return wire.item_to_proto(item)
    except (TypeError, ValueError) as error:
        text = f"item {count} ({item.id!r}) cannot be sent: {error}"
        raise CallFailed("DATASET_INVALID", text, "INVALID_ARGUMENT") from None


async def _each(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[Item, None]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
