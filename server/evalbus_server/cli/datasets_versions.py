"""`evalbus dataset versions`, `diff`, `history`, `restore` and `purge`: what a dataset was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

from rich.text import Text

from evalbus import _json
from evalbus_server.cli.datasets_place import Source, Where, work
from evalbus_server.cli.datasets_text import print_edited, short
from evalbus_server.cli.figures import count, plain
from evalbus_server.cli.report import console, print_json
from evalbus_server.cli.tables import Column, Table, right
from evalbus_server.dataset import exports
from evalbus_server.model.dataset import Edited, ItemChange, VersionInfo
from evalbus_server.wire.jsonform import dataset_document


def versions(where: Where, name: str, limit: int, *, as_json: bool) -> None:
    """Print versions, the newest first."""
    found = work(where, lambda source: source.versions(name, limit))
    if as_json:
        print_json({"versions": [_version_document(each) for each in found]})
        return
    table = Table(*right("version"), "made", "by", *right("items", "added", "changed", "removed"))
    for each in found:
        made = datetime.fromtimestamp(each.dataset.created_at).strftime("%Y-%m-%d %H:%M")
        numbers = (each.dataset.items, each.added, each.changed, each.removed)
        table.add_row(str(each.dataset.version), made, each.cause, *map(count, numbers))
    table.print(console())


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
        documents = []
        for life in lives:
            item = "null" if life.item is None else exports.item_text(life.item)
            until = "null" if life.until is None else str(life.until)
            deleted = json.dumps(life.deleted)
            documents.append(f'{{"version": {life.version}, "until": {until}, "deleted": {deleted}, "item": {item}}}')
        print(f'{{"dataset": {_json.dumps(name)}, "id": {_json.dumps(id)}, "history": [{", ".join(documents)}]}}')
        return
    texts = [Column(name, text=True) for name in ("input", "expected", "tags")]
    table = Table("versions", *texts)
    for life in lives:
        span = f"{life.version} –" if life.until is None else f"{life.version} – {life.until}"
        cells = ("not there", "", "")
        if life.item is not None:
            cells = (short(life.item.input), short(life.item.expected), ", ".join(life.item.tags))
        table.add_row(Text(span), *(Text(plain(cell)) for cell in cells))
    table.print(console())


def restore(where: Where, name: str, version: int, *, as_json: bool) -> None:
    """Make an earlier version the newest again."""
    imported = work(where, lambda source: source.restore(name, version), writing=True)
    print_edited(Edited(imported.dataset, imported.changed, imported.tally), [], as_json=as_json)


def purge(where: Where, name: str, ids: Sequence[str], *, as_json: bool) -> None:
    """Take the content of items out of everything."""
    purged = work(where, lambda source: source.purge(name, ids), writing=True)
    if as_json:
        print_json({"dataset": name, "purged": list(ids), "rows": purged.rows, "results": purged.results})
    else:
        rows = "1 version of an item" if purged.rows == 1 else f"{count(purged.rows)} versions of items"
        results = "1 result" if purged.results == 1 else f"{count(purged.results)} results"
        console().print(f"purged from {rows} and {results}")
