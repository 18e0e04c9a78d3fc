"""A channel to a server: calls with their errors, streams that come back, uploads in batches. Speaks in messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from evalbus import wire
from evalbus._errors import CallFailed
from evalbus._item import Item
from evalbus.v1 import dataset_pb2, dataset_pb2_grpc, run_pb2, run_pb2_grpc

T_ = TypeVar("T_")

LARGEST_ITEM = 1024 * 1024
"""Bytes of an encoded item, at most."""
LARGEST_BATCH = 1024 * 1024
MOST_ITEMS = 256

ANSWER_LIMIT = 60.0
"""Seconds for a call that reads."""
START_LIMIT = 180.0
"""Seconds for a call that reaches plugins, which may have to be started."""
_BROKEN = "Internal error from Core"
"""What gRPC sometimes says of a connection that broke while something was being sent."""
_SERVER_GONE = ("UNAVAILABLE", "CANCELLED")
"""How a stream ends whose server ends: CANCELLED comes from the other side, since ours would be a CancelledError."""
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


class Connection:
    """A channel to a server. Nothing is connected before the first call."""

    def __init__(
        self, address: str, token: str | None = None, tls: Tls | None = None, *, token_is: str = "token="
    ) -> None:
        """*address* is `host:port` or `unix:/path`; *token* goes along with every call.

        *token_is* says where a caller gives the token, for whoever is not let in without it.

        Raises:
            OSError: the root certificates cannot be read.
        """
        self.address = address
        self._token_hint = (
            f"does not know this token; correct {token_is}" if token else f"wants a token; set {token_is}"
        )
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel = _channel(address, tls)
        self.runs = run_pb2_grpc.RunServiceStub(self._channel)
        self.datasets = dataset_pb2_grpc.DatasetServiceStub(self._channel)

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()

    async def ask(self, method: Any, request: Any, limit: float = ANSWER_LIMIT) -> Any:
        """The answer of a unary call.

        Raises:
            CallFailed: there is none within *limit* seconds, or the server refuses.
        """
        return await self._answer(method(request, timeout=limit, metadata=self._metadata))

    async def pages(self, method: Any, request: Any) -> AsyncGenerator[Any, None]:
        """All pages of a list, one after the other.

        Raises:
            CallFailed: as `ask`.
        """
        while True:
            page = await self.ask(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def watch(
        self, run_id: str, after: int | None, patience: float, *, with_results: bool = False
    ) -> AsyncGenerator[run_pb2.WatchRunResponse, None]:
        """What a watcher of a run is told, to the end, over as many connections as it takes.

        Results come along with their event, so that a connection that breaks between them repeats none.
        It gives up after *patience* seconds without success, and at once if it was told nothing yet.

        Raises:
            CallFailed: the server cannot be reached, or refuses.
        """
        pause, heard_at = _FIRST_PAUSE, None
        loop = asyncio.get_running_loop()
        while True:
            try:
                request = run_pb2.WatchRunRequest(run_id=run_id, after_sequence=after, with_results=with_results)
                results: list[run_pb2.WatchRunResponse] = []
                async with aclosing(self.stream(self.runs.WatchRun, request)) as messages:
                    async for message in messages:
                        pause, heard_at = _FIRST_PAUSE, loop.time()
                        match message.WhichOneof("message"):
                            case "results":
                                results.append(message)
                                continue
                            case "event":
                                after = message.event.sequence
                                for each in results:
                                    yield each
                                results.clear()
                            case "snapshot":
                                after = message.snapshot.run.last_sequence
                        yield message
                return
            except CallFailed as failed:
                if failed.code not in _SERVER_GONE or heard_at is None or loop.time() - heard_at > patience:
                    raise
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def upload(
        self, name: str, items: Iterable[Item] | AsyncIterable[Item], *, origin: str = "", moved_from: str = ""
    ) -> dataset_pb2.UploadDatasetResponse:
        """Make items the newest version of a dataset, all or nothing.

        Raises:
            CallFailed: an item is not acceptable, or the server refuses.
        """
        header = dataset_pb2.UploadHeader(name=name, origin=origin, moved_from=moved_from)
        call = self.datasets.UploadDataset(metadata=self._metadata)
        try:
            await call.write(dataset_pb2.UploadDatasetRequest(header=header))
            async for batch in _batches(items):
                await call.write(dataset_pb2.UploadDatasetRequest(items=batch))
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the server has ended the call: the answer says why
        except BaseException:
            call.cancel()
            raise
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            if _is_lost(error):  # whoever is not let in is refused while it still writes
                await self.ask(self.datasets.ListDatasets, dataset_pb2.ListDatasetsRequest(page_size=1))
            raise self._failed(error) from None

    async def stream(self, method: Any, request: Any) -> AsyncGenerator[Any, None]:
        """The answers of a call that sends several.

        Raises:
            CallFailed: the server cannot be reached, or refuses.
        """
        call = method(request, metadata=self._metadata)
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from None
        finally:
            call.cancel()  # whoever stops listening ends the call

    async def _answer(self, call: Awaitable[T_]) -> T_:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from None

    def _failed(self, error: grpc.aio.AioRpcError) -> CallFailed:
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return CallFailed("UNAUTHENTICATED", f"the server at {self.address} {self._token_hint}", error.code().name)
        return _failed(error, self.address)


def _channel(address: str, tls: Tls | None) -> grpc.aio.Channel:
    if tls is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    roots = None if tls.root_certificates is None else Path(tls.root_certificates).read_bytes()
    name = (("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name else ()
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(roots), options=(*_OPTIONS, *name))


_OF_TLS = {
    "CERTIFICATE_VERIFY_FAILED": (
        "its certificate is not trusted; name the one that signed it: Tls(root_certificates=…) in a program, "
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH on the command line"
    ),
    "WRONG_VERSION_NUMBER": "it does not speak TLS; leave tls= away in a program, https:// on the command line",
    "Socket closed": "it hung up; if it speaks TLS, say tls=True in a program, https:// in front on the command line",
}
"""What gRPC says of an end that does not fit the other, and what to do about it."""


def _is_lost(error: grpc.aio.AioRpcError) -> bool:
    """Whether gRPC has lost what the server said, since something was being sent just then."""
    return error.code() is grpc.StatusCode.INTERNAL and error.details() == _BROKEN


def _failed(error: grpc.aio.AioRpcError, address: str) -> CallFailed:
    """What a status says: the server's own reason, or one for a call that did not come through."""
    code, said = error.code().name, error.details() or error.code().name
    for detail in _details(error):
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.reason:
            return CallFailed(info.reason, said, code)
    if _is_lost(error):
        code = "UNAVAILABLE"
    if code == "UNAVAILABLE":
        if "://" in address and not address.startswith("dns:"):
            said = "it is a URL; write host:port"
        said = next((text for sign, text in _OF_TLS.items() if sign in said), said)
        return CallFailed("SERVER_UNREACHABLE", f"the server at {address} cannot be reached: {said}", code)
    if code == "UNIMPLEMENTED" and not _details(error):
        said = f"what listens at {address} is no evalbus server, or an older one; is it the address of a plugin?"
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
