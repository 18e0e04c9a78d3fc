"""`regex`: whether the output matches a pattern."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from evalbus import Score, ScoreTask, SettingsInvalid, Value, scorer
from evalbus_server.model.patterns import Pattern
from evalbus_server.scorer.builtin._compared import (
    INPUTS,
    THREADS,
    actual_of,
    expected_texts,
    not_text,
    quoted,
    read_too_often,
    setting,
    unjudged,
)
from evalbus_server.scorer.builtin._patterns import pattern_setting


@dataclass(frozen=True, slots=True)
class RegexSettings:
    """The pattern, and where it is looked for."""

    pattern: str | None = setting(None, "The pattern, in RE2's syntax; without it the expected answer is the pattern.")
    ignore_case: bool = setting(False, "Whether upper and lower case are the same.")
    match: Literal["anywhere", "whole"] = setting(
        "anywhere", "Whether a part of the output will do, or all must match."
    )


def _set_up(settings: RegexSettings) -> Pattern | None:
    if settings.pattern is None:
        return None
    if not settings.pattern:
        raise SettingsInvalid("settings.pattern: it is empty, and every text would match it", "settings.pattern")
    return pattern_setting(settings.pattern, "settings.pattern", ignore_case=settings.ignore_case)


@scorer("regex", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, threads=THREADS)
def regex(task: ScoreTask, settings: RegexSettings, state: Pattern | None) -> Score:
    """1 if the output matches the pattern, or one of several expected patterns; else 0.

    The pattern of the settings is checked before the run. `answer` is what matched. Patterns are RE2's: those of other
    engines without lookaround and backreferences; no pattern takes longer than the output is long. An empty expected
    pattern, which every text matches, asks for an empty output.
    """
    patterns = [state] if state is not None else _expected_patterns(task, settings)
    if isinstance(patterns, Score):
        return patterns
    actual = actual_of(task)
    text = actual.body
    if not isinstance(text, str):
        return not_text(actual, "output")
    often = read_too_often(text, len(patterns))
    if often is not None:
        return often
    for pattern in patterns:
        if len(text) > pattern.longest:
            return unjudged("TEXT_TOO_LONG", f"an output of {len(text):,} characters is too long for such a pattern")
        anywhere = settings.match == "anywhere" and pattern.written
        found = pattern.search(text) if anywhere else pattern.whole(text)
        if found is not None:
            return Score.scored(1.0, answer=Value(found.text))
    return Score.scored(0.0, f"no match for {quoted(patterns[0].written)}" if len(patterns) == 1 else "no match")


def _expected_patterns(task: ScoreTask, settings: RegexSettings) -> list[Pattern] | Score:
    """The patterns that are expected, or the score where there are none that could be used."""
    texts = expected_texts(task)
    if isinstance(texts, Score):
        return texts
    try:
        return [_expected_pattern(text, settings.ignore_case) for text in texts]
    except ValueError as error:
        return unjudged("EXPECTED_INVALID", f"the expected answer {error}")


@lru_cache(maxsize=256)
def _expected_pattern(pattern: str, ignore_case: bool) -> Pattern:
    return Pattern(pattern, ignore_case=ignore_case)
