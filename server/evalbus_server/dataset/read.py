"""A dataset from where it comes (a file, records, a command) to items, in batches: as a stream, all or nothing.

Batches come as the rows are read, so whoever stores them keeps them aside until the last one has come: only then is
it known that no row is refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from evalbus import Item, Value, _json
from evalbus_server.dataset.cells import Row
from evalbus_server.dataset.command import command_output
from evalbus_server.dataset.delimited import delimited_rows
from evalbus_server.dataset.json_rows import json_line_rows, json_list_rows
from evalbus_server.dataset.mapping import FieldMapping
from evalbus_server.dataset.refusal import SHOWN, DatasetInvalid, FileRefused, Refusal, RowRefused
from evalbus_server.dataset.source import Format, format_of, lines_of, open_bytes, pieces_of
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.experiment import DatasetUse, FieldSource
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


def read_batches(use: DatasetUse, refused: Callable[[Refusal], None] | None = None) -> Iterator[list[Item]]:
    """The items that an experiment's dataset names, in batches; a stored one is not read here.

    Raises:
        DatasetInvalid: rows are refused; nothing of what came before counts.
        Invalid: the mapping or an option is not acceptable, or a command failed.
    """
    options = ReadOptions(use.fields, use.ids, use.format, use.delimiter, use.encoding, refused)
    match use.source:
        case "path":
            return read_file(use.file, options, name=use.path)
        case "records":
            return read_records(use.records or (), options)
        case "command":
            return read_command(use.command or (), use.folder, options)
    raise Invalid(Reason.DATASET_INVALID, f"the dataset {use.name!r} is stored; there is nothing to read")


def read_file(
    path: str | os.PathLike[str], options: ReadOptions | None = None, *, name: str | None = None
) -> Iterator[list[Item]]:
    """The items of a file, which errors call *name* (its path unless given). Raises as `read_batches` does."""
    options = options or ReadOptions()
    shown = os.fspath(path) if name is None else name
    with _named(shown):
        format = format_of(Path(path), options.format)
        file = open_bytes(Path(path))
    with file:
        yield from _items(_rows(file, format, options), options, shown)


def read_stream(
    file: BinaryIO, format: Format, options: ReadOptions | None = None, *, name: str
) -> Iterator[list[Item]]:
    """The items of bytes that are open already, such as standard input. Raises as `read_batches` does."""
    options = options or ReadOptions()
    return _items(_rows(file, format, options), options, name)


def read_records(records: Iterable[Mapping[str, Any]], options: ReadOptions | None = None) -> Iterator[list[Item]]:
    """The items of records in place. Raises as `read_batches` does."""
    return _items(_record_rows(records), options or ReadOptions(), "dataset.records", unit="record")


def read_command(argv: Sequence[str], folder: str, options: ReadOptions | None = None) -> Iterator[list[Item]]:
    """The items that a command prints as JSON lines, once it has ended well. Raises as `read_batches` does."""
    options = options or ReadOptions()
    shown = " ".join(argv)
    with command_output(argv, folder) as output:
        yield from _items(_rows(output.file, options.format or "jsonl", options), options, shown, output.finish)


def inline(records: Iterable[Mapping[str, Any]], fields: Mapping[str, FieldSource] | None = None) -> tuple[Item, ...]:
    """The items of records in place, all at once. Raises as `read_batches` does."""
    return tuple(item for batch in read_records(records, ReadOptions(fields or {})) for item in batch)


# --- rows -------------------------------------------------------------------------------------------------------


def _rows(file: BinaryIO, format: Format, options: ReadOptions) -> Rows:
    if format == "json":
        return json_list_rows(pieces_of(file, options.encoding))
    lines = lines_of(file, options.encoding)
    if format == "jsonl":
        return json_line_rows(lines)
    return delimited_rows(lines, options.delimiter or ("\t" if format == "tsv" else ","))


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


def _items(
    rows: Rows, options: ReadOptions, name: str, finish: Callable[[], None] = lambda: None, unit: str = "line"
) -> Iterator[list[Item]]:
    """Items in batches. After the first refused row none comes any more, unless refusals are told to somebody."""
    maker = _Maker(options, unit)
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
        message = f"fields maps {target} to {path!r}, but no row has it{maker.seen_columns()}"
        raise DatasetInvalid(name, [Refusal(0, "no_column", message)])


def _made(
    rows: Rows, maker: _Maker, refuse: Callable[[Refusal], None], refusals: list[Refusal]
) -> Iterator[tuple[Item, int]]:
    """Each item with its size. A file that cannot be read on is a refusal that nobody may skip."""
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


def _batches(sized: Iterator[tuple[Item, int]]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    total = 0
    for item, size in sized:
        if batch and (len(batch) == BATCH or total + size > BATCH_SIZE):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


class _Maker:
    """Makes items of rows, and knows the ids that are taken."""

    def __init__(self, options: ReadOptions, unit: str) -> None:
        self.unit = unit
        self.mapping = FieldMapping(options.fields)
        self.options = options
        self.rows = 0
        self.columns: tuple[str, ...] = ()
        self.lines: dict[str, int] = {}
        """The line of each id."""
        self.copies: dict[str, int] = {}
        """How often each content came that brought no id."""

    def make(self, row: Row | Refusal) -> tuple[Item, int] | Refusal:
        self.rows += 1
        if isinstance(row, Refusal):
            return row
        if not self.columns:
            self.columns = tuple(row.cells)
        try:
            item = self.mapping.item(row, self.make_id)
            self.claim(item.id, row.line)
            self.weigh(item, row.size)
        except RowRefused as error:
            return Refusal(row.line, error.kind, str(error))
        return item, row.size

    def make_id(self, digest: str) -> str:
        if self.options.ids == "position":
            return str(self.rows)
        short = digest[:16]
        copy = self.copies[short] = self.copies.get(short, 0) + 1
        return short if copy == 1 else f"{short}-{copy}"

    def claim(self, id: str, line: int) -> None:
        first = self.lines.setdefault(id, line)
        if first != line:
            raise RowRefused(
                "duplicate_id", f'the id "{id}" is already that of {self.unit} {first}; ids are compared as text'
            )

    def weigh(self, item: Item, size: int) -> None:
        encoded = item_size(item) if size > LARGEST_ITEM // 8 else 0
        if encoded > LARGEST_ITEM:
            raise RowRefused("too_large", f"the item has {encoded} bytes; at most {LARGEST_ITEM} are allowed")

    def seen_columns(self) -> str:
        return f"; the first row has {', '.join(self.columns[:8])}" if self.columns else ""


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except FileRefused as error:
        raise DatasetInvalid(name, [error.refusal]) from None
