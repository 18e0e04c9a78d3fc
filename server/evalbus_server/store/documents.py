"""Values as JSON documents: the rarer parts of what is stored.

A part that is empty is left out; a part that the contract gains later gets an entry here, which a test demands.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evalbus import (
    Direction,
    Failure,
    FailureCategory,
    FailureOrigin,
    Item,
    Message,
    Money,
    Output,
    ScoreDeclaration,
    ScoreStep,
    Span,
    Timing,
    ToolCall,
    ToolMock,
    Usage,
    Value,
)
from evalbus._output import ToolMockFault, ToolMockFaultKind, ToolMockReport

_set = object.__setattr__

dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""Write a document; ValueError if a number in it is not finite."""
loads = json.loads


@dataclass(frozen=True, slots=True)
class Part:
    """How one kind of value becomes JSON and comes back."""

    empty: Any
    """The value that is left out."""
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Shape(Part):
    """How a value with named parts becomes a JSON object and comes back."""

    __slots__ = ("made", "parts")

    made: type[Any]
    parts: dict[str, Part]

    def __init__(self, made: type[Any], **parts: Part) -> None:
        """The shape of the class *made*, with a part for each of its fields."""
        Part.__init__(self, None, self._write, self._read)
        _set(self, "made", made)
        _set(self, "parts", parts)

    def _write(self, value: Any) -> dict[str, Any]:
        return write_parts(self.parts, value)

    def _read(self, document: dict[str, Any]) -> Any:
        value = object.__new__(self.made)
        for name, part in read_parts(self.parts, document).items():
            _set(value, name, part)
        return value


def write_parts(parts: dict[str, Part], value: Any) -> dict[str, Any]:
    """The document of those parts of a value that are not empty."""
    document = {}
    for name, part in parts.items():
        found = getattr(value, name)
        if found is not part.empty and found != part.empty:
            document[name] = part.write(found)
    return document


def read_parts(parts: dict[str, Part], document: dict[str, Any]) -> dict[str, Any]:
    """All parts by name, the empty ones too."""
    return {name: part.read(document[name]) if name in document else part.empty for name, part in parts.items()}


def _same(value: Any) -> Any:
    return value


def _plain(empty: Any) -> Part:
    return Part(empty, _same, _same)


def _always(read: Callable[[Any], Any] = _same) -> Part:
    return Part(_NOTHING, _same, read)


def _many(part: Part) -> Part:
    return Part((), lambda values: [part.write(value) for value in values], lambda found: tuple(map(part.read, found)))


def _write_value(value: Value) -> Any:
    if value.kind == "text":
        return value.body
    if isinstance(value.body, bytes):
        return {"blob": base64.b64encode(value.body).decode("ascii"), "media_type": value.media_type}
    return {"json": value.body}


def _read_value(document: Any) -> Value:
    if isinstance(document, str):
        return Value(document)
    if "blob" in document:
        return Value(base64.b64decode(document["blob"]), "blob", document["media_type"])
    return Value(document["json"], "json")


_NOTHING = object()
_TEXT = _plain("")
_COUNT = _plain(0)
_OPTIONAL = _plain(None)
_TEXTS = _many(_plain(""))

VALUE = Part(None, _write_value, _read_value)
MONEY = Shape(Money, micros=_always(), currency=_always())
USAGE = Shape(Usage, input_tokens=_COUNT, output_tokens=_COUNT, cached_tokens=_COUNT, calls=_COUNT, cost=MONEY)
TOOL_CALL = Shape(
    ToolCall,
    name=_TEXT,
    arguments_json=_TEXT,
    result=VALUE,
    error=_TEXT,
    id=_TEXT,
    started_at=_OPTIONAL,
    duration=_OPTIONAL,
)
MESSAGE = Shape(
    Message,
    role=_TEXT,
    content=_many(VALUE),
    tool_calls=_many(TOOL_CALL),
    tool_call_id=_TEXT,
    name=_TEXT,
    metadata_json=_TEXT,
)
SPAN = Shape(
    Span,
    id=_TEXT,
    name=_TEXT,
    parent_id=_TEXT,
    kind=_TEXT,
    started_at=_OPTIONAL,
    duration=_OPTIONAL,
    attributes_json=_TEXT,
)
TIMING = Shape(Timing, total=_OPTIONAL, first_token=_OPTIONAL)
TOOL_MOCK_FAULT = Shape(ToolMockFault, tool=_TEXT, kind=_always(ToolMockFaultKind), arguments_json=_TEXT)
TOOL_MOCK_REPORT = Shape(ToolMockReport, used=_COUNT, unused=_COUNT, faults=_many(TOOL_MOCK_FAULT))
TOOL_MOCK = Shape(ToolMock, tool=_TEXT, arguments_json=_OPTIONAL, output=VALUE, error=_TEXT)
FAILURE = Shape(
    Failure,
    category=_always(FailureCategory),
    message=_TEXT,
    reason=_TEXT,
    origin=Part(FailureOrigin.UNSPECIFIED, _same, FailureOrigin),
    retryable=_OPTIONAL,
    field=_TEXT,
    retry_after=_OPTIONAL,
    details_json=_TEXT,
)
SCORE_STEP = Shape(ScoreStep, name=_TEXT, result=VALUE, duration=_OPTIONAL)
SCORE_DECLARATION = Shape(
    ScoreDeclaration,
    name=_TEXT,
    minimum=_always(),
    maximum=_always(),
    direction=_always(Direction),
    unit=_TEXT,
    description=_TEXT,
)
OUTPUT = Shape(
    Output,
    content=VALUE,
    answer=VALUE,
    messages=_many(MESSAGE),
    tool_calls=_many(TOOL_CALL),
    spans=_many(SPAN),
    usage=USAGE,
    trace_ids=_TEXTS,
    metadata_json=_TEXT,
    timing=TIMING,
    tool_mocks=TOOL_MOCK_REPORT,
)
ITEM = Shape(
    Item,
    id=_TEXT,
    input=VALUE,
    expected=VALUE,
    metadata_json=_TEXT,
    tags=_TEXTS,
    choices=_TEXTS,
    messages=_many(MESSAGE),
    tool_mocks=_many(TOOL_MOCK),
    scorers=Part(None, list, tuple),
    output=OUTPUT,
)

OUTPUT_DETAIL = {
    name: OUTPUT.parts[name] for name in ("messages", "tool_calls", "spans", "trace_ids", "timing", "tool_mocks")
}
ITEM_DETAIL = {name: ITEM.parts[name] for name in ("tags", "choices", "messages", "tool_mocks", "scorers", "output")}
SCORE_DETAIL = {
    "answer": VALUE,
    "failure": FAILURE,
    "metadata_json": _TEXT,
    "steps": _many(SCORE_STEP),
    "usage": USAGE,
    "trace_ids": _TEXTS,
}
