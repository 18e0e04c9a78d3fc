"""Rows of CSV and TSV (RFC 4180), strictly: what a lenient reader would swallow is refused with its line.

Line ends inside quotes stay as they are. A cell is text, whatever it looks like; an empty one is absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evalbus import Value
from evalbus_server.dataset.cells import Row
from evalbus_server.dataset.refusal import FileRefused, Refusal
from evalbus_server.dataset.source import LONGEST_LINE, Line

_DELIMITERS = ("\t", ";", "|")
_STRAY = "text behind a closing quote; double the quotes inside a cell that is in quotes"


def delimited_rows(lines: Iterable[Line], delimiter: str) -> Iterator[Row | Refusal]:
    """One row for each record below the header; a record of another length than the header is a refusal.

    Raises:
        FileRefused: the header is not acceptable, or a quote is not closed, or a NUL stands in the file; or the
            delimiter cannot be one.
    """
    if len(delimiter) != 1 or delimiter in '"\r\n':
        said = f"{delimiter!r} cannot separate columns; one character does, which is no quote and no line end"
        raise FileRefused(0, "delimiter", said)
    records = _Records(iter(lines), delimiter)
    header = next(records, None)
    if header is None:
        return
    names = _names(*header)
    for line, fields in records:
        if len(fields) != len(names):
            hint = ""
            if len(fields) > len(names):
                hint = f"; put a cell that holds {_shown(delimiter)} in quotes, and double the quotes inside it"
            yield Refusal(line, "ragged", f"{_count(len(fields))}, header has {len(names)}{hint}")
        elif records.stray:
            yield Refusal(line, "stray_quote", _STRAY)
        else:
            cells = {name: Value(field) for name, field in zip(names, fields, strict=True) if field}
            yield Row(line, cells, sum(map(len, fields)))


def found_delimiter(header: str) -> str:
    """What separates the columns of a header: a comma if it has one, else what it has most of."""
    if "," in header:
        return ","
    most = max(_DELIMITERS, key=header.count)
    return most if most in header else ","


def _names(line: int, fields: list[str]) -> list[str]:
    names = [field.strip() for field in fields]
    for index, name in enumerate(names):
        if not name:
            raise FileRefused(line, "bad_header", f"column {index + 1} has no name; give it one or remove it")
        if name in names[:index]:
            raise FileRefused(line, "bad_header", f"the column {name!r} comes twice; rename one")
    return names


def _count(fields: int) -> str:
    return "1 field" if fields == 1 else f"{fields} fields"


def _shown(delimiter: str) -> str:
    return "a tab" if delimiter == "\t" else repr(delimiter)


class _Records:
    """Records with the lines on which they begin; blank lines are skipped."""

    def __init__(self, lines: Iterator[Line], delimiter: str) -> None:
        self.lines = lines
        self.delimiter = delimiter
        self.stray = False
        """Whether text stands behind a closing quote of the last record; it was split as if it had no quotes."""

    def __iter__(self) -> _Records:
        return self

    def __next__(self) -> tuple[int, list[str]]:
        for number, text in self.lines:
            if "\0" in text:
                raise FileRefused(number, "nul", "a NUL byte; is this a text file?")
            if text in ("", "\r"):
                continue
            self.stray = False
            if '"' in text:
                return number, self.split(number, text)
            plain = text.removesuffix("\r")
            if "\r" in plain:
                raise _stray_return(number)
            return number, plain.split(self.delimiter)
        raise StopIteration

    def split(self, number: int, text: str) -> list[str]:
        """The fields of a record that has quotes and may go on over the next lines."""
        fields: list[str] = []
        at = 0
        while True:
            if text.startswith('"', at):
                field, behind, at = self.quoted(number, text, at)
                if at < 0:
                    self.stray = True
                    return text.split(self.delimiter)
                text = behind
            else:
                end = text.find(self.delimiter, at)
                field = text[at:] if end < 0 else text[at:end]
                at += len(field)
                field = field.removesuffix("\r") if end < 0 else field
                if "\r" in field:
                    raise _stray_return(number)
            fields.append(field)
            if at >= len(text):
                return fields
            at += 1  # The delimiter.

    def quoted(self, number: int, text: str, at: int) -> tuple[str, str, int]:
        """A quoted field: its content, the text that holds its end, and the position behind it (-1: text stands there)."""
        parts: list[str] = []
        size = 0
        start = at + 1
        while True:
            end = text.find('"', start)
            while end >= 0 and text.startswith('"', end + 1):
                end = text.find('"', end + 2)
            if end >= 0:
                break
            parts.append(text[start:])
            size += len(text) - start
            following = next(self.lines, None)
            if following is None or size > LONGEST_LINE:
                raise FileRefused(number, "unclosed_quote", f"quote opened on line {number} is not closed")
            if "\0" in following.text:
                raise FileRefused(following.number, "nul", "a NUL byte; is this a text file?")
            text, start = following.text, 0
        parts.append(text[start:end])
        behind = end + 1
        if text[behind:] == "\r":
            behind += 1
        if behind < len(text) and not text.startswith(self.delimiter, behind):
            if len(parts) > 1:
                raise FileRefused(number, "stray_quote", _STRAY)
            behind = -1
        return "\n".join(parts).replace('""', '"'), text, behind


def _stray_return(number: int) -> FileRefused:
    return FileRefused(
        number, "stray_return", "a carriage return outside quotes; save the file with LF or CRLF line ends"
    )
