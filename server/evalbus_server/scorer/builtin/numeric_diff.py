"""`numeric_diff`: how far a number is from the expected one, for its size."""

from __future__ import annotations

import math
import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

from evalbus import Score, ScoreTask, Value, scorer
from evalbus_server.scorer.builtin._compared import FULL, INPUTS, NO_EXPECTED, accepted_of, actual_of, unjudged

LONGEST = 10_000
"""More characters than this are no number that anybody means."""

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_ARITHMETIC = Context(prec=40, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_ONE = Decimal(1)
_SHOWN = 100


@scorer("numeric_diff", version="1.0.0", inputs=INPUTS, deterministic=True, mode="inline")
def numeric_diff(task: ScoreTask) -> Score:
    """1 - |a - b| / (|a| + |b|) of the number in the output and the expected one: 1 if they are equal, else below 1.

    The whole text must be the number, but for outer space: 12, -0.5, 1e3. An output that is no number scores 0. Of
    several expected numbers the nearest counts. Every digit matters.
    """
    accepted = accepted_of(task)
    if not accepted:
        return NO_EXPECTED
    expected = [number for number in map(number_of, accepted) if number is not None]
    if not expected:
        return unjudged("EXPECTED_INVALID", f"the expected answer is not a number: {_quoted(accepted[0])}")
    actual = actual_of(task)
    number = number_of(actual)
    if number is None:
        return Score.scored(0.0, f"not a number: {_quoted(actual)}")
    best = max(_closeness(number, each) for each in expected)
    return FULL if best == 1.0 else Score.scored(best)


def number_of(value: Value) -> Decimal | None:
    """The number that a value is as a whole; None if it is none."""
    if not isinstance(value.body, str) or len(value.body) > LONGEST:
        return None
    text = value.body.strip().replace("\N{MINUS SIGN}", "-", 1)
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _closeness(left: Decimal, right: Decimal) -> float:
    if left == right:
        return 1.0
    difference = _ARITHMETIC.subtract(left, right).copy_abs()
    size = _ARITHMETIC.add(left.copy_abs(), right.copy_abs())
    found = float(_ARITHMETIC.subtract(_ONE, _ARITHMETIC.divide(difference, size)))
    return min(max(found, 0.0), math.nextafter(1.0, 0.0))  # what is not equal is never quite 1


def _quoted(value: Value) -> str:
    text = str(value)
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
