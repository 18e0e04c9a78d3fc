"""Rows of a second file joined to those of a first one by their ids.

Both are read side by side: files in the same order need no memory. Rows of the second one that come too early wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from evalbus_server.dataset.cells import Row
from evalbus_server.dataset.refusal import FileRefused, Refusal

MOST_WAITING = 1_000_000
"""Rows of the second file that may wait for their partners."""


def joined(rows: Iterator[Row | Refusal], others: Iterator[Row | Refusal], column: str) -> Iterator[Row | Refusal]:
    """Each row with the cells of the other that has the same text in *column*; one without a partner stays as it is.

    What is wrong with the second file is a refusal too, with its own line in the message.
    """
    second = _Second(others, column)
    for row in rows:
        id = None if isinstance(row, Refusal) else _id(row, column)
        if isinstance(row, Refusal):
            yield row
        elif id is None:
            yield Refusal(row.line, "no_join", f"cannot be joined: it has no {column!r}")
        else:
            yield from second.look_for(id)
            yield _merged(row, second.waiting.pop(id, None), column)
    yield from second.left()


class _Second:
    """The rows of the second file, and those of them that wait for their partners."""

    def __init__(self, rows: Iterator[Row | Refusal], column: str) -> None:
        self.rows = rows
        self.column = column
        self.waiting: dict[str, Row] = {}

    def look_for(self, id: str) -> Iterator[Refusal]:
        """Read on until a row has this id; the refusals of what is wrong on the way."""
        while id not in self.waiting:
            row = next(self.rows, None)
            if row is None:
                return
            fault = self.fault(row)
            if fault is not None:
                yield fault
            elif not isinstance(row, Refusal):
                self.waiting[_id(row, self.column) or ""] = row

    def fault(self, row: Row | Refusal) -> Refusal | None:
        """What is wrong with a row."""
        if isinstance(row, Refusal):
            return _of_second(row)
        id = _id(row, self.column)
        if id is None:
            return _of_second(Refusal(row.line, "no_join", f"has no {self.column!r}"))
        if id in self.waiting:
            return _of_second(Refusal(row.line, "no_join", f"has the {self.column!r} {id!r} a second time"))
        if len(self.waiting) == MOST_WAITING:
            raise FileRefused(0, "no_join", f"{MOST_WAITING:,} rows of the joined file have found no partner so far")
        return None

    def left(self) -> Iterator[Refusal]:
        """The refusals of rows that have found no partner."""
        for row in chain(self.waiting.values(), self.rows):
            if isinstance(row, Refusal):
                yield _of_second(row)
                continue
            message = f"no row of the first file has the {self.column!r} {_id(row, self.column)!r}"
            yield _of_second(Refusal(row.line, "no_join", message))


def _id(row: Row, column: str) -> str | None:
    cell = row.cells.get(column)
    return None if cell is None else str(cell.body)


def _merged(row: Row, other: Row | None, column: str) -> Row | Refusal:
    if other is None:
        return row
    for name, cell in other.cells.items():
        if name != column and row.cells.get(name, cell) != cell:
            return Refusal(row.line, "no_join", f"both files have a column {name!r}, and it differs")
    return Row(row.line, {**row.cells, **other.cells, column: row.cells[column]}, row.size + other.size)


def _of_second(refusal: Refusal) -> Refusal:
    message = f"in the joined file, line {refusal.line}: {refusal.message}" if refusal.line else refusal.message
    return Refusal(0, refusal.kind, message)
