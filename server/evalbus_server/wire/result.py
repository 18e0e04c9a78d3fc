"""Results of trials <-> messages."""

from __future__ import annotations

from collections.abc import Sequence

from evalbus import ContractBroken, ScoreDeclaration
from evalbus.v1 import run_pb2
from evalbus.wire import (
    duration_from_proto,
    duration_to_proto,
    failure_from_proto,
    fill_failure,
    fill_item,
    fill_output,
    fill_score,
    fill_usage,
    item_from_proto,
    output_from_proto,
    score_from_proto,
    usage_sum_from_proto,
)
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.run import Outcome, ScoreKey
from evalbus_server.model.trial import StoredResult, StoredScore, epoch_of
from evalbus_server.wire.run import enum_of, optional


def result_to_proto(result: StoredResult, keys: Sequence[ScoreKey]) -> run_pb2.TrialResult:
    """The result of a trial as a message; *keys* are the score keys of its run."""
    message = run_pb2.TrialResult(
        trial_id=result.trial_id,
        epoch=epoch_of(result.trial_id),
        outcome=int(result.outcome),  # type: ignore[arg-type]  # the numbers are those of the contract
        weighted=result.weighted,
        attempts=result.attempts,
        cached=result.cached,
    )
    fill_item(message.item, result.item)
    if result.output is not None:
        message.output.SetInParent()
        fill_output(message.output, result.output)
    for place, stored in sorted(result.scores.items()):
        key = keys[place]
        told = message.scores.add(key=key.key, threshold=key.threshold, passed=stored.passed)
        fill_score(told.score, stored.score)
    if result.failure is not None:
        fill_failure(message.failure, result.failure)
    if result.latency is not None:
        message.latency.CopyFrom(duration_to_proto(result.latency))
    if result.usage is not None:
        message.usage.SetInParent()
        fill_usage(message.usage, result.usage)
    return message


def result_from_proto(message: run_pb2.TrialResult) -> tuple[StoredResult, tuple[ScoreKey, ...]]:
    """A message as the result of a trial, and the score keys that its scores have, as far as the message says.

    Raises:
        Invalid: a part breaks a rule of the contract.
    """
    try:
        scores = {
            place: StoredScore(score_from_proto(each.score), optional(each, "passed"))
            for place, each in enumerate(message.scores)
        }
        result = StoredResult(
            message.trial_id,
            item_from_proto(message.item),
            enum_of(Outcome, message.outcome, Outcome.ERRORED),
            output_from_proto(message.output) if message.HasField("output") else None,
            scores,
            optional(message, "weighted"),
            failure_from_proto(message.failure) if message.HasField("failure") else None,
            message.attempts,
            duration_from_proto(message.latency) if message.HasField("latency") else None,
            usage_sum_from_proto(message.usage) if message.HasField("usage") else None,
            message.cached,
        )
    except ContractBroken as error:
        raise Invalid(Reason.REQUEST_INVALID, f"result of trial {message.trial_id}: {error}", field="result") from None
    keys = tuple(
        ScoreKey(each.key, -1, ScoreDeclaration(each.score.name), optional(each, "threshold"))
        for each in message.scores
    )
    return result, keys
