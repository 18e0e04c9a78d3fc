"""Where the keys and entries of a JSON or TOML document stand. The readers of these formats do not tell it.

The text is known to be such a document: what is looked for is only where things begin.
"""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right

from evalbus_server.model.paths import Place, Places, Steps

NOWHERE = 0
"""No depth: nothing is remembered."""
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")

_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_TOML_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")|\'\'\'.*?\'{3,5}(?!\')|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|\#[^\n]*|\n|[\[\]{},=.]|[^\s\[\]{},=."\'#]+',
    re.DOTALL,
)


def json_places(text: str, deepest: int) -> Places:
    """The places of what stands in a JSON document, down to a depth."""
    return _Json(text, deepest).places


def toml_places(text: str, deepest: int) -> Places:
    """The same of a TOML document."""
    try:
        return _Toml(text, deepest).places
    except RecursionError:  # its reader goes deeper than this one
        return {}


def refused_in_json(text: str) -> Place | None:
    """The place of the first key that comes twice, or of NaN or Infinity, in what else is JSON; None if there is none."""
    try:
        _Json(text, NOWHERE, strict=True)
    except _Found as found:
        return found.place
    except (IndexError, ValueError, RecursionError):  # it is no JSON besides
        pass
    return None


class _Found(Exception):
    """Something that JSON has not is at a place."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


class _Scanner:
    """The tokens of a text, and what was found of it."""

    def __init__(self, text: str, token: re.Pattern[str], deepest: int) -> None:
        self.places: Places = {}
        self._tokens = [(match.group(), match.start()) for match in token.finditer(text)]
        self._at = 0
        self._deepest = deepest
        self._breaks = [match.start() for match in re.finditer("\n", text)]

    def peek(self, ahead: int = 0) -> str:
        """The token that comes next, or one behind it; "" behind the last one."""
        place = self._at + ahead
        return self._tokens[place][0] if place < len(self._tokens) else ""

    def take(self) -> tuple[str, int]:
        """The token that comes next, with its offset."""
        self._at += 1
        return self._tokens[self._at - 1]

    def remember(self, path: Steps, offset: int) -> None:
        """What stands at a path begins at an offset; the first place of it counts."""
        if len(path) <= self._deepest and path not in self.places:
            self.places[path] = self.place(offset)

    def place(self, offset: int) -> Place:
        """The place at an offset."""
        row = bisect_right(self._breaks, offset - 1)
        begins = self._breaks[row - 1] + 1 if row else 0
        return Place(row + 1, offset - begins + 1)


class _Json(_Scanner):
    def __init__(self, text: str, deepest: int, *, strict: bool = False) -> None:
        super().__init__(text, _JSON_TOKEN, deepest)
        self._strict = strict
        self._value(())

    def _value(self, path: Steps) -> None:
        opening, begins = self.take()
        if self._strict and opening in _NO_NUMBERS:
            raise _Found(self.place(begins))
        if opening not in ("[", "{"):
            return
        entry = 0
        keys: set[str | int] = set()
        while self.peek() not in ("]", "}"):
            if self.peek() == ",":
                self.take()
            step: str | int = entry
            offset = self._tokens[self._at][1]
            if opening == "{":
                step = str(json.loads(self.take()[0]))
                self.take()  # the colon
                if self._strict and step in keys:
                    raise _Found(self.place(offset))
                keys.add(step)
            self.remember((*path, step), offset)
            self._value((*path, step))
            entry += 1
        self.take()


class _Toml(_Scanner):
    def __init__(self, text: str, deepest: int) -> None:
        super().__init__(text, _TOML_TOKEN, deepest)
        self._lengths: dict[Steps, int] = {}
        """How many tables of an array of tables there are so far."""
        table: Steps = ()
        while self.peek():
            if self._blank():
                self.take()
            elif self.peek() == "[":
                table = self._header()
            else:
                self._pair(table)

    def _blank(self) -> bool:
        return self.peek() == "\n" or self.peek().startswith("#")

    def _header(self) -> Steps:
        """A table, or one more of an array of tables."""
        offset = self._tokens[self._at][1]
        self.take()
        several = self.peek() == "["
        if several:
            self.take()
        keys = self._keys()
        self.take()
        path: Steps = ()
        for key in keys[:-1]:
            path = self._last((*path, key))
        path = (*path, keys[-1])
        if several:
            self.take()
            self.remember(path, offset)
            entry = self._lengths[path] = self._lengths.get(path, -1) + 1
            path = (*path, entry)
        self.remember(path, offset)
        return path

    def _last(self, path: Steps) -> Steps:
        """The table that is meant by the name of an array of tables: its last one."""
        return (*path, self._lengths[path]) if path in self._lengths else path

    def _keys(self) -> list[str]:
        """A key, or several with dots between."""
        keys = []
        while True:
            keys.append(_key(self.take()[0]))
            if self.peek() != ".":
                return keys
            self.take()

    def _pair(self, table: Steps) -> None:
        offset = self._tokens[self._at][1]
        keys = self._keys()
        self.take()  # the equals sign
        path = table
        for key in keys:
            path = (*path, key)
            self.remember(path, offset)
        self._value(path)

    def _value(self, path: Steps) -> None:
        if self.peek() == "[":
            self._array(path)
        elif self.peek() == "{":
            self._inline(path)
        else:
            self.take()
            while self.peek() not in ("", "\n", ",", "]", "}") and not self._blank():
                self.take()  # the rest of a number or a date

    def _array(self, path: Steps) -> None:
        self.take()
        entry = 0
        while True:
            while self._blank() or self.peek() == ",":
                self.take()
            if self.peek() == "]":
                break
            self.remember((*path, entry), self._tokens[self._at][1])
            self._value((*path, entry))
            entry += 1
        self.take()

    def _inline(self, path: Steps) -> None:
        self.take()
        while True:
            while self._blank() or self.peek() == ",":
                self.take()
            if self.peek() == "}":
                break
            self._pair(path)
        self.take()


def _key(written: str) -> str:
    if written[0] not in "\"'":
        return written
    [key] = tomllib.loads(f"{written} = 0")
    return key
