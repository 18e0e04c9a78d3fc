"""YAML 1.2 as plain data, made from the parser's events by the core schema alone, so that nothing in it is ever evaluated.

No tags, so no objects; dates and `yes` stay text; keys are text and come once; aliases unfold to a bounded size.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
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

from evalbus_server.model.paths import Place, Places, Steps

UNFOLDED = 4
"""What a document may grow to by its aliases: so many times its own size, or so many MiB if it is small."""
COLLECTION = 4
"""What a list or mapping counts beside what is in it: less than its text, and an empty one takes memory too."""
DEEPEST = 100
_MIB = 1 << 20


class YamlFault(ValueError):
    """A text is not YAML, or uses what is refused."""

    def __init__(self, why: str, place: Place | None = None) -> None:
        """*why* is one line; *place* is None if no place is at fault."""
        super().__init__(why)
        self.place = place
        """Its column is 0 if only the line is known."""


def read_yaml_text(text: str, places: Places | None = None, deepest: int = 0) -> Any:
    """The data of the one YAML document in a text; None if there is none.

    Where its keys and entries stand is put into *places*, down to the depth *deepest*.

    Raises:
        YamlFault: it is not YAML, or uses what is refused.
    """
    parser = YAML(typ="safe", pure=True)
    most = UNFOLDED * max(len(text), _MIB)
    try:
        return _Reader(parser.parse(text), most, places, deepest).document()
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlFault(f"the character {_character(error.character)} cannot stand in YAML", Place(line, 0)) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = None if mark is None else Place(mark.line + 1, mark.column + 1)
        raise YamlFault(f"not YAML: {' '.join(str(error.problem or error.context).split())}", place) from None
    except YAMLError as error:
        raise YamlFault(f"not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:  # the parser goes down as deep as a document is nested in brackets
        raise YamlFault(f"nested deeper than {DEEPEST}") from None


class _Reader:
    """Makes plain data of the parser's events."""

    def __init__(self, events: Iterator[Event], most: int, places: Places | None, deepest: int) -> None:
        self.events = events
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.places = places
        self.deepest = deepest
        self.most = most
        self.size = 0

    def document(self) -> Any:
        data: Any = None
        documents = 0
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _refused(event, "a second document begins; keep one")
                data = self.node(next(self.events), ())
        return data

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
        else:
            self.grow(event, COLLECTION)
            data = self.sequence(path) if isinstance(event, SequenceStartEvent) else self.mapping(path)
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
        if self.size > self.most:
            raise _refused(event, f"the aliases unfold to more than {self.most >> 20} MiB")

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
        if self.places is not None and len(path) <= self.deepest:
            self.places[path] = Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _character(character: str | int) -> str:
    return f"U+{ord(character) if isinstance(character, str) else character:04X}"


def _refused(event: Event, why: str) -> YamlFault:
    return YamlFault(why, Place(event.start_mark.line + 1, event.start_mark.column + 1))


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
