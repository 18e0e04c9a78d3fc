"""Statuses of calls that a plugin's process ends with an error: the few that no failure in a body can say."""

from __future__ import annotations

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # it has no types

DOMAIN = "evalbus"
_DETAILS = "grpc-status-details-bin"

Metadata = tuple[tuple[str, bytes], ...]


def details(code: grpc.StatusCode, reason: str, message: str) -> Metadata:
    """The trailing metadata that tell a program the reason."""
    packed = Packed()
    packed.Pack(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN))
    status = status_pb2.Status(code=code.value[0], message=message, details=[packed])
    return ((_DETAILS, status.SerializeToString()),)
