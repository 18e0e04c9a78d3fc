"""Why one trial could not be done: failures are values, and travel in the body of answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from evalbus._value import object_data


class FailureOrigin(IntEnum):
    """Whose fault a failure is. Numbers as in the contract."""

    UNSPECIFIED = 0
    TARGET = 1
    SCORER = 2
    SERVER = 3


class FailureCategory(IntEnum):
    """The kind of a failure. Numbers as in the contract; `failure.proto` says what the server does about each."""

    TIMEOUT = 1
    RATE_LIMITED = 2
    UNAVAILABLE = 3
    INVALID = 4
    REFUSED = 5
    INTERNAL = 6
    CANCELLED = 7
    BUDGET = 8


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that went wrong with one trial, one score, or the opening of a conversation."""

    category: FailureCategory
    message: str
    """One line for people: what happened and what to do."""
    reason: str = ""
    """A constant in UPPER_SNAKE_CASE for programs; the category's name when empty."""
    origin: FailureOrigin = FailureOrigin.UNSPECIFIED
    retryable: bool | None = None
    """Whether trying again may help; None leaves it to the category."""
    field: str = ""
    """The path of the field at fault, such as `settings.model`."""
    retry_after: float | None = None
    """Seconds that must pass before the next try."""
    details_json: str = ""
    """Anything more, as the text of a JSON object; "" for none."""

    @property
    def details(self) -> dict[str, Any]:
        """Anything more, as Python objects."""
        return object_data(self.details_json)
