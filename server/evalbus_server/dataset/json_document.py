"""Rows that stand somewhere inside a JSON document: a list at a path, or an object whose keys are ids.

The document is read as a stream: what stands before the rows is passed over, whatever its size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # public, but not in the stubs

from evalbus import Value, _json
from evalbus_server.dataset.cells import Row, cell_of, elements, row_cells
from evalbus_server.dataset.json_rows import ListReader, shown
from evalbus_server.dataset.refusal import FileRefused, Refusal, RowRefused
from evalbus_server.dataset.source import LONGEST_LINE
from evalbus_server.model.paths import Steps, parse_path

WHOLE = "."
"""The path of the document itself."""
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BETWEEN = re.compile(r'[^"\[\]{}]+')
_SCALAR = re.compile(r"[^,\]}\s]+")


def steps_of(path: str) -> Steps:
    """The steps to the rows.

    Raises:
        FileRefused: it is not a path.
    """
    if path == WHOLE:
        return ()
    try:
        return parse_path(path)
    except ValueError as error:
        raise FileRefused(0, "no_records", f"records: {error}; write . for the document itself") from None


def json_document_rows(pieces: Iterable[str], path: str) -> Iterator[Row | Refusal]:
    """One row for each element of the list at *path*, or for each member of the object there: its key becomes the id.

    An element that is a list has its parts in the columns 0, 1, …

    Raises:
        FileRefused: there is nothing at the path, or it is not JSON from some line on.
    """
    walker = _Walker(iter(pieces))
    for step in steps_of(path):
        if not walker.go_to(step):
            raise FileRefused(walker.line, "no_records", f"the document has no {path!r}: there is no {step!r} in it")
    opening = walker.next_character()
    if opening == "[":
        yield from _list_rows(walker)
    elif opening == "{":
        yield from _member_rows(walker)
    else:
        raise FileRefused(
            walker.line, "no_records", f"at {path!r} stands {shown(opening)}, neither a list nor an object"
        )


def _list_rows(walker: _Walker) -> Iterator[Row | Refusal]:
    walker.skip(1)
    if walker.next_character() == "]":
        return
    while True:
        line, text = walker.take_value()
        yield _row(line, text, None)
        if walker.after_element("]"):
            return


def _member_rows(walker: _Walker) -> Iterator[Row | Refusal]:
    walker.skip(1)
    if walker.next_character() == "}":
        return
    while True:
        key = walker.take_key()
        line, text = walker.take_value()
        yield _row(line, text, key)
        if walker.after_element("}"):
            return


def _row(line: int, text: str, key: str | None) -> Row | Refusal:
    try:
        if text.startswith("["):
            _json.loads(text)
            cells = {str(place): cell_of(raw) for place, raw in enumerate(elements(text))}
        else:
            cells = row_cells(text)
    except RowRefused as error:
        return Refusal(line, error.kind, str(error))
    except ValueError as error:
        return Refusal(line, "not_json", f"not JSON: {error}")
    if key is not None:
        cells = {"key" if "id" in cells else "id": Value(key), **cells}
    return Row(line, cells, len(text))


class _Walker(ListReader):
    """A window on the text of a document."""

    def go_to(self, step: str | int) -> bool:
        """Go to the value at a key or index of what comes next; whether there is one."""
        opening = self.next_character()
        if opening != ("{" if isinstance(step, str) else "["):
            return False
        self.skip(1)
        place = 0
        while self.next_character() not in ("}", "]", ""):
            found: str | int = self.take_key() if isinstance(step, str) else place
            if found == step:
                return True
            self.skip_value()
            place += 1
            if self.next_character() == ",":
                self.skip(1)
        return False

    def take_key(self) -> str:
        """The key that comes next, and its colon."""
        if self.next_character() != '"':
            raise self.here(f"{shown(self.next_character())} where a key should stand")
        while True:
            try:
                key, end = scanstring(self.text, self.at + 1)
                break
            except ValueError as error:
                if not self.read_on():
                    raise self.here("a key without an end") from error
        self.skip(end - self.at)
        if self.next_character() != ":":
            raise self.here(f"{shown(self.next_character())} where a colon should stand")
        self.skip(1)
        return str(key)

    def take_value(self) -> tuple[int, str]:
        """The line and the text of the value that comes next, which has to be an object or a list."""
        if self.next_character() not in ("{", "["):
            raise FileRefused(
                self.line, "not_an_object", f"{shown(self.next_character())} where an object or a list should begin"
            )
        return self.take_text()

    def after_element(self, closing: str) -> bool:
        """Pass the comma behind an element; whether *closing* stands there instead."""
        following = self.next_character()
        if following not in (",", closing):
            raise self.here(f"{shown(following)} where a comma should stand")
        self.skip(1)
        return following == closing

    def skip_value(self) -> None:
        """Pass over a value of any size."""
        depth = 0
        while True:
            character = self.next_character()
            if not character:
                raise self.here("the file ends in the middle")
            if character in "[{]}":
                depth += 1 if character in "[{" else -1
                self.skip(1)
            elif character == '"':
                self._skip_text()
            else:
                self._skip_plain(_BETWEEN if depth else _SCALAR)
            if depth <= 0:
                return

    def _skip_text(self) -> None:
        while True:
            match = _STRING.match(self.text, self.at)
            if match is not None:
                self.skip(match.end() - self.at)
                return
            if len(self.text) - self.at > LONGEST_LINE or not self.read_on():
                raise self.here("a text without an end")

    def _skip_plain(self, pattern: re.Pattern[str]) -> None:
        while True:
            match = pattern.match(self.text, self.at)
            if match is None:
                raise self.here(f"{shown(self.text[self.at])} where a value should stand")
            self.skip(match.end() - self.at)
            if self.at < len(self.text) or not self.read_on() or pattern.match(self.text, self.at) is None:
                return
