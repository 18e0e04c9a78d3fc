"""`numeric_diff`: how far a number is from the expected one, for its size."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Literal

from evalbus import Score, ScoreTask, Value, scorer
from evalbus_server.scorer.builtin._compared import (
    FULL,
    INPUTS,
    NO_EXPECTED,
    accepted_of,
    actual_of,
    quoted,
    setting,
    unjudged,
)
from evalbus_server.scorer.builtin._numbers import LONGEST, with_plain_digits

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_ARITHMETIC = Context(prec=40, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_ONE = Decimal(1)


@dataclass(frozen=True, slots=True)
class NumericDiffSettings:
    """How far a number may be from the expected one and still score 1."""

    absolute: float | None = setting(None, "So much: 0.5 lets 9.5 be 10.")
    relative: float | None = setting(None, "So much for the size of the expected number: 0.1 lets 9 be 10.")
    outside: Literal["closeness", "zero"] = setting(
        "closeness", "What a number beyond that scores: how close it is, or 0."
    )

    def __post_init__(self) -> None:
        """Refuse what no distance can be."""
        for name in ("absolute", "relative"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} is at least 0 and finite, not {value}")


@scorer("numeric_diff", version="1.0.0", inputs=INPUTS, deterministic=True, mode="inline")
def numeric_diff(task: ScoreTask, settings: NumericDiffSettings) -> Score:
    """1 - |a - b| / (|a| + |b|) of the number in the output and the expected one: 1 if they are equal, else below 1.

    The whole text must be the number, but for outer space: 12, -0.5, 1e3. An output that is no number scores 0. Of
    several expected numbers the nearest counts. Every digit matters, unless `absolute` or `relative` says how far a
    number may be away; either will do.
    """
    accepted = accepted_of(task)
    if not accepted:
        return NO_EXPECTED
    expected = [number for number in map(number_of, accepted) if number is not None]
    if not expected:
        return unjudged("EXPECTED_INVALID", f"the expected answer is not a number: {quoted(accepted[0])}")
    actual = actual_of(task)
    number = number_of(actual)
    if number is None:
        return Score.scored(0.0, f"not a number: {quoted(actual)}")
    best = max(closeness(number, each) for each in expected)
    if best == 1.0 or any(_within(number, each, settings) for each in expected):
        return FULL
    return Score.scored(best if settings.outside == "closeness" else 0.0, f"the number is {quoted(actual)}")


def number_of(value: Value) -> Decimal | None:
    """The number that a value is as a whole; None if it is none."""
    if not isinstance(value.body, str) or len(value.body) > LONGEST:
        return None
    text = with_plain_digits(value.body).strip().replace("\N{MINUS SIGN}", "-", 1)
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _within(number: Decimal, expected: Decimal, settings: NumericDiffSettings) -> bool:
    if settings.absolute is None and settings.relative is None:
        return False
    away = _ARITHMETIC.subtract(number, expected).copy_abs()
    # As it is written: 0.1 is a tenth, not what a float makes of it.
    if settings.absolute is not None and away <= Decimal(repr(settings.absolute)):
        return True
    size = expected.copy_abs()
    return settings.relative is not None and away <= _ARITHMETIC.multiply(size, Decimal(repr(settings.relative)))


def closeness(left: Decimal, right: Decimal) -> float:
    """1 if two numbers are equal, else how near they are for their size, always below 1."""
    if left == right:
        return 1.0
    difference = _ARITHMETIC.subtract(left, right).copy_abs()
    size = _ARITHMETIC.add(left.copy_abs(), right.copy_abs())
    found = float(_ARITHMETIC.subtract(_ONE, _ARITHMETIC.divide(difference, size)))
    return min(max(found, 0.0), math.nextafter(1.0, 0.0))  # what is not equal is never quite 1
