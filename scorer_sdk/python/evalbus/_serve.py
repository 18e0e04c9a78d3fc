"""Plugins behind a socket: a gRPC server with health, reflection and an end without noise."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from evalbus import wire
from evalbus._conversation import Conversation, Ending, Stream
from evalbus._definition import Plugin
from evalbus._errors import EvalbusError, PluginInvalid
from evalbus._records import SCORER, Side, side_of
from evalbus._reducing import reduced
from evalbus._status import details
from evalbus.v1 import plugin_pb2, scorer_pb2
from evalbus.worker import CLOSING_GRACE

GRACE = 5.0
"""Seconds that trials in flight get when the process is asked to end."""

_OPTIONS = [
    ("grpc.so_reuseport", 0),  # or a second process binds the same port, and nobody hears of it
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),  # the server's pings on a quiet stream are welcome
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),  # what is sent is bounded where it is packed
]
_CAPABILITIES = frozenset({"health", "reflection", "keepalive"})
_log = logging.getLogger("evalbus.plugin")


class CannotListen(EvalbusError):
    """The address cannot be listened on. Has the exit code of the process."""

    def __init__(self, message: str, code: int) -> None:
        """Say why."""
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Server:
    """Plugins being served. Made by `start_server`."""

    address: str
    """Where: `host:port` or `unix:…`."""
    _server: grpc.aio.Server
    _health: health.aio.HealthServicer
    _ending: Ending

    async def stop(self, grace: float = GRACE) -> None:
        """Take nothing new, give what is in flight *grace* seconds, end all streams."""
        await self._health.enter_graceful_shutdown()
        self._ending.begin(grace)
        # The conversations end by themselves; the server's own end would leave tracebacks.
        await self._server.stop(grace + 2 * CLOSING_GRACE)

    async def wait(self) -> None:
        """Wait until it has been stopped."""
        await self._server.wait_for_termination()


def serve(*plugins: Plugin[Any, Any], address: str | None = None) -> None:
    """Serve plugins until the process is asked to end (SIGTERM or Ctrl-C). Blocks.

    The address is the argument, else a unix socket at EVALBUS_SOCKET, else EVALBUS_ADDRESS, else a free port of
    127.0.0.1; it is said in one line on stderr. With EVALBUS_TOKEN set, every call must carry it as
    `authorization: Bearer …`. Trials in flight get 5 seconds at the end.

    Raises:
        PluginInvalid: there is no plugin, or two have the same name.
        SystemExit: with code 4 if the address cannot be listened on (one line on stderr says why), with code 2 if it
            is beyond this machine and EVALBUS_TOKEN is not set.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="evalbus: %(message)s")
    try:
        _run(_serve(plugins, address))
    except CannotListen as error:
        print(f"evalbus: {error}", file=sys.stderr)
        raise SystemExit(error.code) from None


async def start_server(*plugins: Plugin[Any, Any], address: str | None = None, token: str | None = None) -> Server:
    """Serve plugins from the running loop, for tests. The address is 127.0.0.1 and a free port unless given.

    Raises:
        PluginInvalid: there is no plugin, or two have the same name.
        CannotListen: the address cannot be listened on.
    """
    address = address or "127.0.0.1:0"
    _check_address(address, token)
    ending = Ending()
    server = grpc.aio.server(interceptors=[_Guard(token)] if token else [], options=_OPTIONS)
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    services = []
    for side, named in _by_side(plugins).items():
        server.add_generic_rpc_handlers((_handlers(side, named, ending),))
        services.append(side.service)
    reflection.enable_server_reflection([*services, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    bound = _bind(server, address)
    await server.start()
    for name in ("", *services):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    return Server(bound, server, servicer, ending)


async def _serve(plugins: Iterable[Plugin[Any, Any]], address: str | None) -> None:
    # Before anybody hears of us, so that a signal, or the end of the parent, cannot come too early.
    parent = os.getppid()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
            asyncio.get_running_loop().add_signal_handler(number, asked.set)
    own = os.environ.get("EVALBUS_SOCKET")
    if address is None:
        address = f"unix:{own}" if own else os.environ.get("EVALBUS_ADDRESS")
    plugins = tuple(plugins)
    server = await start_server(*plugins, address=address, token=os.environ.get("EVALBUS_TOKEN") or None)
    names = ", ".join(plugin.name for plugin in plugins)
    print(f"evalbus: serving {names} at {server.address}", file=sys.stderr, flush=True)
    ends = {asyncio.create_task(asked.wait())}
    if own:
        ends.add(asyncio.create_task(_parent_gone(parent)))
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    await server.stop(GRACE if asked.is_set() else 0.0)


async def _parent_gone(parent: int) -> Literal[True]:
    """Return when the process that started this one has ended; it was the only one to talk to."""
    while os.getppid() == parent:  # noqa: ASYNC110  # nothing rings when a parent dies
        await asyncio.sleep(1.0)
    return True


def _run(main: Any) -> None:
    """Run to the end, and leave even if some coroutine of a plugin will not."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            _, stubborn = loop.run_until_complete(asyncio.wait(left, timeout=CLOSING_GRACE))
            if stubborn:  # closing the loop now would only complain about them
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


# --- services ---------------------------------------------------------------------------------------------------


def _by_side(plugins: Iterable[Plugin[Any, Any]]) -> dict[Side, dict[str, Plugin[Any, Any]]]:
    found: dict[Side, dict[str, Plugin[Any, Any]]] = {}
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            raise PluginInvalid(f"serve takes functions decorated with @target or @scorer, not {plugin!r}")
        named = found.setdefault(side_of(plugin), {})
        if plugin.name in named:
            raise PluginInvalid(f"two plugins of one kind are called {plugin.name!r}")
        named[plugin.name] = plugin
    if not found:
        raise PluginInvalid("serve needs at least one plugin")
    return found


def _handlers(side: Side, plugins: Mapping[str, Plugin[Any, Any]], ending: Ending) -> grpc.GenericRpcHandler:
    infos = [
        replace(info, capabilities=info.capabilities | _CAPABILITIES) for info in (p.info for p in plugins.values())
    ]
    described = plugin_pb2.DescribeResponse(plugins=[wire.plugin_info_to_proto(info) for info in infos])

    async def describe(request: plugin_pb2.DescribeRequest, context: Any) -> plugin_pb2.DescribeResponse:
        return described

    async def converse(requests: Any, stream: Stream) -> None:
        await Conversation(side, plugins, stream, ending).run()

    async def reduce_rows(requests: Any, context: Any) -> scorer_pb2.ReduceResponse:
        return await reduced(plugins, requests)

    more: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Reduce": grpc.stream_unary_rpc_method_handler(
            reduce_rows, response_serializer=scorer_pb2.ReduceResponse.SerializeToString
        )
    }
    return grpc.method_handlers_generic_handler(
        side.service,
        {
            **(more if side is SCORER else {}),
            "Describe": grpc.unary_unary_rpc_method_handler(
                describe,
                request_deserializer=plugin_pb2.DescribeRequest.FromString,
                response_serializer=plugin_pb2.DescribeResponse.SerializeToString,
            ),
            side.method: grpc.stream_stream_rpc_method_handler(converse),
        },
    )


class _Guard(grpc.aio.ServerInterceptor):
    """Lets nobody in who does not carry the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        given = dict(handler_call_details.invocation_metadata or ()).get("authorization", "")
        given = given if isinstance(given, bytes) else given.encode("utf-8", "replace")
        if handler is None or hmac.compare_digest(given, self._expected):
            return handler
        return _refusing(handler)


def _refusing(handler: Any) -> Any:
    """A handler of the same shape that lets nobody in."""

    async def refuse(request: Any, context: Any) -> Any:
        code, text = (
            grpc.StatusCode.UNAUTHENTICATED,
            "the token is missing or wrong: send it as `authorization: Bearer …`",
        )
        await context.abort(code, text, details(code, "UNAUTHENTICATED", text))

    if handler.request_streaming and not handler.response_streaming:
        return grpc.stream_unary_rpc_method_handler(refuse)
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(refuse)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(refuse)
    return grpc.unary_unary_rpc_method_handler(refuse)


# --- addresses --------------------------------------------------------------------------------------------------


def _check_address(address: str, token: str | None) -> None:
    """Refuse what cannot be listened on, and what would be silently wrong: an open door, or somebody else's socket.

    gRPC would say the first in lines of its own, would not say the second, and takes a socket file away from
    whoever listens on it.
    """
    try:
        if address.startswith("unix-abstract:"):
            return
        if address.startswith("unix:"):
            _probe_unix(address.removeprefix("unix:").removeprefix("//"))
            return
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        if not host or not port.isdecimal():
            raise CannotListen(f"{address!r} is no address: give HOST:PORT or unix:PATH", 2)
        if not token and not _is_loopback(host):
            text = f"{address} can be reached from other machines: set EVALBUS_TOKEN, or listen on 127.0.0.1"
            raise CannotListen(text, 2)
        _probe_tcp(host, int(port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CannotListen(f"cannot listen on {address}: {reason}", 4) from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _probe_tcp(host: str, port: int) -> None:
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does: a port just left is free
        probe.bind(place)


def _probe_unix(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if not os.path.exists(path):
            probe.bind(path)
            os.unlink(path)
        elif probe.connect_ex(path) == 0:
            raise OSError("somebody listens there already")


def _bind(server: grpc.aio.Server, address: str) -> str:
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if port == 0:
        raise CannotListen(f"cannot listen on {address}", 4)
    return address if address.startswith("unix") else f"{address.rpartition(':')[0]}:{port}"
