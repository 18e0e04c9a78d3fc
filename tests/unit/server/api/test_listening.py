"""Listening: on this machine, unless there is a token or TLS; and never on what another program has."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from evalbus_server.api.listening import OPTIONS, Listening, bind
from evalbus_server.errors import Conflict, Denied, Invalid, Reason

TLS = Path(__file__).parents[3] / "data" / "tls"


@pytest.fixture
async def server() -> AsyncIterator[grpc.aio.Server]:
    made = grpc.aio.server(options=OPTIONS)
    yield made
    await made.stop(0)


async def test_port_0_takes_a_free_port_and_says_which(server: grpc.aio.Server) -> None:
    host, _, port = bind(server, Listening("127.0.0.1:0")).rpartition(":")

    assert (host, int(port) > 0) == ("127.0.0.1", True)


async def test_a_unix_socket_is_of_this_machine(server: grpc.aio.Server, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"

    assert bind(server, Listening(address)) == address


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "127.8.8.8:0"])
async def test_loopback_needs_neither_token_nor_tls(server: grpc.aio.Server, address: str) -> None:
    bind(server, Listening(address))


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.7:50051", "example.org:50051", "0:0"])
async def test_beyond_this_machine_a_token_or_tls_is_needed(server: grpc.aio.Server, address: str) -> None:
    with pytest.raises(Denied) as caught:
        bind(server, Listening(address))

    assert caught.value.reason is Reason.LISTEN_REFUSED


async def test_with_a_token_the_server_listens_everywhere(server: grpc.aio.Server) -> None:
    bind(server, Listening("0.0.0.0:0", tokens=("s3cret",)))


async def test_a_taken_port_is_said_in_one_line(server: grpc.aio.Server) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(Conflict) as caught:
            bind(server, Listening(address))

    assert caught.value.reason is Reason.ADDRESS_IN_USE
    assert str(caught.value) == f"cannot listen on {address}: another program does already; take another port"


async def test_two_servers_never_share_a_port(server: grpc.aio.Server) -> None:
    address = bind(server, Listening("127.0.0.1:0"))
    await server.start()
    other = grpc.aio.server(options=OPTIONS)

    with pytest.raises(Conflict):
        bind(other, Listening(address))
    await other.stop(0)


async def test_a_taken_socket_is_left_to_whoever_has_it(server: grpc.aio.Server, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"{tmp_path}/s")
        other.listen()
        with pytest.raises(Conflict) as caught:
            bind(server, Listening(f"unix:{tmp_path}/s"))

    assert caught.value.reason is Reason.ADDRESS_IN_USE
    assert (tmp_path / "s").exists()


async def test_a_socket_file_that_nobody_listens_on_is_taken_over(server: grpc.aio.Server, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{tmp_path}/s")

    bind(server, Listening(f"unix:{tmp_path}/s"))


@pytest.mark.parametrize(
    "address",
    ["", "50051", ":50051", "localhost", "localhost:", "localhost:x", "localhost:70000", "unix:/no/such/dir/s"],
)
async def test_what_is_no_address_is_refused_in_one_line(server: grpc.aio.Server, address: str) -> None:
    with pytest.raises(Invalid) as caught:
        bind(server, Listening(address))

    assert "\n" not in str(caught.value)


async def test_an_address_of_another_machine_cannot_be_listened_on(server: grpc.aio.Server) -> None:
    with pytest.raises(Invalid) as caught:
        bind(server, Listening("192.0.2.7:50051", tokens=("s3cret",)))

    assert str(caught.value) == "cannot listen on 192.0.2.7:50051: cannot assign requested address"


async def test_a_certificate_that_cannot_be_read_is_said(server: grpc.aio.Server, tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        bind(server, Listening("127.0.0.1:0", certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem"))

    assert str(caught.value) == f"cannot read {tmp_path / 'key.pem'}: No such file or directory"


@pytest.mark.parametrize(
    ("certificate", "key"), [("none", "none"), ("server.pem", "none"), ("server.pem", "server.pem")]
)
async def test_a_certificate_that_is_none_or_not_of_its_key_is_said_in_one_line(
    server: grpc.aio.Server, tmp_path: Path, certificate: str, key: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none").write_text("nothing")
    (tmp_path / "server.pem").write_bytes((TLS / "server.pem").read_bytes())
    with pytest.raises(Invalid) as caught:
        bind(server, Listening("127.0.0.1:0", certificate=tmp_path / certificate, key=tmp_path / key))

    assert "no certificate with its private key" in str(caught.value)
    assert capfd.readouterr().err == ""


async def test_a_certificate_with_its_key_is_taken(server: grpc.aio.Server) -> None:
    bind(server, Listening("0.0.0.0:0", certificate=TLS / "server.pem", key=TLS / "server.key"))
