"""JSON Schemas that others write: nothing is fetched, and nothing hangs.

The package that checks them searches with Python's own expressions, which some texts make take for ever, and compares
each entry with each other one. What could be so is done here in another way.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # The metaschemas, and nothing that would be fetched.
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from evalbus_server.model.formats import format_checker
from evalbus_server.model.patterns import Pattern

MOST_REFERENCES = 1_000_000
"""References that are met for one document."""

MOST_FAULTS = 100
"""Faults that are gathered of one alternative, or where a reference leads to: those of a list of a million wrong entries
would take the memory."""

_BY_CALLER = {"$dynamicRef", "$recursiveRef"}
"""References whose meaning depends on the way that led to them."""
_REFERENCES = {"$ref", *_BY_CALLER}
_AT_WORK = object()


class Endless(Exception):
    """More references were followed than any sensible document needs."""


class SafeSchema:
    """A schema that is ready to check documents by, from any thread."""

    def __init__(self, schema: Any, *, base: Any = Draft202012Validator, formats: bool = True) -> None:
        """Check the schema itself, *base* being the validator of its draft.

        Raises:
            SchemaError: it is no schema.
            ValueError: a pattern is none of RE2's, a reference leads out of the schema or nowhere, or something is
                not supported.
            RecursionError: it is nested too deeply.
        """
        checker = format_checker(base)
        base.check_schema(schema, format_checker=_without_patterns(checker))
        patterns, keywords = _checked(schema)
        self._keywords = _Keywords(patterns, base.VALIDATORS, remembers=not keywords & _BY_CALLER)
        made: Any = extend(base, self._keywords.by_name)  # type: ignore[no-untyped-call]
        self._validator = made(schema, registry=REGISTRY, format_checker=checker if formats else None)

    def faults(self, document: Any) -> Iterator[ValidationError]:
        """What does not fit, one after the other; all of it has to be taken in one thread.

        Raises:
            Endless, RecursionError: the schema refers to itself without end for this document.
            OverflowError: a number is too large to be checked.
        """
        self._keywords.begin()
        try:
            yield from self._validator.iter_errors(document)
        finally:
            self._keywords.forget()


def _without_patterns(checker: FormatChecker) -> FormatChecker:
    """The same formats but `regex`, by which Python's own patterns are meant; ours are checked apart."""
    left = FormatChecker(())
    left.checkers = {name: each for name, each in checker.checkers.items() if name != "regex"}
    return left


def _checked(schema: Any) -> tuple[dict[str, Pattern], set[str]]:
    """The patterns of a schema, compiled, and the keywords in it.

    Raises:
        ValueError: one is none, a reference leads out of the schema or nowhere, or something is not supported.
    """
    if not isinstance(schema, Mapping):
        return {}, set()
    root = specification_with(str(schema.get("$schema", "")), default=DRAFT202012).create_resource(schema)
    patterns: dict[str, Pattern] = {}
    keywords: set[str] = set()
    for part in _parts(root, REGISTRY.resolver_with_root(root), set()):
        keywords.update(part)
        for written in (*_text(part.get("pattern")), *part.get("patternProperties", ())):
            patterns[written] = Pattern(written)
    if {"patternProperties", "unevaluatedProperties"} <= keywords:
        raise ValueError("patternProperties and unevaluatedProperties do not go together here")
    return patterns, keywords


def _parts(resource: Resource[Any], resolver: Any, seen: set[int]) -> Iterator[Mapping[str, Any]]:
    """The schema, all schemas inside of it, and what references lead to where no keyword says that a schema is there."""
    part = resource.contents
    if not isinstance(part, Mapping) or id(part) in seen:
        return
    seen.add(id(part))
    yield part
    for keyword in sorted(_REFERENCES & part.keys()):
        try:
            found = resolver.lookup(str(part[keyword]))
        except Unresolvable:
            raise ValueError(f"the reference {part[keyword]!r} leads out of the schema, or nowhere") from None
        if isinstance(found.contents, Mapping):
            meant = specification_with(str(found.contents.get("$schema", "")), default=DRAFT202012)
            yield from _parts(meant.create_resource(found.contents), found.resolver, seen)
    for inside in resource.subresources():
        yield from _parts(inside, resolver.in_subresource(inside), seen)


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


def _any_of(validator: Any, ways: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    told, fits = _alternatives(validator, ways, instance)
    if fits is None:
        yield ValidationError(f"{instance!r} is not valid under any of the given schemas", context=told)


def _one_of(validator: Any, ways: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    told, fits = _alternatives(validator, ways, instance)
    if fits is None:
        yield ValidationError(f"{instance!r} is not valid under any of the given schemas", context=told)
    elif also := [way for way in ways[fits + 1 :] if validator.evolve(schema=way).is_valid(instance)]:
        which = ", ".join(repr(way) for way in (*also, ways[fits]))
        yield ValidationError(f"{instance!r} is valid under each of {which}")


def _alternatives(validator: Any, ways: Any, instance: Any) -> tuple[list[ValidationError], int | None]:
    """What does not fit the alternatives before the first one that fits, and which that is, if any."""
    told: list[ValidationError] = []
    for number, way in enumerate(ways):
        faults = list(islice(validator.descend(instance, way, schema_path=number), MOST_FAULTS))
        if not faults:
            return told, number
        told.extend(faults)
    return told, None


class _Keywords:
    """The keywords that could take for ever: patterns by RE2 in place of Python's own, equal values, references."""

    def __init__(self, patterns: Mapping[str, Pattern], usual: Mapping[str, Any], *, remembers: bool) -> None:
        """*remembers*: what a reference came to for a part of the document is the same each time."""
        self._patterns = patterns
        self._remembers = remembers
        self._here = threading.local()
        self._looks: dict[int, frozenset[str]] = {}
        """Of each `enum` of the schema, by its id: the schema stays as long as this."""
        self.by_name: dict[str, Any] = {
            **{name: self._counted(usual[name]) for name in _REFERENCES & usual.keys()},
            **{name: each for name, each in (("anyOf", _any_of), ("oneOf", _one_of)) if name in usual},
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
            "uniqueItems": self._unique_items,
            "enum": self._enum,
        }

    def begin(self) -> None:
        """Count the references of a document anew, in this thread."""
        self._here.left = MOST_REFERENCES
        self.forget()

    def forget(self) -> None:
        """Keep nothing of a document: it may be large, and schemas stay for long."""
        self._here.known = {}

    def _counted(self, follow: Any) -> Any:
        """Follow a reference once for each part of the document.

        Alternatives that refer to the whole would double the work with each level: a tree of 20 levels took an hour.
        """

        def counted(validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            self._here.left -= 1
            if self._here.left < 0:
                raise Endless
            if not self._remembers:
                yield from follow(validator, reference, instance, schema) or ()
                return
            known, place = self._here.known, (id(schema), id(instance))
            told, *_ = known.get(place, (None,))
            if told is _AT_WORK:  # it refers to itself, with nothing between
                raise Endless
            if told is None:
                known[place] = (_AT_WORK, schema, instance)  # both are kept, so that their ids stay theirs
                faults = list(islice(follow(validator, reference, instance, schema) or (), MOST_FAULTS))
                known[place] = (faults[0].message if faults else "", schema, instance)
                yield from faults
            elif told:
                yield ValidationError(told)

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
