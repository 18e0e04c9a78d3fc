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
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from evalbus_server.model.paths import Steps

LARGEST = 1 << 20
"""A bigger file is not a configuration file."""
UNFOLDED = 4 * LARGEST
"""What a document may grow to by its aliases, in characters."""
DEEPEST = 100
DEEPEST_LINES = 6
"""Lines are remembered down to this depth; below it the line of the part above serves."""


class DocumentError(ValueError):
    """A document cannot be read; the text says where and why."""


@dataclass
class Document:
    """What a file holds, and where."""

    data: Any
    lines: dict[Steps, int] = field(default_factory=dict)
    """The lines of keys and entries, from 1, if the format tells."""

    def line_of(self, path: Steps) -> int | None:
        """The line of the part at a path, or of the closest part around it that is known."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None


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
                document = Document(_read_json(text))
            case ".toml":
                document = Document(_read_toml(text))
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
        raise DocumentError(f"not JSON at {error.lineno}:{error.colno}: {error.msg}") from None
    except ValueError as error:
        raise DocumentError(f"not JSON: {error}") from None


def _read_toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at ")
        at = re.fullmatch(r"line (\d+), column (\d+)\)", place)
        where = f" at {at[1]}:{at[2]}" if at else " at its end"
        raise DocumentError(f"not TOML{where}: {message[:1].lower()}{message[1:]}") from None
    except RecursionError:
        raise DocumentError(f"nested deeper than {DEEPEST}") from None
    except ValueError as error:  # A number of more digits than Python reads, for instance.
        raise DocumentError(f"not TOML: {error}") from None


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
        at = f" at {mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise DocumentError(f"not YAML{at}: {' '.join(str(error.problem or error.context).split())}") from None
    except YAMLError as error:
        raise DocumentError(f"not YAML: {' '.join(str(error).split())}") from None


class _YamlReader:
    """Makes plain data of the parser's events."""

    def __init__(self, events: Iterator[Event]) -> None:
        self.events = events
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.lines: dict[Steps, int] = {}
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
        return Document(data, self.lines)

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
        if len(path) <= DEEPEST_LINES:
            self.lines[path] = event.start_mark.line + 1


def _character(character: str | int) -> str:
    return f"U+{ord(character) if isinstance(character, str) else character:04X}"


def _refused(event: Event, why: str) -> DocumentError:
    mark = event.start_mark
    return DocumentError(f"not acceptable at {mark.line + 1}:{mark.column + 1}: {why}")


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
