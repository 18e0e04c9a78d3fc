"""Score rows and numbers over a run to and from messages."""

from __future__ import annotations

from collections.abc import Sequence

from evalbus._errors import ContractBroken
from evalbus._failure import Failure
from evalbus._metric import MetricAnswer
from evalbus._reduce import Reduction, Row
from evalbus.v1 import scorer_pb2
from evalbus.wire._plugin import declaration_from_proto, declaration_to_proto, open_from_proto, open_to_proto
from evalbus.wire._score import failure_from_proto, failure_to_proto, fill_score, score_from_proto
from evalbus.wire._value import fill_value, value_from_proto


def reduction_to_proto(asked: Reduction) -> scorer_pb2.ReduceOpen:
    """What is asked for as a message."""
    return scorer_pb2.ReduceOpen(
        open=open_to_proto(asked.opening),
        metrics=asked.metrics,
        scores=[declaration_to_proto(each) for each in asked.scores],
    )


def reduction_from_proto(message: scorer_pb2.ReduceOpen) -> Reduction:
    """A message as what is asked for.

    Raises:
        ContractBroken: it asks for nothing, or a declaration is none.
    """
    if not message.metrics or not message.scores:
        raise ContractBroken("it asks for no metric, or for none of a score")
    scores = tuple(declaration_from_proto(each) for each in message.scores)
    return Reduction(open_from_proto(message.open), tuple(message.metrics), scores)


def fill_row(message: scorer_pb2.ScoreRow, row: Row) -> None:
    """Write a row into a message."""
    message.trial_id, message.item_id, message.epoch = row.trial_id, row.item_id, row.epoch
    for score in row.scores:
        fill_score(message.scores.add(), score)
    if row.expected is not None:
        fill_value(message.expected, row.expected)
    if row.answer is not None:
        fill_value(message.answer, row.answer)
    for name, value in row.inputs.items():
        named = message.inputs.add(name=name)
        fill_value(named.value, value)


def row_from_proto(message: scorer_pb2.ScoreRow) -> Row:
    """A message as a row.

    Raises:
        ContractBroken: a score or a value in it breaks a rule.
    """
    return Row(
        message.trial_id,
        message.item_id,
        message.epoch,
        tuple(score_from_proto(score) for score in message.scores),
        value_from_proto(message.expected) if message.HasField("expected") else None,
        value_from_proto(message.answer) if message.HasField("answer") else None,
        {named.name: value_from_proto(named.value) for named in message.inputs},
    )


def reduced_to_proto(made: Sequence[MetricAnswer] | Failure) -> scorer_pb2.ReduceResponse:
    """Numbers, or why there are none, as a message."""
    if isinstance(made, Failure):
        return scorer_pb2.ReduceResponse(failure=failure_to_proto(made))
    response = scorer_pb2.ReduceResponse()
    for each in made:
        response.values.add(
            metric=each.metric,
            score=each.score,
            value=each.value,
            explanation=each.explanation,
            failure=None if each.failure is None else failure_to_proto(each.failure),
        )
    return response


def reduced_from_proto(message: scorer_pb2.ReduceResponse) -> list[MetricAnswer] | Failure:
    """A message as numbers, or why there are none."""
    if message.HasField("failure"):
        return failure_from_proto(message.failure)
    return [
        MetricAnswer(
            each.metric,
            each.score,
            each.value if each.HasField("value") else None,
            each.explanation,
            failure_from_proto(each.failure) if each.HasField("failure") else None,
        )
        for each in message.values
    ]
