"""Items as files: JSON lines and CSV. Importing an export gives the same items, and the same bytes come every time.

JSON keeps every digit: documents are put together as texts, not from Python's objects. In CSV every content has two
columns: one for a text, one for anything else as JSON (also for the empty text, since an empty cell is absent). Our
header is known when it comes back, so that its JSON is read as such and the guard is taken away.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from evalbus import Item, Message, Output, Span, ToolCall, ToolMock, ToolMockFault, Value, _json
from evalbus_server.dataset.cells import Row, cell_of, compact
from evalbus_server.dataset.forms import PLAIN_JSON, is_read_otherwise
from evalbus_server.dataset.refusal import Refusal

BOM = "\ufeff"
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_GUARDED = re.compile(r"'+[=+\-@\t\r]")
_JSON = "_json"
_LISTS = ("tags", "choices", "messages", "tool_mocks", "scorers", "output")
COLUMNS = (
    "id",
    "input",
    "input_json",
    "expected",
    "expected_json",
    *(f"{name}_json" for name in ("metadata", *_LISTS)),
)
GUARD = "guard"
_RAW_HEADER = ",".join(COLUMNS)
_GUARDED_HEADER = f"{_RAW_HEADER},{GUARD}"
HEADERS = frozenset({_RAW_HEADER, _GUARDED_HEADER})
"""The first lines of our CSV exports."""


def json_lines(items: Iterable[Item]) -> Iterator[str]:
    """One line for each item."""
    for item in items:
        yield item_text(item) + "\n"


def csv_lines(items: Iterable[Item], *, raw: bool = False, bom: bool = False) -> Iterator[str]:
    """The header, and one record for each item.

    A cell that a spreadsheet would take for a formula gets a quote in front, unless *raw*. *bom*: begin with a
    byte-order mark, by which spreadsheets know UTF-8.
    """
    yield f"{BOM if bom else ''}{_RAW_HEADER if raw else _GUARDED_HEADER}\r\n"
    for item in items:
        cells = [_csv_cell(cell, text=not name.endswith(_JSON), raw=raw) for name, cell in row_of(item).items()]
        yield ",".join(cells if raw else [*cells, "'"]) + "\r\n"


def rows_of(rows: Iterable[Row | Refusal]) -> Iterator[Row | Refusal]:
    """The rows of one of our CSV exports."""
    for row in rows:
        if isinstance(row, Refusal):
            yield row
            continue
        guarded = row.cells.pop(GUARD, None) is not None
        try:
            yield Row(row.line, _cells_of(row.cells, guarded), row.size)
        except ValueError as error:
            yield Refusal(row.line, "not_json", f"a column of JSON does not hold JSON: {error}")


def _cells_of(cells: dict[str, Value], guarded: bool) -> dict[str, Value]:
    made: dict[str, Value] = {}
    for name, cell in cells.items():
        if name.endswith(_JSON):
            made[name.removesuffix(_JSON)] = cell_of(cell.text)
        else:
            text = cell.text
            made[name] = Value(text[1:]) if guarded and _GUARDED.match(text) else cell
    return made


def row_of(item: Item) -> dict[str, str]:
    """An item by columns; what it has not is empty."""
    row = dict.fromkeys(COLUMNS, "")
    row["id"] = item.id
    for name in ("input", "expected"):
        value: Value | None = getattr(item, name)
        if value is None:
            continue
        plain = value.kind == "text" and value.body and "\0" not in value.text
        row[name if plain else f"{name}_json"] = value.text if plain else value_text(value)
    for name, text in _parts(item):
        if name not in ("id", "input", "expected"):
            row[f"{name}_json"] = text
    return row


def _csv_cell(cell: str, *, text: bool, raw: bool) -> str:
    if text and not raw and _FORMULA.match(cell):
        cell = f"'{cell}"
    if any(sign in cell for sign in ',"\r\n') or cell != cell.strip():
        return '"' + cell.replace('"', '""') + '"'
    return cell


# --- JSON -------------------------------------------------------------------------------------------------------


def item_text(item: Item) -> str:
    """An item as a JSON object, without space, on one line."""
    return _object(_parts(item))


def _parts(item: Item) -> Iterator[tuple[str, str]]:
    yield "id", _json.dumps(item.id)
    yield "input", value_text(item.input)
    if item.expected is not None:
        yield "expected", value_text(item.expected)
    if item.metadata_json:
        yield "metadata", compact(item.metadata_json)
    if item.tags:
        yield "tags", _json.dumps(list(item.tags))
    if item.choices:
        yield "choices", _json.dumps(list(item.choices))
    if item.messages:
        yield "messages", _list(item.messages, _message)
    if item.tool_mocks:
        yield "tool_mocks", _list(item.tool_mocks, _tool_mock)
    if item.scorers is not None:
        yield "scorers", _json.dumps(list(item.scorers))
    if item.output is not None:
        yield "output", _output(item.output)


def value_text(value: Value) -> str:
    """A value as the text of a JSON document; what would be read as something else says that it is JSON."""
    if isinstance(value.body, bytes):
        return _json.dumps({"media_type": value.media_type, "base64": base64.b64encode(value.body).decode()})
    if value.kind == "text":
        return _json.dumps(value.body)
    text = compact(value.body)
    return f'{{"media_type":"{PLAIN_JSON}","json":{text}}}' if is_read_otherwise(Value(text, "json")) else text


def _object(parts: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{_json.dumps(name)}:{text}" for name, text in parts) + "}"


def _list(values: Iterable[Any], write: Callable[[Any], str]) -> str:
    return f"[{','.join(map(write, values))}]"


def _some(**parts: Any) -> Iterator[tuple[str, str]]:
    """Those parts that are not empty: Values, texts, numbers."""
    for name, part in parts.items():
        if isinstance(part, Value):
            yield name, value_text(part)
        elif part is not None and part != "":
            yield name, _json.dumps(part)


def _raw(name: str, text: str | None) -> Iterator[tuple[str, str]]:
    if text:
        yield name, compact(text)


def _arguments(text: str | None) -> Iterator[tuple[str, str]]:
    """Arguments as they are; a text or null as JSON in a text: a text stands for its JSON there, and null for none."""
    for name, raw in _raw("arguments", text):
        yield name, _json.dumps(raw) if raw.startswith(('"', "null")) else raw


def _message(message: Message) -> str:
    return _object(_message_parts(message))


def _message_parts(message: Message) -> Iterator[tuple[str, str]]:
    yield from _some(role=message.role)
    if message.content:
        texts = [value_text(part) for part in message.content]
        # One part that would be read as a list of parts, or as none, is written as a list of one part.
        alone = len(texts) == 1 and not texts[0].startswith(("[", "null"))
        yield "content", texts[0] if alone else f"[{','.join(texts)}]"
    if message.tool_calls:
        yield "tool_calls", _list(message.tool_calls, _tool_call)
    yield from _some(tool_call_id=message.tool_call_id, name=message.name)
    yield from _raw("metadata", message.metadata_json)


def _tool_call(call: ToolCall) -> str:
    return _object(
        (
            *_some(id=call.id, name=call.name),
            *_arguments(call.arguments_json),
            *_some(result=call.result, error=call.error, started_at=call.started_at, duration=call.duration),
        )
    )


def _tool_mock(mock: ToolMock) -> str:
    return _object(
        (*_some(tool=mock.tool), *_arguments(mock.arguments_json), *_some(output=mock.output, error=mock.error))
    )


def _output(output: Output) -> str:
    return _object(_output_parts(output))


def _output_parts(output: Output) -> Iterator[tuple[str, str]]:
    yield from _some(content=output.content, answer=output.answer)
    if output.messages:
        yield "messages", _list(output.messages, _message)
    if output.tool_calls:
        yield "tool_calls", _list(output.tool_calls, _tool_call)
    if output.spans:
        yield "spans", _list(output.spans, _span)
    if output.usage is not None:
        usage = output.usage
        counts = {name: getattr(usage, name) for name in ("input_tokens", "output_tokens", "cached_tokens", "calls")}
        cost = {} if usage.cost is None else {"cost": {"micros": usage.cost.micros, "currency": usage.cost.currency}}
        yield "usage", _json.dumps({**counts, **cost})
    if output.trace_ids:
        yield "trace_ids", _json.dumps(list(output.trace_ids))
    yield from _raw("metadata", output.metadata_json)
    if output.timing is not None:
        yield "timing", _object(_some(total=output.timing.total, first_token=output.timing.first_token))
    if output.tool_mocks is not None:
        report = output.tool_mocks
        counts = {"used": report.used, "unused": report.unused}
        faults = _list(report.faults, _tool_mock_fault)
        yield "tool_mocks", f'{_json.dumps(counts)[:-1]},"faults":{faults}}}'


def _tool_mock_fault(fault: ToolMockFault) -> str:
    return _object((*_some(tool=fault.tool, kind=fault.kind.name), *_arguments(fault.arguments_json)))


def _span(span: Span) -> str:
    return _object(
        (
            *_some(
                id=span.id,
                name=span.name,
                parent_id=span.parent_id,
                kind=span.kind,
                started_at=span.started_at,
                duration=span.duration,
            ),
            *_raw("attributes", span.attributes_json),
        )
    )
