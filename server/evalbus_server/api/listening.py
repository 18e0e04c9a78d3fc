"""Where the server listens: only on this machine, unless callers must show a token or the way is encrypted."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from evalbus_server.errors import Conflict, Denied, Invalid, Reason

RECEIVED_MESSAGE = 8 * 1024 * 1024
"""Bytes of a message from a caller: more than the largest item, so that one too large is refused by its name."""

OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.so_reuseport", 0),  # or a second server binds the same port, and nobody hears of it
    ("grpc.max_receive_message_length", RECEIVED_MESSAGE),
    ("grpc.max_send_message_length", -1),  # what is sent is bounded where it is put together
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),  # watchers may ping on a quiet stream
    ("grpc.keepalive_permit_without_calls", 1),
    # A caller whose machine is gone says no goodbye: without these its upload would hold the dataset for hours.
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.http2.ping_timeout_ms", 60_000),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, and whom to let in."""

    address: str
    """`host:port`, or `unix:/path`. Port 0 takes a free one."""
    tokens: tuple[str, ...] = ()
    """Callers must show one of them; () lets everybody in."""
    certificate: Path | None = None
    """A PEM file with the certificate chain; with it the way is encrypted."""
    key: Path | None = None
    """A PEM file with its private key."""


def bind(server: grpc.aio.Server, how: Listening) -> str:
    """Make the server listen; returns the address, with the port that was taken.

    Raises:
        Invalid: it is no address of this machine, or a certificate cannot be read.
        Denied: LISTEN_REFUSED: it is open to other machines without a token or TLS.
        Conflict: ADDRESS_IN_USE.
    """
    credentials = _credentials(how)
    if how.address.startswith("unix:"):
        _refuse_taken_socket(how.address)
        host = ""
    else:
        host, port = _host_and_port(how.address)
        if not how.tokens and credentials is None and not _is_loopback(host):
            message = f"{how.address} can be reached from other machines; give the server a token or TLS, or listen on 127.0.0.1"
            raise Denied(Reason.LISTEN_REFUSED, message, field="listen")
        _refuse_taken_port(how.address, host, port)
    try:
        if credentials is None:
            taken = server.add_insecure_port(how.address)
        else:
            taken = server.add_secure_port(how.address, credentials)
    except RuntimeError as error:
        raise Invalid(Reason.REQUEST_INVALID, f"cannot listen on {how.address}: {error}", field="listen") from None
    return f"{how.address.rpartition(':')[0]}:{taken}" if host else how.address


def _credentials(how: Listening) -> grpc.ServerCredentials | None:
    if how.certificate is None or how.key is None:
        return None
    parts = []
    for path in (how.key, how.certificate):
        try:
            parts.append(path.read_bytes())
        except OSError as error:
            raise Invalid(Reason.REQUEST_INVALID, f"cannot read {path}: {error.strerror}", field="tls") from None
    try:  # gRPC says what is wrong with them in lines of its own, and not to us
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(how.certificate, how.key, password="")
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        message = f"{how.certificate} and {how.key} are no certificate with its private key, both PEM: {why}"
        raise Invalid(Reason.REQUEST_INVALID, message, field="tls") from None
    return grpc.ssl_server_credentials([(parts[0], parts[1])])


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        message = f"{address!r} is no address to listen on; write host:port, such as 127.0.0.1:50051, or unix:/path"
        raise Invalid(Reason.REQUEST_INVALID, message, field="listen")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse_taken_port(address: str, host: str, port: int) -> None:
    """Bind once by hand, since gRPC does not say why it cannot."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise Invalid(Reason.REQUEST_INVALID, f"cannot listen on {address}: no such host", field="listen") from None
    for family, kind, protocol, _, place in _distinct(found):
        with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(place)
            except OSError as error:
                raise _cannot(address, error) from None


def _distinct(found: Sequence[Any]) -> list[Any]:
    return list({entry[4]: entry for entry in found}.values())


def _cannot(address: str, error: OSError) -> Conflict | Invalid:
    if error.errno == errno.EADDRINUSE:
        message = f"cannot listen on {address}: another program does already; take another port"
        return Conflict(Reason.ADDRESS_IN_USE, message, field="listen")
    why = os.strerror(error.errno).lower() if error.errno else str(error)
    return Invalid(Reason.REQUEST_INVALID, f"cannot listen on {address}: {why}", field="listen")


def _refuse_taken_socket(address: str) -> None:
    """gRPC would take a socket file away from whoever listens on it."""
    path = address.removeprefix("unix:").removeprefix("//")
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        try:
            probe.connect(path)
        except OSError:
            return
    raise Conflict(Reason.ADDRESS_IN_USE, f"cannot listen on {address}: another program does already", field="listen")
