"""In front of every handler: the token, and a status for whatever happens, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from evalbus_server.api.guard import Guard
from evalbus_server.errors import NotFound, Reason, StoreTrouble


class Calls:
    """Handlers that do what a test wants, of each shape."""

    def __init__(self) -> None:
        self.raises: BaseException | None = None
        self.entered = asyncio.Event()
        self.closed = asyncio.Event()

    async def do(self) -> None:
        self.entered.set()
        if self.raises is not None:
            raise self.raises

    async def unary(self, request: bytes, context: Any) -> bytes:
        await self.do()
        return request

    async def stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await self.do()
            await asyncio.sleep(60)
        finally:
            self.closed.set()

    async def upload(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        total = [request async for request in requests]
        await self.do()
        return b"".join(total)

    async def cancelled_inside(self, request: bytes, context: Any) -> bytes:
        inner = asyncio.ensure_future(asyncio.sleep(60))
        asyncio.get_running_loop().call_later(0.05, inner.cancel)
        await inner
        return request

    async def waits(self, request: bytes, context: Any) -> bytes:
        self.entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.closed.set()
        return request


@asynccontextmanager
async def served(calls: Calls, *tokens: str, guard: Guard | None = None) -> AsyncIterator[Any]:
    server = grpc.aio.server(interceptors=[guard or Guard(tokens)])
    handlers: dict[str, Any] = {
        "unary": grpc.unary_unary_rpc_method_handler(calls.unary),
        "stream": grpc.unary_stream_rpc_method_handler(calls.stream),
        "upload": grpc.stream_unary_rpc_method_handler(calls.upload),
        "cancelled_inside": grpc.unary_unary_rpc_method_handler(calls.cancelled_inside),
        "waits": grpc.unary_unary_rpc_method_handler(calls.waits),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", handlers),))
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(0)


async def failure(awaitable: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return caught.value


def reason_of(error: grpc.aio.AioRpcError) -> str:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    info = error_details_pb2.ErrorInfo()
    assert status is not None and status.details[0].Unpack(info)
    return str(info.reason)


def shapes(channel: Any) -> dict[str, Any]:
    async def unary() -> None:
        await channel.unary_unary("/t.T/unary")(b"")

    async def stream() -> None:
        async for _ in channel.unary_stream("/t.T/stream")(b""):
            pass

    async def upload() -> None:
        await channel.stream_unary("/t.T/upload")(iter([b"a", b"b"]))

    return {"unary": unary, "stream": stream, "upload": upload}


@pytest.mark.parametrize("shape", ["unary", "stream", "upload"])
async def test_an_error_of_the_server_becomes_its_status_in_every_shape_of_call(shape: str) -> None:
    calls = Calls()
    calls.raises = NotFound(Reason.RUN_NOT_FOUND, "there is no run 'r1'")
    async with served(calls) as channel:
        error = await failure(shapes(channel)[shape]())

    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "there is no run 'r1'")
    assert reason_of(error) == "RUN_NOT_FOUND"


@pytest.mark.parametrize("shape", ["unary", "stream", "upload"])
async def test_an_unexpected_exception_is_internal_and_its_text_stays_in_the_log(shape: str) -> None:
    calls = Calls()
    calls.raises = ZeroDivisionError("password=secret")
    async with served(calls) as channel:
        with structlog.testing.capture_logs() as logs:
            error = await failure(shapes(channel)[shape]())

    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in (error.details() or "")
    (entry,) = logs
    assert entry["exc_info"] is calls.raises
    assert entry["number"] in (error.details() or "")


async def test_a_fault_that_the_server_knows_is_logged_too() -> None:
    calls = Calls()
    calls.raises = StoreTrouble(Reason.INTERNAL, "a value cannot be stored: int too large")
    async with served(calls) as channel:
        with structlog.testing.capture_logs() as logs:
            await failure(shapes(channel)["unary"]())

    assert [entry["log_level"] for entry in logs] == ["error"]


async def test_an_inner_cancel_that_nobody_asked_for_is_a_status_and_not_the_end_of_patience() -> None:
    """PL-01: gRPC drops a CancelledError of a handler without a word, and the caller waits for ever."""
    async with served(Calls()) as channel:
        error = await failure(channel.unary_unary("/t.T/cancelled_inside")(b"", timeout=60))

    assert error.code() is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("shape", ["unary", "stream", "upload"])
async def test_a_handler_that_raises_cancelled_error_is_a_status_in_every_shape_of_call(shape: str) -> None:
    calls = Calls()
    calls.raises = asyncio.CancelledError()
    async with served(calls) as channel, asyncio.timeout(30):
        error = await failure(shapes(channel)[shape]())

    assert (error.code(), reason_of(error)) == (grpc.StatusCode.INTERNAL, "INTERNAL")


async def test_a_caller_who_cancels_cancels_the_handler_and_nothing_is_logged() -> None:
    calls = Calls()
    async with served(calls) as channel:
        with structlog.testing.capture_logs() as logs:
            call = channel.unary_unary("/t.T/waits")(b"")
            await asyncio.wait({asyncio.ensure_future(calls.entered.wait())}, timeout=30)
            call.cancel()
            async with asyncio.timeout(30):
                await calls.closed.wait()

    assert logs == []


async def test_a_call_that_is_dismissed_says_that_the_server_stops_once_it_has_ended_its_work() -> None:
    calls, guard = Calls(), Guard()
    async with served(calls, guard=guard) as channel, asyncio.timeout(60):
        waiting = asyncio.ensure_future(channel.unary_unary("/t.T/waits")(b""))
        await calls.entered.wait()
        await guard.at_work.dismiss(0, 60)
        assert calls.closed.is_set() and len(guard.at_work) == 0
        dismissed = await failure(waiting)
        late = await failure(channel.unary_unary("/t.T/unary")(b""))

    for error in (dismissed, late):
        assert (error.code(), reason_of(error)) == (grpc.StatusCode.UNAVAILABLE, "SERVER_STOPPING")


async def test_a_stream_whose_listener_goes_away_is_closed_at_once() -> None:
    calls = Calls()
    async with served(calls) as channel:
        call = channel.unary_stream("/t.T/stream")(b"")
        assert await call.read() == b"first"
        call.cancel()
        async with asyncio.timeout(30):
            await calls.closed.wait()


@pytest.mark.parametrize(
    "metadata",
    [(), (("authorization", "Bearer wrong"),), (("authorization", "s3cret"),), (("authorization", "bearer s3cret"),)],
)
@pytest.mark.parametrize("shape", ["unary", "stream", "upload"])
async def test_nobody_gets_in_without_the_token(shape: str, metadata: tuple[tuple[str, str], ...]) -> None:
    calls = Calls()
    async with served(calls, "s3cret") as channel:
        if shape == "stream":
            error = await failure(channel.unary_stream("/t.T/stream")(b"", metadata=metadata).read())
        elif shape == "upload":
            error = await failure(channel.stream_unary("/t.T/upload")(iter([b"a"]), metadata=metadata))
        else:
            error = await failure(channel.unary_unary("/t.T/unary")(b"", metadata=metadata))

    assert (error.code(), reason_of(error)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
    assert not calls.entered.is_set()


@pytest.mark.parametrize("token", ["old", "new"])
async def test_each_of_several_tokens_lets_in(token: str) -> None:
    async with served(Calls(), "old", "new") as channel:
        metadata = (("authorization", f"Bearer {token}"),)
        assert await channel.unary_unary("/t.T/unary")(b"x", metadata=metadata) == b"x"


async def test_health_needs_no_token() -> None:
    async with served(Calls(), "s3cret") as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())  # type: ignore[attr-defined]

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_an_unknown_method_is_unimplemented() -> None:
    async with served(Calls()) as channel:
        error = await failure(channel.unary_unary("/t.T/nothing")(b""))

    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
