"""What stands in front of every handler: the token, and the one place where errors become statuses."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
import structlog

from evalbus_server.api.at_work import STOPPING, AtWork
from evalbus_server.api.status import to_status
from evalbus_server.errors import Denied, Reason, ServerError, Unreachable

_OPEN_TO_ALL = "/grpc.health.v1.Health/"
_FOREIGN = "/grpc."
"""Services of gRPC itself, which map their own errors."""

_log = structlog.get_logger("evalbus.api")


class Guard(grpc.aio.ServerInterceptor):
    """Lets in who carries a token, and turns what a handler raises into a status, always, and never into a silence."""

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        """*tokens* () lets everybody in."""
        self._expected = [f"Bearer {token}".encode() for token in tokens]
        self._at_work = AtWork()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """The handler of a call, guarded."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.startswith(_OPEN_TO_ALL):
            return handler
        if not self._knows(handler_call_details.invocation_metadata or ()):
            return _like(handler, _refuse)
        return handler if method.startswith(_FOREIGN) else _guarded(handler, method, self._at_work)

    @property
    def at_work(self) -> AtWork:
        """The calls that are open."""
        return self._at_work

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


def _guarded(handler: Any, method: str, at_work: AtWork) -> Any:
    if handler.response_streaming:
        behaviour = handler.stream_stream or handler.unary_stream

        async def stream(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            with at_work.listed(method):
                try:
                    at_work.refuse_at_the_end()
                    async with contextlib.aclosing(behaviour(request, context)) as messages:
                        async for message in messages:
                            await context.write(message)
                except BaseException as error:
                    await _abort(_told(error, at_work), context, method)

        return _like(handler, stream)
    behaviour = handler.stream_unary or handler.unary_unary

    async def unary(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        with at_work.listed(method):
            try:
                at_work.refuse_at_the_end()
                return await behaviour(request, context)
            except BaseException as error:
                await _abort(_told(error, at_work), context, method)

    return _like(handler, unary)


def _like(handler: Any, behaviour: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    """A handler of the same shape that does something else."""
    shape = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return shape(behaviour, handler.request_deserializer, handler.response_serializer)


def _told(error: BaseException, at_work: AtWork) -> BaseException:
    """What the caller of a call that ends with an error is told: that the server stops, if that is what ended it."""
    if isinstance(error, asyncio.CancelledError) and at_work.is_dismissed:
        return Unreachable(Reason.SERVER_STOPPING, STOPPING)
    return error


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
