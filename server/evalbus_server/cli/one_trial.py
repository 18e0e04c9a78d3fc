"""An item and its output as the options of a command say them: what `scorers try` and `plugins check` are about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from evalbus import Item, Money, Output, SettingsInvalid, Span, Timing, ToolCall, Usage, Value
from evalbus._settings import settings_type
from evalbus_server.errors import Invalid, Reason

T = TypeVar("T")

NOTHING_JUDGED = "say what is judged: --output T, --output-json JSON, --calls, --spans, --usage or --timing JSON"


@dataclass(frozen=True, slots=True)
class More:
    """What the output has besides its content, as it stood on the command line."""

    calls: str
    spans: str
    usage: str
    timing: str


@dataclass(frozen=True, slots=True)
class _Cost:
    amount: float
    currency: str = "USD"


@dataclass(frozen=True, slots=True)
class _Usage:
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    calls: int = 0
    cost: _Cost | None = None


@dataclass(frozen=True, slots=True)
class _Timing:
    total: float | None = None
    first_token: float | None = None


@dataclass(frozen=True, slots=True)
class _Span:
    id: str
    name: str
    parent_id: str = ""
    kind: str = ""
    started_at: float | None = None
    duration: float | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Texts:
    """What stood on the command line of an item and of the output that is judged."""

    input: str
    output: str | None
    output_json: str | None
    expected: str | None
    expected_json: str | None
    metadata: str
    choices: str
    more: More


def item_of(texts: Texts, item_id: str) -> Item:
    """The item that the options make.

    Raises:
        Invalid: an option does not fit.
    """
    choices = _list(texts.choices, "--choices")
    if not all(isinstance(choice, str) for choice in choices):
        raise Invalid(Reason.REQUEST_INVALID, '--choices: must be a list of texts, such as ["Paris", "Rome"]')
    expected = _value(texts.expected, texts.expected_json, "--expected")
    return Item(item_id, texts.input, expected, metadata=json_object(texts.metadata, "--metadata"), choices=choices)


def output_of(texts: Texts) -> Output | None:
    """The output that the options make; None if they say nothing of one.

    Raises:
        Invalid: an option does not fit.
    """
    content = _value(texts.output, texts.output_json, "--output")
    more = texts.more
    calls = [_call(each, place) for place, each in enumerate(_list(more.calls, "--calls"))]
    spans = [_span(json.dumps(each), f"--spans: [{place}]") for place, each in enumerate(_list(more.spans, "--spans"))]
    usage, timing = _usage(more.usage), _timing(more.timing)
    if content is None and not (calls or spans or usage or timing):
        return None
    found = Value("") if content is None else content
    return Output(found, tool_calls=calls, spans=spans, usage=usage, timing=timing)


def mapping(maps: Sequence[str]) -> dict[str, str]:
    """The paths of inputs by name, as `map` of an experiment has them.

    Raises:
        Invalid: one is not written so.
    """
    found = {}
    for each in maps:
        name, equals, path = each.partition("=")
        if not (equals and name.strip() and path.strip()):
            raise Invalid(
                Reason.REQUEST_INVALID, f"--map: {each!r} is not INPUT=PATH, as in context=item.metadata.passages"
            )
        found[name.strip()] = path.strip()
    return found


def _usage(text: str) -> Usage | None:
    if not json_object(text, "--usage"):
        return None
    read = _read(_Usage, text, "--usage")
    cost = None if read.cost is None else Money(round(read.cost.amount * 1_000_000), read.cost.currency)
    return Usage(read.input_tokens, read.output_tokens, read.cached_tokens, read.calls, cost)


def _timing(text: str) -> Timing | None:
    if not json_object(text, "--timing"):
        return None
    read = _read(_Timing, text, "--timing")
    return Timing(read.total, read.first_token)


def _span(text: str, where: str) -> Span:
    read = _read(_Span, text, where)
    return Span(
        read.id,
        read.name,
        parent_id=read.parent_id,
        kind=read.kind,
        started_at=read.started_at,
        duration=read.duration,
        attributes=read.attributes,
    )


def _read(kind: type[T], text: str, where: str) -> T:
    """An object of one of the classes above, whose fields say which keys there are."""
    try:
        found: T = settings_type(kind, {}, where).read(text)
    except SettingsInvalid as error:
        raise Invalid(Reason.REQUEST_INVALID, str(error).replace("settings", where, 1)) from None
    return found


def _call(written: Any, place: int) -> ToolCall:
    """A tool call from its name, or an object."""
    if isinstance(written, str):
        return ToolCall(written)
    fields = {"name", "arguments", "result", "error", "duration"}
    if not isinstance(written, dict) or not isinstance(written.get("name"), str) or not written.keys() <= fields:
        known = ", ".join(sorted(fields))
        raise Invalid(
            Reason.REQUEST_INVALID, f"--calls: [{place}] is a name, or an object with a name; known are {known}"
        )
    arguments, error, duration = written.get("arguments"), written.get("error", ""), written.get("duration")
    if not isinstance(error, str) or not isinstance(duration, int | float | None):
        raise Invalid(Reason.REQUEST_INVALID, f"--calls: [{place}]: error is a text, duration a number of seconds")
    text = None if arguments is None else json.dumps(arguments, ensure_ascii=False)
    result = Value.of(written["result"]) if "result" in written else None
    return ToolCall(written["name"], text, result=result, error=error, duration=duration)


def _value(text: str | None, document: str | None, option: str) -> Value | None:
    if text is not None and document is not None:
        raise Invalid(Reason.REQUEST_INVALID, f"{option} and {option}-json exclude each other")
    if document is None:
        return None if text is None else Value(text)
    try:
        return Value.json(document)
    except ValueError as error:
        raise Invalid(Reason.REQUEST_INVALID, f"{option}-json: not JSON: {error}") from None


def _loaded(text: str, option: str, reason: Reason) -> Any:
    try:
        return Value.json(text).data
    except ValueError as error:
        raise Invalid(reason, f"{option}: not JSON: {error}") from None


def json_object(text: str, option: str, reason: Reason = Reason.REQUEST_INVALID) -> dict[str, Any]:
    """The JSON object of an option.

    Raises:
        Invalid: it is none.
    """
    found = _loaded(text, option, reason)
    if not isinstance(found, dict):
        raise Invalid(reason, f'{option}: must be a JSON object, such as {{"key": "value"}}')
    return found


def _list(text: str, option: str) -> list[Any]:
    found = _loaded(text, option, Reason.REQUEST_INVALID)
    if not isinstance(found, list):
        raise Invalid(Reason.REQUEST_INVALID, f"{option}: must be a JSON list")
    return found
