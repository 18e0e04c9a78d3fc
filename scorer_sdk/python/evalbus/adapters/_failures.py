"""What other libraries raise -> why a trial could not be judged, and whether asking again may help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalbus._errors import TrialFailed
from evalbus._failure import FailureCategory
from evalbus._results import one_line

_REFUSED = {401: "ENDPOINT_UNAUTHENTICATED", 402: "ENDPOINT_UNPAID", 403: "ENDPOINT_FORBIDDEN"}
_BY_CODE = {
    "insufficient_quota": (FailureCategory.BUDGET, "ENDPOINT_QUOTA_SPENT"),
    "billing_hard_limit_reached": (FailureCategory.BUDGET, "ENDPOINT_QUOTA_SPENT"),
    "content_filter": (FailureCategory.REFUSED, "ENDPOINT_CONTENT_FILTERED"),
    "content_policy_violation": (FailureCategory.REFUSED, "ENDPOINT_CONTENT_FILTERED"),
    "context_length_exceeded": (FailureCategory.INVALID, "ENDPOINT_TEXT_TOO_LONG"),
    "string_above_max_length": (FailureCategory.INVALID, "ENDPOINT_TEXT_TOO_LONG"),
}
"""What an endpoint says besides the status, and says better."""


def failed(error: BaseException) -> BaseException:
    """The failure behind an exception: the error of a model's endpoint inside it, wherever a library has wrapped it.

    An exception that says nothing of an endpoint is returned as it is: it becomes a failure INTERNAL.
    """
    for cause in _causes(error):
        if isinstance(cause, TrialFailed):
            return cause
        made = _of_endpoint(cause)
        if made is not None:
            return made
    attempts = [attempt for attempt in map(_attempt, _list(error, "failed_attempts")) if attempt is not None]
    if attempts:  # instructor tells all of its tries at length
        text = f"the model's answer does not fit: {type(attempts[-1]).__name__}: {attempts[-1]}"
        return TrialFailed(one_line(text, 500), reason="ANSWER_INVALID")
    return error


def _of_endpoint(error: BaseException) -> TrialFailed | None:
    text = one_line(f"{type(error).__name__}: {error}")
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return _without_status(error, text)
    if status < 400:
        return None
    category, reason = _by_status(status)
    for word in (getattr(error, "code", None), getattr(error, "type", None)):
        category, reason = _BY_CODE.get(str(word), (category, reason))
    return TrialFailed(text, category, reason=reason, retry_after=_retry_after(error))


def _by_status(status: int) -> tuple[FailureCategory, str]:
    if status == 429:
        return FailureCategory.RATE_LIMITED, "ENDPOINT_RATE_LIMITED"
    if status in _REFUSED:
        return FailureCategory.REFUSED, _REFUSED[status]
    if status == 408:
        return FailureCategory.TIMEOUT, "ENDPOINT_TIMEOUT"
    if status >= 500 or status in (409, 425):
        return FailureCategory.UNAVAILABLE, "ENDPOINT_UNAVAILABLE"
    return FailureCategory.INVALID, "ENDPOINT_REFUSED_CALL"


def _without_status(error: BaseException, text: str) -> TrialFailed | None:
    """The failure where there was no answer at all."""
    name = type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        return TrialFailed(text, reason="LIBRARY_MISSING", retryable=False)
    if "Timeout" in name:
        return TrialFailed(text, FailureCategory.TIMEOUT, reason="ENDPOINT_TIMEOUT")
    if name in ("APIConnectionError", "ConnectError") or isinstance(error, ConnectionError):
        return TrialFailed(text, FailureCategory.UNAVAILABLE, reason="ENDPOINT_UNREACHABLE")
    if name == "RateLimitError":
        return TrialFailed(text, FailureCategory.RATE_LIMITED, reason="ENDPOINT_RATE_LIMITED")
    return None


def _retry_after(error: BaseException) -> float | None:
    """Seconds that the endpoint asks to be left alone for, if it says so."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, TypeError, ValueError):
            continue
        if 0 <= seconds < 86_400:
            return seconds
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and everything that led to it, the nearest first."""
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        inner = [each.__cause__, each.__context__, *_wrapped(each)]
        waiting.extend(cause for cause in inner if isinstance(cause, BaseException))


def _wrapped(error: BaseException) -> Iterator[Any]:
    if isinstance(error, BaseExceptionGroup):
        yield from error.exceptions
    attempt = getattr(error, "last_attempt", None)  # of tenacity
    if attempt is not None and callable(getattr(attempt, "exception", None)) and attempt.done():
        yield attempt.exception()
    yield from map(_attempt, _list(error, "failed_attempts"))  # of instructor


def _list(error: BaseException, name: str) -> list[Any]:
    found = getattr(error, name, None)
    return list(found) if isinstance(found, (list, tuple)) else []


def _attempt(attempt: Any) -> BaseException | None:
    found = getattr(attempt, "exception", None)
    return found if isinstance(found, BaseException) else None
