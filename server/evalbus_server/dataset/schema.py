"""What JSON Schema says of items: input and expected, each by the schema of its dataset (draft 2020-12, formats checked).

References that lead out of the schema are refused, and patterns are RE2's: nothing is fetched, and nothing hangs.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import SchemaError
from jsonschema.validators import extend

from evalbus import Item, Value, _json
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset import DatasetInfo, Fault

LONGEST = 200
"""Characters of a message."""
MOST_FAULTS = 100
"""So many faults are told of one call."""
_DRAFTS = ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft/2020-12/schema")


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not re2.search(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, inner in patterns.items():
        for name, member in instance.items():
            if re2.search(pattern, name):
                yield from validator.descend(member, inner, path=name, schema_path=pattern)


_Validator: Any = extend(Draft202012Validator, {"pattern": _pattern, "patternProperties": _pattern_properties})  # type: ignore[no-untyped-call]


def checked_schema(text: str, field: str) -> str:
    """A schema that may be stored.

    Raises:
        Invalid: DATASET_INVALID: it is no schema, or one that is not accepted here.
    """
    if not text:
        return ""
    try:
        schema = _json.loads(text)
        if not isinstance(schema, dict | bool):
            raise ValueError("a schema is a JSON object")
        Draft202012Validator.check_schema(schema)
        for path, key, value in _keys(schema, ""):
            fault = _fault(key, value)
            if fault:
                raise ValueError(f"{path}/{key}: {fault}")
    except (ValueError, SchemaError, RecursionError) as error:
        said = error.message if isinstance(error, SchemaError) else str(error)
        raise Invalid(
            Reason.DATASET_INVALID, f"{field} is no schema that can be used: {said[:LONGEST]}", field=field
        ) from None
    return text


def _keys(schema: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            yield path, key, value
            yield from _keys(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for place, value in enumerate(schema):
            yield from _keys(value, f"{path}/{place}")


def _fault(key: str, value: Any) -> str:
    if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
        return f"the reference {value!r} leads out of the schema; only those that begin with # are followed"
    if key == "$schema" and isinstance(value, str) and value.rstrip("#") not in _DRAFTS:
        return f"{value!r} is another draft; this is 2020-12"
    patterns = (
        [value] if key == "pattern" else list(value) if key == "patternProperties" and isinstance(value, dict) else []
    )
    for pattern in patterns:
        if isinstance(pattern, str):
            try:
                re2.compile(pattern)
            except re2.error as error:
                return f"the pattern {pattern!r} is none of RE2's: {error}"
    return ""


@lru_cache(maxsize=64)
def _validator(text: str) -> Any:
    return _Validator(_json.loads(text), format_checker=Draft202012Validator.FORMAT_CHECKER)


def checker(info: DatasetInfo) -> Callable[[Sequence[Item]], list[Fault]] | None:
    """What tells the faults of items by the schemas of a dataset; None if it has none."""
    schemas = [
        (field, text) for field, text in (("input", info.input_schema), ("expected", info.expected_schema)) if text
    ]
    if not schemas:
        return None

    def check(items: Sequence[Item]) -> list[Fault]:
        return [fault for place, item in enumerate(items) for fault in _faults(place, item, schemas)]

    return check


def _faults(place: int, item: Item, schemas: list[tuple[str, str]]) -> Iterator[Fault]:
    for field, text in schemas:
        value: Value | None = getattr(item, field)
        if value is None:
            continue
        try:
            error = next(iter(_validator(text).iter_errors(_data(value))), None)
        except RecursionError:
            yield Fault(place, item.id, "SCHEMA", "the schema goes round in circles", field)
            continue
        except Exception as trouble:  # whatever a reference that leads nowhere raises
            yield Fault(place, item.id, "SCHEMA", f"the schema cannot be used: {trouble}"[:LONGEST], field)
            continue
        if error is not None:
            yield Fault(place, item.id, "SCHEMA", error.message[:LONGEST], field + _pointer(error.absolute_path))


def _data(value: Value) -> Any:
    if isinstance(value.body, bytes):
        return {"media_type": value.media_type, "base64": base64.b64encode(value.body).decode()}
    return value.data


def _pointer(path: Any) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
