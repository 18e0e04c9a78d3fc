"""`evalbus dataset list` and `show`: what there is."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.text import Text

from evalbus import Item
from evalbus_server.cli.datasets_place import Source, Where, work
from evalbus_server.cli.datasets_text import info_document, items_text, short
from evalbus_server.cli.figures import count, plain
from evalbus_server.cli.report import console, print_json
from evalbus_server.cli.tables import Column, Table, right
from evalbus_server.dataset import exports
from evalbus_server.model.dataset import DatasetInfo
from evalbus_server.model.run import DatasetVersion
from evalbus_server.wire.jsonform import dataset_document


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which items are meant."""

    version: int | None
    tags: tuple[str, ...]
    limit: int | None


def show_list(where: Where, *, as_json: bool) -> None:
    """Print datasets by name."""
    found = work(where, lambda source: source.datasets())
    if as_json:
        print_json({"datasets": [dataset_document(dataset) for dataset in found]})
        return
    if not found:
        console().print("No datasets.")
        return
    table = Table("dataset", *right("version", "items"), Column("made", spare=True))
    for dataset in found:
        made = datetime.fromtimestamp(dataset.created_at).strftime("%Y-%m-%d %H:%M")
        table.add_row(Text(plain(dataset.name)), str(dataset.version), count(dataset.items), made)
    table.print(console())


def show_dataset(where: Where, name: str, chosen: Chosen, *, as_json: bool) -> None:
    """Print a dataset and its first items."""

    async def do(source: Source) -> tuple[DatasetInfo, DatasetVersion, list[Item]]:
        info = await source.info(name)
        version = info.latest if chosen.version is None else await source.dataset(name, chosen.version)
        first: list[Item] = []
        if chosen.limit:
            async with aclosing(source.items(name, version.version, chosen.tags)) as pages:  # type: ignore[type-var]
                async for page in pages:
                    first += page
                    if len(first) >= chosen.limit:
                        break
        return info, version, first[: chosen.limit or 0]

    info, version, first = work(where, do)
    if as_json:
        texts = ",".join(map(exports.item_text, first))
        document = {**dataset_document(version), **info_document(info)}
        print(f'{json.dumps(document, ensure_ascii=False)[:-1]}, "first_items": [{texts}]}}')
        return
    out = console()
    _print_head(out, info, version)
    if first:
        table = Table("item", *(Column(name, text=True) for name in ("input", "expected", "tags")))
        for item in first:
            cells = (item.id, short(item.input), short(item.expected), ", ".join(item.tags))
            table.add_row(*(Text(plain(cell)) for cell in cells))
        table.print(out)


def _print_head(out: Console, info: DatasetInfo, version: DatasetVersion) -> None:
    out.print(f"{plain(version.name)} version {version.version}: {items_text(version.items)}", markup=False)
    if info.description:
        out.print(plain(info.description), markup=False)
    if info.scorers:
        out.print(f"scorers {plain(', '.join(info.scorers))}", markup=False)
    if info.origin:
        out.print(f"from {plain(info.origin)}", markup=False, style="dim")
    out.print(f"digest {version.digest}", style="dim")


def show_item(where: Where, name: str, version: int | None, id: str, *, as_json: bool) -> None:
    """Print an item, whole."""
    item = work(where, lambda source: source.item(name, version, id))
    text = exports.item_text(item)
    print(text if as_json else json.dumps(json.loads(text), ensure_ascii=False, indent=2))
