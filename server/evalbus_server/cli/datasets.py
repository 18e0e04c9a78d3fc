"""The work of `evalbus dataset`, the same over a database and at a server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from evalbus import Item, Value, _json
from evalbus_server import logs
from evalbus_server.cli.exits import ExitCode
from evalbus_server.cli.figures import NONE, count, plain
from evalbus_server.cli.report import console, print_json, table_of
from evalbus_server.dataset import exports
from evalbus_server.dataset.importing import REMEMBERED
from evalbus_server.dataset.read import Batch, ReadOptions, read_file, read_stream, remade
from evalbus_server.dataset.refusal import DatasetInvalid, Refusal
from evalbus_server.dataset.source import Format, format_of, unpacked
from evalbus_server.errors import Invalid, NotFound, Reason
from evalbus_server.model.dataset import (
    DatasetInfo,
    Edited,
    InfoChange,
    ItemChange,
    ItemVersion,
    Purged,
    Tally,
    VersionInfo,
)
from evalbus_server.model.experiment import FieldSource
from evalbus_server.model.run import DatasetVersion
from evalbus_server.runner.datasets import Imported
from evalbus_server.runner.documents import DocumentError, read_yaml
from evalbus_server.settings import database_path
from evalbus_server.wire.jsonform import dataset_document

STDIN = "-"
MOST_REFUSED = 1_000
"""Refused rows that are told one by one."""
SHORT = 60
"""Characters of a content in a table."""

T_ = TypeVar("T_")


@dataclass(frozen=True, slots=True)
class Where:
    """Where datasets are, as the options say it."""

    db: Path | None
    server: str | None


@dataclass(frozen=True, slots=True)
class Import:
    """What is imported, and how it is read."""

    name: str
    file: str
    maps: tuple[str, ...] = ()
    partial: bool = False
    format: Any = None
    foreign: str | None = None
    records: str | None = None
    join: Path | None = None
    encoding: str | None = None
    delimiter: str | None = None
    ids: str = "content"
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which items are meant."""

    version: int | None
    tags: tuple[str, ...]
    limit: int | None

    def takes(self, item: Item) -> bool:
        """Whether an item has all the tags."""
        return all(tag in item.tags for tag in self.tags)


@dataclass(frozen=True, slots=True)
class Written:
    """How an export is written."""

    format: str
    out: Path | None
    raw: bool
    bom: bool


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
                found[name] = _document(document, f"--{name}-json")
        if self.metadata is not None:
            found["metadata"] = metadata_text(self.metadata)
        if self.tags is not None:
            found["tags"] = tuple(self.tags)
        return found


class Source(Protocol):
    """What datasets are read from and changed in."""

    async def bring_in(
        self,
        name: str,
        batches: Iterable[Batch],
        source: str,
        refused: Callable[[Refusal], None] | None,
        told: Callable[[int], None],
    ) -> Imported: ...
    async def datasets(self) -> list[DatasetVersion]: ...
    async def info(self, name: str) -> DatasetInfo: ...
    async def dataset(self, name: str, version: int | None) -> DatasetVersion: ...
    def items(self, name: str, version: int) -> AsyncIterator[list[Item]]: ...
    async def item(self, name: str, version: int | None, id: str) -> Item: ...
    async def create(self, name: str, change: InfoChange) -> DatasetInfo: ...
    async def change(self, name: str, change: InfoChange) -> DatasetInfo: ...
    async def add(self, name: str, items: Sequence[Item]) -> Edited: ...
    async def update(self, name: str, items: Sequence[Item]) -> Edited: ...
    async def delete(self, name: str, ids: Sequence[str]) -> Edited: ...
    async def remove(self, name: str) -> None: ...
    async def versions(self, name: str, limit: int) -> list[VersionInfo]: ...
    def differences(self, name: str, a: int, b: int) -> AsyncIterator[list[ItemChange]]: ...
    async def history(self, name: str, id: str) -> list[ItemVersion]: ...
    async def restore(self, name: str, version: int) -> Imported: ...
    async def purge(self, name: str, ids: Sequence[str]) -> Purged: ...


def work(where: Where, do: Callable[[Source], Awaitable[T_]], *, writing: bool = False) -> T_:
    """Do some work at a place."""
    logs.set_up("warning")

    async def opened() -> T_:
        async with _open(where, writing) as source:
            return await do(source)

    return asyncio.run(opened())


def _open(where: Where, writing: bool) -> AbstractAsyncContextManager[Source]:
    if where.server is not None:
        from evalbus_server.cli.datasets_remote import RemoteDatasets

        return RemoteDatasets(where.server, os.environ)
    from evalbus_server.cli.datasets_local import LocalDatasets

    return LocalDatasets(database_path(where.db, os.environ), writing=writing)


# --- import -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Refused:
    """Rows that were refused: the first ones, and how many."""

    loud: bool
    rows: list[Refusal] = field(default_factory=list)
    count: int = 0

    def __call__(self, refusal: Refusal) -> None:
        """One more."""
        self.count += 1
        if self.count <= MOST_REFUSED:
            self.rows.append(refusal)
            if self.loud:
                print(plain(_refusal_line(refusal)), file=sys.stderr)


def import_file(where: Where, wanted: Import, *, as_json: bool) -> int:
    """Import a file, and tell what changed; a refused one ends with 2."""
    options = read_options(wanted)
    refused = Refused(loud=not as_json)
    options = replace(options, refused=refused if wanted.partial else None)

    async def do(source: Source) -> Imported:
        with _Showing(wanted.name) as showing, ExitStack() as stack:
            batches = stack.enter_context(_closing(_batches(wanted, options)))
            return await source.bring_in(
                wanted.name, batches, _shown(wanted.file), refused if wanted.partial else None, showing.told
            )

    try:
        imported = work(where, do, writing=True)
    except DatasetInvalid as error:
        if as_json:
            print_json(_import_document(wanted.name, None, Tally(), [*refused.rows, *error.refusals]))
        raise
    if as_json:
        print_json(_import_document(wanted.name, imported.dataset, imported.tally, refused.rows))
        return ExitCode.PASS
    out = console()
    dataset = imported.dataset
    what = _tally_text(imported.tally) if imported.changed else "nothing has changed"
    out.print(f"{dataset.name} version {dataset.version}: {_items(dataset.items)}; {what}", markup=False)
    if refused.count:
        rows = "1 row was" if refused.count == 1 else f"{count(refused.count)} rows were"
        print(f"{rows} refused", file=sys.stderr)
    return ExitCode.PASS


def read_options(wanted: Import) -> ReadOptions:
    """How a file is read."""
    if wanted.ids not in ("content", "position"):
        raise Invalid(Reason.REQUEST_INVALID, f"--ids is content or position, not {wanted.ids!r}")
    return ReadOptions(
        fields=dict(map(_mapped, wanted.maps)),
        ids="content" if wanted.ids == "content" else "position",
        format=wanted.format,
        delimiter="\t" if wanted.delimiter in ("\\t", "tab") else wanted.delimiter,
        encoding=wanted.encoding,
        records=wanted.records,
        join=wanted.join,
        foreign=wanted.foreign,
        tags=wanted.tags,
        remembered=REMEMBERED,
    )


def _mapped(text: str) -> tuple[str, FieldSource]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise Invalid(Reason.REQUEST_INVALID, f"--map {text!r} is not FIELD=PATH, as in input=question")
    if not path.startswith(("[", "{")) or path[1:2].isdigit():
        return name, FieldSource.model_validate(path)
    try:
        return name, FieldSource.model_validate(read_yaml(path).data)
    except (ValueError, DocumentError) as error:
        said = " ".join(str(error).split())[:200]
        raise Invalid(Reason.REQUEST_INVALID, f"--map {name}: {said}") from None


def _batches(wanted: Import, options: ReadOptions) -> Iterable[Batch]:
    if wanted.file != STDIN:
        return read_file(wanted.file, options)
    stdin = sys.stdin.buffer
    return read_stream(
        _unpacked_stdin(stdin, options.format), options.format or "jsonl", options, name="standard input"
    )


def _unpacked_stdin(stdin: Any, format: Format | None) -> BinaryIO:
    file: BinaryIO = stdin
    return file if format == "parquet" else unpacked(file, stdin.peek(8))


def _shown(file: str) -> str:
    return "standard input" if file == STDIN else file


def _closing(batches: Any) -> Any:
    import contextlib

    return contextlib.closing(batches)


def _import_document(
    name: str, dataset: DatasetVersion | None, tally: Tally, refused: Sequence[Refusal]
) -> dict[str, Any]:
    return {
        "dataset": name,
        "version": None if dataset is None else dataset.version,
        "items": None if dataset is None else dataset.items,
        "added": tally.added,
        "changed": tally.changed,
        "removed": tally.removed,
        "refused": [{"line": each.line or None, "kind": each.kind, "message": each.message} for each in refused],
    }


def _refusal_line(refusal: Refusal) -> str:
    where = f"line {refusal.line}: " if refusal.line else ""
    return f"{where}{refusal.message} ({refusal.kind})"


class _Showing:
    """How far an import is, on a terminal."""

    def __init__(self, name: str) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[items]} items"),
            TimeElapsedColumn(),
            console=_stderr(),
            transient=True,
        )
        self._task = self._progress.add_task(plain(name), total=None, items="0")
        self._shown = self._progress.console.is_terminal

    def __enter__(self) -> _Showing:
        if self._shown:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._progress.stop()

    def told(self, items: int) -> None:
        if self._shown:
            self._progress.update(self._task, items=count(items))


def _stderr() -> Any:
    from rich.console import Console

    return Console(stderr=True)


# --- list, show, export -----------------------------------------------------------------------------------------


def show_list(where: Where, *, as_json: bool) -> None:
    """Print datasets by name."""
    found = work(where, lambda source: source.datasets())
    if as_json:
        print_json({"datasets": [dataset_document(dataset) for dataset in found]})
        return
    table = table_of("dataset", "version", "items", "made", right=(1, 2))
    for dataset in found:
        made = datetime.fromtimestamp(dataset.created_at).strftime("%Y-%m-%d %H:%M")
        table.add_row(Text(plain(dataset.name)), str(dataset.version), count(dataset.items), made)
    console().print(table if found else "No datasets.")


def show_dataset(where: Where, name: str, chosen: Chosen, *, as_json: bool) -> None:
    """Print a dataset and its first items."""

    async def do(source: Source) -> tuple[DatasetInfo, DatasetVersion, list[Item]]:
        info = await source.info(name)
        version = info.latest if chosen.version is None else await source.dataset(name, chosen.version)
        first: list[Item] = []
        if chosen.limit:
            async with aclosing(source.items(name, version.version)) as pages:  # type: ignore[type-var]
                async for page in pages:
                    first += [item for item in page if chosen.takes(item)]
                    if len(first) >= chosen.limit:
                        break
        return info, version, first[: chosen.limit or 0]

    info, version, first = work(where, do)
    if as_json:
        texts = ",".join(map(exports.item_text, first))
        document = {**dataset_document(version), **_info_document(info)}
        print(f'{json.dumps(document, ensure_ascii=False)[:-1]}, "first_items": [{texts}]}}')
        return
    out = console()
    out.print(f"{plain(version.name)} version {version.version}: {_items(version.items)}", markup=False)
    if info.description:
        out.print(plain(info.description), markup=False)
    out.print(f"digest {version.digest}", style="dim")
    if first:
        table = table_of("item", "input", "expected", "tags", right=())
        for item in first:
            cells = (item.id, _short(item.input), _short(item.expected), ", ".join(item.tags))
            table.add_row(*(Text(plain(cell)) for cell in cells))
        out.print(table)


def show_item(where: Where, name: str, version: int | None, id: str, *, as_json: bool) -> None:
    """Print an item, whole."""
    item = work(where, lambda source: source.item(name, version, id))
    text = exports.item_text(item)
    print(text if as_json else json.dumps(json.loads(text), ensure_ascii=False, indent=2))


def _info_document(info: DatasetInfo) -> dict[str, Any]:
    return {
        "description": info.description or None,
        "metadata": _json.loads(info.metadata_json) if info.metadata_json else None,
        "input_schema": _json.loads(info.input_schema) if info.input_schema else None,
        "expected_schema": _json.loads(info.expected_schema) if info.expected_schema else None,
    }


def export(where: Where, name: str, chosen: Chosen, written: Written) -> None:
    """Write the items of a dataset."""

    async def do(source: Source) -> None:
        version = await source.dataset(name, chosen.version)
        with ExitStack() as stack:
            file = _out(written, stack)
            async with aclosing(source.items(name, version.version)) as pages:  # type: ignore[type-var]
                if written.format == "parquet":
                    from evalbus_server.dataset.parquet_out import ParquetFile

                    parquet = stack.enter_context(ParquetFile(file))
                    async for page in pages:
                        parquet.write([item for item in page if chosen.takes(item)])
                    return
                first = True
                async for page in pages:
                    _write(file, [item for item in page if chosen.takes(item)], written, first)
                    first = False
                if first:
                    _write(file, [], written, first)

    work(where, do)


def _out(written: Written, stack: ExitStack) -> BinaryIO:
    if written.out is not None:
        return stack.enter_context(written.out.open("wb"))
    return sys.stdout.buffer


def _write(file: BinaryIO, items: Sequence[Item], written: Written, first: bool) -> None:
    if written.format == "jsonl":
        lines = exports.json_lines(items)
    else:
        lines = exports.csv_lines(items, raw=written.raw, bom=written.bom)
        if not first:
            next(lines)
    file.write("".join(lines).encode())


# --- changes ----------------------------------------------------------------------------------------------------


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
        print_json({**dataset_document(info.latest), **_info_document(info)})
    else:
        latest = info.latest
        console().print(f"{plain(latest.name)} version {latest.version}: {_items(latest.items)}", markup=False)


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
    _print_edited(edited, [item.id for item in items], as_json=as_json)


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

    _print_edited(work(where, do, writing=True), [], as_json=as_json)


def delete(where: Where, name: str, ids: Sequence[str], *, as_json: bool) -> None:
    """Take items out, or delete the whole dataset."""
    if ids:
        edited = work(where, lambda source: source.delete(name, ids), writing=True)
        _print_edited(edited, [], as_json=as_json)
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


def _print_edited(edited: Edited, ids: Sequence[str], *, as_json: bool) -> None:
    dataset, tally = edited.dataset, edited.tally
    if as_json:
        document: dict[str, Any] = {
            "dataset": dataset.name,
            "version": dataset.version,
            "items": dataset.items,
            "added": tally.added,
            "changed": tally.changed,
            "removed": tally.removed,
        }
        if ids:
            document |= {"ids": list(ids), "replayed": [ids[place] for place in edited.replayed]}
        if edited.missing:
            document["missing"] = list(edited.missing)
        print_json(document)
        return
    what = _tally_text(tally) if edited.changed else "nothing has changed"
    console().print(f"{plain(dataset.name)} version {dataset.version}: {_items(dataset.items)}; {what}", markup=False)


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
    import io

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
        return await source.change(name, InfoChange(None, None, *texts))

    info = work(where, do, writing=texts != [None, None])
    document = {
        "dataset": name,
        **{key: value for key, value in _info_document(info).items() if key.endswith("schema")},
    }
    if as_json:
        print_json(document)
    else:
        print(json.dumps(document, ensure_ascii=False, indent=2))


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Invalid(Reason.REQUEST_INVALID, f"{file} is not UTF-8") from None
    except OSError as error:
        raise Invalid(Reason.REQUEST_INVALID, f"{file}: {error.strerror}") from None


# --- versions ---------------------------------------------------------------------------------------------------


def versions(where: Where, name: str, limit: int, *, as_json: bool) -> None:
    """Print versions, the newest first."""
    found = work(where, lambda source: source.versions(name, limit))
    if as_json:
        print_json({"versions": [_version_document(each) for each in found]})
        return
    table = table_of("version", "made", "by", "items", "added", "changed", "removed", right=(0, 3, 4, 5, 6))
    for each in found:
        made = datetime.fromtimestamp(each.dataset.created_at).strftime("%Y-%m-%d %H:%M")
        numbers = (each.dataset.items, each.added, each.changed, each.removed)
        table.add_row(str(each.dataset.version), made, each.cause, *map(count, numbers))
    console().print(table)


def _version_document(each: VersionInfo) -> dict[str, Any]:
    return {
        **dataset_document(each.dataset),
        "cause": each.cause,
        "added": each.added,
        "changed": each.changed,
        "removed": each.removed,
    }


def diff(where: Where, name: str, sides: tuple[int, int | None], *, as_json: bool) -> None:
    """Print what differs between two versions, as it is found."""

    async def do(source: Source) -> None:
        a = await source.dataset(name, sides[0])
        b = await source.dataset(name, sides[1])
        tally = {"added": 0, "removed": 0, "changed": 0, "moved": 0}
        if as_json:
            print(f'{{"dataset": {_json.dumps(name)}, "a": {a.version}, "b": {b.version}, "changes": [', end="")
        first = True
        async with aclosing(source.differences(name, a.version, b.version)) as pages:  # type: ignore[type-var]
            async for page in pages:
                for change in page:
                    tally[change.kind] += 1
                    if as_json:
                        print("" if first else ", ", _change_text(change), sep="", end="")
                    else:
                        fields = f"  {', '.join(change.fields)}" if change.fields else ""
                        print(f"{change.kind:8} {plain(change.id)}{fields}")
                    first = False
        if as_json:
            print("], " + json.dumps(tally)[1:])
        else:
            told = ", ".join(f"{count(number)} {kind}" for kind, number in tally.items() if number)
            print(f"version {a.version} to {b.version}: {told or 'nothing differs'}")

    work(where, do)


def _change_text(change: ItemChange) -> str:
    parts = [f'"id": {_json.dumps(change.id)}', f'"kind": "{change.kind}"']
    if change.fields:
        parts.append(f'"fields": {json.dumps(list(change.fields))}')
    for side, item in (("before", change.before), ("after", change.after)):
        if item is not None and change.kind != "moved":
            parts.append(f'"{side}": {exports.item_text(item)}')
    return f"{{{', '.join(parts)}}}"


def history(where: Where, name: str, id: str, *, as_json: bool) -> None:
    """Print what an item was, the newest first."""
    lives = work(where, lambda source: source.history(name, id))
    if as_json:
        texts = []
        for life in lives:
            item = "null" if life.item is None else exports.item_text(life.item)
            until = "null" if life.until is None else str(life.until)
            deleted = json.dumps(life.deleted)
            texts.append(f'{{"version": {life.version}, "until": {until}, "deleted": {deleted}, "item": {item}}}')
        print(f'{{"dataset": {_json.dumps(name)}, "id": {_json.dumps(id)}, "history": [{", ".join(texts)}]}}')
        return
    table = table_of("versions", "input", "expected", "tags", right=())
    for life in lives:
        span = f"{life.version} –" if life.until is None else f"{life.version} – {life.until}"
        cells = ("not there", "", "")
        if life.item is not None:
            cells = (_short(life.item.input), _short(life.item.expected), ", ".join(life.item.tags))
        table.add_row(Text(span), *(Text(plain(cell)) for cell in cells))
    console().print(table)


def restore(where: Where, name: str, version: int, *, as_json: bool) -> None:
    """Make an earlier version the newest again."""
    imported = work(where, lambda source: source.restore(name, version), writing=True)
    _print_edited(Edited(imported.dataset, imported.changed, imported.tally), [], as_json=as_json)


def purge(where: Where, name: str, ids: Sequence[str], *, as_json: bool) -> None:
    """Take the content of items out of everything."""
    purged = work(where, lambda source: source.purge(name, ids), writing=True)
    if as_json:
        print_json({"dataset": name, "purged": list(ids), "rows": purged.rows, "results": purged.results})
    else:
        console().print(f"purged from {count(purged.rows)} versions of items and {count(purged.results)} results")


# --- texts ------------------------------------------------------------------------------------------------------


def metadata_text(text: str) -> str:
    """The text of a JSON object, as it is stored.

    Raises:
        Invalid: it is none.
    """
    if not text:
        return ""
    try:
        document = _json.loads(text)
    except ValueError as error:
        raise Invalid(Reason.REQUEST_INVALID, f"--metadata is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Invalid(Reason.REQUEST_INVALID, "--metadata must be a JSON object")
    return exports.value_text(Value.json(text)) if document else ""


def _document(text: str, option: str) -> Value:
    try:
        made = Value.json(text)
    except ValueError as error:
        raise Invalid(Reason.REQUEST_INVALID, f"{option} is not JSON: {error}") from None
    return made if made.kind == "text" else Value(exports.value_text(made), "json")


def _tally_text(tally: Tally) -> str:
    told = [f"{count(number)} {kind}" for kind, number in tally._asdict().items() if number]
    return ", ".join(told) or "items have another order"


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{count(number)} items"


def _short(value: Value | None) -> str:
    if value is None:
        return NONE
    text = str(value)
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"
