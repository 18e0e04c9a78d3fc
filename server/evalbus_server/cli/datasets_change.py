"""`evalbus dataset create`, `describe`, `add`, `update`, `delete`, `schema` and `scorers`: what changes a dataset."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from evalbus import Item, Value, _json
from evalbus_server.cli.datasets_import import STDIN
from evalbus_server.cli.datasets_place import Source, Where, work
from evalbus_server.cli.datasets_text import info_document, items_text, json_value, metadata_text, print_edited
from evalbus_server.cli.figures import plain
from evalbus_server.cli.report import console, print_json
from evalbus_server.dataset import exports
from evalbus_server.dataset.parts import remade
from evalbus_server.dataset.read import ReadOptions, read_file, read_stream
from evalbus_server.dataset.source import format_of
from evalbus_server.errors import Invalid, NotFound, Reason
from evalbus_server.model.dataset import DatasetInfo, Edited, InfoChange
from evalbus_server.model.faults import nearest
from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.wire.jsonform import dataset_document


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of an item as options give them; None: not given."""

    id: str | None
    input: str | None
    input_json: str | None
    expected: str | None
    expected_json: str | None
    metadata: str | None
    tags: list[str] | None

    @property
    def given(self) -> dict[str, Any]:
        """The parts that are given, by their names."""
        found: dict[str, Any] = {}
        for name in ("input", "expected"):
            text, document = getattr(self, name), getattr(self, f"{name}_json")
            if text is not None and document is not None:
                raise Invalid(Reason.REQUEST_INVALID, f"--{name} and --{name}-json exclude each other; keep one")
            if text is not None:
                found[name] = Value(text)
            elif document is not None:
                found[name] = json_value(document, f"--{name}-json")
        if self.metadata is not None:
            found["metadata"] = metadata_text(self.metadata)
        if self.tags is not None:
            found["tags"] = tuple(self.tags)
        return found


def create(where: Where, name: str, parts: tuple[str, str | None], *, as_json: bool) -> None:
    """Make a dataset without items."""
    change = InfoChange(parts[0], metadata_text(parts[1] or ""))
    info = work(where, lambda source: source.create(name, change), writing=True)
    _print_info(info, as_json=as_json)


def describe(where: Where, name: str, parts: tuple[str | None, str | None], *, as_json: bool) -> None:
    """Change what a dataset is said to be."""
    change = InfoChange(parts[0], None if parts[1] is None else metadata_text(parts[1]))
    info = work(where, lambda source: source.change(name, change), writing=True)
    _print_info(info, as_json=as_json)


def _print_info(info: DatasetInfo, *, as_json: bool) -> None:
    if as_json:
        print_json({**dataset_document(info.latest), **info_document(info)})
    else:
        latest = info.latest
        console().print(f"{plain(latest.name)} version {latest.version}: {items_text(latest.items)}", markup=False)


def add(where: Where, name: str, file: Path | None, parts: Parts, *, as_json: bool) -> None:
    """Add an item, or those of a file."""
    items = _items_of(file)
    if items is None:
        given = parts.given
        if "input" not in given:
            raise Invalid(Reason.REQUEST_INVALID, "an item needs --input or --input-json, or give items with --file")
        items = [_with_id(parts.id, given)]
    elif parts.id is not None or parts.given:
        raise Invalid(Reason.REQUEST_INVALID, "--file brings whole items; leave the other options out")
    edited = work(where, lambda source: source.add(name, items), writing=True)
    print_edited(edited, [item.id for item in items], as_json=as_json)


def update(where: Where, name: str, file: Path | None, parts: Parts, *, as_json: bool) -> None:
    """Change parts of an item, or whole items."""
    items = _items_of(file)
    given = parts.given
    if items is None and (parts.id is None or not given):
        raise Invalid(Reason.REQUEST_INVALID, "say which item and what changes, or give items with --file")
    if items is not None and (parts.id is not None or given):
        raise Invalid(Reason.REQUEST_INVALID, "--file brings whole items; leave the other options out")

    async def do(source: Source) -> Edited:
        if items is not None:
            return await source.update(name, items)
        return await source.update(name, [remade(await source.item(name, None, parts.id or ""), **given)])

    print_edited(work(where, do, writing=True), [], as_json=as_json)


def delete(where: Where, name: str, ids: Sequence[str], *, as_json: bool) -> None:
    """Take items out, or delete the whole dataset."""
    if ids:
        edited = work(where, lambda source: source.delete(name, ids), writing=True)
        print_edited(edited, [], as_json=as_json)
        if edited.missing and not edited.changed:
            raise NotFound(
                Reason.ITEM_NOT_FOUND, f"the dataset {name!r} has no item {', '.join(map(repr, edited.missing))}"
            )
        return
    work(where, lambda source: source.remove(name), writing=True)
    if as_json:
        print_json({"dataset": name, "deleted": True})
    else:
        console().print(f"{plain(name)} is deleted", markup=False)


def _items_of(file: Path | None) -> list[Item] | None:
    if file is None:
        return None
    options = ReadOptions()
    if str(file) == STDIN:
        batches = read_stream(sys.stdin.buffer, "jsonl", options, name="standard input")
    else:
        batches = read_file(file, replace(options, format=format_of(file, None if file.suffix else "jsonl")))
    return [item for batch in batches for item in batch]


def _with_id(id: str | None, given: dict[str, Any]) -> Item:
    if id is None:
        record = remade(Item("x"), **given)
        (made,) = [
            item for batch in read_stream(_bytes(exports.item_text(record)), "jsonl", name="the item") for item in batch
        ]
        return made
    return remade(Item(id), **given)


def _bytes(text: str) -> BinaryIO:
    document = json.loads(text)
    del document["id"]
    return io.BytesIO(_json.dumps(document).encode())


def schema(where: Where, name: str, files: tuple[Path | None, Path | None], *, clear: bool, as_json: bool) -> None:
    """Show the schemas of a dataset, or set them."""
    if clear and any(files):
        raise Invalid(Reason.REQUEST_INVALID, "--clear takes both schemas away; leave the files out")
    texts = ["" if clear else None if file is None else _text_of(file) for file in files]

    async def do(source: Source) -> DatasetInfo:
        if texts == [None, None]:
            return await source.info(name)
        return await source.change(name, InfoChange(input_schema=texts[0], expected_schema=texts[1]))

    info = work(where, do, writing=texts != [None, None])
    document = {
        "dataset": name,
        **{key: value for key, value in info_document(info).items() if key.endswith("schema")},
    }
    if as_json:
        print_json(document)
    else:
        print(json.dumps(document, ensure_ascii=False, indent=2))


def scorers(where: Where, name: str, names: tuple[str, ...] | None, *, as_json: bool) -> None:
    """Show who judges items that name no scorers, or set it."""

    async def do(source: Source) -> DatasetInfo:
        return await (source.info(name) if names is None else source.change(name, InfoChange(scorers=names)))

    info = work(where, do, writing=names is not None)
    for each in names or ():
        if each not in BUILTINS:
            near = nearest(each, sorted(BUILTINS))
            meant = f"; did you mean {near}?" if near else ""
            told = f"note: {each!r} is no builtin, so an experiment that is to use it has to declare it{meant}"
            print(plain(told), file=sys.stderr)
    if as_json:
        print_json({"dataset": name, "scorers": list(info.scorers)})
    else:
        console().print(plain(", ".join(info.scorers)) or "none", markup=False)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Invalid(Reason.REQUEST_INVALID, f"{file} is not UTF-8") from None
    except OSError as error:
        raise Invalid(Reason.REQUEST_INVALID, f"{file}: {error.strerror}") from None
