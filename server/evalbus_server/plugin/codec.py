"""Flights <-> messages of the two plugin services. The only difference between targets and scorers is here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import grpc.aio

from evalbus import (
    ContractBroken,
    Failure,
    FailureCategory,
    FailureOrigin,
    Output,
    TrialLimits,
    Usage,
    Value,
    wire,
)
from evalbus._output import only_text
from evalbus._plugin import Open
from evalbus.v1 import plugin_pb2, scorer_pb2, target_pb2, value_pb2
from evalbus.wire.framing import submessage, tag, varint
from evalbus_server.model.trial import EPOCH_BITS, POSITION_MASK, OpenTrial, StoredItem, epoch_of
from evalbus_server.plugin.port import Answered, ConversationLost, Flight, PushBack, Received, Result
from evalbus_server.plugin.salvage import Lost, Unreadable, readable, salvage

LARGEST_OUTPUT = 2 * 1024 * 1024

# Field tags of the requests, by the names that target.proto, scorer.proto and item.proto give them.
_BATCH = tag(2, delimited=True)
_RECORD = tag(1, delimited=True)
_TRIAL_ID = tag(1, delimited=False)
_ATTEMPT = tag(2, delimited=False)
_ITEM = tag(3, delimited=True)
_ITEM_ID = tag(1, delimited=True)
_ITEM_INPUT = tag(2, delimited=True)
_ITEM_EXPECTED = tag(3, delimited=True)
_ITEM_METADATA = tag(4, delimited=True)
_VALUE_TEXT = tag(1, delimited=True)
_TRIAL_EPOCH = tag(4, delimited=False)
_TRIAL_INDEX = tag(5, delimited=False)
_TRIAL_TOTAL = tag(6, delimited=False)
_TRIAL_REMAINING = tag(7, delimited=True)
_TRIAL_LIMITS = tag(8, delimited=True)
_TASK_OUTPUT = tag(4, delimited=True)
_OUTPUT_CONTENT = tag(1, delimited=True)
_TASK_INPUTS = tag(5, delimited=True)
_TASK_AGAINST = tag(6, delimited=True)
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
        """What a response after the first one holds. A record that breaks the contract becomes its failure.

        Raises:
            ConversationLost: it is no response.
        """
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
        return _describe(channel, "/evalbus.v1.Target/Describe")

    def converse(self, channel: grpc.aio.Channel) -> Any:
        """Target.Answer."""
        return channel.stream_stream(
            "/evalbus.v1.Target/Answer",
            request_serializer=_as_it_is,
            response_deserializer=readable(target_pb2.AnswerResponse),
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

    def read(self, response: target_pb2.AnswerResponse | Unreadable) -> Received:
        """Answers, news or push-back."""
        return _read(response, target_pb2.Answer, wire.answer_result_from_proto, self.origin)


class ScorerCodec:
    """Score tasks and scores."""

    origin = FailureOrigin.SCORER

    def describe(self, channel: grpc.aio.Channel) -> Any:
        """Scorer.Describe."""
        return _describe(channel, "/evalbus.v1.Scorer/Describe")

    def converse(self, channel: grpc.aio.Channel) -> Any:
        """Scorer.Score."""
        return channel.stream_stream(
            "/evalbus.v1.Scorer/Score",
            request_serializer=_as_it_is,
            response_deserializer=readable(scorer_pb2.ScoreResponse),
        )

    def opening(self, opening: Open) -> bytes:
        """A request with `open`."""
        return scorer_pb2.ScoreRequest(open=wire.open_to_proto(opening)).SerializeToString()

    def request(self, flights: Sequence[Flight], now: float) -> bytes:
        """A request with a batch of score tasks."""
        remaining = _Remaining(now, _TASK_REMAINING)
        records = []
        for flight in flights:
            left = remaining.until(flight.deadline)
            known = flight.trial.task_record
            same = known is not None and known[0] == flight.attempt and known[1] == left
            if same and not flight.inputs and flight.against is None:
                records.append(known[2])  # type: ignore[index]  # another scorer was sent the same
            else:
                records.append(_task_record(flight, left))
        return submessage(_BATCH, b"".join(records))

    def cancel(self, attempts: Sequence[tuple[int, int]]) -> bytes:
        """A request with `cancel`."""
        return scorer_pb2.ScoreRequest(cancel=_cancel(attempts)).SerializeToString()

    def read(self, response: scorer_pb2.ScoreResponse | Unreadable) -> Received:
        """Answers, news or push-back."""
        return _read(response, scorer_pb2.ScoreAnswer, wire.score_answer_result_from_proto, self.origin)


class _Remaining:
    """Lengths of time until deadlines, to the millisecond, as fields; flights of one batch nearly always share one."""

    def __init__(self, now: float, tag_: bytes) -> None:
        self._now = now
        self._tag = tag_
        self._deadline = -1.0
        self._field = b""

    def until(self, deadline: float) -> bytes:
        if deadline != self._deadline:
            self._deadline = deadline
            length = wire.duration_to_proto(max(round(deadline - self._now, 3), 0.001))
            self._field = submessage(self._tag, length.SerializeToString())
        return self._field


def _as_it_is(request: bytes) -> bytes:
    return request


def _describe(channel: grpc.aio.Channel, method: str) -> Any:
    return channel.unary_unary(
        method,
        request_serializer=plugin_pb2.DescribeRequest.SerializeToString,
        response_deserializer=readable(plugin_pb2.DescribeResponse),
    )


def _encoded_item(trial: OpenTrial) -> bytes:
    """The item as a field; it has one number in a trial and in a score task."""
    stored = trial.stored
    texts = stored.texts if isinstance(stored, StoredItem) else None
    if texts is not None:  # as most items are: straight from the store's columns
        identity, asked, expected, metadata = texts
        encoded = submessage(_ITEM_ID, identity.encode()) + submessage(_ITEM_INPUT, _encoded_text(asked))
        if expected is not None:
            encoded += submessage(_ITEM_EXPECTED, _encoded_text(expected))
        if metadata is not None:
            encoded += submessage(_ITEM_METADATA, metadata.encode())
        return submessage(_ITEM, encoded)
    return submessage(_ITEM, wire.item_to_proto(trial.item).SerializeToString())


def _encoded_text(text: str) -> bytes:
    """A plain text as a value."""
    return submessage(_VALUE_TEXT, text.encode())


def _task_record(flight: Flight, left: bytes) -> bytes:
    """A score task as a field of its batch; kept for the next scorer if it may be sent the same."""
    trial = flight.trial
    if trial.encoded_task is None:
        trial.encoded_task = _encoded_task(trial)
    task = b"".join((_TRIAL_ID, varint(trial.trial_id), _ATTEMPT, varint(flight.attempt), trial.encoded_task, left))
    if flight.inputs or flight.against is not None:
        return submessage(_RECORD, task + _encoded_inputs(flight.inputs or {}) + _encoded_against(flight.against))
    record = submessage(_RECORD, task)
    trial.task_record = (flight.attempt, left, record)
    return record


def _encoded_task(trial: OpenTrial) -> bytes:
    """What all scorers are sent of a trial."""
    assert trial.output is not None
    item = _encoded_item(trial) if trial.encoded_item is None else trial.encoded_item
    text = only_text(trial.output)
    if text is None:
        said = wire.output_to_proto(trial.output).SerializeToString()
    else:
        said = submessage(_OUTPUT_CONTENT, _encoded_text(text))
    return item + submessage(_TASK_OUTPUT, said) + _TASK_EPOCH + varint(epoch_of(trial.trial_id))


def _encoded_inputs(inputs: dict[str, Value]) -> bytes:
    return b"".join(
        submessage(_TASK_INPUTS, value_pb2.NamedValue(name=name, value=wire.value_to_proto(value)).SerializeToString())
        for name, value in inputs.items()
    )


def _encoded_against(output: Output | None) -> bytes:
    return b"" if output is None else submessage(_TASK_AGAINST, wire.output_to_proto(output).SerializeToString())


def _cancel(attempts: Sequence[tuple[int, int]]) -> plugin_pb2.Cancel:
    return plugin_pb2.Cancel(
        attempts=[plugin_pb2.AttemptRef(trial_id=trial_id, attempt=attempt) for trial_id, attempt in attempts]
    )


# --- reading ----------------------------------------------------------------------------------------------------


def _read(response: Any, record: Any, result_of: Callable[[Any], Result], origin: FailureOrigin) -> Received:
    """What a response holds; its answers are messages of the class *record*, *result_of* which gives their results."""
    found = _answers(response, record)
    if isinstance(found, Received):
        return found
    answers, large = found
    received: list[Answered] = []
    for answer in answers:
        usage: Usage | None = None
        try:
            if large:
                _refuse(answer)
            result = result_of(answer)
            if type(result) is Failure and answer.HasField("usage"):
                usage = wire.usage_from_proto(answer.usage)
        except ContractBroken as broken:
            result, usage = _broken(broken, origin), None
        received.append((answer.trial_id, answer.attempt, result, usage))
    return Received(received)


def _answers(response: Any, record: Any) -> Received | tuple[Iterable[Any], bool]:
    """The answers in a response, messages of the class *record*, and whether one of them may be refused as it is.

    Received, if it holds something else.
    """
    if isinstance(response, Unreadable):
        saved = salvage(response, record)
        if saved is None:
            raise ConversationLost(f"it sent what is no message of the contract: {response.why}")
        return saved, True
    which = response.WhichOneof("message")
    if which != "answers":
        return _other(response, which)
    return response.answers.answers, response.ByteSize() > LARGEST_OUTPUT


def _refuse(answer: Any) -> None:
    """Refuse an answer that cannot be read or is over the limit."""
    if isinstance(answer, Lost):
        raise _Unread(answer)
    if answer.ByteSize() > LARGEST_OUTPUT:
        raise _TooLarge(f"the answer has {answer.ByteSize()} bytes; the limit is {LARGEST_OUTPUT}")


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
    reason = broken.reason if isinstance(broken, _Refused) else "CONTRACT_BROKEN"
    return Failure(FailureCategory.INVALID, str(broken), reason, origin, retryable=False)


class _Refused(ContractBroken):
    """An answer is refused before it is looked into."""

    reason = "CONTRACT_BROKEN"


class _TooLarge(_Refused):
    reason = "MESSAGE_TOO_LARGE"


class _Unread(_Refused):
    def __init__(self, lost: Lost) -> None:
        if lost.not_unicode:
            self.reason = "NOT_UNICODE"
            super().__init__("a text in the answer is not valid Unicode: its bytes are not UTF-8")
        else:
            super().__init__(f"the answer is no message of the contract: {lost.why}")
