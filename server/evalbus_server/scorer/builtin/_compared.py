"""What the builtin scorers compare: which part of an output with which expected answers, and as which text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

from evalbus import Failure, FailureCategory, FailureOrigin, Score, ScoreTask, Value
from evalbus_server.scorer.documents import SPACE, entries

INPUTS = ("output", "expected")
"""The inputs that an experiment may map. No scorer here declares that it needs an expected answer, since a mapped one
takes the place of the item's."""

Normalize = Literal["none", "NFC", "NFKC"]
"""Whether characters that Unicode can write in several ways are made the same first."""
Prepare: TypeAlias = Callable[[str], str]

NO_EXPECTED = Score.skipped("the item has no expected answer")
FULL = Score.scored(1.0)
NONE = Score.scored(0.0)

_EMPTY = Value("")


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


def preparation(*, ignore_case: bool = False, trim: bool = False, normalize: Normalize = "none") -> Prepare:
    """What is done to both texts before they are compared."""
    steps: list[Prepare] = []
    if normalize != "none":
        steps.append(partial(unicodedata.normalize, normalize))
    if trim:
        steps.append(str.strip)
    if ignore_case:
        steps.append(str.casefold)  # not lower(): STRASSE is straße
        if normalize != "none":
            steps.append(partial(unicodedata.normalize, normalize))  # casefold can take it apart again
    if not steps:
        return _as_it_is
    if len(steps) == 1:
        return steps[0]

    def prepare(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return prepare


def not_text(value: Value, what: str) -> Score:
    """The score where only text can be judged and there is none."""
    return unjudged("NOT_TEXT", f"the {what} is {value}, not text")


def unjudged(reason: str, message: str) -> Score:
    """The score where something is wrong that no second try will mend."""
    return Score.errored(
        Failure(FailureCategory.INVALID, message, reason=reason, origin=FailureOrigin.SCORER, retryable=False)
    )


def _as_it_is(text: str) -> str:
    return text
