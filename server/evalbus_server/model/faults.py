"""The mistakes that pydantic finds, in one line of plain words, each with its path and a suggestion."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.paths import format_path

SHOWN = 3
"""More mistakes than this in one document are only counted."""


def invalid(error: ValidationError, schema: type[BaseModel], reason: Reason) -> Invalid:
    """What pydantic said of a document of this schema, as an error of ours."""
    faults = error.errors(include_url=False)
    lines = [_line(fault, schema) for fault in faults[:SHOWN]]
    if len(faults) > SHOWN:
        lines.append(f"and {len(faults) - SHOWN} more")
    return Invalid(reason, "; ".join(lines), field=_path(faults[0]))


def said(error: ValidationError) -> str:
    """What pydantic said of one value, such as that of an option."""
    return "; ".join(_say(fault, BaseModel) for fault in error.errors(include_url=False)[:SHOWN])


def _path(fault: ErrorDetails) -> str:
    # A fault of a mapping's key has the mark "[key]" behind the key itself.
    return format_path([step for step in fault["loc"] if step != "[key]"])


def _line(fault: ErrorDetails, schema: type[BaseModel]) -> str:
    path, text = _path(fault), _say(fault, schema)
    return f"{path}: {text}" if path else text


def _say(fault: ErrorDetails, schema: type[BaseModel]) -> str:  # noqa: C901  # one line for each kind of fault
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    match kind:
        case "missing":
            return "missing"
        case "extra_forbidden":
            key = str(fault["loc"][-1])
            known = _keys_at(schema, fault["loc"][:-1])
            return f"unknown key{suggestion(key, known, known)}"
        case "string_type":
            return f"must be text, not {kind_of(value)}" + ("; put it in quotes" if _is_scalar(value) else "")
        case "invalid_key":
            return "a key must be text; put it in quotes"
        case "int_type" | "int_from_float" | "int_parsing":
            return f"must be a whole number, not {quoted(value)}"
        case "bool_type" | "bool_parsing":
            return f"must be true or false, not {quoted(value)}"
        case "float_type" | "float_parsing":
            return f"must be a number, not {quoted(value)}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"must be a mapping, not {kind_of(value)}{_as_in(schema, fault['loc'], value)}"
        case "tuple_type" | "list_type":
            return f"must be a list, not {kind_of(value)}"
        case "literal_error":
            choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
            return f"must be one of {', '.join(choices)}, not {quoted(value)}"
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}, not {quoted(value)}"
        case "greater_than":
            return f"must be above {context['gt']:g}, not {quoted(value)}"
        case "less_than_equal":
            return f"must be at most {context['le']:,.15g}, not {quoted(value)}"
        case "finite_number":
            return f"must be a finite number, not {quoted(value)}"
        case "too_short" | "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have at most {context['max_length']} characters"
        case "string_pattern_mismatch":
            return f"must look like {context['pattern']}, not {quoted(value)}"
        case "value_error":
            return str(context["error"])
    return fault["msg"]


def _keys_at(schema: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """The keys that are known at a place of the schema."""
    model = _model_at(schema, location)
    return [field.alias or name for name, field in model.model_fields.items() if name != "folder"]


def _as_in(schema: type[BaseModel], location: Sequence[str | int], value: object) -> str:
    """How the text that stands in the place of a part can be written."""
    key = getattr(_model_at(schema, location), "FIRST_KEY", "")
    if not key or not isinstance(value, str) or not 0 < len(value) <= 60 or (key != "path" and "/" in value):
        return ""
    return f"; as in {{{key}: {value}}}"


def _model_at(schema: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel]:
    model = schema
    for step in location:
        field = next((field for name, field in model.model_fields.items() if step in (name, field.alias)), None)
        inner = None if field is None else next(_models_in(field.annotation), None)
        model = inner or model
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models_in(argument)


def _is_scalar(value: object) -> bool:
    return isinstance(value, int | float)


MOST_TOLD = 24
"""So many names stand in one message; beyond that it says how many there are."""
BUILTINS_LISTED = "evalbus scorers list shows them"
"""Where the names of builtin scorers are read, which are too many for a message."""


def suggestion(word: str, candidates: Sequence[str], known: Sequence[str], listed: str = "") -> str:
    """What is behind a message about an unknown word: the one that was meant, else those there are, or where they are *listed*."""
    near = nearest(word, candidates)
    if near:
        return f"; did you mean {near}?"
    if len(known) <= MOST_TOLD:
        return f"; known are {', '.join(known)}"
    return f"; there are {len(known)}: {listed or ', '.join((*known[:MOST_TOLD], '…'))}"


def nearest(word: str, candidates: Sequence[str]) -> str:
    """The candidate that was meant, else the first one of whose parts one was (exakt: exact_match); "" if none."""
    near = difflib.get_close_matches(word.lower(), candidates, n=1, cutoff=0.6)
    if near:
        return near[0]
    parts = {part: each for each in reversed(candidates) for part in each.split("_") if len(part) > 3}
    of = difflib.get_close_matches(word.lower(), parts, n=1, cutoff=0.75)
    return parts[of[0]] if of else ""


def quoted(value: object) -> str:
    """A short value as it is, anything else by its kind."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"a text of {len(value)} characters"
    return str(value).lower() if isinstance(value, int | float) else kind_of(value)


def kind_of(value: object) -> str:
    """What a value of a file is, in the words of its reader."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {value}"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
    return f"a {type(value).__name__}"


def in_per_cent(number: float, best: float) -> str:
    """How a number is written that was meant in per cent, where nothing is above 1; "" if it was not."""
    return f"; write {number / 100:g} for {number:g} %" if best == 1 and 1 < number <= 100 else ""
