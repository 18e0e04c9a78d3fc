"""`json_schema_valid`: whether the output is JSON that fits a schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jsonschema import SchemaError, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.validators import Draft202012Validator, validator_for

from evalbus import Score, ScoreTask, SettingsInvalid, scorer
from evalbus_server.model.json_schema import Endless, SafeSchema
from evalbus_server.scorer.builtin._compared import FULL, THREADS, actual_of, not_text, setting, unjudged
from evalbus_server.scorer.builtin._documents import document_of

LONGEST = 1_000_000
"""Characters of a document at most: checking a larger one can take very long."""

_SHOWN = 200


@dataclass(frozen=True, slots=True)
class JsonSchemaValidSettings:
    """The schema."""

    schema: dict[str, Any] = field(
        metadata={
            "description": "A JSON Schema (2020-12, or the draft that `$schema` names), without remote references."
        }
    )
    formats: bool = setting(False, "Whether `format` is checked too.")


def _set_up(settings: JsonSchemaValidSettings) -> SafeSchema:
    path = "settings.schema"
    base = validator_for(settings.schema, default=Draft202012Validator)
    try:
        return SafeSchema(settings.schema, base=base, formats=settings.formats)
    except SchemaError as error:
        inside = "".join(f"[{step!r}]" for step in error.absolute_path)
        raise SettingsInvalid(f"{path}{inside}: {error.message[:_SHOWN]}", path) from None
    except RecursionError:
        raise SettingsInvalid(f"{path}: nested too deeply", path) from None
    except ValueError as error:
        raise SettingsInvalid(f"{path}: {error}", path) from None


@scorer("json_schema_valid", version="1.0.0", inputs=("output",), deterministic=True, setup=_set_up, threads=THREADS)
def json_schema_valid(task: ScoreTask, state: SafeSchema) -> Score:
    """1 if the output is JSON that the schema allows, else 0; the explanation says where it does not fit.

    The schema is checked before the run. It may refer to its own parts, never to anything outside. Patterns in it are
    RE2's. `format` is checked only if asked for.
    """
    actual = actual_of(task)
    text = actual.body
    if not isinstance(text, str):
        return not_text(actual, "output")
    if len(text) > LONGEST:
        message = f"a document of {len(text):,} characters is longer than the {LONGEST:,} that are checked"
        return unjudged("TEXT_TOO_LONG", message)
    try:
        document = document_of(actual)
    except ValueError as error:
        return Score.scored(0.0, f"not JSON: {error}")
    try:
        fault = best_match(state.faults(document))
    except (RecursionError, Endless):
        return unjudged("SCHEMA_ENDLESS", "the schema refers to itself without end for this output")
    except OverflowError:  # 1e999 has no place on a scale of multiples
        return unjudged("NUMBER_TOO_LARGE", "a number of the output is too large to be checked")
    if fault is None:
        return FULL
    return Score.scored(0.0, _told(fault))


def _told(fault: ValidationError) -> str:
    return f"{fault.json_path}: {_shown(fault.message)}"


def _shown(message: str) -> str:
    return message if len(message) <= _SHOWN else message[:_SHOWN] + "…"
