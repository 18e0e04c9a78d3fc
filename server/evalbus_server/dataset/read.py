"""A dataset from where it comes (a file, records, a command) to items, in batches: as a stream, all or nothing.

Batches come as the rows are read, so whoever stores them keeps them aside until the last one has come: only then is
it known that no row is refused.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from evalbus import Item, Value, _json
from evalbus_server.dataset import exports
from evalbus_server.dataset.cells import Row
from evalbus_server.dataset.choices import ChoiceShuffler
from evalbus_server.dataset.command import command_output
from evalbus_server.dataset.delimited import delimited_rows, found_delimiter
from evalbus_server.dataset.foreign import IDS, RECORDS, turned
from evalbus_server.dataset.join import joined
from evalbus_server.dataset.json_document import json_document_rows
from evalbus_server.dataset.json_rows import json_line_rows, json_list_rows
from evalbus_server.dataset.mapping import FieldMapping
from evalbus_server.dataset.parts import remade
from evalbus_server.dataset.refusal import SHOWN, DatasetInvalid, FileRefused, Refusal, RowRefused
from evalbus_server.dataset.source import Format, Line, format_of, lines_of, open_bytes, pieces_of
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset_use import DatasetUse, FieldSource
from evalbus_server.wire.dataset import item_size

BATCH = 256
"""A batch has at most so many items …"""
BATCH_SIZE = 1 << 20
"""… and about so many characters, or one item."""
LARGEST_ITEM = 1 << 20
"""Bytes of an encoded item."""

Rows = Iterator[Row | Refusal]
"""Rows in order; one that cannot be read is a refusal in its place."""


@dataclass(frozen=True)
class ReadOptions:
    """How rows become items."""

    fields: Mapping[str, FieldSource] = field(default_factory=dict)
    ids: Literal["content", "position"] = "content"
    """What ids are made of where a row brings none."""
    format: Format | None = None
    delimiter: str | None = None
    encoding: str | None = None
    refused: Callable[[Refusal], None] | None = None
    """Told of each refused row, and reading goes on with the good ones. None: any refused row refuses all."""
    records: str | None = None
    """The path in a JSON document at which the rows stand; `.` for the document itself."""
    join: Path | None = None
    """A second file, whose rows are joined to those of the first one by their ids."""
    foreign: str | None = None
    """The form of another system that rows have; see foreign.py."""
    tags: tuple[str, ...] = ()
    """Tags that every item gets beside its own."""
    shuffle_choices: int | None = None
    """The seed of the order in which each item's choices are put; None: as they are."""
    remembered: int | None = None
    """Reading remembers the ids of so many items, and whoever stores them finds those that come twice later. None: all."""
    by_option: bool = False
    """Whether `fields` were given with `--map`, in whose words advice is then."""


class Batch(list[Item]):
    """Items, with the lines that they come from."""

    def __init__(self) -> None:
        """Nothing is in it yet."""
        super().__init__()
        self.lines: list[int] = []
        self.made: set[int] = set()
        """Places of items whose ids were made of their content, and may have to be counted."""

    def without(self, places: Set[int]) -> Batch:
        """All others."""
        kept = Batch()
        for place, item in enumerate(self):
            if place not in places:
                if place in self.made:
                    kept.made.add(len(kept))
                kept.append(item)
                kept.lines.append(self.lines[place])
        return kept


def read_batches(
    use: DatasetUse, refused: Callable[[Refusal], None] | None = None, *, remembered: int | None = None
) -> Iterator[Batch]:
    """The items that an experiment's dataset names, in batches; a stored one is not read here.

    *remembered* is as in ReadOptions.

    Raises:
        DatasetInvalid: rows are refused; nothing of what came before counts.
        Invalid: the mapping or an option is not acceptable, or a command failed.
    """
    options = ReadOptions(
        use.fields,
        use.ids,
        use.format,
        use.delimiter,
        use.encoding,
        refused,
        records=use.inside,
        join=use.joined,
        foreign=use.from_,
        shuffle_choices=use.shuffle_choices,
        remembered=remembered,
    )
    match use.source:
        case "path":
            return read_file(use.file, options, name=use.path)
        case "records":
            return read_records(use.in_place, options)
        case "command":
            return read_command(use.command or (), use.folder, options)
    raise Invalid(Reason.DATASET_INVALID, f"the dataset {use.name!r} is stored; there is nothing to read")


def read_file(
    path: str | os.PathLike[str], options: ReadOptions | None = None, *, name: str | None = None
) -> Iterator[Batch]:
    """The items of a file, which errors call *name* (its path unless given). Raises as `read_batches` does."""
    options = options or ReadOptions()
    shown = os.fspath(path) if name is None else name
    with _named(shown):
        format = format_of(Path(path), options.format)
        file = open_bytes(Path(path), format)
    with file, _second(options) as others:
        yield from _items(_rows(file, format, options), options, shown, others=others)


def read_stream(file: BinaryIO, format: Format, options: ReadOptions | None = None, *, name: str) -> Iterator[Batch]:
    """The items of bytes that are open already, such as standard input. Raises as `read_batches` does."""
    options = options or ReadOptions()
    with _second(options) as others:
        yield from _items(_rows(file, format, options), options, name, others=others)


def read_records(records: Iterable[Mapping[str, Any]], options: ReadOptions | None = None) -> Iterator[Batch]:
    """The items of records in place. Raises as `read_batches` does."""
    options = options or ReadOptions()
    with _second(options) as others:
        yield from _items(_record_rows(records), options, "dataset.records", unit="record", others=others)


def read_command(argv: Sequence[str], folder: str, options: ReadOptions | None = None) -> Iterator[Batch]:
    """The items that a command prints as JSON lines, once it has ended well. Raises as `read_batches` does."""
    options = options or ReadOptions()
    shown = " ".join(argv)
    with command_output(argv, folder) as output, _second(options) as others:
        rows = _rows(output.file, options.format or "jsonl", options)
        yield from _items(rows, options, shown, output.finish, others=others)


def inline(records: Iterable[Mapping[str, Any]], fields: Mapping[str, FieldSource] | None = None) -> tuple[Item, ...]:
    """The items of records in place, all at once. Raises as `read_batches` does."""
    return tuple(item for batch in read_records(records, ReadOptions(fields or {})) for item in batch)


# --- rows -------------------------------------------------------------------------------------------------------


def _rows(file: BinaryIO, format: Format, options: ReadOptions) -> Rows:
    yield from _rows_of(file, format, options)  # so that nothing is refused before somebody reads


def _rows_of(file: BinaryIO, format: Format, options: ReadOptions) -> Rows:
    if format == "parquet":
        from evalbus_server.dataset.parquet import parquet_rows  # an extra, and slow to load

        return parquet_rows(file)
    if format == "yaml":
        from evalbus_server.dataset.yaml_rows import yaml_rows  # slow to load

        return _record_rows(yaml_rows("".join(pieces_of(file, options.encoding)), _place(options)))
    if format == "json":
        pieces = pieces_of(file, options.encoding)
        place = options.records
        if place is None and options.foreign in RECORDS:
            place, pieces = _place_in(pieces, RECORDS[options.foreign])
        return json_list_rows(pieces) if place is None else json_document_rows(pieces, place)
    if options.records is not None:
        raise FileRefused(0, "no_records", f"records is a path in a JSON document, but the format is {format}")
    lines = lines_of(file, options.encoding)
    if format == "jsonl":
        return json_line_rows(lines)
    return _delimited(lines, options.delimiter or ("\t" if format == "tsv" else None))


def _place(options: ReadOptions) -> str | None:
    return options.records or (RECORDS.get(options.foreign) if options.foreign else None)


def _place_in(pieces: Iterator[str], usual: str) -> tuple[str | None, Iterator[str]]:
    """Where the rows of a foreign document stand: at the usual place if it is one object, and not a list."""
    start = ""
    for piece in pieces:
        start += piece
        if start.strip():
            break
    whole = chain([start], pieces)
    return (usual if start.lstrip().startswith("{") else None), whole


def _delimited(lines: Iterator[Line], delimiter: str | None) -> Rows:
    if delimiter is None:
        first = next(lines, None)
        if first is None:
            return
        if first.text.removesuffix("\r") in exports.HEADERS:
            yield from exports.rows_of(delimited_rows(chain([first], lines), ","))
            return
        lines, delimiter = chain([first], lines), found_delimiter(first.text)
    yield from delimited_rows(lines, delimiter)


@contextlib.contextmanager
def _second(options: ReadOptions) -> Iterator[Rows | None]:
    """The rows of the file to be joined."""
    if options.join is None:
        yield None
        return
    with _named(str(options.join)):
        same = options.format if options.join.suffix == ".json" and options.format == "jsonl" else None
        format = format_of(options.join, same)
        file = open_bytes(options.join, format)
    with file:
        yield _rows(
            file, format, replace(options, format=format, records=options.records if format == "json" else None)
        )


def _record_rows(records: Iterable[Mapping[str, Any]]) -> Rows:
    for number, record in enumerate(records, 1):
        try:
            cells = {key: _cell(value) for key, value in record.items()}
        except (ValueError, TypeError) as error:
            yield Refusal(number, "not_json", f"not JSON: {error}")
            continue
        yield Row(number, cells, 256)


def _cell(value: object) -> Value:
    if isinstance(value, str):
        _json.refuse_surrogates(value)
    return Value.of(value)


# --- items ------------------------------------------------------------------------------------------------------


def _items(  # noqa: PLR0913  # what differs between the sources, by name
    rows: Rows,
    options: ReadOptions,
    name: str,
    finish: Callable[[], None] = lambda: None,
    unit: str = "line",
    others: Rows | None = None,
) -> Iterator[Batch]:
    """Items in batches. After the first refused row none comes any more, unless refusals are told to somebody."""
    maker = _Maker(options, unit)
    if others is not None:
        rows = joined(rows, others, maker.id_column)
    refusals: list[Refusal] = []
    for batch in _batches(_made(rows, maker, options.refused or refusals.append, refusals)):
        if not refusals:
            yield batch
    finish()
    if refusals:
        raise DatasetInvalid(name, refusals, unit=unit, more=len(refusals) == SHOWN)
    if not maker.rows:
        raise DatasetInvalid(name, [Refusal(0, "empty", "holds no items")])
    for target, path in maker.mapping.unseen():
        message = f"{'--map' if maker.options.by_option else 'fields'} maps {target} to {path!r}, but no row has it{maker.seen_columns()}"
        raise DatasetInvalid(name, [Refusal(0, "no_column", message)])


def _made(rows: Rows, maker: _Maker, refuse: Callable[[Refusal], None], refusals: list[Refusal]) -> Iterator[_Made]:
    """Each item. A file that cannot be read on is a refusal that nobody may skip."""
    try:
        for row in rows:
            made = maker.make(row)
            if not isinstance(made, Refusal):
                yield made
                continue
            refuse(made)
            if len(refusals) == SHOWN:
                return
    except FileRefused as error:
        refusals.append(error.refusal)


class _Made(NamedTuple):
    item: Item
    size: int
    line: int
    counted: bool
    """Whether its id is its own; if not, it may have to be counted."""


def _batches(made: Iterator[_Made]) -> Iterator[Batch]:
    batch = Batch()
    total = 0
    for item, size, line, counted in made:
        if batch and (len(batch) == BATCH or total + size > BATCH_SIZE):
            yield batch
            batch, total = Batch(), 0
        if not counted:
            batch.made.add(len(batch))
        batch.append(item)
        batch.lines.append(line)
        total += size
    if batch:
        yield batch


class _Maker:
    """Makes items of rows, and knows the ids that are taken."""

    def __init__(self, options: ReadOptions, unit: str) -> None:
        self.unit = unit
        self.mapping = FieldMapping(options.fields, by_option=options.by_option)
        self.options = options
        self.rows = 0
        self.columns: tuple[str, ...] = ()
        self.room = sys.maxsize if options.remembered is None else options.remembered
        self.lines: dict[str, int] = {}
        """The line of each id, of as many as there is room for."""
        self.copies: dict[str, int] = {}
        """How often each content came that brought no id."""
        seed = options.shuffle_choices
        self.shuffler = None if seed is None else ChoiceShuffler(seed)
        self.counted = True
        """Whether the last id is its own."""

    @property
    def id_column(self) -> str:
        """Where rows have their ids."""
        source = self.options.fields.get("id")
        usual = IDS.get(self.options.foreign or "", "id")
        return usual if source is None or not isinstance(source.from_, str) else source.from_

    def make(self, row: Row | Refusal) -> _Made | Refusal:
        self.rows += 1
        if isinstance(row, Refusal):
            return row
        try:
            if self.options.foreign is not None:
                row = turned(row, self.options.foreign)
            if not self.columns:
                self.columns = tuple(row.cells)
            self.counted = True
            item = self.mapping.item(row, self.make_id)
            if self.shuffler is not None:
                item = self.shuffler.shuffled(item)
            if self.options.tags:
                item = tagged(item, self.options.tags)
            self.claim(item.id, row.line)
            self.weigh(item, row.size)
        except RowRefused as error:
            return Refusal(row.line, error.kind, str(error))
        return _Made(item, row.size, row.line, self.counted)

    def make_id(self, digest: str) -> str:
        if self.options.ids == "position":
            return str(self.rows)
        short = digest[:16]
        copy = self.copies.get(short, 0) + 1
        if copy > 1 or len(self.copies) < self.room:
            self.copies[short] = copy
        else:
            self.counted = False
        return short if copy == 1 else f"{short}-{copy}"

    def claim(self, id: str, line: int) -> None:
        first = self.lines.get(id)
        if first is None:
            if len(self.lines) < self.room:
                self.lines[id] = line
        else:
            same = "another row of " if first == line else ""
            raise repeated_id(id, f"{same}{self.unit} {first}")

    def weigh(self, item: Item, size: int) -> None:
        encoded = item_size(item) if size > LARGEST_ITEM // 8 else 0
        if encoded > LARGEST_ITEM:
            raise RowRefused("too_large", f"the item has {encoded} bytes; at most {LARGEST_ITEM} are allowed")

    def seen_columns(self) -> str:
        return f"; the first row has {', '.join(self.columns[:8])}" if self.columns else ""


def repeated_id(id: str, where: str) -> RowRefused:
    """The refusal of a row whose id came before."""
    return RowRefused("duplicate_id", f'the id "{id}" is already that of {where}; ids are compared as text')


def tagged(item: Item, tags: Sequence[str]) -> Item:
    """The same item with more tags."""
    return remade(item, tags=tuple(dict.fromkeys((*item.tags, *tags))))


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except FileRefused as error:
        raise DatasetInvalid(name, [error.refusal]) from None
