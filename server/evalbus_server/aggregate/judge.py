"""What becomes of one trial: a scorer's answer checked against what it declared, scores turned into an outcome.

The hot path: each function has a short way for the ordinary case, and says the same for it as the long way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from evalbus import Direction, Failure, FailureCategory, FailureOrigin, Score, ScoreDeclaration, ScoreStatus
from evalbus_server.aggregate.statistics import exact_mean, weighted_mean
from evalbus_server.model.run import Outcome, ScoreKey

CONTRACT_BROKEN = "CONTRACT_BROKEN"
"""The reason of a failure that quotes how an answer breaks the contract."""

_SCORED = ScoreStatus.SCORED
_ERRORED = ScoreStatus.ERRORED
_LOWER = Direction.LOWER_IS_BETTER
_QUOTED = 5
"""So many names are quoted of an answer that gives names it should not."""


def check_scores(answer: Sequence[Score] | Failure, keys: Sequence[tuple[int, ScoreKey]]) -> list[tuple[int, Score]]:
    """One score for each key of a scorer, in the order of *keys*: what it said, or ERRORED where it broke its word.

    *keys* are the score keys of this scorer with their positions in the run. A value outside the declared range and
    a score that is missing are ERRORED by themselves (O1, O3). Names that are unknown or come twice make the whole
    answer ERRORED, since nobody can say what the scorer meant. A failure is the failure of every key.
    """
    if isinstance(answer, Failure):
        return _all_errored(answer, keys)
    if len(answer) != len(keys):
        return _check(answer, keys)
    checked = []
    for place, (position, key) in enumerate(keys):
        score = answer[place]
        declaration = key.declaration
        value = score.value
        lowest = declaration.minimum
        highest = declaration.maximum
        if (
            score.status is _SCORED
            and type(value) is float
            and lowest is not None
            and highest is not None
            and lowest <= value <= highest  # False for NaN
            and (value or math.copysign(1.0, value) > 0.0)  # -0.0 goes the long way
            and score.name == declaration.name
        ):
            checked.append((position, score))
        else:
            return _check(answer, keys)
    return checked


def judge(
    scores: Mapping[int, Score], keys: Sequence[ScoreKey], target_failure: Failure | None = None
) -> tuple[Outcome, float | None, Failure | None]:
    """The outcome of a trial (O1), its weighted score (N8), and why it is ERRORED.

    *scores* are by position in *keys*. A key without a score makes the trial ERRORED: where a scorer is not asked on
    purpose, its scores are SKIPPED. The weighted score of an ERRORED trial is None, or it would tell of the scorers
    that happened to work.
    """
    if target_failure is not None:
        return Outcome.ERRORED, None, target_failure
    failed = False
    values: list[float] = []
    weights: list[float | None] = []
    weighed = False
    for position, key in enumerate(keys):
        score = scores.get(position)
        if score is None:
            return Outcome.ERRORED, None, _broken(f"the score {key.key!r} is missing")
        status = score.status
        if status is _SCORED:
            value: float = score.value  # type: ignore[assignment]  # set if and only if SCORED
            values.append(value)
            weight = key.weight
            weights.append(weight)
            if weight is not None:
                weighed = True
            threshold = key.threshold
            if threshold is not None and (
                value > threshold if key.declaration.direction is _LOWER else value < threshold
            ):
                failed = True
        elif status is _ERRORED:
            return (
                Outcome.ERRORED,
                None,
                score.failure or _broken(f"the score {key.key!r} is ERRORED without a failure"),
            )
        elif key.weight is not None:
            weighed = True
    if not values:
        return (Outcome.SKIPPED if keys else Outcome.PASSED), None, None
    outcome = Outcome.FAILED if failed else Outcome.PASSED
    return outcome, (weighted_mean(values, weights) if weighed else exact_mean(values)), None


def _check(answer: Sequence[Score], keys: Sequence[tuple[int, ScoreKey]]) -> list[tuple[int, Score]]:
    """`check_scores` for anything but values in range, one for each key in the declared order."""
    only = keys[0][1].declaration.name if len(keys) == 1 else None
    named: dict[str, Score] = {}
    doubled: list[str] = []
    for score in answer:
        name = only if only and not score.name else score.name  # "" stands for the only one
        if name in named:
            doubled.append(name)
        named[name] = score
    declared = {key.declaration.name for _, key in keys}
    unknown = [name for name in named if name not in declared]
    if unknown or doubled:
        return _all_errored(_broken(_misnamed(unknown, doubled, sorted(declared))), keys)
    return [(position, _checked(named.get(key.declaration.name), key)) for position, key in keys]


def _all_errored(failure: Failure, keys: Sequence[tuple[int, ScoreKey]]) -> list[tuple[int, Score]]:
    return [(position, Score.errored(failure, name=key.declaration.name)) for position, key in keys]


def _checked(score: Score | None, key: ScoreKey) -> Score:
    if score is None:
        return Score.errored(_broken(f"the score {key.key!r} is missing"), name=key.declaration.name)
    if score.status is _SCORED:
        fault = _fault_of(score.value, key.declaration)
        if fault:
            return _like(score, _ERRORED, None, _broken(f"the score {key.key!r} {fault}"))
        return score if score.value else _like(score, _SCORED, 0.0, None)  # -0.0 becomes 0.0
    if score.status is _ERRORED:
        failure = score.failure or _broken(f"the score {key.key!r} is ERRORED without a failure")
        return _like(score, _ERRORED, None, failure)
    if score.value is not None:
        return _like(
            score, _ERRORED, None, _broken(f"the score {key.key!r} is SKIPPED, yet has the value {score.value!r}")
        )
    return score


def _fault_of(value: float | None, declaration: ScoreDeclaration) -> str:
    """What is wrong with a value; "" if nothing is."""
    if value is None:
        return "is SCORED without a value"
    if not math.isfinite(value):
        return f"has the value {value!r}, which is not a finite number"
    if declaration.minimum is not None and value < declaration.minimum:
        return f"has the value {value!r}, below its declared minimum {declaration.minimum!r}"
    if declaration.maximum is not None and value > declaration.maximum:
        return f"has the value {value!r}, above its declared maximum {declaration.maximum!r}"
    return ""


def _misnamed(unknown: list[str], doubled: list[str], declared: list[str]) -> str:
    faults = []
    if unknown:
        faults.append("gives scores that it did not declare: " + _names(unknown))
    if doubled:
        faults.append("gives scores twice: " + _names(doubled))
    return f"the scorer {' and '.join(faults)} (declared: {_names(declared)})"


def _names(names: list[str]) -> str:
    quoted = ", ".join(repr(name[:100]) for name in names[:_QUOTED])
    return quoted if len(names) <= _QUOTED else f"{quoted} and {len(names) - _QUOTED} more"


def _broken(message: str) -> Failure:
    return Failure(
        FailureCategory.INVALID, message, reason=CONTRACT_BROKEN, origin=FailureOrigin.SCORER, retryable=False
    )


def _like(score: Score, status: ScoreStatus, value: float | None, failure: Failure | None) -> Score:
    """The score with another status, value and failure; what it says beside them is kept."""
    return Score(
        status,
        value,
        name=score.name,
        label=score.label,
        answer=score.answer,
        explanation=score.explanation,
        failure=failure,
        metadata=score.metadata_json,
        steps=score.steps,
        usage=score.usage,
        trace_ids=score.trace_ids,
    )
