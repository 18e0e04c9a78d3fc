"""What went wrong at an endpoint -> the failure that tells the server whether, and when, to ask again."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from evalbus import FailureCategory, TrialFailed
from evalbus_server.model.secrets import HIDDEN

if TYPE_CHECKING:
    import openai

LONGEST_WAIT = 86_400.0
_SHOWN = 300
_KEY = re.compile(r"\b(sk|key|pk)-[\w*-]{6,}")
_REFUSED = {
    401: ("ENDPOINT_UNAUTHENTICATED", "it does not know the key"),
    402: ("ENDPOINT_UNPAID", "it wants to be paid"),
    403: ("ENDPOINT_FORBIDDEN", "it does not allow this"),
}
_TOO_LONG = ("context_length_exceeded", "string_above_max_length")
_FILTERED = ("content_filter", "content_policy_violation")
_SPENT = ("insufficient_quota", "billing_hard_limit_reached")


def failed(error: openai.OpenAIError, where: str, no_key: str = "") -> TrialFailed:
    """The failure behind an exception of `openai`; *where* is the endpoint's URL.

    *no_key*: what to do about it that no key was sent; "" if one was.
    """
    import openai

    if isinstance(error, openai.APITimeoutError):
        return TrialFailed(f"{where}: no reply in time", FailureCategory.TIMEOUT, reason="ENDPOINT_TIMEOUT")
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, where, no_key)
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return TrialFailed(
            f"{where}: {shortened(str(cause)) or type(cause).__name__}",
            FailureCategory.UNAVAILABLE,
            reason="ENDPOINT_UNREACHABLE",
        )
    return TrialFailed(f"{where}: {shortened(str(error))}", FailureCategory.INTERNAL, reason="ENDPOINT_FAILED")


def broken(what: str, where: str) -> TrialFailed:
    """The failure of a reply that is none of such an endpoint: asked again, as a proxy may have sent it."""
    return TrialFailed(f"{where}: {what}", FailureCategory.UNAVAILABLE, reason="ENDPOINT_REPLY_BROKEN")


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The seconds that an endpoint asks to wait: `retry-after-ms`, or `Retry-After` as seconds or as a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text, re.ASCII):
            return min(float(text) * unit, LONGEST_WAIT)
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(max(date.timestamp() - (time.time() if now is None else now), 0.0), LONGEST_WAIT)


def is_about_the_form(error: openai.APIStatusError) -> bool:
    """Whether a refusal may be about the form in which the reply was wanted, and not about what was asked."""
    return error.status_code in (400, 415, 422, 501) and not _is_about_the_content(error)


def _is_about_the_content(error: openai.APIStatusError) -> bool:
    said = f"{error.code} {error.type} {error.message}"
    return any(word in said for word in (*_TOO_LONG, *_FILTERED, "model_not_found"))


def _of_status(error: openai.APIStatusError, where: str, no_key: str) -> TrialFailed:
    status, code = error.status_code, f"{error.code or ''} {error.type or ''}"
    told = f"{where}: status {status}: {shortened(_message(error))}".rstrip(": ")
    wait = retry_after(error.response.headers)
    if status == 429:
        if any(word in code for word in _SPENT):
            return TrialFailed(told, FailureCategory.BUDGET, reason="ENDPOINT_QUOTA_SPENT")
        return TrialFailed(told, FailureCategory.RATE_LIMITED, reason="ENDPOINT_RATE_LIMITED", retry_after=wait)
    if status in _REFUSED:
        reason, why = _REFUSED[status]
        if status == 401 and no_key:
            why = f"no key was sent: {no_key}"
        return TrialFailed(f"{told} ({why})", FailureCategory.REFUSED, reason=reason)
    if status == 408:
        return TrialFailed(told, FailureCategory.TIMEOUT, reason="ENDPOINT_TIMEOUT", retry_after=wait)
    if status >= 500 or status in (409, 425):
        return TrialFailed(told, FailureCategory.UNAVAILABLE, reason="ENDPOINT_UNAVAILABLE", retry_after=wait)
    if any(word in code for word in _FILTERED):
        return TrialFailed(told, FailureCategory.REFUSED, reason="ENDPOINT_CONTENT_FILTERED")
    if status == 413 or any(word in code for word in _TOO_LONG):
        return TrialFailed(f"{told}; judge a part with `map`", FailureCategory.INVALID, reason="ENDPOINT_TEXT_TOO_LONG")
    return TrialFailed(told, FailureCategory.INVALID, reason="ENDPOINT_REFUSED_CALL")


def _message(error: openai.APIStatusError) -> str:
    body = error.body
    if isinstance(body, Mapping):
        said = body.get("message")
        if isinstance(said, str):
            return said
    return error.message


def shortened(text: str) -> str:
    """What an endpoint said, in one line, short, and without anything that looks like a key."""
    line = _KEY.sub(HIDDEN, " ".join(text[: 4 * _SHOWN].split()))
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
