"""A conversation with a plugin over a gRPC stream, and what the end of one says."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from evalbus import ContractBroken, wire
from evalbus._plugin import Open, Ready
from evalbus_server.errors import Invalid, Reason, Unfit
from evalbus_server.plugin.codec import Codec
from evalbus_server.plugin.port import ConversationLost, Flight, Received
from evalbus_server.plugin.salvage import Unreadable

BYTES_A_MESSAGE = 1024 * 1024
_HOPELESS = frozenset(
    {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
)
_SIZES = re.compile(r"larger than max \((\d+) vs\. (\d+)\)")
_LONG_STATUS = re.compile(r"metadata size exceeds.*?(\d+) vs\. (\d+)")
_BROKEN_WRITE = "Internal error from Core"
"""What grpc.aio puts in the place of the true status when a stream breaks under the message that is being written."""


class GrpcConversation:
    """One stream. Whoever breaks it or finds it broken, both loops see ConversationLost and never a foreign error."""

    def __init__(self, call: Any, codec: Codec) -> None:
        self._call = call
        self._codec = codec
        self._abandoned = False
        self.ready = Ready()

    async def open(self, opening: Open, name: str) -> None:
        """Send `open` alone and wait for the answer, since a status is lost when a stream ends under a writer."""
        await self._write(self._codec.opening(opening))
        response = await self._read()
        if isinstance(response, Unreadable):
            raise Unfit(Reason.PLUGIN_BROKEN, f"plugin {name!r} answered `open` unreadably: {response.why}")
        which = None if response is None else response.WhichOneof("message")
        if which == "ready":
            assert response is not None
            try:
                self.ready = wire.ready_from_proto(response.ready)
            except ContractBroken as broken:
                raise Unfit(Reason.PLUGIN_BROKEN, f"plugin {name!r} answered `open` wrongly: {broken}") from None
        elif which == "refused":
            assert response is not None
            failure = wire.failure_from_proto(response.refused.failure)
            message = f"plugin {name!r} refused: {one_line(failure.message) or 'it does not say why'}"
            if failure.reason == Reason.SETTINGS_INVALID:
                raise Invalid(Reason.SETTINGS_INVALID, message, field=failure.field)
            raise Unfit(Reason.PLUGIN_REFUSED, f"{message} ({one_line(failure.reason, 64)})", field=failure.field)
        else:
            said = "ended the stream" if response is None else f"answered {which or 'nothing known'}"
            raise Unfit(Reason.PLUGIN_BROKEN, f"plugin {name!r} {said} where `ready` or `refused` was due")

    async def send(self, flights: Sequence[Flight], now: float) -> None:
        """Send flights, in as many messages as the limit on bytes asks for."""
        request = self._codec.request(flights, now)
        if len(flights) > 1 and len(request) > BYTES_A_MESSAGE:
            half = len(flights) // 2
            await self.send(flights[:half], now)
            await self.send(flights[half:], now)
            return
        await self._write(request)

    async def cancel(self, attempts: Sequence[tuple[int, int]]) -> None:
        """Ask to stop attempts."""
        await self._write(self._codec.cancel(attempts))

    async def end(self) -> None:
        """Half-close."""
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await self._call.done_writing()

    async def receive(self) -> Received | None:
        """The next message, decoded."""
        response = await self._read()
        return None if response is None else self._codec.read(response)

    async def abandon(self) -> None:
        """Cancel the call."""
        self._abandoned = True
        self._call.cancel()

    async def _write(self, request: bytes) -> None:
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            raise ConversationLost("the stream had ended") from None  # the reader knows why
        except grpc.aio.AioRpcError as error:
            raise _lost(error.code(), error.details() or "") from None
        except asyncio.CancelledError:
            self._raise_if_only_the_call_was_cancelled()
            raise

    async def _read(self) -> Any:
        try:
            response = await self._call.read()
            if response is not grpc.aio.EOF:
                return response
            code = await self._call.code()
            if code is grpc.StatusCode.OK:
                return None
            raise _lost(code, await self._call.details() or "")
        except grpc.aio.AioRpcError as error:
            raise _lost(error.code(), error.details() or "") from None
        except asyncio.CancelledError:
            self._raise_if_only_the_call_was_cancelled()
            raise

    def _raise_if_only_the_call_was_cancelled(self) -> None:
        """grpc.aio raises CancelledError in everyone who waits on a cancelled call; only a cancelled task may pass it on."""
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            raise ConversationLost("broken off" if self._abandoned else "the call was cancelled") from None


def _lost(code: grpc.StatusCode, details: str) -> ConversationLost:
    """What a status says about a conversation.

    A message that is too large, and an error text that is, would come again: they are the fault of one trial.
    """
    too_large = code is grpc.StatusCode.RESOURCE_EXHAUSTED and bool(
        _SIZES.search(details) or _LONG_STATUS.search(details)
    )
    return ConversationLost(f"{code.name}: {_readable(details)}", too_large, code in _HOPELESS, code.name)


def details_of(error: grpc.aio.AioRpcError) -> str:
    """What a status says, on one line."""
    return _readable(error.details() or "")


def _readable(details: str) -> str:
    """The details of a status on one line; gRPC puts a riddle in their place where it lost them."""
    if details == _BROKEN_WRITE:
        return "the stream broke while it was being written to, so the true status is lost"
    found = _LONG_STATUS.search(details)
    if found:
        return f"its error text has {found[1]} bytes, but gRPC carries {found[2]} at most, so the true status is lost"
    return one_line(details)


def one_line(text: str, limit: int = 2000) -> str:
    """A text of somebody else on one line, cut, without lone surrogates."""
    flat = " ".join(text.split())
    if len(flat) > limit:
        flat = f"{flat[:limit]}…"
    return flat.encode("utf-8", "replace").decode()
