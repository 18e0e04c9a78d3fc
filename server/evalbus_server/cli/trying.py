"""The work of `evalbus scorers try`: one output, judged by a builtin as a run would have it judged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rich.text import Text

from evalbus import Item, Money, Output, Score, ScorerBench, SettingsInvalid, Span, Timing, ToolCall, Usage, Value
from evalbus._definition import OpeningRefused
from evalbus._settings import settings_type
from evalbus_server.cli.figures import number, plain
from evalbus_server.cli.report import console, print_json
from evalbus_server.errors import Invalid, NotFound, Reason, Unfit
from evalbus_server.model.faults import suggestion
from evalbus_server.scorer.builtin import BUILTINS

T = TypeVar("T")


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
    """What stood on the command line."""

    settings: str
    input: str
    output: str | None
    output_json: str | None
    expected: str | None
    expected_json: str | None
    metadata: str
    choices: str
    more: More


def try_builtin(name: str, texts: Texts, *, as_json: bool) -> None:
    """Print the score of one output.

    Raises:
        NotFound: there is no builtin of this name.
        Invalid: an option does not fit, or the settings do not.
        Unfit: the scorer cannot be set up with these settings.
    """
    if name not in BUILTINS:
        known = sorted(BUILTINS)
        raise NotFound(Reason.PLUGIN_UNKNOWN, f"there is no builtin scorer {name!r}{suggestion(name, known, known)}")
    settings = _object(texts.settings, "--settings", Reason.SETTINGS_INVALID)
    item, output = _item(texts), _output(texts)
    try:
        scores = asyncio.run(ScorerBench(BUILTINS[name], settings).scores(item, output))
    except SettingsInvalid as error:
        raise Invalid(Reason.SETTINGS_INVALID, f"{name} refused: {error}", field=error.field) from None
    except OpeningRefused as error:
        raise Unfit(Reason.PLUGIN_REFUSED, f"{name} refused: {error}") from None
    named = {f"{name}.{key}" if key else name: score for key, score in scores.items()}
    if as_json:
        print_json(_document(named))
        return
    out = console()
    for key, score in named.items():
        for label, text in _told(key, score):
            out.print(Text.assemble((f"{label:12}", "dim"), plain(text)), soft_wrap=True)


def _document(scores: Mapping[str, Score]) -> dict[str, Any]:
    """All scores by their keys, and the only one's fields beside; null where there are several."""
    only = next(iter(scores.values())) if len(scores) == 1 else None
    top = _score(only) if only is not None else dict.fromkeys(("status", "value", "label", "explanation"))
    return {**top, "scores": {key: _score(score) for key, score in scores.items()}}


def _score(score: Score) -> dict[str, Any]:
    document: dict[str, Any] = {
        "status": score.status.name,
        "value": score.value,
        "label": score.label or None,
        "explanation": score.explanation,
    }
    if score.answer is not None:
        document["answer"] = score.answer.data if score.answer.kind != "blob" else str(score.answer)
    if score.failure is not None:
        failure = score.failure
        document["failure"] = {
            "category": failure.category.name,
            "reason": failure.reason,
            "message": failure.message,
        }
    return document


def _told(key: str, score: Score) -> Iterator[tuple[str, str]]:
    yield "score", f"{key}: {score.status.name if score.value is None else number(score.value)}"
    if score.answer is not None:
        yield "answer", str(score.answer)
    if score.label:
        yield "label", score.label
    if score.failure is not None:
        yield "failure", f"{score.failure.reason or score.failure.category.name}: {score.failure.message}"
    if score.explanation:
        yield "why", score.explanation


def _item(texts: Texts) -> Item:
    choices = _list(texts.choices, "--choices")
    if not all(isinstance(choice, str) for choice in choices):
        raise Invalid(Reason.REQUEST_INVALID, '--choices: must be a list of texts, such as ["Paris", "Rome"]')
    expected = _value(texts.expected, texts.expected_json, "--expected")
    return Item("try", texts.input, expected, metadata=_object(texts.metadata, "--metadata"), choices=choices)


def _output(texts: Texts) -> Output:
    content = _value(texts.output, texts.output_json, "--output")
    more = texts.more
    calls = [_call(each, place) for place, each in enumerate(_list(more.calls, "--calls"))]
    spans = [_span(json.dumps(each), f"--spans: [{place}]") for place, each in enumerate(_list(more.spans, "--spans"))]
    usage, timing = _usage(more.usage), _timing(more.timing)
    if content is None and not (calls or spans or usage or timing):
        raise Invalid(
            Reason.REQUEST_INVALID,
            "say what is judged: --output T, --output-json JSON, --calls, --spans, --usage or --timing JSON",
        )
    found = Value("") if content is None else content
    return Output(found, tool_calls=calls, spans=spans, usage=usage, timing=timing)


def _usage(text: str) -> Usage | None:
    if not _object(text, "--usage"):
        return None
    read = _read(_Usage, text, "--usage")
    cost = None if read.cost is None else Money(round(read.cost.amount * 1_000_000), read.cost.currency)
    return Usage(read.input_tokens, read.output_tokens, read.cached_tokens, read.calls, cost)


def _timing(text: str) -> Timing | None:
    if not _object(text, "--timing"):
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


def _object(text: str, option: str, reason: Reason = Reason.REQUEST_INVALID) -> dict[str, Any]:
    found = _loaded(text, option, reason)
    if not isinstance(found, dict):
        raise Invalid(reason, f'{option}: must be a JSON object, such as {{"key": "value"}}')
    return found


def _list(text: str, option: str) -> list[Any]:
    found = _loaded(text, option, Reason.REQUEST_INVALID)
    if not isinstance(found, list):
        raise Invalid(Reason.REQUEST_INVALID, f"{option}: must be a JSON list")
    return found
