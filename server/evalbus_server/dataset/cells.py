"""Cells of rows: texts, and JSON documents that keep every digit as it was written.

A document is cut out of its row as text, not built anew from Python objects, since those lose digits of floats.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # public, but not in the stubs
from typing import NamedTuple

from evalbus import Value, _json
from evalbus_server.dataset.refusal import RowRefused
from evalbus_server.model.paths import Steps
from evalbus_server.model.syntax import json_fault

_scan = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"[ \t\r\n]*")
_TOKENS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')

_ODD = re.compile(r"\\[u/]|[:\[,][ \t\r\n]*(?:-0|-?[0-9]+[.eE])")
"""What Python's objects would write in another way: escapes that need not be, floats, a minus before zero."""


class Row(NamedTuple):
    """One row of a dataset as it was read."""

    line: int
    cells: dict[str, Value]
    size: int
    """About its length, in characters."""


def cell_of(raw: str) -> Value:
    """The cell of a JSON document: a text, or the document without the space between its tokens.

    Raises:
        ValueError: it is not JSON.
    """
    data = _json.loads(raw)
    return Value(data) if isinstance(data, str) else Value(compact(raw), "json")


def compact(raw: str) -> str:
    """A JSON document without the space between its tokens, everything else as it was written."""
    return _TOKENS.sub(r"\1", raw) if _has_space(raw) else raw


def _has_space(raw: str) -> bool:
    return " " in raw or "\n" in raw or "\t" in raw or "\r" in raw


def row_cells(text: str) -> dict[str, Value]:
    """The cells of a row that is a JSON object.

    Raises:
        RowRefused: it is not a JSON object, or something in it is refused.
    """
    try:
        data = _json.loads(text)
    except ValueError:
        data = None  # What is wrong with it is found, with its place, below.
    if isinstance(data, dict) and (all(type(value) is str for value in data.values()) or not _ODD.search(text)):
        return {
            key: Value(value) if type(value) is str else Value(_json.dumps(value), "json")
            for key, value in data.items()
        }
    return {key: _checked(key, raw) for key, raw in _members_or_refused(text).items()}


def _checked(key: str, raw: str) -> Value:
    try:
        return cell_of(raw)
    except ValueError as error:
        raise RowRefused("not_json", f"not JSON in {key!r}: {_reason(error)}") from None


def _members_or_refused(text: str) -> dict[str, str]:
    stripped = text.strip(" \t\r\n")
    if not stripped.startswith("{"):
        raise RowRefused("not_an_object", f"{_kind_of(stripped)}, not an object; {_advice(stripped)}")
    try:
        return members(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            comma = text[error.pos :].strip(" \t\r\n") == ","
            message = "a comma stands behind the object" if comma else "something stands behind the object"
            raise RowRefused("not_json", f"not JSON: {message}; write one object a line") from None
        raise RowRefused("not_json", f"not JSON at column {error.pos + 1}: {json_fault(error)}") from None
    except ValueError as error:
        raise RowRefused("not_json", f"not JSON: {_reason(error)}") from None


def _kind_of(text: str) -> str:
    if text.startswith("["):
        return "a list"
    if text.startswith('"'):
        return "a text"
    return "a number" if text[:1] in tuple("-0123456789") else "not JSON"


def _advice(text: str) -> str:
    if text.startswith("["):
        return "write one object a line, or say format: json if the whole file is one list"
    return "write one object a line"


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return json_fault(error)
    text = str(error)
    return "a number of more than 4,300 digits" if text.startswith("Exceeds the limit") else text


def members(text: str) -> dict[str, str]:
    """The members of a JSON object, each as it was written.

    Raises:
        ValueError: it is not a JSON object, or a key comes twice.
    """
    found: dict[str, str] = {}
    at = _past_space(text, 0)
    if text[at : at + 1] != "{":
        raise json.JSONDecodeError("Expecting an object", text, at)
    at = _past_space(text, at + 1)
    if text[at : at + 1] == "}":
        return _ended(found, text, at + 1)
    while True:
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        key, at = scanstring(text, at + 1)
        _json.refuse_surrogates(key)
        if key in found:
            raise ValueError(f"the key {key!r} comes twice")
        at = _past_space(text, at)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        found[key], at = _value_at(text, _past_space(text, at + 1))
        at = _past_space(text, at)
        following = text[at : at + 1]
        if following == "}":
            return _ended(found, text, at + 1)
        if following != ",":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        at = _past_space(text, at + 1)


def elements(text: str) -> list[str]:
    """The elements of a JSON list that is known to be one, each as it was written."""
    found: list[str] = []
    at = _past_space(text, 1)
    while text[at : at + 1] != "]":
        raw, at = _value_at(text, at)
        found.append(raw)
        at = _past_space(text, at)
        if text[at : at + 1] == ",":
            at = _past_space(text, at + 1)
    return found


def _value_at(text: str, start: int) -> tuple[str, int]:
    try:
        _, end = _scan(text, start)
    except RecursionError:
        raise ValueError(f"nested deeper than {_json.MAX_DEPTH}") from None
    return text[start:end], end


def _past_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _ended(found: dict[str, str], text: str, at: int) -> dict[str, str]:
    end = _past_space(text, at)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return found


def inside(cell: Value, steps: Steps) -> Value | None:
    """The part of a cell at a path; None if there is none."""
    if not steps:
        return cell
    if cell.kind != "json" or not isinstance(cell.body, str):
        return None
    raw = cell.body
    for step in steps:
        if isinstance(step, str) and raw.startswith("{"):
            inner = members(raw).get(step)
        elif isinstance(step, int) and raw.startswith("["):
            inner = next(iter(elements(raw)[step : step + 1 or None]), None)
        else:
            return None
        if inner is None:
            return None
        raw = inner
    return cell_of(raw)


def raw_json(cell: Value) -> str:
    """A cell as the text of a JSON document."""
    if cell.kind == "json" and isinstance(cell.body, str):
        return cell.body
    return _json.dumps(cell.body)


def object_of(parts: dict[str, Value]) -> str:
    """The text of a JSON object with these cells, or "" if there are none."""
    if not parts:
        return ""
    return "{" + ",".join(f"{_json.dumps(key)}:{raw_json(cell)}" for key, cell in parts.items()) + "}"
