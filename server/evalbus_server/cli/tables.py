"""Tables that stay readable: whole where nobody says how wide they may be, and fitted to a terminal.

Names and numbers are never cut or wrapped. On a terminal that is too narrow, long texts are cut first, then columns that
a reader can do without are left out, then the name of each row takes a line of its own, and at last a row is a paragraph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

GAPS = (3, 2)
"""Blanks between two columns, and where there is little room."""
LEAST = 16
"""To so many cells a text may be cut."""
INDENT = 2
"""Blanks before the rest of a row below its name."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column, and what may be done to it where there is little room."""

    name: str
    right: bool = False
    """Set to the right, as numbers are."""
    text: bool = False
    """What others wrote, of any length: it may be cut."""
    spare: bool = False
    """A narrow terminal does without it; the last such column goes first."""


class Table:
    """Rows below a header. The first column is the name of its row."""

    def __init__(self, *columns: Column | str) -> None:
        """A string is a column on the left that is shown whole."""
        self._columns = [each if isinstance(each, Column) else Column(each) for each in columns]
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """One cell for each column."""
        self._rows.append([Text(cell) if isinstance(cell, str) else cell for cell in cells])

    def print(self, out: Console) -> None:
        """Print it, as wide as it is where *out* is no terminal."""
        for line in self.lines(out.width if out.is_terminal else None):
            out.print(line, soft_wrap=True)

    def lines(self, room: int | None) -> Iterator[Text]:
        """The lines, in at most *room* cells if names and numbers let it be so; None is any width."""
        layout = self._layout(room)
        if room is not None and layout.width > room:
            yield from self._paragraphs(room)
            return
        header = [Text(self._columns[place].name, "bold") for place in layout.places]
        head = [Text(self._columns[0].name, "bold")] if layout.apart else []
        yield from head
        yield self._line(header, layout)
        widest = max(map(cell_len, (text.plain for text in head)), default=0)
        yield Text("─" * max(layout.width, widest))
        for row in self._rows:
            if layout.apart:
                yield row[0]
            yield self._line([row[place] for place in layout.places], layout)

    def _layout(self, room: int | None) -> _Layout:
        """The first layout that fits, from the roomiest to the tightest one; the last one if none does."""
        widths = [
            max([cell_len(column.name), *(cell_len(row[place].plain) for row in self._rows)])
            for place, column in enumerate(self._columns)
        ]
        everything = list(range(len(self._columns)))
        spare = [place for place in everything if self._columns[place].spare]
        layout = _Layout(everything, widths, GAPS[0])
        if room is None:
            return layout
        for left_out in range(len(spare) + 1):
            places = [place for place in everything if place not in spare[len(spare) - left_out :]]
            for gap in GAPS:
                layout = self._fitted(_Layout(places, widths, gap), room)
                if layout.width <= room:
                    return layout
        for left_out in range(len(spare) + 1):
            places = [place for place in everything[1:] if place not in spare[len(spare) - left_out :]]
            layout = self._fitted(_Layout(places, widths, GAPS[1], apart=True), room)
            if layout.width <= room:
                return layout
        return layout

    def _fitted(self, layout: _Layout, room: int) -> _Layout:
        """The same with its long texts cut as far as they may be."""
        widths = list(layout.widths)
        least = {
            place: max(min(LEAST, widths[place]), cell_len(self._columns[place].name))
            for place in layout.places
            if self._columns[place].text
        }
        over = layout.width - room
        while over > 0 and (longer := [place for place in least if widths[place] > least[place]]):
            widths[max(longer, key=lambda place: widths[place])] -= 1
            over -= 1
        return _Layout(layout.places, widths, layout.gap, layout.apart)

    def _paragraphs(self, room: int) -> Iterator[Text]:
        """Each row as its name and, below it, what it has with the names of the columns: in as many lines as it takes."""
        for row in self._rows:
            yield row[0]
            line = Text(" " * INDENT)
            for column, cell in list(zip(self._columns, row, strict=True))[1:]:
                if not cell.plain:
                    continue
                shown = cell.copy()
                name = Text(f"{column.name} " if column.name else "", "dim")
                if column.text:
                    shown.truncate(max(LEAST, room - INDENT - cell_len(name.plain)), overflow="ellipsis")
                width = cell_len(name.plain) + cell_len(shown.plain)
                if len(line) > INDENT and cell_len(line.plain) + GAPS[0] + width > room:
                    yield line
                    line = Text(" " * INDENT)
                line += Text(" " * (GAPS[0] if len(line) > INDENT else 0)) + name + shown
            if len(line) > INDENT:
                yield line

    def _line(self, cells: Sequence[Text], layout: _Layout) -> Text:
        line = Text(" " * (INDENT if layout.apart else 0))
        for place, cell in zip(layout.places, cells, strict=True):
            width = layout.widths[place]
            shown = cell.copy()
            if cell_len(shown.plain) > width:
                shown.truncate(width, overflow="ellipsis")
            blanks = " " * (width - cell_len(shown.plain))
            if place != layout.places[0]:
                line.append(" " * layout.gap)
            line = line + Text(blanks) + shown if self._columns[place].right else line + shown + Text(blanks)
        line.rstrip()
        return line


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which columns are shown, how wide, and how far apart."""

    places: Sequence[int]
    widths: Sequence[int]
    """Of all columns, shown or not."""
    gap: int
    apart: bool = False
    """Whether the name of a row has a line of its own."""

    @property
    def width(self) -> int:
        return (
            sum(self.widths[place] for place in self.places) + self.gap * (len(self.places) - 1) + INDENT * self.apart
        )


def right(*names: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(name, right=True) for name in names]
