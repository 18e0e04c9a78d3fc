"""Items and outputs as JSON, as plain dictionaries: what datasets and results have of them.

Content that is absent is left out, since JSON null is a value of its own. JSON values stand there as they are.
"""

from __future__ import annotations

import base64
from typing import Any, TypeAlias

from evalbus import Item, Message, Output, Span, Timing, ToolCall, ToolMock, ToolMockFault, ToolMockReport, Usage, Value

Document: TypeAlias = dict[str, Any]


def value_data(value: Value) -> Any:
    """A value as JSON has it: a text, the document itself, or for bytes an object of media type and base64."""
    if value.kind == "blob" and isinstance(value.body, bytes):
        return {"media_type": value.media_type, "base64": base64.b64encode(value.body).decode()}
    return value.data


def put(document: Document, key: str, value: Value | None) -> None:
    """Put a value there if there is one: JSON null is a value of its own."""
    if value is not None:
        document[key] = value_data(value)


def message_document(message: Message) -> Document:
    """A message of a conversation; its content is one part, or a list of parts."""
    document: Document = {"role": message.role}
    if message.name:
        document["name"] = message.name
    if message.content:
        parts = [value_data(part) for part in message.content]
        # One part that is itself a list is written as a list of one part.
        document["content"] = parts if len(parts) > 1 or isinstance(parts[0], list) else parts[0]
    if message.tool_calls:
        document["tool_calls"] = [tool_call_document(call) for call in message.tool_calls]
    if message.tool_call_id:
        document["tool_call_id"] = message.tool_call_id
    if message.metadata_json:
        document["metadata"] = message.metadata
    return document


def tool_call_document(call: ToolCall) -> Document:
    """A call of a tool, with its times in seconds."""
    document: Document = {"id": call.id} if call.id else {}
    document["name"] = call.name
    if call.arguments_json:
        document["arguments"] = call.arguments
    put(document, "result", call.result)
    if call.error:
        document["error"] = call.error
    if call.started_at is not None:
        document["started_at"] = call.started_at
    if call.duration is not None:
        document["duration"] = call.duration
    return document


def item_document(item: Item) -> Document:
    """An item as a dataset file has it."""
    document: Document = {"id": item.id, "input": value_data(item.input)}
    put(document, "expected", item.expected)
    if item.metadata_json:
        document["metadata"] = item.metadata
    for field in ("tags", "choices"):
        if getattr(item, field):
            document[field] = list(getattr(item, field))
    if item.messages:
        document["messages"] = [message_document(message) for message in item.messages]
    if item.tool_mocks:
        document["tool_mocks"] = [_tool_mock_document(mock) for mock in item.tool_mocks]
    if item.scorers is not None:
        document["scorers"] = list(item.scorers)
    if item.output is not None:
        document["output"] = output_document(item.output)
    return document


def _tool_mock_document(mock: ToolMock) -> Document:
    document: Document = {"tool": mock.tool}
    if mock.arguments_json is not None:
        document["arguments"] = Value(mock.arguments_json, "json").data
    put(document, "output", mock.output)
    if mock.error:
        document["error"] = mock.error
    return document


def tool_mock_report_document(report: ToolMockReport) -> Document:
    """How the tool mocks of an item were used: counts, and the calls that no mock fitted."""
    return {
        "used": report.used,
        "unused": report.unused,
        "faults": [_fault_document(fault) for fault in report.faults],
    }


def _fault_document(fault: ToolMockFault) -> Document:
    document: Document = {"tool": fault.tool, "kind": fault.kind.name}
    if fault.arguments_json:
        document["arguments"] = Value(fault.arguments_json, "json").data
    return document


def output_document(output: Output) -> Document:
    """An output, whole: an object with the keys of outputs, of which the empty ones are left out."""
    document: Document = {}
    put(document, "content", output.content)
    put(document, "answer", output.answer)
    if output.messages:
        document["messages"] = [message_document(message) for message in output.messages]
    if output.tool_calls:
        document["tool_calls"] = [tool_call_document(call) for call in output.tool_calls]
    if output.spans:
        document["spans"] = [span_document(span) for span in output.spans]
    if output.usage is not None:
        document["usage"] = usage_document(output.usage)
        if output.usage.cost is not None:
            del document["usage"]["cost"]["amount"]
    if output.trace_ids:
        document["trace_ids"] = list(output.trace_ids)
    if output.metadata_json:
        document["metadata"] = output.metadata
    if output.timing is not None:
        document["timing"] = timing_document(output.timing)
    if output.tool_mocks is not None:
        document["tool_mocks"] = tool_mock_report_document(output.tool_mocks)
    return document


def span_document(span: Span) -> Document:
    """A span, with its times in seconds."""
    return _without_empty(
        {
            "id": span.id,
            "name": span.name,
            "parent_id": span.parent_id,
            "kind": span.kind,
            "started_at": span.started_at,
            "duration": span.duration,
            "attributes": span.attributes,
        }
    )


def timing_document(timing: Timing) -> Document:
    """How long an answer took, in seconds."""
    return _without_empty({"total": timing.total, "first_token": timing.first_token})


def _without_empty(document: Document) -> Document:
    return {key: value for key, value in document.items() if value is not None and value not in ("", {})}


def usage_document(usage: Usage) -> Document:
    """What was consumed. A cost of null is unknown, which is not zero."""
    cost = usage.cost
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "calls": usage.calls,
        "cost": None
        if cost is None
        else {"amount": cost.micros / 1_000_000, "micros": cost.micros, "currency": cost.currency},
    }
