"""`match`: whether the expected text, or number, stands at the beginning, at the end, anywhere, or alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evalbus import Score, ScoreTask, Value, scorer
from evalbus_server.scorer.builtin._compared import (
    FULL,
    INPUTS,
    NO_EXPECTED,
    THREADS,
    Prepare,
    accepted_of,
    actual_of,
    not_text,
    preparation,
    quoted,
    read_too_often,
    setting,
)
from evalbus_server.scorer.builtin._numbers import Found, NumberReader, NumberSettings


@dataclass(frozen=True, slots=True)
class MatchSettings:
    """Where the expected answer is looked for, and as what."""

    location: Literal["begin", "end", "any", "exact"] = setting(
        "end", "Where it stands: at the beginning, at the end, anywhere, or alone."
    )
    numeric: bool = setting(False, "Whether expected numbers are looked for as numbers: the first, the last, any one.")
    ignore_case: bool = setting(True, "Whether upper and lower case are the same.")
    ignore_punctuation: bool = setting(True, "Whether punctuation before and after a text is left out.")


@dataclass(frozen=True, slots=True)
class _State:
    prepare: Prepare
    numbers: NumberReader


def _set_up(settings: MatchSettings) -> _State:
    prepare = preparation(ignore_case=settings.ignore_case, trim=True, bare=settings.ignore_punctuation)
    return _State(prepare, NumberReader(NumberSettings()))


@scorer("match", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, threads=THREADS)
def match(task: ScoreTask, settings: MatchSettings, state: _State) -> Score:
    """1 if the expected answer stands where it should in the output, or one of several does; else 0.

    Case and outer punctuation do not count unless asked for. With `numeric`, an expected answer that is a number is
    compared with the first (`begin`), the last (`end`), any or the only number of the output, by value; `answer` is
    that number. An empty expected text asks for an empty output.
    """
    accepted = accepted_of(task)
    if not accepted:
        return NO_EXPECTED
    actual = actual_of(task)
    if not isinstance(actual.body, str):
        return not_text(actual, "output")
    often = read_too_often(actual.body, len(accepted))
    if often is not None:
        return often
    text = state.prepare(actual.body)
    numbers = _numbers(state.numbers, actual.body, settings.location) if settings.numeric else []
    there = frozenset(numbers)
    compared = False
    for expected in accepted:
        if not isinstance(expected.body, str):
            return not_text(expected, "expected answer")
        number = state.numbers.whole(expected.body) if settings.numeric else None
        if number is not None:
            if number in there:
                return Score.scored(1.0, answer=Value(str(number)))
            compared = True
        elif _stands(text, state.prepare(expected.body), settings.location):
            return FULL
    return _missed(actual, numbers) if compared else Score.scored(0.0, f"the output is {quoted(actual)}")


def _missed(actual: Value, numbers: list[Found]) -> Score:
    """The score where a number was expected and another stands there."""
    if not numbers:
        return Score.scored(0.0, f"no number there: {quoted(actual)}")
    answer = Value(str(numbers[-1]))
    return Score.scored(0.0, f"the number is {quoted(answer)}", answer=answer)


def _numbers(reader: NumberReader, text: str, location: str) -> list[Found]:
    """The numbers that count."""
    if location == "exact":
        whole = reader.whole(text)
        return [] if whole is None else [whole]
    if location == "begin":
        first = next(reader.all(text), None)
        return [] if first is None else [first]
    found = list(reader.all(text))
    return found[-1:] if location == "end" else found


def _stands(text: str, wanted: str, location: str) -> bool:
    if not wanted or location == "exact":
        return text == wanted
    if location == "any":
        return wanted in text
    return text.startswith(wanted) if location == "begin" else text.endswith(wanted)
