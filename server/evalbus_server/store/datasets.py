"""Datasets, their versions and their items, as they are read.

An item keeps its row for as many versions as it stays unchanged at its position. How they change: staging.py for
whole datasets, edits.py for single items.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from evalbus_server.errors import Conflict, NotFound, Reason
from evalbus_server.model.dataset import DatasetInfo, InfoChange, ItemVersion, VersionInfo
from evalbus_server.model.run import DatasetVersion
from evalbus_server.model.trial import Outline, StoredItem
from evalbus_server.store import rows
from evalbus_server.store.connection import Connection
from evalbus_server.store.documents import dumps, loads

_LAST_VERSION = 1 << 62
"""No dataset gets there, and SQLite can still be asked for it."""
_LOOKED_AT = 4_096
"""Positions at which one page of tagged items looks."""
_VERSION = "d.name, v.version, v.items, v.digest, v.created_at"
AS_OF = "i.first_version <= :version AND (i.last_version IS NULL OR i.last_version >= :version)"
"""Which rows of `item` belong to a version."""

FIND_VERSION = f"""
    SELECT {_VERSION} FROM dataset d JOIN dataset_version v ON v.dataset = d.n
    WHERE d.name = :name AND v.version = coalesce(:version, d.version)
"""
LIST_DATASETS = f"""
    SELECT {_VERSION} FROM dataset d JOIN dataset_version v ON v.dataset = d.n AND v.version = d.version
    WHERE d.name > :after ORDER BY d.name LIMIT :limit
"""
OWN_SCORERS = f"""
    SELECT i.position, json_extract(i.detail, '$.scorers') FROM item i
    WHERE i.dataset = :dataset AND i.position > :after AND i.position <= :last AND {AS_OF}
    AND i.detail IS NOT NULL AND json_type(i.detail, '$.scorers') IS NOT NULL
"""
PAGE_OF_ITEMS = f"""
    SELECT i.position, {rows.qualified("i", rows.ITEM)} FROM item i
    WHERE i.dataset = :dataset AND i.position > :after AND {AS_OF}
    ORDER BY i.position LIMIT :limit
"""
PAGE_OF_TAGGED = f"""
    SELECT i.position, {rows.qualified("i", rows.ITEM)} FROM item i
    WHERE i.dataset = :dataset AND i.position > :after AND i.position <= :end AND {AS_OF}
    AND NOT EXISTS (SELECT 1 FROM json_each(:tags) t
        WHERE t.value NOT IN (SELECT g.value FROM json_each(i.detail, '$.tags') g))
    ORDER BY i.position LIMIT :limit
"""
PAGE_OF_OUTLINES = f"""
    SELECT i.position, i.id, json_extract(i.detail, '$.tags') FROM item i
    WHERE i.dataset = :dataset AND i.position > :after AND {AS_OF}
    ORDER BY i.position LIMIT :limit
"""
LAST_POSITION = f"""
    SELECT i.position FROM item i WHERE i.dataset = :dataset AND {AS_OF} ORDER BY i.position DESC LIMIT 1
"""
_INFO = """
    SELECT d.name, v.version, v.items, v.digest, v.created_at, d.description, d.metadata, d.input_schema,
        d.expected_schema, d.scorers, d.origin
    FROM dataset d JOIN dataset_version v ON v.dataset = d.n AND v.version = d.version WHERE d.name = ?
"""
_VERSIONS = f"""
    SELECT {_VERSION}, v.cause, v.added, v.changed, v.removed
    FROM dataset d JOIN dataset_version v ON v.dataset = d.n AND v.version < :before
    WHERE d.name = :name ORDER BY v.version DESC LIMIT :limit
"""
_HISTORY = f"""
    SELECT i.first_version, i.last_version, {rows.qualified("i", rows.ITEM)}
    FROM dataset d JOIN item i ON i.dataset = d.n AND i.first_version <= d.version
    WHERE d.name = :name AND i.id = :id
"""
_ITEM = f"""
    SELECT i.position, {rows.qualified("i", rows.ITEM)} FROM item i INDEXED BY item_id
    WHERE i.dataset = :dataset AND i.id = :id AND {AS_OF}
"""
_COLUMNS = {
    "description": "description",
    "metadata_json": "metadata",
    "input_schema": "input_schema",
    "expected_schema": "expected_schema",
    "scorers": "scorers",
}


def find(connection: Connection, name: str, version: int | None = None) -> DatasetVersion:
    """A dataset at a version, or at its latest.

    Raises:
        NotFound: DATASET_NOT_FOUND, with what there is instead.
    """
    storable = version if version is None else min(version, _LAST_VERSION)
    found = connection.row(FIND_VERSION, {"name": name, "version": storable})
    if found is not None:
        return DatasetVersion(*found)
    known = connection.row(_INFO, (name,))
    if known is not None:
        raise NotFound(
            Reason.DATASET_NOT_FOUND, f"the dataset {name!r} has no version {version}: its latest is {known[1]}"
        )
    names = [row[0] for row in connection.rows(LIST_DATASETS, {"after": "", "limit": 1000})]
    near = difflib.get_close_matches(name, names, n=3)
    hint = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise NotFound(Reason.DATASET_NOT_FOUND, f"there is no dataset {name!r}{hint}")


def list_latest(connection: Connection, limit: int, after_name: str) -> list[DatasetVersion]:
    """Datasets at their latest versions, by name, those behind *after_name*."""
    found = connection.rows(LIST_DATASETS, {"after": after_name, "limit": limit})
    return [DatasetVersion(*row) for row in found]


def number(connection: Connection, name: str) -> int:
    """The number by which rows refer to a dataset.

    Raises:
        NotFound: DATASET_NOT_FOUND.
    """
    found = connection.row("SELECT n FROM dataset WHERE name = ?", (name,))
    if found is None:
        raise NotFound(Reason.DATASET_NOT_FOUND, f"there is no dataset {name!r}")
    return int(found[0])


def items(connection: Connection, dataset: int, version: int, *, after: int, limit: int) -> list[StoredItem]:
    """Items of a version in dataset order, those behind the position *after*."""
    page = connection.rows(PAGE_OF_ITEMS, {"dataset": dataset, "version": version, "after": after, "limit": limit})
    return [StoredItem(row[0], row[1:], rows.read_item) for row in page]


def items_with(  # noqa: PLR0913  # the place of the page, by name
    connection: Connection, dataset: int, version: int, tags: Sequence[str], *, after: int, limit: int
) -> tuple[list[StoredItem], int | None]:
    """Items that have all of some tags, as `items`, and behind which position to go on; None: these were the last."""
    end = after + _LOOKED_AT
    place = {"dataset": dataset, "version": version, "after": after, "end": end, "tags": dumps(list(tags))}
    page = connection.rows(PAGE_OF_TAGGED, {**place, "limit": limit})
    found = [StoredItem(row[0], row[1:], rows.read_item) for row in page]
    if len(found) == limit:
        end = found[-1].position
    return found, end if end < last_position(connection, dataset, version) else None


def outlines(connection: Connection, dataset: int, version: int, *, after: int, limit: int) -> list[Outline]:
    """Items of a version without their content, those behind the position *after*."""
    page = connection.rows(PAGE_OF_OUTLINES, {"dataset": dataset, "version": version, "after": after, "limit": limit})
    return [Outline(position, id, tuple(loads(tags)) if tags else ()) for position, id, tags in page]


def last_position(connection: Connection, dataset: int, version: int) -> int:
    """The position of the last item of a version; -1 if there is none."""
    found = connection.row(LAST_POSITION, {"dataset": dataset, "version": version})
    return -1 if found is None else int(found[0])


def own_scorers(
    connection: Connection, dataset: int, version: int, *, after: int, last: int
) -> list[tuple[int, tuple[str, ...]]]:
    """The items behind the position *after*, up to *last*, that name scorers of their own, by position, and whom."""
    place = {"dataset": dataset, "version": version, "after": after, "last": last}
    return [(position, tuple(loads(names))) for position, names in connection.rows(OWN_SCORERS, place)]


def item(connection: Connection, dataset: int, version: int, id: str) -> StoredItem | None:
    """An item of a version by its id."""
    found = connection.row(_ITEM, {"dataset": dataset, "version": version, "id": id})
    return None if found is None else StoredItem(found[0], found[1:], rows.read_item)


def info(connection: Connection, name: str) -> DatasetInfo:
    """A dataset at its latest version, with description, metadata and schemas.

    Raises:
        NotFound: DATASET_NOT_FOUND.
    """
    found = connection.row(_INFO, (name,))
    if found is None:
        return DatasetInfo(find(connection, name))  # which says what there is instead
    texts = [part or "" for part in found[5:9]]
    scorers = () if found[9] is None else tuple(loads(found[9]))
    return DatasetInfo(DatasetVersion(*found[:5]), texts[0], texts[1], texts[2], texts[3], scorers, found[10] or "")


def note_origin(connection: Connection, name: str, origin: str) -> None:
    """Note the file that gives a dataset its name."""
    with connection.transaction():
        connection.execute("UPDATE dataset SET origin = ? WHERE name = ?", (origin, name))


def change_info(connection: Connection, name: str, change: InfoChange) -> None:
    """Change what does not belong to a version; there is no new version.

    Raises:
        NotFound: DATASET_NOT_FOUND.
    """
    find(connection, name)
    with connection.transaction(durable=True):
        for part, column in _COLUMNS.items():
            wanted = getattr(change, part)
            if wanted is not None:
                stored = wanted if part == "description" else wanted or None
                if part == "scorers" and wanted:
                    stored = dumps(wanted)
                connection.execute(f"UPDATE dataset SET {column} = ? WHERE name = ?", (stored, name))


def versions(connection: Connection, name: str, before: int | None, limit: int) -> list[VersionInfo]:
    """Versions, the newest first, those older than *before*.

    Raises:
        NotFound: DATASET_NOT_FOUND.
    """
    find(connection, name)
    latest = before if before is not None else _LAST_VERSION
    found = connection.rows(_VERSIONS, {"name": name, "before": latest, "limit": limit})
    return [VersionInfo(DatasetVersion(*row[:5]), *row[5:]) for row in found]


def history(connection: Connection, name: str, id: str) -> list[ItemVersion]:
    """What an item was, the newest first; a time in which it was not there has a tombstone.

    Raises:
        NotFound: DATASET_NOT_FOUND; ITEM_NOT_FOUND: it never was there.
    """
    latest = find(connection, name).version
    found = sorted(connection.rows(_HISTORY, {"name": name, "id": id}), key=lambda row: int(row[0]))
    if not found:
        raise NotFound(Reason.ITEM_NOT_FOUND, f"the dataset {name!r} never had an item {id!r}")
    lives: list[ItemVersion] = []
    for first, last, *columns in found:
        before = lives[-1] if lives else None
        if before is not None and before.until is not None and before.until < first - 1:
            lives.append(ItemVersion(before.until + 1, first - 1, None))
        if last is not None and last >= latest:
            last = None  # closed by an upload that is not published
        made = rows.read_item(tuple(columns))
        if before is not None and lives[-1] is before and before.item == made:
            lives[-1] = ItemVersion(before.version, last, made)  # it has only moved
        else:
            lives.append(ItemVersion(first, last, made))
    if lives[-1].until is not None:
        lives.append(ItemVersion(lives[-1].until + 1, None, None))
    return lives[::-1]


def refuse_busy(name: str) -> Conflict:
    """The error for a change of a dataset while an upload of it is under way."""
    return Conflict(Reason.DATASET_BUSY, f"another upload of the dataset {name!r} is under way: try again after it")
