"""The errors of the server: a small tree, and a reason for programs on each.

    ServerError
    ├── Invalid             what the caller gave is not acceptable: correct it (exit code 2)
    ├── NotFound            there is no such thing (exit code 2)
    ├── Unfit               acceptable, but not now or not here: the state forbids it (exit code 2)
    ├── Conflict            somebody else got there first (exit code 2)
    ├── Denied              the caller may not do this (exit code 2)
    ├── Unreachable         a plugin or a server cannot be reached or started (exit code 4)
    └── StoreTrouble        the database cannot do what it should (exit code 4)

The message is for people and may change; the reason is for programs and may not. `api/status.py` maps every
reason to a gRPC status.
"""

from __future__ import annotations

from enum import StrEnum

from evalbus import EvalbusError


class Reason(StrEnum):
    """Why a call could not be done; a constant that programs may rely on."""

    EXPERIMENT_INVALID = "EXPERIMENT_INVALID"
    DATASET_INVALID = "DATASET_INVALID"
    DATASET_NOT_FOUND = "DATASET_NOT_FOUND"
    DATASET_EXISTS = "DATASET_EXISTS"
    DATASET_IN_USE = "DATASET_IN_USE"
    DATASET_BUSY = "DATASET_BUSY"
    ITEM_TOO_LARGE = "ITEM_TOO_LARGE"
    ITEM_NOT_FOUND = "ITEM_NOT_FOUND"
    ITEM_CONFLICT = "ITEM_CONFLICT"
    RUN_NOT_FOUND = "RUN_NOT_FOUND"
    NOTHING_TO_RUN = "NOTHING_TO_RUN"
    SETTINGS_INVALID = "SETTINGS_INVALID"
    PLUGIN_REFUSED = "PLUGIN_REFUSED"
    PLUGIN_UNKNOWN = "PLUGIN_UNKNOWN"
    PLUGIN_UNREACHABLE = "PLUGIN_UNREACHABLE"
    PLUGIN_START_FAILED = "PLUGIN_START_FAILED"
    PLUGIN_BROKEN = "PLUGIN_BROKEN"
    PLUGIN_CHANGED = "PLUGIN_CHANGED"
    PROTOCOL_MISMATCH = "PROTOCOL_MISMATCH"
    COMMAND_NOT_ALLOWED = "COMMAND_NOT_ALLOWED"
    REQUEST_INVALID = "REQUEST_INVALID"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    RUN_NOT_HERE = "RUN_NOT_HERE"
    RUN_NOT_RESUMABLE = "RUN_NOT_RESUMABLE"
    RUN_AT_WORK = "RUN_AT_WORK"
    RUN_INCOMPLETE = "RUN_INCOMPLETE"
    NOT_KEPT = "NOT_KEPT"
    RUN_IN_USE = "RUN_IN_USE"
    TOO_MANY_RUNS = "TOO_MANY_RUNS"
    SEQUENCE_OUT_OF_RANGE = "SEQUENCE_OUT_OF_RANGE"
    PAGE_TOKEN_INVALID = "PAGE_TOKEN_INVALID"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    LISTEN_REFUSED = "LISTEN_REFUSED"
    ADDRESS_IN_USE = "ADDRESS_IN_USE"
    SERVER_UNREACHABLE = "SERVER_UNREACHABLE"
    SERVER_STOPPING = "SERVER_STOPPING"
    DATABASE_LOCKED = "DATABASE_LOCKED"
    DATABASE_READ_ONLY = "DATABASE_READ_ONLY"
    DATABASE_INVALID = "DATABASE_INVALID"
    DATABASE_NEWER = "DATABASE_NEWER"
    DATABASE_FULL = "DATABASE_FULL"
    DATABASE_LOST = "DATABASE_LOST"
    INTERNAL = "INTERNAL"


class ServerError(EvalbusError):
    """A call could not be done."""

    def __init__(self, reason: Reason, message: str, *, field: str = "") -> None:
        """Say why, in one line with what to do; *field* is the path of the field at fault."""
        super().__init__(message)
        self.reason = reason
        self.field = field


class Invalid(ServerError):
    """What the caller gave is not acceptable."""


class NotFound(ServerError):
    """There is no such thing."""


class Unfit(ServerError):
    """The state of things forbids it."""


class Conflict(ServerError):
    """Somebody else got there first."""


class Denied(ServerError):
    """The caller may not do this."""


class Unreachable(ServerError):
    """A plugin or a server cannot be reached or started."""


class StoreTrouble(ServerError):
    """The database cannot do what it should."""
