"""Paths into item, output and trial (`output.tool_calls[0].name`), which give scorers their named inputs.

A path is parsed and checked once for a run, then followed for every trial. Nothing is evaluated.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from evalbus import (
    Item,
    Message,
    Money,
    Output,
    Score,
    Span,
    Timing,
    ToolCall,
    ToolMock,
    ToolMockFault,
    ToolMockReport,
    Usage,
    Value,
)
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model import paths
from evalbus_server.model.faults import suggestion
from evalbus_server.model.trial import epoch_of, position_of
from evalbus_server.scorer.documents import find_in

Find: TypeAlias = Callable[[Item, Output, int], Value | None]


@dataclass(frozen=True, slots=True)
class Path:
    """A path as it was written, and how to follow it."""

    text: str
    _find: Find

    def find(self, item: Item, output: Output, trial_id: int = 0) -> Value | None:
        """The value there; None if there is none."""
        return self._find(item, output, trial_id)

    def __str__(self) -> str:
        """As it was written."""
        return self.text


def parse_score_path(text: str, field: str = "") -> Callable[[Score], Value | None]:
    """How to follow a path into a score, such as `score.label` or `score.metadata.level`.

    Raises:
        Invalid: nothing can ever stand there; the message says what can.
    """
    try:
        steps = paths.parse_path(text)[1:]
        if not steps:
            raise ValueError(f"must go on after score: {text!r}; its value is score.value")
        _check(text, steps, Score)
    except ValueError as error:
        raise Invalid(Reason.EXPERIMENT_INVALID, f"{field}: {error}" if field else str(error), field=field) from None
    return lambda score: _inside(score, steps)


def parse_path(text: str, field: str = "") -> Path:
    """A path such as `output.content.total` or `item.metadata["odd.key"]`; *field* is where it is written.

    Raises:
        Invalid: it is no path, or nothing can ever stand there; the message says what can.
    """
    try:
        steps = paths.parse_path(text)
        root, rest = steps[0], steps[1:]
        if root not in _ROOTS or not rest:
            raise ValueError(f"must begin with item., output. or trial.: {text!r}; the answer is output.content")
        _check(text, rest, _ROOTS[root])
    except ValueError as error:
        raise Invalid(Reason.EXPERIMENT_INVALID, f"{field}: {error}" if field else str(error), field=field) from None
    return Path(text, _follow(str(root), rest))


class _Trial(NamedTuple):
    """What a path may say of a trial."""

    id: int
    epoch: int
    position: int


class _Content(NamedTuple):
    """The parts of a message. An index means one of them; one alone stands for itself, several texts for their sum."""

    parts: tuple[Value, ...]


class _Json(NamedTuple):
    """A JSON document as text; "" stands for an empty object."""

    text: str


class _Field(NamedTuple):
    """A field of a value: how it is read, and what is inside."""

    get: Callable[[Any], Any]
    inside: type
    """A class below, Value or _Json for any document, str or float where nothing is inside."""
    many: bool = False


def _plain(*names: str) -> dict[str, _Field]:
    return {name: _Field(attrgetter(name), str) for name in names}


def _values(*names: str) -> dict[str, _Field]:
    return {name: _Field(attrgetter(name), Value) for name in names}


def _many(**classes: type) -> dict[str, _Field]:
    return {name: _Field(attrgetter(name), kind, many=True) for name, kind in classes.items()}


def _json(name: str) -> dict[str, _Field]:
    read = attrgetter(f"{name}_json")
    return {name: _Field(lambda owner: _Json(read(owner)), _Json)}


_ITEM: dict[str, _Field] = {
    **_plain("id"),
    **_values("input", "expected"),
    **_json("metadata"),
    **_many(tags=str, choices=str, messages=Message, tool_mocks=ToolMock),
    "output": _Field(attrgetter("output"), Output),
}
_OUTPUT: dict[str, _Field] = {
    **_values("content", "answer"),
    **_many(messages=Message, tool_calls=ToolCall, spans=Span, trace_ids=str),
    "usage": _Field(attrgetter("usage"), Usage),
    "timing": _Field(attrgetter("timing"), Timing),
    "tool_mocks": _Field(attrgetter("tool_mocks"), ToolMockReport),
    **_json("metadata"),
}
_FIELDS: Mapping[type, Mapping[str, _Field]] = {
    Item: _ITEM,
    Output: _OUTPUT,
    _Trial: _plain("id", "epoch", "position"),
    Message: {
        **_plain("role"),
        "content": _Field(lambda message: _Content(message.content) if message.content else None, _Content),
        **_many(tool_calls=ToolCall),
        **_plain("tool_call_id", "name"),
        **_json("metadata"),
    },
    ToolCall: {
        **_plain("id", "name"),
        **_json("arguments"),
        **_values("result"),
        **_plain("error", "started_at", "duration"),
    },
    ToolMock: {
        **_plain("tool"),
        "arguments": _Field(lambda mock: None if mock.arguments_json is None else _Json(mock.arguments_json), _Json),
        **_values("output"),
        **_plain("error"),
    },
    ToolMockReport: {**_plain("used", "unused"), **_many(faults=ToolMockFault)},
    ToolMockFault: {
        **_plain("tool"),
        "kind": _Field(lambda fault: fault.kind.name, str),
        **_json("arguments"),
    },
    Span: {**_plain("id", "name", "parent_id", "kind", "started_at", "duration"), **_json("attributes")},
    Score: {**_plain("value", "label", "explanation"), **_values("answer"), **_json("metadata")},
    Usage: {
        **_plain("input_tokens", "output_tokens", "cached_tokens", "calls"),
        "cost": _Field(attrgetter("cost"), Money),
    },
    Money: _plain("micros", "currency"),
    Timing: _plain("total", "first_token"),
}
_ROOTS: Mapping[str | int, type] = {"item": Item, "output": Output, "trial": _Trial}
_ANY = (Value, _Json, _Content)
"""Where the document decides what stands inside."""


def _check(text: str, steps: Sequence[str | int], kind: type) -> None:
    """Refuse what can never be there; inside documents everything can."""
    many = False
    for place, step in enumerate(steps):
        if kind in _ANY and not many:
            return
        here = f"{text!r}: after {paths.format_path(steps[:place]) or 'the first word'}"
        if many:
            if isinstance(step, str):
                raise ValueError(f"{here} comes an index, such as [0] or [-1], not {step!r}")
            many = False
            continue
        fields = _FIELDS.get(kind)
        if fields is None:
            raise ValueError(f"{here} nothing more can come")
        field = fields.get(step) if isinstance(step, str) else None
        if field is None:
            raise ValueError(f"{here} cannot come {step!r}{suggestion(str(step), list(fields), list(fields))}")
        kind, many = field.inside, field.many


def _follow(root: str, steps: tuple[str | int, ...]) -> Find:
    """How a path is followed; short ones, which are most, without any machinery."""
    first, rest = str(steps[0]), steps[1:]
    field = _FIELDS[_ROOTS[root]][first]
    get = field.get
    if root == "trial":
        return lambda item, output, trial_id: _found(get(_Trial(trial_id, epoch_of(trial_id), position_of(trial_id))))
    if field.inside is Value and not rest:
        return (lambda item, output, _: get(item)) if root == "item" else (lambda item, output, _: get(output))
    if root == "item":
        return lambda item, output, _: _inside(get(item), rest)
    return lambda item, output, _: _inside(get(output), rest)


def _inside(owner: Any, steps: tuple[str | int, ...]) -> Value | None:
    """What stands at *steps* inside of a value; None if there is nothing."""
    for place, step in enumerate(steps):
        if owner is None:
            return None
        if isinstance(owner, _Content):
            owner = owner.parts if isinstance(step, int) else _found(owner)
        if isinstance(owner, Value):
            return find_in(owner, steps[place:])
        if isinstance(owner, _Json):
            return find_in(Value(owner.text or "{}", "json"), steps[place:])
        owner = _at(owner, step) if isinstance(step, int) else _FIELDS[type(owner)][step].get(owner)
    return _found(owner)


def _at(sequence: tuple[Any, ...], index: int) -> Any:
    return sequence[index] if -len(sequence) <= index < len(sequence) else None


def _found(owner: Any) -> Value | None:
    """What a path has led to, as a Value. An empty text, outside of documents, is one that nobody set."""
    if owner is None or owner == "":
        return None
    if isinstance(owner, Value):
        return owner
    if isinstance(owner, str):
        return Value(owner)
    if isinstance(owner, _Content):
        if len(owner.parts) == 1:
            return owner.parts[0]
        if all(part.kind == "text" for part in owner.parts):
            return Value("".join(part.text for part in owner.parts))
    return Value(_written(owner), "json")


def _written(owner: Any) -> str:
    """Anything as JSON text: documents as they are, what is not set left out, bytes as base64."""
    if isinstance(owner, Value):
        if owner.kind == "json":
            return owner.text
        if isinstance(owner.body, bytes):
            return json.dumps({"media_type": owner.media_type, "base64": b64encode(owner.body).decode()})
        return json.dumps(owner.body, ensure_ascii=False)
    if isinstance(owner, _Json):
        return owner.text or "{}"
    if isinstance(owner, _Content):
        return _written(owner.parts[0] if len(owner.parts) == 1 else owner.parts)
    fields = _FIELDS.get(type(owner))
    if fields is not None:
        members = ((name, field.get(owner)) for name, field in fields.items())
        return (
            "{" + ",".join(f"{json.dumps(name)}:{_written(found)}" for name, found in members if _is_set(found)) + "}"
        )
    if isinstance(owner, tuple):
        return "[" + ",".join(map(_written, owner)) + "]"
    return json.dumps(owner, ensure_ascii=False)


def _is_set(found: Any) -> bool:
    return not (found is None or found == "" or found == () or found == _Json(""))
