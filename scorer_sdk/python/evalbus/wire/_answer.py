"""Answers and score tasks to and from messages."""

from __future__ import annotations

import struct

from evalbus._errors import ContractBroken
from evalbus._failure import Failure
from evalbus._item import ScoreTask, TaskDraft
from evalbus._output import Output, only_text
from evalbus._plugin import Answer, ScoreAnswer
from evalbus._score import Score, is_plain
from evalbus._value import Value
from evalbus.v1 import score_pb2, scorer_pb2, target_pb2
from evalbus.wire._item import fill_item, partial_item_from_proto
from evalbus.wire._output import fill_output, output_from_proto, partial_output_from_proto
from evalbus.wire._score import (
    failure_from_proto,
    fill_failure,
    fill_score,
    only_score_from_proto,
    score_from_proto,
)
from evalbus.wire._value import duration_from_proto, fill_duration, fill_usage, fill_value, value_from_proto
from evalbus.wire.framing import submessage, tag, varint

_LEFT_OUT = Value("")

# Field tags, by the names that target.proto, scorer.proto and score.proto give them.
_TRIAL_ID = tag(1, delimited=False)
_ATTEMPT = tag(2, delimited=False)
_OUTPUT = tag(3, delimited=True)
_CONTENT = tag(1, delimited=True)
_TEXT = tag(1, delimited=True)
_BARE = score_pb2.Score(status=score_pb2.SCORE_STATUS_SCORED, value=1.0).SerializeToString()
_double = struct.Struct("<d").pack
_SCORED = tag(3, delimited=True) + varint(len(_BARE)) + _BARE.removesuffix(_double(1.0))
"""A score of an answer up to its value, which ends it."""


def fill_answer(message: target_pb2.Answer, answer: Answer) -> None:
    """A target's answer into a message."""
    message.trial_id = answer.trial_id
    message.attempt = answer.attempt
    result = answer.result
    if isinstance(result, Output):
        fill_output(message.output, result)
    else:
        fill_failure(message.failure, result)
        if answer.usage is not None:
            fill_usage(message.usage, answer.usage)


def answer_to_proto(answer: Answer) -> target_pb2.Answer:
    """A target's answer as a message."""
    message = target_pb2.Answer()
    fill_answer(message, answer)
    return message


def encode_answer(answer: Answer) -> bytes:
    """A target's answer as an encoded message. One that is a text, as most are, is put together without a message.

    Raises:
        ValueError, TypeError, AttributeError: a part has no form on the wire.
    """
    result = answer.result
    if type(result) is Output and answer.trial_id >= 0 <= answer.attempt and (text := only_text(result)) is not None:
        content = submessage(_CONTENT, submessage(_TEXT, text.encode()))
        return b"".join(
            (_TRIAL_ID, varint(answer.trial_id), _ATTEMPT, varint(answer.attempt), submessage(_OUTPUT, content))
        )
    return answer_to_proto(answer).SerializeToString()


def answer_result_from_proto(message: target_pb2.Answer) -> Output | Failure:
    """The output or the failure of an answer.

    Raises:
        ContractBroken: it holds neither, or a part breaks a rule.
    """
    if message.HasField("output"):
        return output_from_proto(message.output)
    if message.HasField("failure"):
        return failure_from_proto(message.failure)
    raise ContractBroken("an answer holds neither output nor failure")


def fill_task(message: scorer_pb2.ScoreTask, task: ScoreTask) -> None:
    """A score task into a message."""
    message.trial_id = task.trial_id
    message.attempt = task.attempt
    message.epoch = task.epoch
    fill_item(message.item, task.item)
    fill_output(message.output, task.output)
    if task.inputs:
        for name, value in task.inputs.items():
            entry = message.inputs.add()
            entry.name = name
            fill_value(entry.value, value)
    if task.against is not None:
        fill_output(message.against, task.against)
    if task.remaining is not None:
        fill_duration(message.remaining, task.remaining)


def task_to_proto(task: ScoreTask) -> scorer_pb2.ScoreTask:
    """A score task as a message."""
    message = scorer_pb2.ScoreTask()
    fill_task(message, task)
    return message


def task_from_proto(message: scorer_pb2.ScoreTask) -> ScoreTask:
    """A message as a score task. The item's input is "" if it was left out, the output's content None.

    Raises:
        ContractBroken: a part breaks a rule, or an input has no name or comes twice.
    """
    made = TaskDraft()
    made.trial_id = message.trial_id
    made.attempt = message.attempt
    made.item = partial_item_from_proto(message.item, _LEFT_OUT)
    made.output = partial_output_from_proto(message.output)
    inputs: dict[str, Value] = {}
    for entry in message.inputs:
        if not entry.name or entry.name in inputs:
            raise ContractBroken(f"input {entry.name!r} has no name, or comes twice")
        inputs[entry.name] = value_from_proto(entry.value, f"input {entry.name!r}")
    made.inputs = inputs
    made.against = partial_output_from_proto(message.against) if message.HasField("against") else None
    made.epoch = message.epoch
    made.remaining = duration_from_proto(message.remaining) if message.HasField("remaining") else None
    made.__class__ = ScoreTask
    task: ScoreTask = made
    return task


def fill_score_answer(message: scorer_pb2.ScoreAnswer, answer: ScoreAnswer) -> None:
    """A scorer's answer into a message."""
    message.trial_id = answer.trial_id
    message.attempt = answer.attempt
    result = answer.result
    if isinstance(result, tuple):
        for score in result:
            fill_score(message.scores.add(), score)
    else:
        fill_failure(message.failure, result)
        if answer.usage is not None:
            fill_usage(message.usage, answer.usage)


def score_answer_to_proto(answer: ScoreAnswer) -> scorer_pb2.ScoreAnswer:
    """A scorer's answer as a message."""
    message = scorer_pb2.ScoreAnswer()
    fill_score_answer(message, answer)
    return message


def encode_score_answer(answer: ScoreAnswer) -> bytes:
    """A scorer's answer as an encoded message. One that is a value, as most are, is put together without a message.

    Raises:
        ValueError, TypeError, AttributeError: a part has no form on the wire.
    """
    result = answer.result
    if answer.trial_id >= 0 <= answer.attempt and type(result) is tuple and is_plain(result):
        return b"".join(
            (_TRIAL_ID, varint(answer.trial_id), _ATTEMPT, varint(answer.attempt), _SCORED, _double(result[0].value))
        )
    return score_answer_to_proto(answer).SerializeToString()


def score_answer_result_from_proto(message: scorer_pb2.ScoreAnswer) -> tuple[Score, ...] | Failure:
    """The scores or the failure of a scorer's answer.

    Raises:
        ContractBroken: it holds both or neither, or a score breaks a rule.
    """
    scores = message.scores
    if message.HasField("failure"):
        if scores:
            raise ContractBroken("an answer holds both scores and a failure")
        return failure_from_proto(message.failure)
    if len(scores) == 1:
        return only_score_from_proto(scores[0])
    if not scores:
        raise ContractBroken("an answer holds neither scores nor a failure")
    return tuple([score_from_proto(score) for score in scores])
