"""`answer_match`: whether what the output names as its answer is the expected one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from evalbus import Score, ScoreTask, SettingsInvalid, Value, scorer
from evalbus_server.model.patterns import Match, Pattern
from evalbus_server.scorer.builtin._compared import (
    INPUTS,
    THREADS,
    Prepare,
    actual_of,
    expected_texts,
    not_text,
    preparation,
    quoted,
    setting,
    unjudged,
)
from evalbus_server.scorer.builtin._numbers import LONGEST, Found, NumberReader, NumberSettings
from evalbus_server.scorer.builtin._patterns import pattern_setting

_AFTER = {
    "letter": r"([A-Za-z])(?:[^\w]|$)",
    "word": r"(\w+)[^\S\n]*(?:\n|$)",
    "line": r"([^\n]*[^\s*_][^\n]*)",  # more than what is left of **
}
_MARKDOWN = "*_` \t"


@dataclass(frozen=True, slots=True)
class AnswerMatchSettings:
    """How the answer is found, and how it is compared."""

    marker: str = setting("ANSWER", "The word before the colon that the answer follows; case does not count in it.")
    take: Literal["letter", "word", "line"] = setting("line", "What follows: one letter, one word, or all of the line.")
    which: Literal["first", "last"] = setting("last", "Which one counts if there are several.")
    pattern: str | None = setting(
        None, "A pattern in RE2's syntax whose groups are the answer, in place of marker and take."
    )
    groups: Literal["any", "all"] = setting("any", "Whether any group of the pattern or all of them must be expected.")
    ignore_case: bool = setting(True, "Whether upper and lower case are the same.")
    ignore_punctuation: bool = setting(False, "Whether punctuation before and after both is left out: 42. is 42.")
    numeric: bool = setting(False, "Whether numbers are compared by value: $1,000.00 is 1000.")


@dataclass(frozen=True, slots=True)
class _State:
    prepare: Prepare
    pattern: Pattern
    below: Pattern | None
    """Finds an answer that stands in the line after the marker."""
    numbers: NumberReader | None


def _set_up(settings: AnswerMatchSettings) -> _State:
    prepare = preparation(ignore_case=settings.ignore_case, trim=True, bare=settings.ignore_punctuation)
    numbers = NumberReader(NumberSettings()) if settings.numeric else None
    if settings.pattern is not None:
        pattern = pattern_setting(settings.pattern, "settings.pattern", ignore_case=settings.ignore_case)
        if not pattern.groups:
            raise SettingsInvalid("settings.pattern: it has no group that could be the answer", "settings.pattern")
        return _State(prepare, pattern, None, numbers)
    if not settings.marker.strip():
        raise SettingsInvalid("settings.marker: it is empty", "settings.marker")
    # Markdown is let through, as in **Answer:** 42.
    marked = rf"(?i:{re.escape(settings.marker.strip())})[*_]*\s*:[*_]*[^\S\n]*"
    beside, below = (
        pattern_setting(f"{marked}{between}{_AFTER[settings.take]}", "settings.marker") for between in ("", r"\n\s*")
    )
    return _State(lambda text: prepare(text.strip(_MARKDOWN)).strip(_MARKDOWN), beside, below, numbers)


@scorer("answer_match", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, threads=THREADS)
def answer_match(task: ScoreTask, settings: AnswerMatchSettings, state: _State) -> Score:
    """1 if what the output names as its answer, as in `ANSWER: 42`, is the expected one, or one of several; else 0.

    `answer` is what was found, beside the marker, or else in the line below it. An output that names none scores 0.
    With `pattern`, its groups are the answer.
    """
    expected = expected_texts(task)
    if isinstance(expected, Score):
        return expected
    wanted = set()
    numbers = []
    for each in expected:
        wanted.add(state.prepare(each))
        number = _number(state, each)
        if number is not None:
            numbers.append(number)
    actual = actual_of(task)
    text = actual.body
    if not isinstance(text, str):
        return not_text(actual, "output")
    if len(text) > state.pattern.longest:
        return unjudged("TEXT_TOO_LONG", f"an output of {len(text):,} characters is too long for such a pattern")
    found = _found(state.pattern, text, settings.which)
    if found is None and state.below is not None:
        found = _found(state.below, text, settings.which)
    if found is None:
        return Score.scored(0.0, "no answer found in the output")
    groups = found.groups
    right = [group for group in groups if state.prepare(group) in wanted or _number(state, group) in numbers]
    if groups and (right if settings.groups == "any" else len(right) == len(groups)):
        said = right[0] if settings.groups == "any" else "".join(right)
        return Score.scored(1.0, answer=Value(said.strip(" \t\n*")))
    other = Value("".join(groups).strip(" \t\n*"))
    return Score.scored(0.0, f"the answer is {quoted(other)}", answer=other)


def _found(pattern: Pattern, text: str, which: str) -> Match | None:
    return pattern.last(text) if which == "last" else pattern.search(text)


def _number(state: _State, text: str) -> Found | None:
    """The number that a text is, whatever stands around it; None if none is looked for."""
    if state.numbers is None or len(text) > LONGEST:
        return None
    return state.numbers.whole(text.strip(_AROUND).rstrip("."))


_AROUND = "*_`\"'()[]{}:;!?, \t\n"
