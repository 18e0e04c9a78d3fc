"""Exceptions of other libraries as failures: by what the endpoint said, however deep it is wrapped."""

from __future__ import annotations

from typing import Any

import pytest

from evalbus import FailureCategory, TrialFailed
from evalbus.adapters._failures import failed


class StatusError(Exception):
    """As the clients of endpoints raise it."""

    def __init__(self, status: int, code: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(f"Error code: {status}")
        self.status_code = status
        self.code = code
        self.response = type("Response", (), {"headers": headers or {}})()


class APITimeoutError(Exception): ...


class APIConnectionError(Exception): ...


def failure(error: BaseException) -> Any:
    made = failed(error)
    assert isinstance(made, TrialFailed)
    return made.failure


@pytest.mark.parametrize(
    ("error", "category", "reason"),
    [
        (StatusError(429), "RATE_LIMITED", "ENDPOINT_RATE_LIMITED"),
        (StatusError(429, "insufficient_quota"), "BUDGET", "ENDPOINT_QUOTA_SPENT"),
        (StatusError(401), "REFUSED", "ENDPOINT_UNAUTHENTICATED"),
        (StatusError(400, "content_filter"), "REFUSED", "ENDPOINT_CONTENT_FILTERED"),
        (StatusError(400, "context_length_exceeded"), "INVALID", "ENDPOINT_TEXT_TOO_LONG"),
        (StatusError(404), "INVALID", "ENDPOINT_REFUSED_CALL"),
        (StatusError(408), "TIMEOUT", "ENDPOINT_TIMEOUT"),
        (StatusError(500), "UNAVAILABLE", "ENDPOINT_UNAVAILABLE"),
        (StatusError(409), "UNAVAILABLE", "ENDPOINT_UNAVAILABLE"),
        (APITimeoutError("slow"), "TIMEOUT", "ENDPOINT_TIMEOUT"),
        (APIConnectionError("gone"), "UNAVAILABLE", "ENDPOINT_UNREACHABLE"),
        (ConnectionRefusedError("gone"), "UNAVAILABLE", "ENDPOINT_UNREACHABLE"),
    ],
)
def test_each_kind_has_its_category_and_reason(error: Exception, category: str, reason: str) -> None:
    found = failure(error)
    assert (found.category.name, found.reason) == (category, reason)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_a_rate_limit_says_for_how_long(headers: dict[str, str], seconds: float | None) -> None:
    assert failure(StatusError(429, headers=headers)).retry_after == seconds


def wrapped(error: Exception) -> Exception:
    try:
        try:
            raise error
        except Exception as inner:
            raise RuntimeError("the metric failed") from inner
    except RuntimeError as outer:
        return outer


def test_it_is_found_inside_what_wraps_it() -> None:
    group = ExceptionGroup("several", [ValueError("x"), wrapped(StatusError(429))])
    assert failure(group).category is FailureCategory.RATE_LIMITED
    assert failure(wrapped(wrapped(StatusError(503)))).category is FailureCategory.UNAVAILABLE


def test_what_has_a_failure_already_keeps_it() -> None:
    error = TrialFailed.refused("no")
    assert failed(wrapped(error)) is error


def test_anything_else_stays_what_it_is() -> None:
    error = ValueError("x")
    assert failed(error) is error


def test_tries_at_an_answer_that_does_not_fit_are_told_in_short() -> None:
    error = RuntimeError("a page of text")
    error.failed_attempts = [type("Attempt", (), {"exception": ValueError("no number")})()]  # type: ignore[attr-defined]
    found = failure(error)
    assert (found.reason, found.message) == ("ANSWER_INVALID", "the model's answer does not fit: ValueError: no number")


def test_a_part_of_a_library_that_is_missing_is_not_asked_for_again() -> None:
    found = failure(ModuleNotFoundError("No module named 'numpy'"))
    assert (found.reason, found.retryable) == ("LIBRARY_MISSING", False)
