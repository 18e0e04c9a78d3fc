"""`last_number`: whether the last number of the output is the expected one."""

from __future__ import annotations

from evalbus import Score, ScoreTask, Value, scorer
from evalbus_server.scorer.builtin._compared import (
    INPUTS,
    NO_EXPECTED,
    THREADS,
    accepted_of,
    actual_of,
    not_text,
    quoted,
    unjudged,
)
from evalbus_server.scorer.builtin._numbers import Found, NumberReader, NumberSettings


def _set_up(settings: NumberSettings) -> NumberReader:
    return NumberReader(settings)


@scorer("last_number", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, threads=THREADS)
def last_number(task: ScoreTask, state: NumberReader) -> Score:
    """1 if the last number in the output is the expected one, or one of several; else 0.

    Numbers are compared as numbers, with all their digits: 2000 is 2e3, 38 is not 8. `answer` is the number that was
    found. Punctuation may touch a number, letters may not: 17abc is none. Digits of any script count: ٤٢ is 42. An
    output without a number scores 0.
    """
    accepted = accepted_of(task)
    if not accepted:
        return NO_EXPECTED
    expected = [found for each in accepted if (found := _expected(each, state))]
    if not expected:
        return unjudged("EXPECTED_INVALID", f"the expected answer is not a number: {quoted(accepted[0])}")
    actual = actual_of(task)
    if not isinstance(actual.body, str):
        return not_text(actual, "output")
    last = None
    for last in state.all(actual.body):  # noqa: B007  # the last one is wanted
        pass
    if last is None:
        return Score.scored(0.0, "no number in the output")
    answer = Value(str(last))
    if last in expected:
        return Score.scored(1.0, answer=answer)
    return Score.scored(0.0, f"the last number is {quoted(answer)}", answer=answer)


def _expected(value: Value, reader: NumberReader) -> Found | None:
    """An expected number: JSON has a form of its own, a text is written as the output is, or as JSON has it."""
    if not isinstance(value.body, str):
        return None
    found = None if value.kind == "json" else reader.whole(value.body)
    return found or _AS_IN_JSON.whole(value.body)


_AS_IN_JSON = NumberReader(NumberSettings(currency=False, thousands=False))
