"""Errors as gRPC statuses: one table from reasons to codes, and the details that programs read.

proto/README.md has the same table with what the caller does about each.
"""

from __future__ import annotations

import grpc
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from evalbus_server.errors import Reason, ServerError
from evalbus_server.model.dataset import Fault

DOMAIN = "evalbus"
LONGEST_MESSAGE = 1000
"""Bytes of a message. It travels twice, and percent-encoded: with more, gRPC's limit on metadata (8 KiB) would turn the
status into another one."""
LONGEST_PATH = 200
MOST_FAULTS = 8
"""Refused items that are listed."""
AGAIN_AFTER = {
    Reason.SERVER_STOPPING: 1,
    Reason.DATABASE_LOCKED: 1,
    Reason.DATASET_BUSY: 5,
    Reason.TOO_MANY_RUNS: 10,
}
"""Seconds after which a second try is worth it."""

STATUS: dict[Reason, grpc.StatusCode] = {
    Reason.EXPERIMENT_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.REQUEST_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.DATASET_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.PAGE_TOKEN_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.SEQUENCE_OUT_OF_RANGE: grpc.StatusCode.OUT_OF_RANGE,
    Reason.ITEM_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DATASET_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.ITEM_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.RUN_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.DATASET_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Reason.ITEM_CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Reason.REQUEST_ID_REUSED: grpc.StatusCode.ALREADY_EXISTS,
    Reason.NOTHING_TO_RUN: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.SETTINGS_INVALID: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.PLUGIN_REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.PLUGIN_UNKNOWN: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.PLUGIN_BROKEN: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.PLUGIN_CHANGED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.PROTOCOL_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.DATASET_IN_USE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.RUN_NOT_HERE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.RUN_NOT_RESUMABLE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.RUN_AT_WORK: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.RUN_INCOMPLETE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NOT_KEPT: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.RUN_IN_USE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.TOO_MANY_RUNS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.COMMAND_NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.PLUGIN_UNREACHABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.PLUGIN_START_FAILED: grpc.StatusCode.UNAVAILABLE,
    Reason.SERVER_STOPPING: grpc.StatusCode.UNAVAILABLE,
    Reason.SERVER_UNREACHABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.DATABASE_LOCKED: grpc.StatusCode.UNAVAILABLE,
    Reason.DATASET_BUSY: grpc.StatusCode.UNAVAILABLE,
    Reason.DATABASE_READ_ONLY: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.DATABASE_NEWER: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.DATABASE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DATABASE_INVALID: grpc.StatusCode.DATA_LOSS,
    Reason.DATABASE_LOST: grpc.StatusCode.DATA_LOSS,
    Reason.LISTEN_REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.ADDRESS_IN_USE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
}


def to_status(error: ServerError) -> grpc.Status:
    """The status for an error, with its reason and, where it fits, the field at fault and when to try again."""
    message = clean(str(error), LONGEST_MESSAGE)
    status = status_pb2.Status(code=code_pb2.Code.Value(STATUS[error.reason].name), message=message)
    for detail in _details(error, clean(message, LONGEST_MESSAGE // 2)):
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return rpc_status.to_status(status)


def _violation(fault: Fault) -> Message:
    where = clean(f"items[{fault.place}]" + (f".{fault.path}" if fault.path else ""), LONGEST_PATH)
    said = clean(f"{fault.reason}: {fault.id!r} {fault.message}", LONGEST_PATH)
    violation: Message = error_details_pb2.BadRequest.FieldViolation(field=where, description=said)
    return violation


def clean(text: str, longest: int) -> str:
    """A text as one line that UTF-8 has a form for, of at most so many bytes."""
    data = " ".join(text.split()).encode("utf-8", "replace")  # a lone surrogate becomes a question mark
    if len(data) <= longest:
        return data.decode()
    return data[: longest - len("…".encode())].decode("utf-8", "ignore") + "…"


def _details(error: ServerError, description: str) -> list[Message]:
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=error.reason.value, domain=DOMAIN)]
    path = clean(error.field, LONGEST_PATH)
    faults = getattr(error, "faults", ())[:MOST_FAULTS]
    if faults:
        violations = [_violation(fault) for fault in faults]
        details.append(error_details_pb2.BadRequest(field_violations=violations))
    elif path:
        violation = error_details_pb2.BadRequest.FieldViolation(field=path, description=description)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if STATUS[error.reason] is grpc.StatusCode.FAILED_PRECONDITION:
        unmet = error_details_pb2.PreconditionFailure.Violation(type=error.reason.value, subject=path)
        details.append(error_details_pb2.PreconditionFailure(violations=[unmet]))
    if error.reason in AGAIN_AFTER:
        details.append(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=AGAIN_AFTER[error.reason])))
    return details
