"""What differs between two versions of a dataset, item by item, a stretch of positions at a time.

Only rows that belong to one of the two versions and not to the other are looked at: what has not changed has the same
row in both. An item whose content is the same has moved if another item of both versions is before it now: items that
were added or removed before it do not move it, and of two that have changed places one is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalbus import Item
from evalbus_server.model.dataset import ItemChange, Tally
from evalbus_server.store import rows
from evalbus_server.store.connection import Connection, Row

STRETCH = 512
"""Positions that are looked at in one go."""
_FIELDS = tuple(Item.__dataclass_fields__)[1:]
_NAMES = {"metadata_json": "metadata"}


def _in(alias: str, version: str) -> str:
    return f"({alias}.first_version <= :{version} AND ({alias}.last_version IS NULL OR {alias}.last_version >= :{version}))"


_SAME = " AND ".join(f"o.{column.strip()} IS i.{column.strip()}" for column in rows.ITEM.split(","))
_BEFORE = (
    "(SELECT p.id FROM item p WHERE p.dataset = :dataset AND p.position < {row}.position AND {here} AND EXISTS"
    " (SELECT 1 FROM item q INDEXED BY item_id WHERE q.dataset = :dataset AND q.id = p.id AND {there})"
    " ORDER BY p.position DESC LIMIT 1)"
)
"""The id of the item before a row, among those that both versions have."""
_BEFORE_NEW = _BEFORE.format(row="i", here=_in("p", "b"), there=_in("q", "a"))
_BEFORE_OLD = _BEFORE.format(row="o", here=_in("p", "a"), there=_in("q", "b"))
_STAYS = f"(o.n IS NOT NULL AND {_SAME} AND {_BEFORE_NEW} IS {_BEFORE_OLD})"
_WITHIN = "i.dataset = :dataset AND i.position >= :first AND i.position < :end"
_OTHER = "o.dataset = :dataset AND o.id = i.id"
_NEW = f"""
    SELECT i.position, {rows.qualified("i", rows.ITEM)}, {rows.qualified("o", rows.ITEM)}
    FROM item i LEFT JOIN item o INDEXED BY item_id ON {_OTHER} AND {_in("o", "a")}
    WHERE {_WITHIN} AND {_in("i", "b")} AND NOT {_in("i", "a")} AND NOT {_STAYS} ORDER BY i.position
"""
_GONE = f"""
    SELECT i.position, {rows.qualified("i", rows.ITEM)} FROM item i
    WHERE {_WITHIN} AND {_in("i", "a")} AND NOT {_in("i", "b")}
    AND NOT EXISTS (SELECT 1 FROM item o INDEXED BY item_id WHERE {_OTHER} AND {_in("o", "b")}) ORDER BY i.position
"""
_COUNT_NEW = f"""
    SELECT count(*), count(o.n), coalesce(sum(o.n IS NOT NULL AND {_SAME}), 0)
    FROM item i LEFT JOIN item o INDEXED BY item_id ON {_OTHER} AND {_in("o", "a")}
    WHERE {_WITHIN} AND {_in("i", "b")} AND NOT {_in("i", "a")}
"""
_COUNT_GONE = f"""
    SELECT count(*) FROM item i
    WHERE {_WITHIN} AND {_in("i", "a")} AND NOT {_in("i", "b")}
    AND NOT EXISTS (SELECT 1 FROM item o INDEXED BY item_id WHERE {_OTHER} AND {_in("o", "b")})
"""
_LAST = "SELECT max(position) FROM item WHERE dataset = ?"


def end_of(connection: Connection, dataset: int) -> int:
    """The position behind all that any version has."""
    found = connection.row(_LAST, (dataset,))
    return 0 if found is None or found[0] is None else int(found[0]) + 1


def differences(connection: Connection, dataset: int, a: int, b: int, first: int = 0) -> Iterator[list[ItemChange]]:
    """What differs from version *a* to *b*, from the position *first* on, by position, a stretch at each step."""
    end = end_of(connection, dataset)
    while first < end:
        within = _within(dataset, a, b, first)
        found: list[tuple[int, ItemChange]] = []
        for position, *columns in connection.rows(_NEW, within):
            after, before = tuple(columns[: rows.ITEM_WIDTH]), tuple(columns[rows.ITEM_WIDTH :])
            found.append((position, _change(None if before[0] is None else before, after)))
        for position, *columns in connection.rows(_GONE, within):
            found.append((position, _change(tuple(columns), None)))
        found.sort(key=lambda each: each[0])
        yield [change for _, change in found]
        first += STRETCH


def tallies(connection: Connection, dataset: int, a: int, b: int) -> Iterator[Tally]:
    """How much differs, a stretch at each step."""
    for first in range(0, end_of(connection, dataset), STRETCH):
        within = _within(dataset, a, b, first)
        new = connection.row(_COUNT_NEW, within)
        gone = connection.row(_COUNT_GONE, within)
        assert new is not None
        assert gone is not None
        yield Tally(new[0] - new[1], new[1] - new[2], gone[0])


def _within(dataset: int, a: int, b: int, first: int) -> dict[str, Any]:
    return {"dataset": dataset, "a": a, "b": b, "first": first, "end": first + STRETCH}


def _change(before: Row | None, after: Row | None) -> ItemChange:
    was = None if before is None else rows.read_item(before)
    now = None if after is None else rows.read_item(after)
    fields: tuple[str, ...] = ()
    if was is not None and now is not None:
        fields = tuple(_NAMES.get(name, name) for name in _FIELDS if getattr(was, name) != getattr(now, name))
    return ItemChange(was, now, fields)
