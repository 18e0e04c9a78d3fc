"""Failures and scores to and from messages."""

from __future__ import annotations

import re
from typing import Any

from evalbus._errors import ContractBroken
from evalbus._failure import Failure, FailureCategory, FailureOrigin
from evalbus._results import one_line, upper_snake
from evalbus._score import Score, ScoreDraft, ScoreStatus, ScoreStep, plain_scores
from evalbus.v1 import failure_pb2, score_pb2
from evalbus.wire._value import (
    duration_from_proto,
    fill_duration,
    fill_usage,
    fill_value,
    object_from_proto,
    usage_from_proto,
    value_from_proto,
)

LONGEST_FAILURE_MESSAGE = 4096
"""Bytes of a failure's message; a longer one is cut where it arrives."""
_REASON = re.compile("[A-Z][A-Z0-9_]{0,63}")
_BARE_SIZE = score_pb2.Score(status=score_pb2.SCORE_STATUS_SCORED, value=1.0).ByteSize()
"""The size of a score that has a status and a value alone, as most have."""
_PLAIN: dict[bytes, tuple[Score, ...]] = {}
"""Scores that are a value and nothing else, by how they are encoded."""
_MOST_PLAIN = 4096
_STATUS = {int(status): status for status in ScoreStatus}
_CATEGORIES = {int(category): category for category in FailureCategory}
_ORIGINS = {int(origin): origin for origin in FailureOrigin}


def fill_failure(message: failure_pb2.Failure, failure: Failure) -> None:
    """A failure into a message; an empty reason becomes the category's name."""
    message.origin = failure.origin  # type: ignore[assignment]  # the numbers are the contract's
    message.category = failure.category  # type: ignore[assignment]
    if failure.retryable is not None:
        message.retryable = failure.retryable
    message.reason = failure.reason or failure.category.name
    if failure.field:
        message.field = failure.field
    if failure.retry_after is not None:
        fill_duration(message.retry_after, failure.retry_after)
    message.message = failure.message
    if failure.details_json:
        message.details = failure.details_json


def failure_to_proto(failure: Failure) -> failure_pb2.Failure:
    """A failure as a message; an empty reason becomes the category's name."""
    message = failure_pb2.Failure()
    fill_failure(message, failure)
    return message


def failure_from_proto(message: failure_pb2.Failure) -> Failure:
    """A message as a failure, which is made what the contract promises of one, whoever sent it.

    An unknown category is read as INTERNAL, details that are no JSON object are dropped, the text becomes one line of
    at most 4 KiB, and the reason a constant.
    """
    category = _CATEGORIES.get(message.category, FailureCategory.INTERNAL)
    try:
        details = object_from_proto(message.details, "details")
    except ContractBroken:
        details = ""
    reason = message.reason or category.name
    return Failure(
        category,
        one_line(message.message, LONGEST_FAILURE_MESSAGE),
        reason if _REASON.fullmatch(reason) else upper_snake(reason),
        _ORIGINS.get(message.origin, FailureOrigin.UNSPECIFIED),
        message.retryable if message.HasField("retryable") else None,
        message.field,
        duration_from_proto(message.retry_after) if message.HasField("retry_after") else None,
        details,
    )


def fill_score(message: score_pb2.Score, score: Score) -> None:  # noqa: C901  # one branch a field
    """A score into a message."""
    message.status = score.status  # type: ignore[assignment]  # the numbers are the contract's
    if score.value is not None:
        message.value = score.value
    if score.name:
        message.name = score.name
    if score.label:
        message.label = score.label
    if score.explanation:
        message.explanation = score.explanation
    if score.metadata_json:
        message.metadata = score.metadata_json
    if score.answer is not None:
        fill_value(message.answer, score.answer)
    if score.failure is not None:
        fill_failure(message.failure, score.failure)
    if score.steps:
        for step in score.steps:
            _fill_step(message.steps.add(), step)
    if score.usage is not None:
        fill_usage(message.usage, score.usage)
    if score.trace_ids:
        message.trace_ids.extend(score.trace_ids)


def score_to_proto(score: Score) -> score_pb2.Score:
    """A score as a message."""
    message = score_pb2.Score()
    fill_score(message, score)
    return message


def only_score_from_proto(message: score_pb2.Score) -> tuple[Score, ...]:
    """The only score of an answer, which mostly is a value and nothing else.

    Raises:
        ContractBroken: as from `score_from_proto`.
    """
    encoded = message.SerializeToString()  # quicker than asking for three fields
    known = _PLAIN.get(encoded)
    if known is not None:
        return known
    if (  # status and value take all the bytes: there is no other field to visit
        len(encoded) == _BARE_SIZE and message.status == score_pb2.SCORE_STATUS_SCORED and message.HasField("value")
    ):
        if len(_PLAIN) >= _MOST_PLAIN:
            _PLAIN.clear()
        known = _PLAIN[encoded] = plain_scores(message.value)
        return known
    return (score_from_proto(message),)


def score_from_proto(message: score_pb2.Score) -> Score:
    """A message as a score. Whether the value is finite and in range is judged by the server, not here.

    Raises:
        ContractBroken: the status is unknown, or does not agree with value and failure.
    """
    made = ScoreDraft()
    made.value = made.answer = made.failure = made.usage = None
    made.name = made.label = made.explanation = made.metadata_json = ""
    made.steps = made.trace_ids = ()
    status: ScoreStatus | None = None
    # Only fields that are set are visited: asking after each of eleven costs twice as much as the rest.
    for field, value in message.ListFields():
        number = field.number
        if number == 2:
            status = _STATUS.get(value)
        elif number == 3:
            made.value = value
        elif number == 6:
            made.explanation = value
        elif number == 1:
            made.name = value
        else:
            _RARE.get(number, _ignore)(made, value)
    if status is None:
        raise ContractBroken(f"score {made.name!r}: unknown status {message.status}")
    if (made.value is None) is (status is ScoreStatus.SCORED):
        raise ContractBroken(
            f"score {made.name!r}: {status.name} {'without' if made.value is None else 'with'} a value"
        )
    if (made.failure is None) is (status is ScoreStatus.ERRORED):
        fault = "without" if made.failure is None else "with"
        raise ContractBroken(f"score {made.name!r}: {status.name} {fault} a failure")
    made.status = status
    made.__class__ = Score
    score: Score = made
    return score


def _label(made: Any, value: Any) -> None:
    made.label = value


def _answer(made: Any, value: Any) -> None:
    made.answer = value_from_proto(value, "answer of the score")


def _failure(made: Any, value: Any) -> None:
    made.failure = failure_from_proto(value)


def _metadata(made: Any, value: Any) -> None:
    made.metadata_json = object_from_proto(value, "metadata of the score")


def _steps(made: Any, value: Any) -> None:
    made.steps = tuple([_step_from_proto(step) for step in value])


def _usage(made: Any, value: Any) -> None:
    made.usage = usage_from_proto(value)


def _trace_ids(made: Any, value: Any) -> None:
    made.trace_ids = tuple(value)


def _ignore(made: Any, value: Any) -> None:
    """A field of a later revision."""


_RARE = {4: _label, 5: _answer, 7: _failure, 8: _metadata, 9: _steps, 10: _usage, 11: _trace_ids}


def _fill_step(message: score_pb2.ScoreStep, step: ScoreStep) -> None:
    message.name = step.name
    if step.result is not None:
        fill_value(message.result, step.result)
    if step.duration is not None:
        fill_duration(message.duration, step.duration)


def _step_from_proto(message: score_pb2.ScoreStep) -> ScoreStep:
    return ScoreStep(
        message.name,
        value_from_proto(message.result, "result of a step") if message.HasField("result") else None,
        duration_from_proto(message.duration) if message.HasField("duration") else None,
    )
