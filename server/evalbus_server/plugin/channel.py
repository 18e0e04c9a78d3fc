"""Channels to plugins: options that were measured to work, credentials, and the token on every call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.plugin_use import Tls

RECEIVED_MESSAGE = 64 * 1024 * 1024
"""So large an answer is received, so that one over the limit errors its own trial and not the stream."""
SENT_MESSAGE = 4 * 1024 * 1024

_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", RECEIVED_MESSAGE),
    ("grpc.max_send_message_length", SENT_MESSAGE),
    ("grpc.enable_retries", 0),  # the server is the only retrier
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # two channels to one address do not share a connection
)
_KEEPALIVE: tuple[tuple[str, Any], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # the one that decides how long a ping may take
    ("grpc.http2.max_pings_without_data", 0),
)


def open_channel(address: str, *, tls: Tls | None, keepalive: bool) -> grpc.aio.Channel:
    """A channel to *address*; nothing is connected yet.

    *keepalive* pings only a plugin that has said that it allows them: one with default options would end the stream.

    Raises:
        Invalid: the certificate file cannot be read.
    """
    options = [*_OPTIONS, *(_KEEPALIVE if keepalive else ())]
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    roots = None
    if tls.root_certificates:
        try:
            roots = Path(tls.root_certificates).read_bytes()
        except OSError as error:
            message = f"cannot read the certificates {tls.root_certificates}: {error.strerror}"
            raise Invalid(Reason.EXPERIMENT_INVALID, message, field="tls.root_certificates") from None
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(roots), options=options)


def authorisation(token: str) -> tuple[tuple[str, str], ...]:
    """The metadata of every call to a plugin with this token; none without one."""
    return (("authorization", f"Bearer {token}"),) if token else ()


_NO_CONNECTION = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted; name the one that signed it: tls: {root_certificates: …}",
    "Hostname Verification": "its certificate is for another name; give that: tls: {server_name: …}",
    "WRONG_VERSION_NUMBER": "it does not speak TLS; leave `tls` out",
    "Socket closed": "it hangs up; if it speaks TLS, say so: tls: {}",
    "Connection refused": "nobody listens there",
    "errors resolving": "nobody has that name",
}


def why_unconnected(details: str) -> str:
    """What gRPC says of a connection that does not come about, in words that say what to do; "" if it is none of these."""
    return next((words for sign, words in _NO_CONNECTION.items() if sign in details), "")
