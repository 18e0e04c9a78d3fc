"""A value that somebody wrote as text: a script, or a model."""

from __future__ import annotations

import math
import re

from evalbus._errors import TrialFailed
from evalbus._failure import FailureCategory

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SHOWN = 80


def value_in(text: str) -> float:
    """The value that a whole text says: one finite decimal number in ASCII digits, outer space aside. -0.0 is 0.

    Raises:
        TrialFailed: VALUE_UNREADABLE: it is anything else, also `True`, `0x1`, `NaN` or `0.7abc`; the message quotes it.
    """
    written = text.strip()
    value = float(written) if _NUMBER.fullmatch(written) else math.nan
    if math.isfinite(value):
        return value + 0.0
    shown = written if len(written) <= _SHOWN else f"{written[:_SHOWN]}…"
    message = f"{shown!r} is no finite decimal number"
    raise TrialFailed(message, FailureCategory.INVALID, reason="VALUE_UNREADABLE", retryable=False)
