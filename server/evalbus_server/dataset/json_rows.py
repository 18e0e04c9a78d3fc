"""Rows of JSON lines, and of a file that is one JSON list. Both are read as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from evalbus_server.dataset.cells import Row, row_cells
from evalbus_server.dataset.refusal import FileRefused, Refusal, RowRefused
from evalbus_server.dataset.source import LONGEST_LINE, Line
from evalbus_server.model.syntax import json_fault

_BLANK = " \t\r\n"
_skip_value = json.JSONDecoder().raw_decode


def json_line_rows(lines: Iterable[Line]) -> Iterator[Row | Refusal]:
    """One row for each line that is not blank; a line that is not a JSON object is a refusal."""
    for number, text in lines:
        if not text or text.isspace():
            if text.strip(_BLANK):
                yield Refusal(number, "not_json", "not JSON: space that is not JSON's")
            continue
        try:
            yield Row(number, row_cells(text), len(text))
        except RowRefused as error:
            yield Refusal(number, error.kind, str(error))


def json_list_rows(pieces: Iterable[str]) -> Iterator[Row | Refusal]:
    """One row for each object of the list that the file is.

    Raises:
        FileRefused: it is no list, or not JSON from some line on.
    """
    reader = ListReader(iter(pieces))
    if reader.next_character() != "[":
        raise FileRefused(reader.line, "not_a_list", _not_a_list(reader.next_character()))
    reader.skip(1)
    if reader.next_character() == "]":
        reader.skip(1)
    else:
        while True:
            line, text = reader.take_object()
            try:
                yield Row(line, row_cells(text), len(text))
            except RowRefused as error:
                yield Refusal(line, error.kind, str(error))
            following = reader.next_character()
            if following not in (",", "]"):
                raise reader.here(f"{shown(following)} where a comma should stand")
            reader.skip(1)
            if following == "]":
                break
    if reader.next_character():
        raise reader.here("something stands behind the list")


def _not_a_list(found: str) -> str:
    if found == "{":
        return "an object, not a list; if each line is one object, say format: jsonl; if the rows stand in it, say where with records"
    return f"not a JSON list of objects: {shown(found)} where [ should stand"


def shown(character: str) -> str:
    """A character in a message."""
    return repr(character) if character else "the end of the file"


class ListReader:
    """A window on the text of a list, which moves on object by object."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self.pieces = pieces
        self.text = ""
        self.at = 0
        self.line = 1
        """The physical line of the position."""
        self._before = 0
        """Characters of its first line that stood before the window."""

    def next_character(self) -> str:
        """The next one that is not space, without taking it; "" at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _BLANK:
                self.skip(1)
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.read_on():
                return ""

    def skip(self, length: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + length)
        self.at += length

    def read_on(self) -> bool:
        """Add what comes next; as much as there is already, so that a long object is not scanned over and over."""
        self._before = self.column(self.at) - 1
        self.text = self.text[self.at :]
        self.at = 0
        wanted = max(len(self.text), 1)
        more: list[str] = []
        for piece in self.pieces:
            more.append(piece)
            wanted -= len(piece)
            if wanted <= 0:
                break
        self.text += "".join(more)
        return bool(more)

    def column(self, place: int) -> int:
        """The column of a place in the window, from 1."""
        line = self.text.rfind("\n", 0, place) + 1
        return place - line + 1 + (self._before if line == 0 else 0)

    def here(self, what: str) -> FileRefused:
        """Says of the position that it is no JSON, and what stands there."""
        return FileRefused(self.line, "not_json", f"not JSON at column {self.column(self.at)}: {what}")

    def take_object(self) -> tuple[int, str]:
        """The line and the text of the object that comes next."""
        first = self.next_character()
        if first != "{":
            raise FileRefused(self.line, "not_an_object", f"{shown(first)} where an object should begin")
        return self.take_text()

    def take_text(self) -> tuple[int, str]:
        """The line and the text of the object or list that comes next."""
        while True:
            try:
                _, end = _skip_value(self.text, self.at)
                break
            except RecursionError:
                raise FileRefused(self.line, "not_json", "not JSON: nested deeper than 100") from None
            except ValueError as error:
                ahead = error.pos - self.at if isinstance(error, json.JSONDecodeError) else 0
                long = len(self.text) - self.at > LONGEST_LINE
                if long or not self.read_on():
                    raise self.refused(error, ahead, long) from None
        line, text = self.line, self.text[self.at : end]
        self.skip(end - self.at)
        return line, text

    def refused(self, error: ValueError, ahead: int, long: bool) -> FileRefused:
        if isinstance(error, json.JSONDecodeError):
            place = self.at + ahead
            line, column = self.line + self.text.count("\n", self.at, place), self.column(place)
            return FileRefused(line, "not_json", f"not JSON at column {column}: {json_fault(error)}")
        if long:
            return FileRefused(self.line, "too_long", f"an object of more than {LONGEST_LINE >> 20} MiB")
        return FileRefused(self.line, "not_json", "not JSON: a number of more than 4,300 digits")
