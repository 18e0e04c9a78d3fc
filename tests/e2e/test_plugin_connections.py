"""A plugin whose address is right and whose connection does not come about: the reason is told, and what to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from evalbus_server.errors import Reason, Unreachable
from evalbus_server.model.plugin_use import Tls
from evalbus_server.plugin.codec import TargetCodec
from evalbus_server.plugin.launch import FixedAddress
from evalbus_server.plugin.remote import RemotePlugin

TLS = Path(__file__).parents[1] / "data" / "tls"
LIMIT = 3.0
"""Seconds; the whole of it is waited, since a plugin may come up late."""


@asynccontextmanager
async def listening(*, tls: bool) -> AsyncIterator[str]:
    server = grpc.aio.server()
    pair = (TLS / "server.key").read_bytes(), (TLS / "server.pem").read_bytes()
    port = (
        server.add_secure_port("localhost:0", grpc.ssl_server_credentials([pair]))
        if tls
        else server.add_insecure_port("localhost:0")
    )
    await server.start()
    try:
        yield f"localhost:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def nobody() -> AsyncIterator[str]:
    """An address that somebody else cannot take, since it is bound, at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


OWN = Tls(root_certificates=str(TLS / "server.pem"))


@pytest.mark.parametrize(
    ("there", "tls", "why"),
    [
        (lambda: listening(tls=False), Tls(), "it does not speak TLS; leave `tls` out"),
        (lambda: listening(tls=True), None, "it hangs up; if it speaks TLS, say so: tls: {}"),
        (lambda: listening(tls=True), Tls(), "its certificate is not trusted; name the one that signed it"),
        (
            lambda: listening(tls=True),
            Tls(root_certificates=OWN.root_certificates, server_name="else.example"),
            "its certificate is for another name; give that: tls: {server_name: …}",
        ),
        (nobody, None, "nobody listens there"),
    ],
)
async def test_why_there_is_no_connection_is_told(there: Callable[[], object], tls: Tls | None, why: str):
    async with there() as address:  # type: ignore[attr-defined]
        plugin = RemotePlugin(FixedAddress(address, limit=LIMIT), TargetCodec(), "", tls=tls)
        with pytest.raises(Unreachable, match="did not answer Describe within 3 s") as caught:
            await asyncio.wait_for(plugin.reach(), 120)
        await plugin.close()

    assert caught.value.reason is Reason.PLUGIN_UNREACHABLE
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_with_the_right_certificate_there_is_one():
    async with listening(tls=True) as address:
        plugin = RemotePlugin(FixedAddress(address, limit=60), TargetCodec(), "", tls=OWN)
        with pytest.raises(Exception, match="serves no evalbus target"):
            await plugin.reach()
        await plugin.close()
