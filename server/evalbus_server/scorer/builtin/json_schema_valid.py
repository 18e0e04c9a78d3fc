"""`json_schema_valid`: whether the output is JSON that fits a schema."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jsonschema import SchemaError, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, extend, validator_for
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # The metaschemas, and nothing that would be fetched.
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from evalbus import Score, ScoreTask, SettingsInvalid, scorer
from evalbus_server.scorer.builtin._compared import FULL, THREADS, actual_of, not_text, setting, unjudged
from evalbus_server.scorer.builtin._documents import document_of
from evalbus_server.scorer.builtin._patterns import Pattern, pattern_setting

LONGEST = 1_000_000
"""Characters of a document at most: checking a larger one can take very long."""

MOST_REFERENCES = 1_000_000
"""References that are followed for one output; alternatives that refer to the whole double them with each level."""

_SHOWN = 200
_REFERENCES = {"$ref", "$dynamicRef", "$recursiveRef"}


@dataclass(frozen=True, slots=True)
class JsonSchemaValidSettings:
    """The schema."""

    schema: dict[str, Any] = field(
        metadata={
            "description": "A JSON Schema (2020-12, or the draft that `$schema` names), without remote references."
        }
    )
    formats: bool = setting(False, "Whether `format` is checked too.")


@dataclass(frozen=True, slots=True)
class _Checker:
    """A schema that is ready to be checked by."""

    validator: Validator
    keywords: _Keywords


class _Endless(Exception):
    """More references were followed than any sensible output needs."""


def _set_up(settings: JsonSchemaValidSettings) -> _Checker:
    path = "settings.schema"
    base = validator_for(settings.schema, default=Draft202012Validator)
    try:
        base.check_schema(settings.schema)
    except SchemaError as error:
        inside = "".join(f"[{step!r}]" for step in error.absolute_path)
        raise SettingsInvalid(f"{path}{inside}: {_shown(error.message)}", path) from None
    except RecursionError:
        raise SettingsInvalid(f"{path}: nested too deeply", path) from None
    try:
        keywords = _Keywords(_checked(settings.schema, path), base.VALIDATORS)
        made: Any = extend(base, keywords.by_name)  # type: ignore[no-untyped-call]
    except RecursionError:
        raise SettingsInvalid(f"{path}: nested too deeply", path) from None
    checker = base.FORMAT_CHECKER if settings.formats else None
    return _Checker(made(settings.schema, registry=REGISTRY, format_checker=checker), keywords)


@scorer("json_schema_valid", version="1.0.0", inputs=("output",), deterministic=True, setup=_set_up, threads=THREADS)
def json_schema_valid(task: ScoreTask, state: _Checker) -> Score:
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
    state.keywords.begin()
    try:
        if state.validator.is_valid(document):
            return FULL
        fault = best_match(state.validator.iter_errors(document))
    except (RecursionError, _Endless):
        return unjudged("SCHEMA_ENDLESS", "the schema refers to itself without end for this output")
    except OverflowError:  # 1e999 has no place on a scale of multiples
        return unjudged("NUMBER_TOO_LARGE", "a number of the output is too large to be checked")
    return Score.scored(0.0, _told(fault))


def _told(fault: ValidationError | None) -> str:
    if fault is None:
        return ""
    return f"{fault.json_path}: {_shown(fault.message)}"


def _shown(message: str) -> str:
    return message if len(message) <= _SHOWN else message[:_SHOWN] + "…"


def _checked(schema: Mapping[str, Any], path: str) -> dict[str, Pattern]:
    """The patterns of a schema, compiled.

    Raises:
        SettingsInvalid: one is none, a reference leads out of the schema or nowhere, or something is not supported.
    """
    specification = specification_with(str(schema.get("$schema", "")), default=DRAFT202012)
    root = specification.create_resource(schema)
    patterns: dict[str, Pattern] = {}
    keywords: set[str] = set()
    for part, resolver in _parts(root, REGISTRY.resolver_with_root(root)):
        keywords.update(part)
        for keyword in _REFERENCES & part.keys():
            try:
                resolver.lookup(str(part[keyword]))
            except Unresolvable:
                message = f"{path}: the reference {part[keyword]!r} leads out of the schema, or nowhere"
                raise SettingsInvalid(message, path) from None
        for written in (*_text(part.get("pattern")), *part.get("patternProperties", ())):
            patterns[written] = pattern_setting(written, path)  # Python's own could hang
    if {"patternProperties", "unevaluatedProperties"} <= keywords:
        raise SettingsInvalid(f"{path}: patternProperties and unevaluatedProperties do not go together here", path)
    return patterns


def _parts(resource: Resource[Any], resolver: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """The schema and all schemas inside of it, each with what its references are resolved by."""
    if isinstance(resource.contents, Mapping):
        yield resource.contents, resolver
    for inside in resource.subresources():
        yield from _parts(inside, resolver.in_subresource(inside))


def _text(written: object) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else ()


def _look_of(entry: Any) -> str:
    """A text that is the same for entries that JSON Schema calls equal: 1 and 1.0, and objects in any order of keys."""
    return json.dumps(_plain(entry), sort_keys=True)


def _plain(entry: Any) -> Any:
    if isinstance(entry, float) and entry.is_integer():
        return int(entry)
    if isinstance(entry, list):
        return [_plain(each) for each in entry]
    return {key: _plain(value) for key, value in entry.items()} if isinstance(entry, dict) else entry


class _Keywords:
    """The keywords that could take for ever: patterns by RE2 in place of Python's own, equal values, references."""

    def __init__(self, patterns: Mapping[str, Pattern], usual: Mapping[str, Any]) -> None:
        self._patterns = patterns
        self._here = threading.local()
        self._looks: dict[int, frozenset[str]] = {}
        """Of each `enum` of the schema, by its id: the schema stays as long as this."""
        self.by_name: dict[str, Any] = {
            **{name: self._counted(usual[name]) for name in _REFERENCES & usual.keys()},
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
            "uniqueItems": self._unique_items,
            "enum": self._enum,
        }

    def begin(self) -> None:
        """Count the references of an output anew, in this thread."""
        self._here.left = MOST_REFERENCES

    def _counted(self, follow: Any) -> Any:
        def counted(validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            self._here.left -= 1
            if self._here.left < 0:
                raise _Endless
            yield from follow(validator, reference, instance, schema) or ()

        return counted

    def _pattern(self, validator: Any, written: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and self._patterns[written].search(instance) is None:
            yield ValidationError(f"{instance!r} does not match {written!r}")

    def _pattern_properties(
        self, validator: Any, schemas: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        for written, inside in schemas.items() if isinstance(instance, dict) else ():
            for key, value in instance.items():
                if self._patterns[written].search(key) is not None:
                    yield from validator.descend(value, inside, path=key, schema_path=written)

    def _unique_items(self, validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        """By what entries look like: the package compares each object with each other one."""
        if wanted is True and isinstance(instance, list) and len(set(map(_look_of, instance))) < len(instance):
            yield ValidationError("two entries of the list are the same")

    def _enum(self, validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        """By what values look like: the package compares each value of a long list with each that is allowed."""
        looks = self._looks.get(id(allowed))
        if looks is None:
            looks = self._looks[id(allowed)] = frozenset(map(_look_of, allowed))
        if _look_of(instance) not in looks:
            shown = ", ".join(map(repr, allowed[:5])) + (", …" if len(allowed) > 5 else "")
            yield ValidationError(f"{instance!r} is not one of {shown}")

    def _additional_properties(
        self, validator: Any, allowed: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        if not isinstance(instance, dict) or allowed is True:
            return
        named = schema.get("properties", {})
        known = [self._patterns[written] for written in schema.get("patternProperties", {})]
        extra = [key for key in instance if key not in named and not any(each.search(key) for each in known)]
        if allowed is not False:
            for key in extra:
                yield from validator.descend(instance[key], allowed, path=key)
        elif extra:
            yield ValidationError(f"additional properties are not allowed: {', '.join(map(repr, extra[:5]))}")
