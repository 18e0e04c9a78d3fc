"""A plugin in a process of its own: reached, described, and opened for a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from evalbus import ContractBroken, FailureOrigin, PluginInfo, ScorerInfo, wire
from evalbus._plugin import REVISION, Open
from evalbus._reduce import Reduction
from evalbus.v1 import plugin_pb2
from evalbus_server.errors import Reason, ServerError, Unfit, Unreachable
from evalbus_server.model.plugin_use import Tls
from evalbus_server.plugin.channel import authorisation, open_channel, why_unconnected
from evalbus_server.plugin.codec import Codec, ScorerCodec, TargetCodec
from evalbus_server.plugin.conversation import GrpcConversation, details_of
from evalbus_server.plugin.port import Batches, ConversationLost, Reduced
from evalbus_server.plugin.reduce import reduce_over
from evalbus_server.plugin.salvage import Unreadable

T = TypeVar("T")

OPEN_LIMIT = 60.0
"""Seconds that a plugin has to answer `open`: a model may have to be loaded."""
LAST_WORD = 0.5
"""Seconds until what a process said of `open` at its very end has come through."""

_KINDS = ("scorer", "target")
_PROBE = 5.0
"""Seconds to find out why a plugin has not answered."""


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
    token_hint: str
    """What it does when it lets nobody in, and what to set."""


class NotServed(Unfit):
    """No plugin that fits is served there, or several, and none was named."""

    def __init__(self, message: str, served: Mapping[str, Sequence[str]]) -> None:
        """*served* are the names of what is served, by kind (target, scorer), as far as that is known."""
        super().__init__(Reason.PLUGIN_UNKNOWN, message)
        self.served = served


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
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                others = await self._of_the_other_kind(request)
                await self._hang_up()
                raise self._other_kind_only(others) from None
            why = await self._why_unconnected(request) if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else ""
            await self._hang_up()
            raise await self._unreachable(error, why) from None
        except BaseException:
            await self._hang_up()
            raise
        if isinstance(response, Unreadable):
            raise Unfit(Reason.PLUGIN_BROKEN, f"{self._what()} describes itself unreadably: {response.why}")
        try:
            return [wire.plugin_info_from_proto(message) for message in response.plugins]
        except ContractBroken as broken:
            raise Unfit(Reason.PLUGIN_BROKEN, f"{self._what()} describes itself wrongly: {broken}") from None

    async def _why_unconnected(self, request: plugin_pb2.DescribeRequest) -> str:
        """What is wrong with the connection, of which a call that waits for one hears nothing; "" if nobody can tell."""
        assert self._channel is not None
        call = self._codec.describe(self._channel)(
            request, timeout=min(self._place.limit, _PROBE), metadata=authorisation(self._place.token)
        )
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return why_unconnected(details_of(error)) if error.code() is grpc.StatusCode.UNAVAILABLE else ""
        return ""

    async def _of_the_other_kind(self, request: plugin_pb2.DescribeRequest) -> list[str]:
        """The names of what the process serves instead; none if it does not say so at once."""
        assert self._channel is not None
        other = TargetCodec() if self._wants_scorer else ScorerCodec()
        call = other.describe(self._channel)(
            request, timeout=self._place.limit, metadata=authorisation(self._place.token)
        )
        try:
            response = await self._while_it_lives(call)
        except (_Died, grpc.aio.AioRpcError):
            return []
        return [] if isinstance(response, Unreadable) else [plugin.name for plugin in response.plugins]

    def _other_kind_only(self, others: Sequence[str]) -> NotServed:
        kind, other = _KINDS if self._wants_scorer else _KINDS[::-1]
        if not others:
            return NotServed(f"{self._what()} serves no evalbus {kind}", {})
        key = "`target`" if other == "target" else "`scorers`"
        message = f"{self._what()} serves no evalbus {kind}, but {listed(other, others)}, which belongs under {key}"
        return NotServed(message.replace("belongs", "belong") if len(others) > 1 else message, {other: others})

    @property
    def _wants_scorer(self) -> bool:
        return self._codec.origin is FailureOrigin.SCORER

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

    async def _unreachable(self, error: grpc.aio.AioRpcError, why: str) -> ServerError:
        code, details = error.code(), details_of(error)
        words = await self._place.last_words()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            hint = f": {why}" if why else self._place.hint
            said = f"did not answer Describe within {self._place.limit:g} s{hint}"
            return Unreachable(Reason.PLUGIN_UNREACHABLE, f"{self._what()} {said}{words}")
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return Unreachable(Reason.PLUGIN_UNREACHABLE, f"{self._what()} {self._place.token_hint}: {details}")
        message = f"{self._what()} cannot be reached: {code.name}: {details}{words}"
        return Unreachable(Reason.PLUGIN_UNREACHABLE, message)

    def _choose(self, plugins: list[PluginInfo]) -> PluginInfo:
        fitting = [info for info in plugins if isinstance(info.kind, ScorerInfo) is self._wants_scorer]
        names = ", ".join(info.name for info in fitting) or "none"
        kind = "scorer" if self._wants_scorer else "target"
        served = {kind: [info.name for info in fitting]}
        if self._name:
            chosen = [info for info in fitting if info.name == self._name]
            if not chosen:
                raise NotServed(f"no {kind} {self._name!r} is served there; there is: {names}", served)
        elif len(fitting) == 1:
            chosen = fitting
        elif not fitting:
            raise NotServed(f"the process serves no {kind}", served)
        else:
            raise NotServed(f"the process serves several {kind}s; name one with `plugin`: {names}", served)
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
            if lost.status == grpc.StatusCode.UNAUTHENTICATED.name:
                words = f"; it {self._place.token_hint}{words}"
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


def listed(kind: str, names: Sequence[str]) -> str:
    """Plugins of a kind for people, as in "the scorers short, polite"."""
    return f"the {kind}{'s' * (len(names) > 1)} {', '.join(names)}"


def _identity(info: PluginInfo) -> tuple[str, str, str]:
    return (info.version, info.digest, info.settings_schema)


def _said(info: PluginInfo) -> str:
    return f"{info.version or 'no version'} {info.digest[:12]}".strip()
