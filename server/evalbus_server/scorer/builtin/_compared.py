"""What the builtin scorers compare: which part of an output with which expected answers, and as which text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from evalbus import Failure, FailureCategory, FailureOrigin, Score, ScoreStatus, ScoreTask, Value
from evalbus_server.scorer.documents import SPACE, entries

INPUTS = ("output", "expected")
"""The inputs that an experiment may map. No scorer here declares that it needs an expected answer, since a mapped one
takes the place of the item's."""

Normalize = Literal["none", "NFC", "NFKC"]
"""Whether characters that Unicode can write in several ways are made the same first."""
Prepare: TypeAlias = Callable[[str], str]
T = TypeVar("T")

THREADS = 2
"""For scorers that may compute for long: they share the interpreter, so more threads would only take more memory."""

CASE = "Whether upper and lower case are the same."
NORMALIZE = "NFC or NFKC: characters that Unicode can write in several ways are the same."

NO_EXPECTED = Score.skipped("the item has no expected answer")
FULL = Score.scored(1.0)
NONE = Score.scored(0.0)

MOST_READ = 100_000_000
"""Characters of an output that are read for one score at most: as often as there are expected answers."""

_EMPTY = Value("")
_SHOWN = 100


def setting(default: T, description: str) -> T:
    """A field of a scorer's settings, with the sentence that its schema shows."""
    made: Any = field(default=default, metadata={"description": description})
    found: T = made
    return found


def setting_list(description: str) -> list[Any]:
    """The same for a list that is empty by default."""
    made: Any = field(default_factory=list, metadata={"description": description})
    found: list[Any] = made
    return found


def actual_of(task: ScoreTask) -> Value:
    """What is judged: the mapped output, else the part of the output that counts, else its content.

    An output that is nothing but messages is judged by the text of the last one.
    """
    if task.inputs:
        mapped = task.inputs.get("output")
        if mapped is not None:
            return mapped
    output = task.output
    if output.answer is not None:
        return output.answer
    if output.content is not None:
        return output.content
    return Value(output.messages[-1].text) if output.messages else _EMPTY


def accepted_of(task: ScoreTask) -> list[Value]:
    """The expected answers of which any will do (O4): those mapped, else the item's; none if there are none."""
    expected = task.inputs.get("expected") if task.inputs else None
    if expected is None:
        expected = task.item.expected
    if expected is None:
        return []
    if expected.kind == "json":
        document = expected.text.strip(SPACE)
        if document.startswith("["):
            return entries(document)
    return [expected]


def expected_texts(task: ScoreTask) -> list[str] | Score:
    """The expected answers as texts; the score where there are none, or one is no text."""
    accepted = accepted_of(task)
    texts = []
    for each in accepted:
        if not isinstance(each.body, str):
            return not_text(each, "expected answer")
        texts.append(each.body)
    return texts or NO_EXPECTED


def best_of(task: ScoreTask, prepare: Callable[[str], T], judge: Callable[[T, T, int], Score]) -> Score:
    """The best score of the output against each expected answer, as texts.

    *judge* is given both, prepared, and how many expected answers there are, by which it divides the work that it may
    do. What it cannot judge ends the search; what it skips counts only if nothing else does.
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
    text = prepare(actual.body)
    best: Score | None = None
    for expected in accepted:
        if not isinstance(expected.body, str):
            return not_text(expected, "expected answer")
        score = judge(text, prepare(expected.body), len(accepted))
        if score.status is ScoreStatus.ERRORED or score.value == 1.0:
            return score
        if best is None or (score.value is not None and (best.value is None or score.value > best.value)):
            best = score
    assert best is not None
    return best


def preparation(
    *, ignore_case: bool = False, trim: bool = False, normalize: Normalize = "none", bare: bool = False
) -> Prepare:
    """What is done to both texts before they are compared; *bare*: punctuation around them is left out."""
    steps: list[Prepare] = []
    if normalize != "none":
        steps.append(partial(unicodedata.normalize, normalize))
    if trim:
        steps.append(str.strip)
    if ignore_case:
        steps.append(str.casefold)  # not lower(): STRASSE is straße
        if normalize != "none":
            steps.append(partial(unicodedata.normalize, normalize))  # casefold can take it apart again
    if bare:
        steps.append(without_punctuation)
    if not steps:
        return _as_it_is
    if len(steps) == 1:
        return steps[0]

    def prepare(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return prepare


def without_punctuation(text: str) -> str:
    """The text without the punctuation and space around it; one that is nothing else stays."""
    start, end = 0, len(text)
    while start < end and _is_edge(text[start]):
        start += 1
    while end > start and _is_edge(text[end - 1]):
        end -= 1
    return text[start:end] or text


def _is_edge(character: str) -> bool:
    return not character.isalnum() and (character.isspace() or unicodedata.category(character)[0] == "P")


def not_text(value: Value, what: str) -> Score:
    """The score where only text can be judged and there is none."""
    return unjudged("NOT_TEXT", f"the {what} is {value}, not text")


def unjudged(reason: str, message: str) -> Score:
    """The score where something is wrong that no second try will mend."""
    return Score.errored(
        Failure(FailureCategory.INVALID, message, reason=reason, origin=FailureOrigin.SCORER, retryable=False)
    )


def too_long(name: str, left: int, right: int, what: str = "characters") -> Score:
    """The score where finding out would take too long."""
    return unjudged(
        "TEXT_TOO_LONG",
        f"texts of {left:,} and {right:,} {what} that differ in so many places are too long for {name}; compare a part "
        "of them with `map`",
    )


def read_too_often(text: str, among: int, most: int = MOST_READ) -> Score | None:
    """The score where comparing an output with each of so many expected answers would take too long; else None."""
    if len(text) * among <= most:
        return None
    return unjudged(
        "TEXT_TOO_LONG",
        f"an output of {len(text):,} characters is too long to be compared with {among:,} expected answers; compare a "
        "part of it with `map`",
    )


def quoted(value: Value | str) -> str:
    """A text for an explanation, cut where it gets long."""
    text = str(value)
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _as_it_is(text: str) -> str:
    return text
