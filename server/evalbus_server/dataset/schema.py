"""What JSON Schema says of items: input and expected, each by the schema of its dataset (draft 2020-12, formats checked).

References that lead out of the schema are refused, and patterns are RE2's: nothing is fetched, and nothing hangs.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from jsonschema import SchemaError

from evalbus import Item, Value, _json
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset import DatasetInfo, Fault
from evalbus_server.model.json_schema import Endless, SafeSchema

LONGEST = 200
"""Characters of a message."""
MOST_FAULTS = 100
"""So many faults are told of one call."""
_ENDLESS = "the schema goes round in circles"
_DRAFTS = ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft/2020-12/schema")


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
        draft = str(schema.get("$schema", _DRAFTS[0])) if isinstance(schema, Mapping) else _DRAFTS[0]
        if draft.rstrip("#") not in _DRAFTS:
            raise ValueError(f"$schema: {draft!r} is another draft; this is 2020-12")
        _ready(text)
    except RecursionError:
        raise _refused(field, "nested too deeply") from None
    except SchemaError as error:
        place = _pointer(error.absolute_path)
        raise _refused(field, f"{place}: {error.message}" if place else error.message) from None
    except ValueError as error:
        raise _refused(field, str(error)) from None
    return text


def _refused(field: str, said: str) -> Invalid:
    message = f"{field} is no schema that can be used: {said[:LONGEST]}"
    return Invalid(Reason.DATASET_INVALID, message, field=field)


@lru_cache(maxsize=64)
def _ready(text: str) -> SafeSchema:
    return SafeSchema(_json.loads(text))


def checker(info: DatasetInfo) -> Callable[[Sequence[Item]], list[Fault]] | None:
    """What tells the faults of items by the schemas of a dataset; None if it has none."""
    schemas = [
        (field, text) for field, text in (("input", info.input_schema), ("expected", info.expected_schema)) if text
    ]
    if not schemas:
        return None

    def check(items: Sequence[Item]) -> list[Fault]:
        faults: list[Fault] = []
        for place, item in enumerate(items):
            faults += _faults(place, item, schemas)
            if faults and faults[-1].message == _ENDLESS:  # the next one would take as long
                break
        return faults

    return check


def _faults(place: int, item: Item, schemas: list[tuple[str, str]]) -> Iterator[Fault]:
    for field, text in schemas:
        value: Value | None = getattr(item, field)
        if value is None:
            continue
        try:
            error = next(_ready(text).faults(_data(value)), None)
        except (RecursionError, Endless):
            yield Fault(place, item.id, "SCHEMA", _ENDLESS, field)
            return
        except (ValueError, SchemaError, OverflowError) as trouble:  # 1e999 has no place on a scale of multiples
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
