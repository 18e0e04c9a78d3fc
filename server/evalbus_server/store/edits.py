"""Items of a dataset added, changed and taken out: each call is one transaction and one version, or none.

An item keeps its position while it lives, since trial ids are made of it; a new one goes behind all that ever were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from evalbus import Item
from evalbus_server.errors import Conflict, NotFound, Reason, Unfit
from evalbus_server.model.dataset import SHOWN, Edited, Fault, ItemConflict, Tally
from evalbus_server.store import purge, rows
from evalbus_server.store.connection import Connection, Row
from evalbus_server.store.datasets import find, number
from evalbus_server.store.difference import end_of
from evalbus_server.store.digest import EMPTY, Content
from evalbus_server.store.staging import INSERT_ITEM, INSERT_VERSION, stored_row

_LATEST = """
    SELECT d.n, d.version, v.items, v.sum FROM dataset d
    JOIN dataset_version v ON v.dataset = d.n AND v.version = d.version WHERE d.name = ?
"""
_LAST = "SELECT id FROM item WHERE dataset = ? AND last_version IS NULL ORDER BY position DESC LIMIT 1"
_BEFORE = """
    SELECT id FROM item WHERE dataset = ? AND position < ? AND last_version IS NULL ORDER BY position DESC LIMIT 1
"""
_BEHIND = f"""
    SELECT {rows.ITEM} FROM item WHERE dataset = ? AND position > ? AND last_version IS NULL ORDER BY position LIMIT 1
"""
_OF_ID = f"SELECT n, position, first_version, last_version, {rows.ITEM} FROM item WHERE dataset = ? AND id = ?"
_AT_ONCE = 1_000
_CLOSE = "UPDATE item SET last_version = ? WHERE n = ?"


class Edit:
    """One change of a dataset inside a transaction."""

    def __init__(self, connection: Connection, name: str) -> None:
        """Raises NotFound: DATASET_NOT_FOUND."""
        found = connection.row(_LATEST, (name,))
        if found is None:
            find(connection, name)
        assert found is not None
        self._connection = connection
        self.dataset, self.base, self.items, stored = found
        self.content = Content(stored or EMPTY)
        self.added = self.changed = self.removed = 0
        self._placeholders: list[str] = []

    @property
    def tally(self) -> Tally:
        """What it has changed."""
        return Tally(self.added, self.changed, self.removed)

    def of_id(self, id: str) -> list[Row]:
        """All rows that an id ever had, the oldest first."""
        return sorted(self._connection.rows(_OF_ID, (self.dataset, id)), key=lambda row: (row[2], row[1]))

    def live(self, id: str) -> Row | None:
        """The row of an item that is there."""
        return next((row for row in self._connection.rows(_OF_ID, (self.dataset, id)) if row[3] is None), None)

    def append(self, new: Sequence[Row]) -> None:
        """Add items behind all others."""
        last = self._connection.row(_LAST, (self.dataset,))
        before = None if last is None else last[0]
        position = end_of(self._connection, self.dataset)
        for row in new:
            self._connection.execute(INSERT_ITEM, (self.dataset, position, self.base + 1, *row))
            self.content.add(before, row)
            self._note(row)
            before = row[0]
            position += 1
        self.added += len(new)

    def replace(self, old: Row, new: Row) -> None:
        """Change an item at its place."""
        number, position = old[:2]
        before = self._before(position)
        self._connection.execute(_CLOSE, (self.base, number))
        self._connection.execute(INSERT_ITEM, (self.dataset, position, self.base + 1, *new))
        self.content.remove(before, old[4:])
        self.content.add(before, new)
        self._note(new)
        self.changed += 1

    def remove(self, old: Row) -> None:
        """Take an item out."""
        number, position = old[:2]
        before = self._before(position)
        behind = self._connection.row(_BEHIND, (self.dataset, position))
        self._connection.execute(_CLOSE, (self.base, number))
        self.content.remove(before, old[4:])
        if behind is not None:
            self.content.remove(old[4], behind)
            self.content.add(before, behind)
        self.removed += 1

    def publish(self, cause: str, now: float) -> None:
        """Make it a version, if there is something in it."""
        if not any(self.tally):
            return
        items = self.items + self.added - self.removed
        content = self.content
        row = (self.dataset, self.base + 1, items, content.digest, now, content.stored, cause, *self.tally)
        self._connection.execute(INSERT_VERSION, row)
        self._connection.execute("UPDATE dataset SET version = version + 1 WHERE n = ?", (self.dataset,))
        purge.carry(self._connection, self.dataset, self._placeholders, now)

    def _note(self, row: Row) -> None:
        if purge.is_placeholder(row):
            self._placeholders.append(row[0])

    def _before(self, position: int) -> str | None:
        found = self._connection.row(_BEFORE, (self.dataset, position))
        return None if found is None else str(found[0])


@contextmanager
def _editing(connection: Connection, name: str, cause: str, now: float) -> Iterator[Edit]:
    with connection.transaction(durable=True):
        edit = Edit(connection, name)
        yield edit
        edit.publish(cause, now)


def add(connection: Connection, name: str, items: Sequence[Item], now: float) -> Edited:
    """Add items. One that was added before, just so, is left as it is now: a call can be made again.

    Raises:
        NotFound: DATASET_NOT_FOUND.
        ItemConflict: ids are taken, with all of them; nothing was added.
        Invalid: an item has a part that cannot be stored.
    """
    new = [stored_row(number, item) for number, item in enumerate(items, 1)]
    with _editing(connection, name, "add", now) as edit:
        fresh: dict[str, Row] = {}
        replayed: list[int] = []
        faults: list[Fault] = []
        for index, row in enumerate(new):
            fault = _against(fresh.get(row[0]), edit.of_id(row[0]), row, index)
            if fault is not None:
                faults.append(fault)
            elif row[0] in fresh or edit.of_id(row[0]):
                replayed.append(index)
            else:
                fresh[row[0]] = row
        if faults:
            raise ItemConflict(name, faults)
        edit.append(list(fresh.values()))
    return Edited(find(connection, name), bool(any(edit.tally)), edit.tally, replayed=tuple(replayed))


def _against(twin: Row | None, known: Sequence[Row], row: Row, index: int) -> Fault | None:
    """Why an item cannot be added, if its id is taken by something else."""
    id = row[0]
    if twin is not None:
        return None if twin == row else Fault(index, id, "ID_TWICE", "comes twice in this call, with other content")
    if not known:
        return None
    if all(each[3] is not None for each in known):
        return Fault(index, id, "ID_DELETED", "was deleted; restore a version that has it, or take another id")
    if known[0][4:] == row:
        return None
    return Fault(index, id, "ID_TAKEN", "is there with other content; update it instead")


def update(connection: Connection, name: str, items: Sequence[Item], now: float) -> Edited:
    """Put items in the place of those with their ids.

    Raises:
        NotFound: DATASET_NOT_FOUND, ITEM_NOT_FOUND: with all ids that are not there; nothing was changed.
        ItemConflict: an id comes twice.
        Invalid: an item has a part that cannot be stored.
    """
    new = [stored_row(number, item) for number, item in enumerate(items, 1)]
    with _editing(connection, name, "update", now) as edit:
        seen: set[str] = set()
        faults = [
            Fault(index, row[0], "ID_TWICE", "comes twice in this call")
            for index, row in enumerate(new)
            if row[0] in seen or seen.add(row[0])  # type: ignore[func-returns-value]
        ]
        if faults:
            raise ItemConflict(name, faults)
        found = [edit.live(row[0]) for row in new]
        missing = [row[0] for row, old in zip(new, found, strict=True) if old is None]
        if missing:
            shown = ", ".join(map(repr, missing[:SHOWN])) + (" …" if len(missing) > SHOWN else "")
            raise NotFound(Reason.ITEM_NOT_FOUND, f"the dataset {name!r} has no item {shown}; nothing was changed")
        for row, old in zip(new, found, strict=True):
            if old is not None and old[4:] != row:
                edit.replace(old, row)
    return Edited(find(connection, name), bool(any(edit.tally)), edit.tally)


def delete(connection: Connection, name: str, ids: Sequence[str], now: float) -> Edited:
    """Take items out; ids that are not there are only told. Earlier versions keep them.

    Raises:
        NotFound: DATASET_NOT_FOUND.
    """
    with _editing(connection, name, "delete", now) as edit:
        missing: list[str] = []
        for id in dict.fromkeys(ids):
            old = edit.live(id)
            if old is None:
                missing.append(id)
            else:
                edit.remove(old)
    return Edited(find(connection, name), bool(any(edit.tally)), edit.tally, missing=tuple(missing))


def is_staged(connection: Connection, name: str) -> bool:
    """Whether rows of a next version are there."""
    found = connection.row("SELECT staging FROM dataset WHERE name = ?", (name,))
    return found is not None and bool(found[0])


def create(connection: Connection, name: str, now: float) -> None:
    """Make a dataset without items, as version 0, inside a transaction.

    Raises:
        Conflict: DATASET_EXISTS.
    """
    if connection.row("SELECT 1 FROM dataset WHERE name = ?", (name,)) is not None:
        raise Conflict(Reason.DATASET_EXISTS, f"there is a dataset {name!r} already; take another name")
    connection.execute("INSERT INTO dataset (name, version, staging) VALUES (?, 0, 0)", (name,))
    found = connection.row("SELECT n FROM dataset WHERE name = ?", (name,))
    assert found is not None
    nothing = Content()
    connection.execute(INSERT_VERSION, (found[0], 0, 0, nothing.digest, now, nothing.stored, "create", 0, 0, 0))


def delete_dataset(connection: Connection, name: str) -> Iterator[None]:
    """Delete a dataset with all its versions: it is gone after the first step, and its items after the last.

    Raises:
        NotFound: DATASET_NOT_FOUND.
        Unfit: DATASET_IN_USE: runs have used it.
    """
    find(connection, name)
    dataset = number(connection, name)
    used = connection.row("SELECT count(*) FROM run WHERE dataset = ?", (dataset,))
    if used is not None and used[0]:
        runs = "1 run has" if used[0] == 1 else f"{used[0]} runs have"
        raise Unfit(Reason.DATASET_IN_USE, f"{runs} used the dataset {name!r}; its versions stay with them")
    with connection.transaction(durable=True):
        connection.execute("DELETE FROM dataset_version WHERE dataset = ?", (dataset,))
        connection.execute("DELETE FROM purged WHERE dataset = ?", (dataset,))
        connection.execute("UPDATE dataset SET name = ?, staging = 0 WHERE n = ?", (f"\0{dataset}", dataset))
    end = end_of(connection, dataset)
    for first in range(0, end, _AT_ONCE):
        yield
        with connection.transaction():
            connection.execute(
                "DELETE FROM item WHERE dataset = ? AND position >= ? AND position < ?",
                (dataset, first, first + _AT_ONCE),
            )
    with connection.transaction():
        connection.execute("DELETE FROM dataset WHERE n = ?", (dataset,))
