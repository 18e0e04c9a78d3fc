"""Parts of JSON documents, cut out of their text: what comes out is as it was written, no digit is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from evalbus import Value

SPACE = " \t\n\r"

_SKIPPING = json.JSONDecoder(parse_float=str, parse_int=str)
"""Reads a value to know where it ends; numbers are not even made."""


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


_SIMPLE = json.JSONDecoder(parse_float=_Number, parse_int=_Number)
"""Reads a list at once whose entries are texts and numbers."""
_SIMPLE_KINDS = {str, _Number}


def find_in(value: Value, steps: Sequence[str | int]) -> Value | None:
    """What stands at *steps* (keys and indexes) in a JSON document; None if there is nothing, or it is no JSON.

    A negative index counts from the end.
    """
    if not steps:
        return value
    if value.kind != "json":
        return None
    text = value.text
    place: int | None = skip_space(text, 0)
    for step in steps:
        assert place is not None
        if isinstance(step, str):
            place = _member(text, place, step) if text[place] == "{" else None
        else:
            place = _entry(text, place, step) if text[place] == "[" else None
        if place is None:
            return None
    assert place is not None
    return _cut(text, place)[0]


def entries(document: str) -> list[Value]:
    """The entries of a JSON list; the text begins with its bracket."""
    found = _SIMPLE.decode(document)
    if all(type(entry) in _SIMPLE_KINDS for entry in found):
        return [Value(str(entry), "text" if type(entry) is str else "json") for entry in found]
    return [_cut(document, place)[0] for place in _entry_places(document, 0)]


def read_exactly(text: str) -> Any:
    """A JSON document with every digit of its numbers, which are all Decimals.

    Raises:
        ValueError: it is no JSON, a key comes twice, it nests too deeply, or a number is beyond all sense.
    """
    try:
        return _EXACT.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except InvalidOperation:
        raise ValueError("a number is beyond all sense") from None


def skip_space(text: str, place: int) -> int:
    """The place of the next character that is no space."""
    while text[place] in SPACE:
        place += 1
    return place


def _cut(text: str, place: int) -> tuple[Value, int]:
    found, end = _SKIPPING.raw_decode(text, place)
    return (Value(found) if text[place] == '"' else Value(text[place:end], "json")), end


def _member(text: str, place: int, key: str) -> int | None:
    """Where the value of a key begins in the object at *place*."""
    place = skip_space(text, place + 1)
    while text[place] != "}":
        found, place = _SKIPPING.raw_decode(text, place)
        place = skip_space(text, skip_space(text, place) + 1)  # past the colon
        if found == key:
            return place
        place = skip_space(text, _SKIPPING.raw_decode(text, place)[1])
        if text[place] == ",":
            place = skip_space(text, place + 1)
    return None


def _entry(text: str, place: int, index: int) -> int | None:
    """Where an entry begins in the list at *place*."""
    if index < 0:
        places = list(_entry_places(text, place))
        return places[index] if -index <= len(places) else None
    for number, found in enumerate(_entry_places(text, place)):
        if number == index:
            return found
    return None


def _entry_places(text: str, place: int) -> Iterator[int]:
    """Where the entries of the list at *place* begin."""
    place = skip_space(text, place + 1)
    while text[place] != "]":
        yield place
        place = skip_space(text, _SKIPPING.raw_decode(text, place)[1])
        if text[place] == ",":
            place = skip_space(text, place + 1)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key comes twice")
    return made


_EXACT = json.JSONDecoder(
    parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse, object_pairs_hook=_without_doubles
)
