"""Parts of items as they stand in JSON: messages, tool calls, prepared tool answers, outputs, bytes.

Each part is read from its text, so that documents inside keep every digit. An unknown key is refused: what is
swallowed silently is lost on the way out.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TypeVar

from evalbus import (
    Message,
    Money,
    Output,
    Span,
    Timing,
    ToolCall,
    ToolMock,
    ToolMockFault,
    ToolMockFaultKind,
    ToolMockReport,
    Usage,
    Value,
    _json,
)
from evalbus_server.dataset.cells import cell_of, elements, members
from evalbus_server.model.faults import suggestion

T_ = TypeVar("T_")

_NO_VALUES: tuple[Value, ...] = ()

PLAIN_JSON = "application/json"
OUTPUT_KEYS = (
    "content", "answer", "messages", "tool_calls", "spans", "usage", "trace_ids", "metadata", "timing", "tool_mocks",
)  # fmt: skip


class FormRefused(ValueError):
    """A part has not its form; the text begins with where."""


def value_of(cell: Value) -> Value:
    """A cell as content: bytes if it is an object of just `media_type` and `base64`.

    `{"media_type": "application/json", "json": …}` is the document in it, whatever that looks like.
    """
    body = cell.body
    if cell.kind != "json" or not isinstance(body, str) or not body.startswith(('{"media_type"', '{"base64"')):
        return cell
    data = cell.data
    if set(data) == {"media_type", "json"} and data["media_type"] == PLAIN_JSON:
        return Value(members(body)["json"], "json")
    if set(data) != {"media_type", "base64"} or not all(isinstance(each, str) for each in data.values()):
        return cell
    try:
        return Value.blob(base64.b64decode(data["base64"], validate=True), data["media_type"])
    except (binascii.Error, ValueError) as error:
        raise FormRefused(f"is no blob: {error}") from None


def is_read_otherwise(cell: Value) -> bool:
    """Whether a JSON document is read as something else, or refused."""
    try:
        return value_of(cell) is not cell
    except FormRefused:
        return True


def text_list(cell: Value) -> tuple[str, ...]:
    """A list of texts."""
    data = cell.data if cell.kind == "json" else None
    if not isinstance(data, list):
        raise FormRefused(f"must be a list of texts, not {_kind(cell)}")
    for index, entry in enumerate(data):
        if not isinstance(entry, str):
            raise FormRefused(f"[{index}] must be text; put it in quotes")
    return tuple(data)


def object_text(cell: Value) -> str:
    """The text of a JSON object; "" for an empty one."""
    if cell.kind != "json" or not isinstance(cell.body, str) or not cell.body.startswith("{"):
        raise FormRefused(f"must be a JSON object, not {_kind(cell)}")
    return "" if cell.body == "{}" else cell.body


def list_of(cell: Value, read: Callable[[Value], T_]) -> tuple[T_, ...]:
    """A list of parts of one form."""
    if cell.kind != "json" or not isinstance(cell.body, str) or not cell.body.startswith("["):
        raise FormRefused(f"must be a list, not {_kind(cell)}")
    made: list[T_] = []
    for index, raw in enumerate(elements(cell.body)):
        try:
            made.append(read(cell_of(raw)))
        except FormRefused as error:
            raise FormRefused(_behind(f"[{index}]", error)) from None
    return tuple(made)


def message(cell: Value) -> Message:
    """A message of a conversation: `{"role": "user", "content": "hi"}`; content is one part, or a list of parts."""
    part = _Part(cell, ("role", "content", "tool_calls", "tool_call_id", "name", "metadata"))
    role = part.text("role")
    if not role:
        raise FormRefused("has no role, such as user or assistant")
    return Message(
        role,
        part.get("content", _contents, _NO_VALUES),
        tool_calls=part.get("tool_calls", lambda calls: list_of(calls, tool_call), ()),
        tool_call_id=part.text("tool_call_id"),
        name=part.text("name"),
        metadata=part.get("metadata", object_text, ""),
    )


def _contents(cell: Value) -> tuple[Value, ...]:
    if cell.kind == "json" and isinstance(cell.body, str) and cell.body.startswith("["):
        return list_of(cell, value_of)
    return (value_of(cell),)


def tool_call(cell: Value) -> ToolCall:
    """A tool call: `{"name": "look_up", "arguments": {…}}`, or the form `{"function": {"name": …}}` of chat APIs."""
    if cell.kind == "json" and isinstance(cell.body, str) and '"function"' in cell.body:
        outer = _Part(
            cell, ("id", "type", "function", "name", "arguments", "result", "error", "started_at", "duration")
        )
        if "function" in outer.parts:
            inner = outer.get("function", lambda function: _Part(function, ("name", "arguments")), None)
            if inner is not None:
                return ToolCall(_name(inner), _arguments(inner), id=outer.text("id"))
    part = _Part(cell, ("id", "name", "arguments", "result", "error", "started_at", "duration"))
    return ToolCall(
        _name(part),
        _arguments(part),
        result=part.get("result", value_of, None, null=True),
        error=part.text("error"),
        id=part.text("id"),
        started_at=part.number("started_at"),
        duration=part.number("duration"),
    )


def _name(part: _Part) -> str:
    name = part.text("name")
    if not name:
        raise FormRefused("has no name")
    return name


def _arguments(part: _Part) -> str:
    cell = part.parts.get("arguments")
    if cell is None:
        return ""
    if cell.kind == "text" and isinstance(cell.body, str):
        try:
            _json.loads(cell.body or "{}")
        except ValueError as error:
            raise FormRefused(f"arguments: text that is not JSON: {error}") from None
    return str(cell.body)


def tool_mock(cell: Value) -> ToolMock:
    """An answer prepared for a tool: `{"tool": "look_up", "arguments": {…}, "output": …}`."""
    part = _Part(cell, ("tool", "arguments", "output", "error"))
    tool = part.text("tool")
    if not tool:
        raise FormRefused("has no tool")
    return ToolMock(
        tool,
        part.get("arguments", lambda _: _arguments(part), None),
        part.get("output", value_of, None, null=True),
        part.text("error"),
    )


def output(cell: Value) -> Output:
    """An output: an object whose keys are all those of outputs, `content` or `messages` among them; else content."""
    if cell.kind == "json" and isinstance(cell.body, str) and cell.body.startswith("{"):
        keys = members(cell.body)
        if ("content" in keys or "messages" in keys) and keys.keys() <= set(OUTPUT_KEYS):
            return _whole_output(_Part(cell, OUTPUT_KEYS))
    return Output(value_of(cell))


def _whole_output(part: _Part) -> Output:
    made = Output(
        part.get("content", value_of, None, null=True),
        answer=part.get("answer", value_of, None, null=True),
        messages=part.get("messages", lambda cell: list_of(cell, message), ()),
        tool_calls=part.get("tool_calls", lambda cell: list_of(cell, tool_call), ()),
        spans=part.get("spans", lambda cell: list_of(cell, _span), ()),
        usage=part.get("usage", _usage, None),
        trace_ids=part.get("trace_ids", text_list, ()),
        metadata=part.get("metadata", object_text, ""),
        timing=part.get("timing", _timing, None),
        tool_mocks=part.get("tool_mocks", _report, None),
    )
    if made.content is None and not made.messages:
        raise FormRefused("has neither content nor messages")
    return made


def _span(cell: Value) -> Span:
    part = _Part(cell, ("id", "name", "parent_id", "kind", "started_at", "duration", "attributes"))
    return Span(
        part.text("id"),
        part.text("name"),
        parent_id=part.text("parent_id"),
        kind=part.text("kind"),
        started_at=part.number("started_at"),
        duration=part.number("duration"),
        attributes=part.get("attributes", object_text, ""),
    )


def _usage(cell: Value) -> Usage:
    part = _Part(cell, ("input_tokens", "output_tokens", "cached_tokens", "calls", "cost"))
    return Usage(
        part.count("input_tokens"),
        part.count("output_tokens"),
        part.count("cached_tokens"),
        part.count("calls"),
        part.get("cost", _money, None),
    )


def _money(cell: Value) -> Money:
    part = _Part(cell, ("micros", "currency"))
    return Money(part.count("micros"), part.text("currency") or "USD")


def _timing(cell: Value) -> Timing:
    part = _Part(cell, ("total", "first_token"))
    return Timing(part.number("total"), part.number("first_token"))


def _report(cell: Value) -> ToolMockReport:
    part = _Part(cell, ("used", "unused", "faults"))
    return ToolMockReport(
        part.count("used"), part.count("unused"), part.get("faults", lambda faults: list_of(faults, _fault), ())
    )


def _fault(cell: Value) -> ToolMockFault:
    part = _Part(cell, ("tool", "kind", "arguments"))
    kind = part.text("kind")
    if kind not in ToolMockFaultKind.__members__:
        raise FormRefused(f".kind must be one of {', '.join(ToolMockFaultKind.__members__)}, not {kind!r}")
    return ToolMockFault(part.text("tool"), ToolMockFaultKind[kind], _arguments(part))


class _Part:
    """An object with known keys."""

    def __init__(self, cell: Value, known: tuple[str, ...]) -> None:
        if cell.kind != "json" or not isinstance(cell.body, str) or not cell.body.startswith("{"):
            raise FormRefused(f"must be a JSON object, not {_kind(cell)}")
        self.parts = {key: cell_of(raw) for key, raw in members(cell.body).items()}
        for key in self.parts:
            if key not in known:
                raise FormRefused(f"has the unknown key {key!r}{suggestion(key, known, known)}")

    def get(self, key: str, read: Callable[[Value], T_], default: T_, *, null: bool = False) -> T_:
        """The part under a key; *default* if it is absent, or null where null is no value of its own."""
        cell = self.parts.get(key)
        if cell is None or (not null and cell.kind == "json" and cell.body == "null"):
            return default
        try:
            return read(cell)
        except FormRefused as error:
            raise FormRefused(_behind(f".{key}", error)) from None

    def text(self, key: str) -> str:
        return self.get(key, _text, "")

    def number(self, key: str) -> float | None:
        return self.get(key, _number, None)

    def count(self, key: str) -> int:
        return self.get(key, _count, 0)


def _text(cell: Value) -> str:
    if cell.kind == "text" and isinstance(cell.body, str):
        return cell.body
    raise FormRefused(f"must be text, not {_kind(cell)}")


def _number(cell: Value) -> float | None:
    data = cell.data
    if isinstance(data, int | float) and not isinstance(data, bool):
        return float(data)
    raise FormRefused(f"must be a number, not {_kind(cell)}")


def _count(cell: Value) -> int:
    data = cell.data
    if isinstance(data, int) and not isinstance(data, bool) and 0 <= data < 2**63:
        return data
    raise FormRefused(f"must be a whole number of at least 0, not {_kind(cell)}")


def _behind(step: str, error: FormRefused) -> str:
    text = str(error)
    return step + text if text.startswith(("[", ".")) else f"{step} {text}"


def _kind(cell: Value) -> str:
    if cell.kind == "text":
        return "text"
    if cell.kind == "blob":
        return "bytes"
    start = str(cell.body)[:1]
    return {"{": "an object", "[": "a list", "n": "null", "t": "true", "f": "false"}.get(start, "a number")
