"""Content and what outputs are made of, to and from messages."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from evalbus import _json
from evalbus._errors import ContractBroken
from evalbus._output import Message, Money, Span, ToolCall, Usage
from evalbus._value import Value, text_value
from evalbus.v1 import value_pb2

E_ = TypeVar("E_")

LARGEST_COUNT = 1 << 48
"""More tokens, or millionths of a currency's unit, no attempt consumes; sums of tens of thousands fit into 63 bits."""


def duration_to_proto(seconds: float) -> Duration:
    """A length of time from seconds, to the nanosecond.

    Raises:
        ValueError: it is not finite.
    """
    message = Duration()
    fill_duration(message, seconds)
    return message


def fill_duration(message: Duration, seconds: float) -> None:
    """The same into a message that is there."""
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is not a length of time")
    whole = math.trunc(seconds)
    nanos = round((seconds - whole) * 1e9)
    if abs(nanos) == 1_000_000_000:  # 0.9999999999 rounds up to a whole second
        whole, nanos = whole + (1 if nanos > 0 else -1), 0
    message.SetInParent()  # a length of zero is a length too
    message.seconds = whole
    message.nanos = nanos


def duration_from_proto(message: Duration) -> float:
    """A length of time in seconds."""
    return (message.seconds * 1_000_000_000 + message.nanos) / 1_000_000_000  # rounded once: the digits come back


def time_to_proto(seconds: float) -> Timestamp:
    """A point in time from seconds since 1970, to the microsecond.

    Raises:
        ValueError: it is not finite.
    """
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is not a point in time")
    micros = round(seconds * 1e6)
    return Timestamp(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)


def time_from_proto(message: Timestamp) -> float:
    """A point in time in seconds since 1970."""
    return (message.seconds * 1_000_000_000 + message.nanos) / 1_000_000_000


def fill_value(message: value_pb2.Value, value: Value) -> None:
    """A value into a message."""
    kind = value.kind
    if kind == "text":
        message.text = value.body  # type: ignore[assignment]  # text is a str, by construction
    elif kind == "json":
        message.json = value.body  # type: ignore[assignment]
    else:
        message.blob.media_type = value.media_type
        message.blob.data = value.body  # type: ignore[assignment]


def value_to_proto(value: Value) -> value_pb2.Value:
    """A value as a message."""
    message = value_pb2.Value()
    fill_value(message, value)
    return message


def value_from_proto(message: value_pb2.Value, what: str = "value") -> Value:
    """A message as a value. JSON is checked, and a JSON string becomes a text. *what* names it in an error.

    Raises:
        ContractBroken: nothing is set, the JSON is not JSON, or a blob has no media type.
    """
    text = message.text
    if text:  # the usual case, without asking which one is set
        return text_value(text)
    return _other_value(message, what)


def _other_value(message: value_pb2.Value, what: str) -> Value:
    kind = message.WhichOneof("kind")
    if kind == "text":
        return Value("")
    if kind == "json":
        try:
            return Value.json(message.json)
        except ValueError as error:
            raise ContractBroken(f"{what}: not a JSON document: {error}") from None
    if kind == "blob":
        if not message.blob.media_type:
            raise ContractBroken(f"{what}: bytes without a media type")
        return Value(message.blob.data, "blob", message.blob.media_type)
    raise ContractBroken(f"{what}: neither text, json nor blob is set")


def object_from_proto(text: str, what: str) -> str:
    """The text of a JSON object, checked; "" stays ""."""
    if not text:
        return ""
    try:
        if not isinstance(_json.loads(text), dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise ContractBroken(f"{what}: not a JSON object: {error}") from None
    return text


def document_from_proto(text: str, what: str) -> str:
    """The text of a JSON document, checked; "" stays ""."""
    if text:
        try:
            _json.loads(text)
        except ValueError as error:
            raise ContractBroken(f"{what}: not a JSON document: {error}") from None
    return text


def _fill_tool_call(message: value_pb2.ToolCall, call: ToolCall) -> None:
    message.name = call.name
    if call.id:
        message.id = call.id
    if call.arguments_json:
        message.arguments = call.arguments_json
    if call.error:
        message.error = call.error
    if call.result is not None:
        fill_value(message.result, call.result)
    if call.started_at is not None:
        message.started_at.CopyFrom(time_to_proto(call.started_at))
    if call.duration is not None:
        fill_duration(message.duration, call.duration)


def tool_call_to_proto(call: ToolCall) -> value_pb2.ToolCall:
    """A tool call as a message."""
    message = value_pb2.ToolCall()
    _fill_tool_call(message, call)
    return message


def tool_call_from_proto(message: value_pb2.ToolCall) -> ToolCall:
    """A message as a tool call.

    Raises:
        ContractBroken: it has no name, or its arguments are not JSON.
    """
    name = message.name
    if not name:
        raise ContractBroken("a tool call has no name")
    return ToolCall(
        name,
        document_from_proto(message.arguments, f"arguments of tool call {name!r}"),
        result=value_from_proto(message.result, "a tool's result") if message.HasField("result") else None,
        error=message.error,
        id=message.id,
        started_at=time_from_proto(message.started_at) if message.HasField("started_at") else None,
        duration=duration_from_proto(message.duration) if message.HasField("duration") else None,
    )


def fill_message(message: value_pb2.Message, spoken: Message) -> None:
    """A message of a conversation into a message of the contract."""
    message.role = spoken.role
    for part in spoken.content:
        fill_value(message.content.add(), part)
    for call in spoken.tool_calls:
        _fill_tool_call(message.tool_calls.add(), call)
    if spoken.tool_call_id:
        message.tool_call_id = spoken.tool_call_id
    if spoken.name:
        message.name = spoken.name
    if spoken.metadata_json:
        message.metadata = spoken.metadata_json


def message_to_proto(spoken: Message) -> value_pb2.Message:
    """A message of a conversation as a message of the contract."""
    message = value_pb2.Message()
    fill_message(message, spoken)
    return message


def message_from_proto(message: value_pb2.Message) -> Message:
    """A message of the contract as a message of a conversation.

    Raises:
        ContractBroken: a part breaks a rule.
    """
    return Message(
        message.role,
        tuple(value_from_proto(part, "a part of a message") for part in message.content),
        tool_calls=tuple(tool_call_from_proto(call) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        name=message.name,
        metadata=object_from_proto(message.metadata, "a message's metadata"),
    )


def fill_span(message: value_pb2.Span, span: Span) -> None:
    """A span into a message."""
    message.id = span.id
    message.parent_id = span.parent_id
    message.name = span.name
    message.kind = span.kind
    if span.attributes_json:
        message.attributes = span.attributes_json
    if span.started_at is not None:
        message.started_at.CopyFrom(time_to_proto(span.started_at))
    if span.duration is not None:
        fill_duration(message.duration, span.duration)


def span_to_proto(span: Span) -> value_pb2.Span:
    """A span as a message."""
    message = value_pb2.Span()
    fill_span(message, span)
    return message


def span_from_proto(message: value_pb2.Span) -> Span:
    """A message as a span.

    Raises:
        ContractBroken: it has no id, or its attributes are no JSON object.
    """
    if not message.id:
        raise ContractBroken("a span has no id")
    return Span(
        message.id,
        message.name,
        parent_id=message.parent_id,
        kind=message.kind,
        started_at=time_from_proto(message.started_at) if message.HasField("started_at") else None,
        duration=duration_from_proto(message.duration) if message.HasField("duration") else None,
        attributes=object_from_proto(message.attributes, "a span's attributes"),
    )


def fill_usage(message: value_pb2.Usage, usage: Usage) -> None:
    """Usage into a message."""
    message.SetInParent()  # usage of nothing is not the same as no usage
    message.input_tokens = usage.input_tokens
    message.output_tokens = usage.output_tokens
    message.cached_tokens = usage.cached_tokens
    message.calls = usage.calls
    if usage.cost is not None:
        message.cost.SetInParent()
        message.cost.micros = usage.cost.micros
        message.cost.currency = usage.cost.currency


def usage_to_proto(usage: Usage) -> value_pb2.Usage:
    """Usage as a message."""
    message = value_pb2.Usage()
    fill_usage(message, usage)
    return message


def usage_from_proto(message: value_pb2.Usage) -> Usage:
    """A message as usage of one attempt.

    Raises:
        ContractBroken: a count is below zero, or larger than anything consumes.
    """
    usage = usage_sum_from_proto(message)
    cost = 0 if usage.cost is None else abs(usage.cost.micros)
    most = max(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.calls, cost)
    if most > LARGEST_COUNT:
        raise ContractBroken(f"usage: {most} is more than anything consumes")
    return usage


def usage_sum_from_proto(message: value_pb2.Usage) -> Usage:
    """A message as the usage of many attempts.

    Raises:
        ContractBroken: a count is below zero.
    """
    usage = Usage(
        message.input_tokens,
        message.output_tokens,
        message.cached_tokens,
        message.calls,
        Money(message.cost.micros, message.cost.currency) if message.HasField("cost") else None,
    )
    if min(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.calls) < 0:
        raise ContractBroken("usage: a count is below zero")
    return usage


def enum_of(kind: Any, number: int, fallback: E_) -> Any | E_:
    """The member with this number; *fallback* for zero and unknown numbers."""
    try:
        return kind(number)
    except ValueError:
        return fallback
