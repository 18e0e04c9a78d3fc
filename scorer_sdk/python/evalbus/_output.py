"""What a target answers, and what it is made of: messages, tool calls, spans, usage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from evalbus._draft import draft
from evalbus._value import Json, JsonObject, Value, ValueLike, maybe, object_data, object_text

_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class Money:
    """An amount: millionths of one unit of a currency."""

    micros: int
    currency: str = "USD"


@dataclass(frozen=True, slots=True)
class Usage:
    """What was consumed. A cost of None means that nobody knows the price, which is not zero."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    calls: int = 0
    cost: Money | None = None

    def __add__(self, other: Usage) -> Usage:
        """Both together. The cost is the sum of those that are known, if their currencies agree."""
        if self.cost is None or other.cost is None:
            cost = self.cost or other.cost
        elif self.cost.currency == other.cost.currency:
            cost = Money(self.cost.micros + other.cost.micros, self.cost.currency)
        else:
            cost = None
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.calls + other.calls,
            cost,
        )


@dataclass(frozen=True, slots=True, init=False)
class ToolCall:
    """One call of a tool, as asked for and, where it is known, as it went."""

    name: str
    arguments_json: str
    """The arguments as the text of a JSON document; "" for none."""
    result: Value | None
    error: str
    id: str
    started_at: float | None
    """Seconds since 1970."""
    duration: float | None
    """Seconds."""

    def __init__(
        self,
        name: str,
        arguments: JsonObject | str | None = None,
        *,
        result: ValueLike | None = None,
        error: str = "",
        id: str = "",
        started_at: float | None = None,
        duration: float | None = None,
    ) -> None:
        """Make a call; *arguments* is a mapping, or the text of a JSON document."""
        _set(self, "name", name)
        _set(self, "arguments_json", object_text(arguments))
        _set(self, "result", maybe(result))
        _set(self, "error", error)
        _set(self, "id", id)
        _set(self, "started_at", started_at)
        _set(self, "duration", duration)

    @property
    def arguments(self) -> Json:
        """The arguments as Python objects; {} for none."""
        return Value(self.arguments_json, "json").data if self.arguments_json else {}


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """One message of a conversation: a role and its parts."""

    role: str
    content: tuple[Value, ...]
    tool_calls: tuple[ToolCall, ...]
    tool_call_id: str
    name: str
    metadata_json: str

    def __init__(
        self,
        role: str,
        content: ValueLike | Sequence[Value] = (),
        *,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str = "",
        name: str = "",
        metadata: JsonObject | str | None = None,
    ) -> None:
        """Make a message; *content* is one part, or a sequence of Values."""
        parts = (
            tuple(content)
            if isinstance(content, (tuple, list)) and all(type(part) is Value for part in content)
            else (Value.of(content),)
        )
        _set(self, "role", role)
        _set(self, "content", parts)
        _set(self, "tool_calls", tuple(tool_calls))
        _set(self, "tool_call_id", tool_call_id)
        _set(self, "name", name)
        _set(self, "metadata_json", object_text(metadata))

    @property
    def text(self) -> str:
        """All text parts, one after the other."""
        return "".join(part.text for part in self.content if part.kind == "text")

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata as Python objects."""
        return object_data(self.metadata_json)


@dataclass(frozen=True, slots=True, init=False)
class Span:
    """One timed step of the work; spans form a tree through `parent_id`."""

    id: str
    name: str
    parent_id: str
    kind: str
    started_at: float | None
    """Seconds since 1970."""
    duration: float | None
    """Seconds."""
    attributes_json: str

    def __init__(
        self,
        id: str,
        name: str,
        *,
        parent_id: str = "",
        kind: str = "",
        started_at: float | None = None,
        duration: float | None = None,
        attributes: JsonObject | str | None = None,
    ) -> None:
        """Make a span."""
        _set(self, "id", id)
        _set(self, "name", name)
        _set(self, "parent_id", parent_id)
        _set(self, "kind", kind)
        _set(self, "started_at", started_at)
        _set(self, "duration", duration)
        _set(self, "attributes_json", object_text(attributes))

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes as Python objects."""
        return object_data(self.attributes_json)


@dataclass(frozen=True, slots=True)
class Timing:
    """Lengths of time behind an output, in seconds."""

    total: float | None = None
    first_token: float | None = None


class ToolMockFaultKind(IntEnum):
    """Why a mocked tool call could not be answered. Numbers as in the contract."""

    MISMATCH = 1
    EXHAUSTED = 2
    NOT_DECLARED = 3


@dataclass(frozen=True, slots=True)
class ToolMockFault:
    """A call of a mocked tool that could not be answered."""

    tool: str
    kind: ToolMockFaultKind
    arguments_json: str = ""


@dataclass(frozen=True, slots=True)
class ToolMockReport:
    """How the tool mocks of an item were used."""

    used: int = 0
    unused: int = 0
    faults: tuple[ToolMockFault, ...] = ()


@dataclass(frozen=True, slots=True, init=False)
class Output:
    """The answer of a target to one trial."""

    content: Value | None
    """What the target said; None only when `messages` holds it."""
    answer: Value | None
    """The part that counts, where the target can say."""
    messages: tuple[Message, ...]
    tool_calls: tuple[ToolCall, ...]
    spans: tuple[Span, ...]
    usage: Usage | None
    trace_ids: tuple[str, ...]
    metadata_json: str
    timing: Timing | None
    tool_mocks: ToolMockReport | None

    def __init__(
        self,
        content: ValueLike | None = None,
        *,
        answer: ValueLike | None = None,
        messages: Sequence[Message] = (),
        tool_calls: Sequence[ToolCall] = (),
        spans: Sequence[Span] = (),
        usage: Usage | None = None,
        trace_ids: Sequence[str] = (),
        metadata: JsonObject | str | None = None,
        timing: Timing | None = None,
        tool_mocks: ToolMockReport | None = None,
    ) -> None:
        """Make an output; *content* and *answer* are text as str, JSON as Python objects, or Values."""
        _set(self, "content", content if content is None or type(content) is Value else Value.of(content))
        _set(self, "answer", answer if answer is None or type(answer) is Value else Value.of(answer))
        _set(self, "messages", tuple(messages))
        _set(self, "tool_calls", tuple(tool_calls))
        _set(self, "spans", tuple(spans))
        _set(self, "usage", usage)
        _set(self, "trace_ids", tuple(trace_ids))
        _set(self, "metadata_json", object_text(metadata))
        _set(self, "timing", timing)
        _set(self, "tool_mocks", tool_mocks)

    @property
    def text(self) -> str:
        """The content as text; without content the text of the last message; "" if there is neither.

        Raises:
            TypeError: the content is bytes.
        """
        if self.content is not None:
            return self.content.text
        return self.messages[-1].text if self.messages else ""

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata as Python objects."""
        return object_data(self.metadata_json)


OutputDraft = draft(Output)


def output_with(content: Value) -> Output:
    """An output of nothing but content, made quickly."""
    made = OutputDraft()
    made.content = content
    made.answer = made.usage = made.timing = made.tool_mocks = None
    made.messages = made.tool_calls = made.spans = made.trace_ids = ()
    made.metadata_json = ""
    made.__class__ = Output
    output: Output = made
    return output


def only_text(output: Output) -> str | None:
    """The text of an output that has a text as its content and nothing else; None for others."""
    content = output.content
    if (
        content is None
        or content.kind != "text"
        or output.answer is not None
        or output.usage is not None
        or output.messages
        or output.tool_calls
        or output.spans
        or output.trace_ids
        or output.metadata_json
        or output.timing is not None
        or output.tool_mocks is not None
    ):
        return None
    return content.body  # type: ignore[return-value]  # a text is a str, by construction
