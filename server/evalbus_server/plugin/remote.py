"""A plugin in a process of its own: the handshake, and a conversation over a gRPC stream."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from evalbus import ContractBroken, PluginInfo, ScorerInfo, wire
from evalbus._plugin import REVISION, Open, Ready
from evalbus._reduce import Reduction
from evalbus.v1 import plugin_pb2
from evalbus_server.errors import Invalid, Reason, ServerError, Unfit, Unreachable
from evalbus_server.model.plugin_use import Tls
from evalbus_server.plugin.channel import authorisation, open_channel
from evalbus_server.plugin.codec import Codec
from evalbus_server.plugin.port import ConversationLost, Flight, Received
from evalbus_server.plugin.reduce import Batches, Reduced, reduce_over
from evalbus_server.plugin.salvage import Unreadable

T = TypeVar("T")

BYTES_A_MESSAGE = 1024 * 1024
OPEN_LIMIT = 60.0
"""Seconds that a plugin has to answer `open`: a model may have to be loaded."""
LAST_WORD = 0.5
"""Seconds until what a process said of `open` at its very end has come through."""
_HOPELESS = frozenset(
    {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
)
_SIZES = re.compile(r"larger than max \((\d+) vs\. (\d+)\)")
_LONG_STATUS = re.compile(r"metadata size exceeds.*?(\d+) vs\. (\d+)")


class Place(Protocol):
    """Where a plugin is: an address, or a process that is started when it is needed."""

    async def address(self) -> str:
        """Where it listens; starts the process if it does not run.

        Raises:
            Unreachable: it cannot be started.
        """
        ...

    async def lost(self) -> str:
        """Waits until the process has ended and says how; never returns for an address."""
        ...

    async def end(self) -> None:
        """End the process, if there is one."""
        ...

    async def last_words(self) -> str:
        """How the process ended and what it said last; "" if there is nothing to say."""
        ...

    def __str__(self) -> str:
        """For people: where it is, or what it was started as."""
        ...

    token: str
    limit: float
    """Seconds until it must have answered Describe."""
    hint: str
    """What to look at when it does not answer."""


class RemotePlugin:
    """A target or scorer behind a channel."""

    def __init__(self, place: Place, codec: Codec, name: str, *, tls: Tls | None = None) -> None:
        """*name* chooses among the plugins of the process; "" if it serves just one of the kind."""
        self._place = place
        self._codec = codec
        self._name = name
        self._tls = tls
        self._channel: grpc.aio.Channel | None = None
        self._address = ""
        self._info: PluginInfo | None = None

    @property
    def info(self) -> PluginInfo:
        """What the plugin said of itself; after `reach` only."""
        assert self._info is not None
        return self._info

    async def reach(self) -> PluginInfo:
        """Connect and shake hands.

        Raises:
            Unreachable: it cannot be reached or started, or does not answer Describe in time.
            Unfit: no plugin of that name, no common protocol revision, a broken description, or another build than before.
        """
        address = await self._place.address()
        if self._channel is not None and address == self._address:
            return self.info
        await self._hang_up()
        keepalive = False
        described = await self._describe(address, keepalive)
        info = self._choose(described)
        if "keepalive" in info.capabilities:  # only now it is known that pings do not end the stream
            await self._hang_up()
            keepalive = True
        if self._info is not None and _identity(info) != _identity(self._info):
            message = f"plugin {info.name!r} changed during the run ({_said(self._info)} is now {_said(info)}): start a new run"
            raise Unfit(Reason.PLUGIN_CHANGED, message)
        self._info = info
        self._address = address
        if self._channel is None:
            self._channel = open_channel(address, tls=self._tls, keepalive=keepalive)
        return info

    async def _describe(self, address: str, keepalive: bool) -> list[PluginInfo]:
        self._channel = open_channel(address, tls=self._tls, keepalive=keepalive)
        request = plugin_pb2.DescribeRequest(lowest_revision=REVISION, highest_revision=REVISION)
        call = self._codec.describe(self._channel)(
            request, timeout=self._place.limit, wait_for_ready=True, metadata=authorisation(self._place.token)
        )
        try:
            response = await self._while_it_lives(call)
        except _Died as died:
            await self._hang_up()
            raise Unreachable(Reason.PLUGIN_START_FAILED, f"{self._what()} {died}") from None
        except grpc.aio.AioRpcError as error:
            await self._hang_up()
            raise await self._unreachable(error) from None
        except BaseException:
            await self._hang_up()
            raise
        if isinstance(response, Unreadable):
            raise Unfit(Reason.PLUGIN_BROKEN, f"{self._what()} describes itself unreadably: {response.why}")
        try:
            return [wire.plugin_info_from_proto(message) for message in response.plugins]
        except ContractBroken as broken:
            raise Unfit(Reason.PLUGIN_BROKEN, f"{self._what()} describes itself wrongly: {broken}") from None

    async def _while_it_lives(self, answer: Awaitable[T], moment: float = 0.0) -> T:
        """An answer of the plugin, which has *moment* seconds to come after the process has ended.

        A call that waits for a connection would not notice the end.

        Raises:
            _Died: the process ended without it.
        """
        waiting = asyncio.ensure_future(answer)
        death = asyncio.ensure_future(self._place.lost())
        try:
            await asyncio.wait({waiting, death}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() and moment:
                await asyncio.wait({waiting}, timeout=moment)
            if waiting.done():
                return waiting.result()
            raise _Died(death.result())
        finally:
            for future in (waiting, death):
                future.cancel()
            await asyncio.gather(waiting, death, return_exceptions=True)

    def _what(self) -> str:
        return f"plugin {self._name!r} {self._place}" if self._name else f"the plugin {self._place}"

    async def _unreachable(self, error: grpc.aio.AioRpcError) -> ServerError:
        code, details = error.code(), details_of(error)
        words = await self._place.last_words()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            said = f"did not answer Describe within {self._place.limit:g} s{self._place.hint}"
            return Unreachable(Reason.PLUGIN_UNREACHABLE, f"{self._what()} {said}{words}")
        if code is grpc.StatusCode.UNIMPLEMENTED:
            kind = "target" if self._codec.origin.name == "TARGET" else "scorer"
            return Unfit(Reason.PLUGIN_UNKNOWN, f"{self._what()} serves no evalbus {kind}{words}")
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return Unreachable(Reason.PLUGIN_UNREACHABLE, f"{self._what()} wants another token: {details}")
        message = f"{self._what()} cannot be reached: {code.name}: {details}{words}"
        return Unreachable(Reason.PLUGIN_UNREACHABLE, message)

    def _choose(self, plugins: list[PluginInfo]) -> PluginInfo:
        wanted_scorer = self._codec.origin.name == "SCORER"
        fitting = [info for info in plugins if isinstance(info.kind, ScorerInfo) is wanted_scorer]
        names = ", ".join(info.name for info in fitting) or "none"
        kind = "scorer" if wanted_scorer else "target"
        if self._name:
            chosen = [info for info in fitting if info.name == self._name]
            if not chosen:
                raise Unfit(Reason.PLUGIN_UNKNOWN, f"no {kind} {self._name!r} is served there; there is: {names}")
        elif len(fitting) == 1:
            chosen = fitting
        elif not fitting:
            raise Unfit(Reason.PLUGIN_UNKNOWN, f"the process serves no {kind}")
        else:
            raise Unfit(Reason.PLUGIN_UNKNOWN, f"the process serves several {kind}s; name one with `plugin`: {names}")
        info = chosen[0]
        if not info.lowest_revision <= REVISION <= info.highest_revision:
            side = "the plugin" if info.highest_revision < REVISION else "the server"
            message = (
                f"plugin {info.name!r} speaks protocol revisions {info.lowest_revision} to {info.highest_revision}, "
                f"the server speaks {REVISION}: upgrade {side}"
            )
            raise Unfit(Reason.PROTOCOL_MISMATCH, message)
        return info

    async def converse(self, opening: Open) -> GrpcConversation:
        """Open a conversation with the plugin, reaching it again first if that is needed."""
        info = await self.reach()
        assert self._channel is not None
        call = self._codec.converse(self._channel)(metadata=authorisation(self._place.token), wait_for_ready=True)
        conversation = GrpcConversation(call, self._codec)
        try:
            async with asyncio.timeout(OPEN_LIMIT):
                await self._while_it_lives(conversation.open(opening, info.name), LAST_WORD)
        except _Died:
            await conversation.abandon()
            message = f"plugin {info.name!r} broke at `open`: its process ended{await self._place.last_words()}"
            raise Unreachable(Reason.PLUGIN_UNREACHABLE, message) from None
        except TimeoutError:
            await conversation.abandon()
            raise Unreachable(
                Reason.PLUGIN_UNREACHABLE, f"plugin {info.name!r} did not answer `open` within {OPEN_LIMIT:g} s"
            ) from None
        except ConversationLost as lost:
            await conversation.abandon()
            words = await self._place.last_words()
            raise Unreachable(
                Reason.PLUGIN_UNREACHABLE, f"plugin {info.name!r} broke at `open`: {lost.message}{words}"
            ) from None
        except BaseException:
            await conversation.abandon()
            raise
        return conversation

    async def reduce(self, asked: Reduction, batches: Batches, limit: float) -> Reduced:
        """Numbers over a run, as the scorer makes them of all rows.

        Raises:
            ServerError: it cannot be reached, or the call broke.
        """
        await self.reach()
        assert self._channel is not None
        return await reduce_over(self._channel, authorisation(self._place.token), asked, batches, limit)

    async def restart(self) -> None:
        """End a launched process, so that nothing of an abandoned conversation goes on."""
        await self._hang_up()
        await self._place.end()

    async def last_words(self) -> str:
        """How a launched process ended and what it said last."""
        return await self._place.last_words()

    async def close(self) -> None:
        """Hang up, and end a launched process."""
        await self._hang_up()
        await self._place.end()

    async def _hang_up(self) -> None:
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()


class _Died(Exception):
    """The process ended before it had answered; the text says how."""


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
    """The details of a status on one line; gRPC puts a riddle in their place where they are too long for it."""
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


def _identity(info: PluginInfo) -> tuple[str, str, str]:
    return (info.version, info.digest, info.settings_schema)


def _said(info: PluginInfo) -> str:
    return f"{info.version or 'no version'} {info.digest[:12]}".strip()
