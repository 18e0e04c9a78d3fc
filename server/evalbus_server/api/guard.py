"""What stands in front of every handler: the token, and the one place where errors become statuses."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import grpc
import grpc.aio
import structlog

from evalbus_server.api.status import to_status
from evalbus_server.errors import Denied, Reason, ServerError

_OPEN_TO_ALL = "/grpc.health.v1.Health/"
_FOREIGN = "/grpc."
"""Services of gRPC itself, which map their own errors."""

_log = structlog.get_logger("evalbus.api")


class Guard(grpc.aio.ServerInterceptor):
    """Lets in who carries a token, and turns what a handler raises into a status, always, and never into a silence."""

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        """*tokens* () lets everybody in."""
        self._expected = [f"Bearer {token}".encode() for token in tokens]
        self._at_work: set[asyncio.Task[Any]] = set()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """The handler of a call, guarded."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.startswith(_OPEN_TO_ALL):
            return handler
        if not self._knows(handler_call_details.invocation_metadata or ()):
            return _like(handler, _refuse)
        return handler if method.startswith(_FOREIGN) else _guarded(handler, method, self._at_work)

    async def drain(self, limit: float) -> None:
        """Wait until no handler is at work any more: gRPC forgets those that it has cancelled before they have ended."""
        if self._at_work:
            await asyncio.wait(set(self._at_work), timeout=limit)

    def _knows(self, metadata: Sequence[tuple[str, str | bytes]]) -> bool:
        if not self._expected:
            return True
        given = [value for key, value in metadata if key == "authorization"]
        shown = [value if isinstance(value, bytes) else value.encode("utf-8", "replace") for value in given]
        # All are compared, however early one fits, so that the time tells nothing.
        return sum(hmac.compare_digest(one, expected) for one in shown for expected in self._expected) > 0


async def _refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    message = "the token is missing or wrong; send it as `authorization: Bearer …`"
    await context.abort_with_status(to_status(Denied(Reason.UNAUTHENTICATED, message)))


def _guarded(handler: Any, method: str, at_work: set[asyncio.Task[Any]]) -> Any:
    if handler.response_streaming:
        behaviour = handler.stream_stream or handler.unary_stream

        async def stream(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            with _listed(at_work):
                try:
                    async with contextlib.aclosing(behaviour(request, context)) as messages:
                        async for message in messages:
                            await context.write(message)
                except BaseException as error:
                    await _abort(error, context, method)

        return _like(handler, stream)
    behaviour = handler.stream_unary or handler.unary_unary

    async def unary(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        with _listed(at_work):
            try:
                return await behaviour(request, context)
            except BaseException as error:
                await _abort(error, context, method)

    return _like(handler, unary)


@contextlib.contextmanager
def _listed(at_work: set[asyncio.Task[Any]]) -> Iterator[None]:
    task = asyncio.current_task()
    assert task is not None
    at_work.add(task)
    try:
        yield
    finally:
        at_work.discard(task)


def _like(handler: Any, behaviour: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    """A handler of the same shape that does something else."""
    shape = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return shape(behaviour, handler.request_deserializer, handler.response_serializer)


async def _abort(error: BaseException, context: grpc.aio.ServicerContext[Any, Any], method: str) -> None:
    """End the call with the status for an error; raises in any case."""
    if isinstance(error, grpc.aio.AbortError | KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError) and _asked_for():
        raise error
    if not isinstance(error, ServerError):
        error = _public(error, method)
    elif error.reason is Reason.INTERNAL:
        _log.error("call failed", method=method, error=str(error))
    await context.abort_with_status(to_status(error))


def _asked_for() -> bool:
    """Whether somebody cancelled this very call. If not, gRPC would leave the caller without any status, for ever."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _public(error: BaseException, method: str) -> ServerError:
    """What a caller may know of an unexpected error; the rest is logged under the same number."""
    number = secrets.token_hex(4)
    _log.error("call failed unexpectedly", method=method, number=number, exc_info=error)
    what = "the work behind the call was cancelled" if isinstance(error, asyncio.CancelledError) else "a fault"
    return ServerError(Reason.INTERNAL, f"{what} in the server; its log has it under {number}")
