"""Flights <-> messages of the two plugin services. The only difference between targets and scorers is here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import grpc.aio

from evalbus import ContractBroken, Failure, FailureCategory, FailureOrigin, Output, TrialLimits, Value, wire
from evalbus._plugin import Open
from evalbus.v1 import plugin_pb2, scorer_pb2, scorer_pb2_grpc, target_pb2, target_pb2_grpc, value_pb2
from evalbus_server.model.trial import EPOCH_BITS, POSITION_MASK, OpenTrial, epoch_of
from evalbus_server.plugin.framing import submessage, tag, varint
from evalbus_server.plugin.port import Answered, Flight, PushBack, Received

LARGEST_OUTPUT = 2 * 1024 * 1024


# Field tags of the requests, by the names that target.proto, scorer.proto and item.proto give them.
_BATCH = tag(2, delimited=True)
_RECORD = tag(1, delimited=True)
_TRIAL_ID = tag(1, delimited=False)
_ATTEMPT = tag(2, delimited=False)
_ITEM = tag(3, delimited=True)
_TRIAL_EPOCH = tag(4, delimited=False)
_TRIAL_INDEX = tag(5, delimited=False)
_TRIAL_TOTAL = tag(6, delimited=False)
_TRIAL_REMAINING = tag(7, delimited=True)
_TRIAL_LIMITS = tag(8, delimited=True)
_TASK_OUTPUT = tag(4, delimited=True)
_TASK_INPUTS = tag(5, delimited=True)
_TASK_EPOCH = tag(7, delimited=False)
_TASK_REMAINING = tag(8, delimited=True)


class Codec(Protocol):
    """How one kind of plugin is spoken to."""

    origin: FailureOrigin

    def describe(self, channel: grpc.aio.Channel) -> Any:
        """The Describe method on a channel."""
        ...

    def converse(self, channel: grpc.aio.Channel) -> Any:
        """The streaming method on a channel; it takes encoded requests."""
        ...

    def opening(self, opening: Open) -> bytes:
        """The first request."""
        ...

    def request(self, flights: Sequence[Flight], now: float) -> bytes:
        """A request that asks for flights."""
        ...

    def cancel(self, attempts: Sequence[tuple[int, int]]) -> bytes:
        """A request that cancels (trial id, attempt) pairs."""
        ...

    def read(self, response: Any) -> Received:
        """What a response after the first one holds. A record that breaks the contract becomes its failure."""
        ...


class TargetCodec:
    """Trials and answers."""

    origin = FailureOrigin.TARGET

    def __init__(self, total: int = 0, limits: TrialLimits | None = None) -> None:
        """*total* is the number of items of the run, for display; *limits* is what each trial is asked to keep to."""
        self._total = total
        shared = b""
        if total:
            shared += _TRIAL_TOTAL + varint(total)
        if limits is not None:
            shared += submessage(_TRIAL_LIMITS, wire.limits_to_proto(limits).SerializeToString())
        self._shared = shared

    def describe(self, channel: grpc.aio.Channel) -> Any:
        """Target.Describe."""
        return target_pb2_grpc.TargetStub(channel).Describe

    def converse(self, channel: grpc.aio.Channel) -> Any:
        """Target.Answer."""
        return channel.stream_stream(
            "/evalbus.v1.Target/Answer",
            request_serializer=_as_it_is,
            response_deserializer=target_pb2.AnswerResponse.FromString,
        )

    def opening(self, opening: Open) -> bytes:
        """A request with `open`."""
        return target_pb2.AnswerRequest(open=wire.open_to_proto(opening)).SerializeToString()

    def request(self, flights: Sequence[Flight], now: float) -> bytes:
        """A request with a batch of trials."""
        remaining = _Remaining(now, _TRIAL_REMAINING)
        shared = self._shared
        records = []
        for flight in flights:
            trial = flight.trial
            trial_id = trial.trial_id
            if trial.encoded_item is None:
                trial.encoded_item = _encoded_item(trial)
            record = b"".join(
                (
                    _TRIAL_ID,
                    varint(trial_id),
                    _ATTEMPT,
                    varint(flight.attempt),
                    trial.encoded_item,
                    _TRIAL_EPOCH,
                    varint((trial_id >> EPOCH_BITS) + 1),
                    _TRIAL_INDEX,
                    varint(trial_id & POSITION_MASK),
                    shared,
                    remaining.until(flight.deadline),
                )
            )
            records.append(_RECORD + varint(len(record)) + record)
        return submessage(_BATCH, b"".join(records))

    def cancel(self, attempts: Sequence[tuple[int, int]]) -> bytes:
        """A request with `cancel`."""
        return target_pb2.AnswerRequest(cancel=_cancel(attempts)).SerializeToString()

    def read(self, response: target_pb2.AnswerResponse) -> Received:
        """Answers, news or push-back."""
        which = response.WhichOneof("message")
        if which != "answers":
            return _other(response, which)
        answers = []
        large = response.ByteSize() > LARGEST_OUTPUT
        from_proto = wire.answer_result_from_proto
        for answer in response.answers.answers:
            try:
                if large and answer.ByteSize() > LARGEST_OUTPUT:
                    raise _too_large(answer.ByteSize())
                result: Output | Failure = from_proto(answer)
                usage = wire.usage_from_proto(answer.usage) if answer.HasField("usage") else None
            except ContractBroken as broken:
                result, usage = _broken(broken, self.origin), None
            answers.append(Answered(answer.trial_id, answer.attempt, result, usage))
        return Received(answers)


class ScorerCodec:
    """Score tasks and scores."""

    origin = FailureOrigin.SCORER

    def describe(self, channel: grpc.aio.Channel) -> Any:
        """Scorer.Describe."""
        return scorer_pb2_grpc.ScorerStub(channel).Describe

    def converse(self, channel: grpc.aio.Channel) -> Any:
        """Scorer.Score."""
        return channel.stream_stream(
            "/evalbus.v1.Scorer/Score",
            request_serializer=_as_it_is,
            response_deserializer=scorer_pb2.ScoreResponse.FromString,
        )

    def opening(self, opening: Open) -> bytes:
        """A request with `open`."""
        return scorer_pb2.ScoreRequest(open=wire.open_to_proto(opening)).SerializeToString()

    def request(self, flights: Sequence[Flight], now: float) -> bytes:
        """A request with a batch of score tasks."""
        remaining = _Remaining(now, _TASK_REMAINING)
        records = []
        for flight in flights:
            trial = flight.trial
            if trial.encoded_task is None:
                trial.encoded_task = _encoded_task(trial)
            record = b"".join(
                (
                    _TRIAL_ID,
                    varint(trial.trial_id),
                    _ATTEMPT,
                    varint(flight.attempt),
                    trial.encoded_task,
                    remaining.until(flight.deadline),
                )
            )
            if flight.inputs:
                record += _encoded_inputs(flight.inputs)
            records.append(_RECORD + varint(len(record)) + record)
        return submessage(_BATCH, b"".join(records))

    def cancel(self, attempts: Sequence[tuple[int, int]]) -> bytes:
        """A request with `cancel`."""
        return scorer_pb2.ScoreRequest(cancel=_cancel(attempts)).SerializeToString()

    def read(self, response: scorer_pb2.ScoreResponse) -> Received:
        """Answers, news or push-back."""
        which = response.WhichOneof("message")
        if which != "answers":
            return _other(response, which)
        answers = []
        large = response.ByteSize() > LARGEST_OUTPUT
        from_proto = wire.score_answer_result_from_proto
        for answer in response.answers.answers:
            try:
                if large and answer.ByteSize() > LARGEST_OUTPUT:
                    raise _too_large(answer.ByteSize())
                result = from_proto(answer)
                usage = wire.usage_from_proto(answer.usage) if answer.HasField("usage") else None
            except ContractBroken as broken:
                result, usage = _broken(broken, self.origin), None
            answers.append(Answered(answer.trial_id, answer.attempt, result, usage))
        return Received(answers)


class _Remaining:
    """Lengths of time until deadlines, as fields; flights of one batch nearly always share one."""

    def __init__(self, now: float, tag_: bytes) -> None:
        self._now = now
        self._tag = tag_
        self._deadline = -1.0
        self._field = b""

    def until(self, deadline: float) -> bytes:
        if deadline != self._deadline:
            self._deadline = deadline
            length = wire.duration_to_proto(max(deadline - self._now, 0.001))
            self._field = submessage(self._tag, length.SerializeToString())
        return self._field


def _as_it_is(request: bytes) -> bytes:
    return request


def _encoded_item(trial: OpenTrial) -> bytes:
    """The item as a field; it has one number in a trial and in a score task."""
    return submessage(_ITEM, wire.item_to_proto(trial.item).SerializeToString())


def _encoded_task(trial: OpenTrial) -> bytes:
    """What all scorers are sent of a trial."""
    assert trial.output is not None
    item = _encoded_item(trial) if trial.encoded_item is None else trial.encoded_item
    output = submessage(_TASK_OUTPUT, wire.output_to_proto(trial.output).SerializeToString())
    return item + output + _TASK_EPOCH + varint(epoch_of(trial.trial_id))


def _encoded_inputs(inputs: dict[str, Value]) -> bytes:
    return b"".join(
        submessage(_TASK_INPUTS, value_pb2.NamedValue(name=name, value=wire.value_to_proto(value)).SerializeToString())
        for name, value in inputs.items()
    )


def _cancel(attempts: Sequence[tuple[int, int]]) -> plugin_pb2.Cancel:
    return plugin_pb2.Cancel(
        attempts=[plugin_pb2.AttemptRef(trial_id=trial_id, attempt=attempt) for trial_id, attempt in attempts]
    )


def _other(response: Any, which: str | None) -> Received:
    """A response that holds no answers."""
    if which == "progress":
        news = []
        for entry in response.progress.trials:
            try:
                news.append(wire.progress_from_proto(entry))
            except ContractBroken:
                continue  # news of no use; the trial itself is still to be answered
        return Received(news=news)
    if which == "push_back":
        asked = response.push_back
        limit = asked.max_in_flight if asked.HasField("max_in_flight") else None
        pause = wire.duration_from_proto(asked.pause) if asked.HasField("pause") else 0.0
        return Received(push_back=PushBack(limit, pause))
    return Received()


def _broken(broken: ContractBroken, origin: FailureOrigin) -> Failure:
    reason = "MESSAGE_TOO_LARGE" if isinstance(broken, _TooLarge) else "CONTRACT_BROKEN"
    return Failure(FailureCategory.INVALID, str(broken), reason, origin, retryable=False)


class _TooLarge(ContractBroken):
    """An answer is over the limit."""


def _too_large(size: int) -> _TooLarge:
    return _TooLarge(f"the answer has {size} bytes; the limit is {LARGEST_OUTPUT}")
