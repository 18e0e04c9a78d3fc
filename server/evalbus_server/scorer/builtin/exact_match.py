"""`exact_match`: whether the answer is the expected one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evalbus import Score, ScoreTask, Value, scorer
from evalbus_server.scorer.builtin._compared import (
    CASE,
    FULL,
    INPUTS,
    NO_EXPECTED,
    NORMALIZE,
    Normalize,
    Prepare,
    accepted_of,
    actual_of,
    preparation,
    quoted,
    setting,
)
from evalbus_server.scorer.builtin._words import as_words
from evalbus_server.scorer.documents import read_exactly


@dataclass(frozen=True, slots=True)
class ExactMatchSettings:
    """What counts as the same."""

    ignore_case: bool = setting(False, CASE)
    trim: bool = setting(True, "Whether space before and after a text is left out.")
    normalize: Normalize = setting("none", NORMALIZE)
    words: bool = setting(
        False, "Whether only words count: not case, punctuation, articles and how a number is written."
    )


def _set_up(settings: ExactMatchSettings) -> Prepare:
    if settings.words:
        return as_words
    return preparation(ignore_case=settings.ignore_case, trim=settings.trim, normalize=settings.normalize)


@scorer("exact_match", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, mode="inline")
def exact_match(task: ScoreTask, state: Prepare) -> Score:
    """1 if the answer is the expected one, or one of several; else 0. Outer space does not count unless asked for.

    JSON is compared by what it says: the order of keys does not matter, numbers are compared as numbers with all
    their digits. A text beside a JSON document is the same if it is written the same, or says the same as JSON.
    """
    accepted = accepted_of(task)
    if not accepted:
        return NO_EXPECTED
    actual = actual_of(task)
    for expected in accepted:
        if _same(actual, expected, state):
            return FULL
    if actual.kind == "json" and _is_the_whole_list(actual, task, state):
        return _LIST_OF_THEM
    others = len(accepted) - 1
    more = f" or {others} other{'s' if others > 1 else ''}" if others else ""
    return Score.scored(0.0, f"expected {quoted(accepted[0])}{more}, got {quoted(actual)}")


_LIST_OF_THEM = Score.scored(
    0.0, "the output is the list of expected answers, of which any one would do; to expect the list itself, write [[…]]"
)


def _is_the_whole_list(actual: Value, task: ScoreTask, prepare: Prepare) -> bool:
    whole = (task.inputs.get("expected") if task.inputs else None) or task.item.expected
    return whole is not None and whole.kind == "json" and _same(actual, whole, prepare)


def _same(actual: Value, expected: Value, prepare: Prepare) -> bool:
    left, right = actual.body, expected.body
    if not isinstance(left, str) or not isinstance(right, str):
        return left == right
    texts = (actual.kind == "text") + (expected.kind == "text")
    if left == right or (texts and prepare(left) == prepare(right)):
        return True
    if texts == 2:
        return False
    try:
        return _same_json(read_exactly(left), read_exactly(right), prepare)
    except (ValueError, RecursionError):  # a text that is no JSON
        return False


def _same_json(left: Any, right: Any, prepare: Prepare) -> bool:
    if type(left) is not type(right):  # so that true is not 1
        return False
    if isinstance(left, str):
        return left == right or prepare(left) == prepare(right)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same_json, left, right, [prepare] * len(left)))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same_json(left[key], right[key], prepare) for key in left)
    return bool(left == right)
