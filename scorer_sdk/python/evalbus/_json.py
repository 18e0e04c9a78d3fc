"""JSON as text: strict reading, plain writing. Never evaluates anything and never loses a digit silently."""

from __future__ import annotations

import json
from typing import Any, NoReturn

MAX_DEPTH = 100
"""How deep a document may nest."""


def loads(text: str) -> Any:
    """Read one JSON document.

    Integers of any size that Python can hold keep every digit; floats become Python floats.

    Raises:
        ValueError: it is not JSON (RFC 8259), a key comes twice in one object, NaN or Infinity stands in it, it
            nests deeper than MAX_DEPTH, holds a lone surrogate, or a number has more than 4,300 digits.
    """
    try:
        document = _DECODER.decode(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH}") from None
    if _may_nest_deeply(text) and _depth(text) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if "\\u" in text or "\\U" in text:
        refuse_surrogates(json.dumps(document, ensure_ascii=False))
    return document


def dumps(document: object) -> str:
    """Write a document as compact JSON with readable characters.

    Raises:
        ValueError: it holds NaN or Infinity, a lone surrogate, or refers to itself.
        TypeError: it holds something that JSON has no form for.
    """
    text = _ENCODER.encode(document)
    refuse_surrogates(text)
    return text


def refuse_surrogates(text: str) -> None:
    """Refuse text that has no UTF-8 form.

    Raises:
        ValueError: a lone surrogate stands in it.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"not valid Unicode: a lone surrogate at character {error.start}") from None


def _object_without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r} comes twice")
            seen.add(key)
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _may_nest_deeply(text: str) -> bool:
    return text.count("[") + text.count("{") > MAX_DEPTH


def _depth(text: str) -> int:
    """The deepest nesting of a text that is known to be JSON."""
    deepest = depth = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


_DECODER = json.JSONDecoder(object_pairs_hook=_object_without_doubles, parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
