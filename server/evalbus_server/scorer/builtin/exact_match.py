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
    body = actual.body
    for expected in accepted:
        if expected.body == body:  # most are right to the letter, and need nothing made ready
            return FULL
    said = _Said(actual, state)
    if any(map(said.is_same_as, accepted)):
        return FULL
    if actual.kind == "json" and _is_the_whole_list(said, task):
        return _LIST_OF_THEM
    others = len(accepted) - 1
    more = f" or {others} other{'s' if others > 1 else ''}" if others else ""
    return Score.scored(0.0, f"expected {quoted(accepted[0])}{more}, got {quoted(actual)}")


_LIST_OF_THEM = Score.scored(
    0.0, "the output is the list of expected answers, of which any one would do; to expect the list itself, write [[…]]"
)


class _Said:
    """What is judged, made ready once, however many answers are expected."""

    __slots__ = ("_document", "_prepare", "_text", "_value")

    def __init__(self, value: Value, prepare: Prepare) -> None:
        self._value, self._prepare = value, prepare
        self._text: str | None = None
        self._document: Any = _UNREAD

    def is_same_as(self, expected: Value) -> bool:
        """Whether an expected answer says the same."""
        left, right = self._value.body, expected.body
        if not isinstance(left, str) or not isinstance(right, str):
            return left == right
        if left == right:
            return True
        texts = (self._value.kind == "text") + (expected.kind == "text")
        if texts:
            if self._text is None:
                self._text = self._prepare(left)
            if self._text == self._prepare(right):
                return True
        if texts == 2:
            return False
        if self._document is _UNREAD:
            self._document = _read(left)
        if self._document is _NONE:
            return False
        document = _read(right)
        try:
            return document is not _NONE and _same_json(self._document, document, self._prepare)
        except RecursionError:
            return False


def _read(text: str) -> Any:
    try:
        return read_exactly(text)
    except ValueError:  # a text that is no JSON
        return _NONE


_UNREAD, _NONE = object(), object()


def _is_the_whole_list(said: _Said, task: ScoreTask) -> bool:
    whole = (task.inputs.get("expected") if task.inputs else None) or task.item.expected
    return whole is not None and whole.kind == "json" and said.is_same_as(whole)


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
