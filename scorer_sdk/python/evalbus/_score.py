"""What a scorer says about an output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from evalbus._draft import draft
from evalbus._failure import Failure, FailureCategory, FailureOrigin
from evalbus._output import Usage
from evalbus._value import JsonObject, Value, ValueLike, object_data, object_text

_set = object.__setattr__


class ScoreStatus(IntEnum):
    """What became of a score. Numbers as in the contract."""

    SCORED = 1
    SKIPPED = 2  # the scorer does not apply; left out of every number
    ERRORED = 3  # the scorer broke; counted, never read as a zero


class Direction(IntEnum):
    """Which end of a range is the good one. Numbers as in the contract."""

    HIGHER_IS_BETTER = 1
    LOWER_IS_BETTER = 2


@dataclass(frozen=True, slots=True)
class ScoreStep:
    """One stage of a scorer's work."""

    name: str
    result: Value | None = None
    duration: float | None = None
    """Seconds."""


@dataclass(frozen=True, slots=True)
class ScoreDeclaration:
    """What a scorer promises about one of its scores."""

    name: str = ""
    minimum: float | None = 0.0
    maximum: float | None = 1.0
    direction: Direction = Direction.HIGHER_IS_BETTER
    unit: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, init=False)
class Score:
    """One named judgement of one output. Build it with `scored`, `skipped` or `errored`."""

    status: ScoreStatus
    value: float | None
    """Set if and only if the status is SCORED."""
    name: str
    """Which of the scorer's declared scores; "" for the only one."""
    label: str
    answer: Value | None
    """What was found in the output and judged."""
    explanation: str
    failure: Failure | None
    """Set if and only if the status is ERRORED."""
    metadata_json: str
    steps: tuple[ScoreStep, ...]
    usage: Usage | None
    trace_ids: tuple[str, ...]

    def __init__(
        self,
        status: ScoreStatus,
        value: float | None = None,
        *,
        name: str = "",
        label: str = "",
        answer: ValueLike | None = None,
        explanation: str = "",
        failure: Failure | None = None,
        metadata: JsonObject | str | None = None,
        steps: Sequence[ScoreStep] = (),
        usage: Usage | None = None,
        trace_ids: Sequence[str] = (),
    ) -> None:
        """Make a score of any status; the three constructors below are the usual way."""
        _set(self, "status", status)
        _set(self, "value", value)
        _set(self, "name", name)
        _set(self, "label", label)
        _set(self, "answer", answer if answer is None or type(answer) is Value else Value.of(answer))
        _set(self, "explanation", explanation)
        _set(self, "failure", failure)
        _set(self, "metadata_json", object_text(metadata))
        _set(self, "steps", tuple(steps))
        _set(self, "usage", usage)
        _set(self, "trace_ids", tuple(trace_ids))

    @classmethod
    def scored(cls, value: float, explanation: str = "", **more: Any) -> Score:
        """A score with a value; *more* are the other fields by name (name, label, answer, metadata, steps, usage …).

        The value must be finite and inside the declared range: the server refuses any other and says so.
        """
        if more or cls is not Score:
            return cls(ScoreStatus.SCORED, float(value), explanation=explanation, **more)
        made = ScoreDraft()
        made.status = ScoreStatus.SCORED
        made.value = float(value)
        made.explanation = explanation
        made.name = made.label = made.metadata_json = ""
        made.answer = made.failure = made.usage = None
        made.steps = made.trace_ids = ()
        made.__class__ = Score
        score: Score = made
        return score

    @classmethod
    def skipped(cls, explanation: str, *, name: str = "", **more: Any) -> Score:
        """The scorer does not apply to this item; the score is left out of every number."""
        return cls(ScoreStatus.SKIPPED, name=name, explanation=explanation, **more)

    @classmethod
    def errored(cls, failure: Failure | str, *, name: str = "", **more: Any) -> Score:
        """The scorer could not judge; a text becomes an INTERNAL failure that is not tried again."""
        if isinstance(failure, str):
            failure = Failure(FailureCategory.INTERNAL, failure, origin=FailureOrigin.SCORER, retryable=False)
        return cls(ScoreStatus.ERRORED, name=name, failure=failure, **more)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata as Python objects."""
        return object_data(self.metadata_json)


ScoreDraft = draft(Score)

_PLAIN: dict[float, tuple[Score, ...]] = {}
_MOST_PLAIN = 4096


def plain_scores(value: float) -> tuple[Score, ...]:
    """One score that has a value and nothing else. Equal values share one: most scorers give few different ones."""
    known = _PLAIN.get(value)
    if known is None:
        if len(_PLAIN) >= _MOST_PLAIN:
            _PLAIN.clear()
        known = _PLAIN[value] = (Score.scored(value + 0.0),)  # -0.0 is 0
    return known


def is_plain(scores: tuple[Score, ...]) -> bool:
    """Whether they came from `plain_scores`."""
    return len(scores) == 1 and _PLAIN.get(scores[0].value) is scores  # type: ignore[arg-type]  # None is no key
