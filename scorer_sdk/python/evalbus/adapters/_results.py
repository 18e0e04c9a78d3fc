"""What a library's scorer returned -> a score. What is no number is never a zero."""

from __future__ import annotations

import json
import math
from typing import Any

from evalbus._errors import TrialFailed
from evalbus._failure import FailureCategory
from evalbus._score import Score

NO_VALUE = "NO_VALUE"
"""The reason of a score that is not a number although its scorer did not say that it does not apply."""


def score_of(value: Any, explanation: str = "", *, absent: str = "", **more: Any) -> Score:
    """A score from a number. None means that the scorer does not apply: SKIPPED, with *absent* as explanation.

    Raises:
        TrialFailed: NO_VALUE: it is not a finite number.
    """
    if value is None:
        return Score.skipped(explanation or absent or "the scorer gave no value", **more)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise no_value(f"the scorer gave {type(value).__name__} {value!r:.80}, not a number", explanation) from None
    if not math.isfinite(number):
        raise no_value(f"the scorer gave {number}, not a number", explanation)
    return Score.scored(number, explanation, **more)


def no_value(text: str, explanation: str = "") -> TrialFailed:
    """The failure of a scorer that gave something else than a value; no second try will mend it."""
    return TrialFailed(
        f"{text}: {explanation}" if explanation else text,
        FailureCategory.INTERNAL,
        reason=NO_VALUE,
        retryable=False,
    )


def metadata_of(found: Any) -> dict[str, Any] | None:
    """Metadata of another library as a JSON object: what JSON has no form for becomes text."""
    if not isinstance(found, dict) or not found:
        return None
    try:
        document: dict[str, Any] = json.loads(json.dumps(found, default=_as_text, skipkeys=True), parse_constant=str)
    except (TypeError, ValueError, RecursionError):
        return None
    return document


def _as_text(entry: Any) -> Any:
    if hasattr(entry, "model_dump"):
        return entry.model_dump(mode="json")
    return str(entry)
