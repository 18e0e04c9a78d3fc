"""Configuration documents: YAML 1.2, JSON or TOML as plain data, read strictly. Nothing in them is ever evaluated.

YAML is made from the parser's events by the core schema alone: no tags, so no objects; dates and `yes` stay text;
aliases unfold to a bounded size.
"""

from __future__ import annotations

import copy
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from evalbus import _json
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.paths import Steps, parse_path
from evalbus_server.model.syntax import json_fault, toml_fault
from evalbus_server.runner.places import Place, Places, json_places, refused_in_json, toml_places

LARGEST = 1 << 20
"""A bigger file is not a configuration file."""
UNFOLDED = 4 * LARGEST
"""What a document may grow to by its aliases, in characters."""
DEEPEST = 100
DEEPEST_PLACES = 6
"""Places are remembered down to this depth; below it the place of the part above serves."""


class DocumentError(ValueError):
    """A document cannot be read; the text says where and why."""


@dataclass
class Document:
    """What a file holds, and where."""

    data: Any
    places: Callable[[], Places] = dict
    """Finds where keys and entries stand."""

    def place_of(self, path: Steps) -> Place | None:
        """The place of the part at a path, or of the closest part around it that is known."""
        places = self.places()
        found = (places[path[:length]] for length in range(len(path), 0, -1) if path[:length] in places)
        return next(found, None)

    def told(self, field: str | None) -> str:
        """The place of a field in words, for the beginning of a message; "" if it is not known."""
        place = self.place_of(parse_path(field)) if field else None
        return "" if place is None else f"line {place.line}, column {place.column}: "


def read_document(path: str | os.PathLike[str], reason: Reason) -> Document:
    """Read a file by its suffix: .yaml or .yml, .json, .toml.

    Raises:
        Invalid: there is no such file, or it is not a document of its kind; one line that says where.
    """
    try:
        text = _read_text(Path(path))
        match Path(path).suffix.lower():
            case ".yaml" | ".yml":
                document = read_yaml(text)
            case ".json":
                document = Document(_read_json(text), lambda: json_places(text, DEEPEST_PLACES))
            case ".toml":
                document = Document(_read_toml(text), lambda: toml_places(text, DEEPEST_PLACES))
            case suffix:
                raise DocumentError(f"the suffix {suffix!r} says no format; call it .yaml, .json or .toml")
        if not isinstance(document.data, dict):
            raise DocumentError("must be a mapping of keys to values")
    except DocumentError as error:
        raise Invalid(reason, f"{path}: {error}") from None
    return document


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise DocumentError("there is no such file") from None
    except IsADirectoryError:
        raise DocumentError("is a folder; name the file in it") from None
    except (OSError, ValueError) as error:
        raise DocumentError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > LARGEST:
        raise DocumentError("is over 1 MiB; is it the dataset? name that under dataset: {path: …}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = error.object[error.start]
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DocumentError(
            f"line {line}: not UTF-8: byte 0x{bad:02x} at offset {error.start}; save it as UTF-8"
        ) from None
    if not text.strip():
        raise DocumentError("is empty")
    return text


def _read_json(text: str) -> Any:
    try:
        return _json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise DocumentError(f"{where}: not JSON: {json_fault(error)}") from None
    except ValueError as error:
        place = refused_in_json(text)
        where = "" if place is None else f"line {place.line}, column {place.column}: "
        raise DocumentError(f"{where}not JSON: {error}") from None


def _read_toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at ")
        at = re.fullmatch(r"(line \d+, column \d+)\)", place)
        where = at[1] if at else _end_of(text)
        raise DocumentError(f"{where}: not TOML: {toml_fault(message)}") from None
    except RecursionError:
        raise DocumentError(f"nested deeper than {DEEPEST}") from None
    except ValueError as error:  # A number of more digits than Python reads, for instance.
        raise DocumentError(f"not TOML: {error}") from None


def _end_of(text: str) -> str:
    """The last place of a text in which something stands."""
    last = text.rstrip().rpartition("\n")
    return f"line {last[0].count(chr(10)) + 1 + bool(last[1])}, column {len(last[2]) + 1}"


# --- YAML -------------------------------------------------------------------------------------------------------


def read_yaml(text: str) -> Document:
    """Read one YAML document.

    Raises:
        DocumentError: it is not YAML, or uses what is refused; the text says where.
    """
    parser = YAML(typ="safe", pure=True)
    try:
        return _YamlReader(parser.parse(text)).document()
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DocumentError(f"line {line}: the character {_character(error.character)} cannot stand in YAML") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise DocumentError(f"{at}not YAML: {' '.join(str(error.problem or error.context).split())}") from None
    except YAMLError as error:
        raise DocumentError(f"not YAML: {' '.join(str(error).split())}") from None


class _YamlReader:
    """Makes plain data of the parser's events."""

    def __init__(self, events: Iterator[Event]) -> None:
        self.events = events
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.places: Places = {}
        self.size = 0

    def document(self) -> Document:
        data: Any = None
        documents = 0
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _refused(event, "a second document begins; keep one")
                data = self.node(next(self.events), ())
        return Document(data, lambda: self.places)

    def node(self, event: Event, path: Steps) -> Any:
        """The data of the node that begins with this event."""
        if isinstance(event, AliasEvent):
            return self.alias(event)
        if not isinstance(event, NodeEvent):
            raise _refused(event, "nothing stands where a value is expected")
        if getattr(event, "tag", None) is not None:
            raise _refused(event, f"tags such as {_tag(event)} are not taken; write the plain value")
        if len(path) > DEEPEST:
            raise _refused(event, f"nested deeper than {DEEPEST}")
        before = self.size
        if isinstance(event, ScalarEvent):
            data = self.scalar(event)
        elif isinstance(event, SequenceStartEvent):
            data = self.sequence(path)
        else:
            data = self.mapping(path)
        if event.anchor is not None:
            self.anchors[event.anchor] = (data, self.size - before)
        return data

    def alias(self, event: AliasEvent) -> Any:
        if event.anchor not in self.anchors:
            raise _refused(event, f"the alias *{event.anchor} has no anchor &{event.anchor} before it")
        data, size = self.anchors[event.anchor]
        self.grow(event, size)
        return copy.deepcopy(data)  # Two places that were written once are still two: --set may change one of them.

    def grow(self, event: Event, size: int) -> None:
        self.size += size
        if self.size > UNFOLDED:
            raise _refused(event, "the aliases unfold to more than 4 MiB")

    def scalar(self, event: ScalarEvent) -> Any:
        self.grow(event, len(event.value) + 1)
        if event.style is not None:
            return event.value
        try:
            return _plain(event.value)
        except ValueError as error:
            raise _refused(event, str(error)) from None

    def sequence(self, path: Steps) -> list[Any]:
        made: list[Any] = []
        for event in self.events:
            if isinstance(event, SequenceEndEvent):
                break
            here = (*path, len(made))
            self.remember(event, here)
            made.append(self.node(event, here))
        return made

    def mapping(self, path: Steps) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        for event in self.events:
            if isinstance(event, MappingEndEvent):
                break
            if isinstance(event, ScalarEvent) and event.value == "<<" and event.style is None:
                merged.extend(self.merge(next(self.events), path))
                continue
            key = self.node(event, path)
            if not isinstance(key, str):
                raise _refused(event, f"the key {key!r} must be text; put it in quotes")
            if key in made:
                raise _refused(event, f"the key {key!r} comes twice")
            self.remember(event, (*path, key))
            made[key] = self.node(next(self.events), (*path, key))
        for other in merged:
            made = {**other, **made}
        return made

    def merge(self, event: Event, path: Steps) -> list[dict[str, Any]]:
        """The mappings behind a `<<` key: one, or a list of them of which the first wins."""
        value = self.node(event, (*path, "<<"))
        mappings = value if isinstance(value, list) else [value]
        if not all(isinstance(mapping, dict) for mapping in mappings):
            raise _refused(event, "<< takes a mapping, or a list of mappings")
        return mappings

    def remember(self, event: Event, path: Steps) -> None:
        if len(path) <= DEEPEST_PLACES:
            self.places[path] = Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _character(character: str | int) -> str:
    return f"U+{ord(character) if isinstance(character, str) else character:04X}"


def _refused(event: Event, why: str) -> DocumentError:
    mark = event.start_mark
    return DocumentError(f"line {mark.line + 1}, column {mark.column + 1}: {why}")


def _tag(event: NodeEvent) -> str:
    return str(getattr(event, "tag", "")).replace("tag:yaml.org,2002:", "!!")


_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


def _plain(text: str) -> Any:
    """What a plain scalar stands for in the core schema of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        digits = text.lstrip("+-")
        if digits[:2] in ("0o", "0x"):
            return int(text, 0)
        if len(digits) > 1 and digits[0] == "0":
            raise ValueError(f"{text[:40]} is a number with a zero in front; put it in quotes if it is text")
        if len(digits) > 4300:
            raise ValueError("a number of more than 4,300 digits")
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text
