"""Configuration documents: YAML 1.2, JSON or TOML as plain data, read strictly. Nothing in them is ever evaluated."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalbus import _json
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.paths import Place, Places, Steps, parse_path
from evalbus_server.model.syntax import json_fault, toml_fault
from evalbus_server.model.yaml_text import DEEPEST, YamlFault, read_yaml_text
from evalbus_server.runner.places import json_places, refused_in_json, toml_places

LARGEST = 1 << 20
"""A bigger file is not a configuration file."""
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


def read_yaml(text: str) -> Document:
    """Read one YAML document.

    Raises:
        DocumentError: it is not YAML, or uses what is refused; the text says where.
    """
    places: Places = {}
    try:
        data = read_yaml_text(text, places, DEEPEST_PLACES)
    except YamlFault as fault:
        at = "" if fault.place is None else f"line {fault.place.line}"
        at += f", column {fault.place.column}" if fault.place is not None and fault.place.column else ""
        raise DocumentError(f"{at}{at and ': '}{fault}") from None
    return Document(data, lambda: places)
