"""Datasets, their versions and their items.

An item keeps its row for as many versions as it stays unchanged at its position. An upload writes the rows of the next
version in place, where nobody sees them: they begin after the latest version, and a row that it closes still belongs to
it. So publishing is one small transaction, however large the dataset is.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from evalbus import Item
from evalbus_server.errors import Conflict, Invalid, NotFound, Reason, StoreTrouble
from evalbus_server.model.run import DatasetVersion
from evalbus_server.model.trial import StoredItem
from evalbus_server.store import rows
from evalbus_server.store.connection import Connection, Row
from evalbus_server.store.documents import canonical

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
PAGE_OF_ITEMS = f"""
    SELECT i.position, {rows.qualified("i", rows.ITEM)} FROM item i
    WHERE i.dataset = :dataset AND i.position > :after AND {AS_OF}
    ORDER BY i.position LIMIT :limit
"""
LAST_POSITION = f"""
    SELECT i.position FROM item i WHERE i.dataset = :dataset AND {AS_OF} ORDER BY i.position DESC LIMIT 1
"""
_STAGED_OVER = f"""
    SELECT i.position, i.n, {rows.qualified("i", rows.ITEM)} FROM item i
    WHERE i.dataset = :dataset AND i.position >= :first AND i.position < :end AND i.last_version IS NULL
"""
_EARLIER = """
    SELECT position FROM item INDEXED BY item_id
    WHERE dataset = :dataset AND id = :id AND position < :first AND last_version IS NULL
"""
_INSERT_ITEM = rows.insert("item", f"dataset, position, first_version, {rows.ITEM}")
_UNDONE_AT_ONCE = 1_000


def find(connection: Connection, name: str, version: int | None = None) -> DatasetVersion:
    """A dataset at a version, or at its latest.

    Raises:
        NotFound: DATASET_NOT_FOUND, with what there is instead.
    """
    found = connection.row(FIND_VERSION, {"name": name, "version": version})
    if found is not None:
        return DatasetVersion(*found)
    known = connection.row("SELECT version FROM dataset WHERE name = ? AND version > 0", (name,))
    if known is not None:
        raise NotFound(
            Reason.DATASET_NOT_FOUND, f"the dataset {name!r} has no version {version}: its latest is {known[0]}"
        )
    names = [row[0] for row in connection.rows("SELECT name FROM dataset WHERE version > 0 ORDER BY name LIMIT 1000")]
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


def last_position(connection: Connection, dataset: int, version: int) -> int:
    """The position of the last item of a version; -1 if there is none."""
    found = connection.row(LAST_POSITION, {"dataset": dataset, "version": version})
    return -1 if found is None else int(found[0])


class Upload:
    """The next version of a dataset on its way in: all of it appears at the end, or nothing.

    `with store.upload(name) as upload:` takes back what was written unless `finish` was reached. There is one upload
    of a dataset at a time.
    """

    def __init__(self, connection: Connection, name: str, now: Callable[[], float], end: Callable[[str], None]) -> None:
        """Begin; *end* is told the name once the upload is over, either way."""
        self._connection = connection
        self._name = name
        self._now = now
        self._end = end
        self._over = False
        self._undone = 0
        self._dataset, self._base, staging = self._begin()
        self._count = 0
        self._changed = False
        self._digest = hashlib.sha256()
        if staging:  # Left by a process that died, or by one whose disk was full.
            for _ in self._undo(self._end_of_all()):
                pass
            self._undone = 0

    def add(self, items: list[Item]) -> None:
        """Take the next items, in one transaction.

        Raises:
            Invalid: DATASET_INVALID: an id comes a second time, or an item has a part that cannot be stored.
            StoreTrouble: the database cannot be written.
        """
        assert not self._over, "the upload is over"
        first = self._count
        texts = [self._text_and_row(first + i, item) for i, item in enumerate(items)]
        with self._connection.transaction():
            self._refuse_repeated(first, items)
            changed = self._store(first, [row for _, row in texts])
        for text, _ in texts:
            self._digest.update(text)
        self._count += len(items)
        self._changed = self._changed or changed

    def finish(self) -> tuple[DatasetVersion, bool]:
        """Publish the version; returns it and True, or the latest one and False if nothing differs from it."""
        assert not self._over, "the upload is over"
        with self._connection.transaction(durable=True):
            removed = self._connection.execute(
                "UPDATE item SET last_version = ? WHERE dataset = ? AND position >= ? AND last_version IS NULL",
                (self._base, self._dataset, self._count),
            )
            changed = self._changed or removed > 0 or self._base == 0
            if changed:
                self._connection.execute(
                    "INSERT INTO dataset_version VALUES (?, ?, ?, ?, ?)",
                    (self._dataset, self._base + 1, self._count, self._digest.hexdigest(), self._now()),
                )
            self._connection.execute(
                "UPDATE dataset SET version = version + ?, staging = 0 WHERE n = ?", (int(changed), self._dataset)
            )
        self._close()
        return find(self._connection, self._name), changed

    def abort(self) -> None:
        """Take back all that was written."""
        if self._over:
            return
        try:
            for _ in self._undo(self._count):
                pass
            with self._connection.transaction():
                self._connection.execute("UPDATE dataset SET staging = 0 WHERE n = ?", (self._dataset,))
                self._connection.execute("DELETE FROM dataset WHERE n = ? AND version = 0", (self._dataset,))
        finally:
            self._close()  # What is left is seen by nobody, and taken back when the next upload begins.

    def undo(self) -> Iterator[None]:
        """Take back all that was written, some of it at each step, so that the event loop can run in between.

        Who stops in between gets the rest at once.
        """
        if self._over:
            return
        try:
            yield from self._undo(self._count)
        finally:
            self.abort()

    def __enter__(self) -> Self:
        """The upload itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Take back what was not finished; trouble with that never hides the error that led here."""
        with contextlib.suppress(*([StoreTrouble] if error is not None else [])):
            self.abort()

    def _begin(self) -> tuple[int, int, bool]:
        with self._connection.transaction():
            self._connection.execute(
                "INSERT INTO dataset (name, version, staging) VALUES (?, 0, 0) ON CONFLICT (name) DO NOTHING",
                (self._name,),
            )
            found = self._connection.row("SELECT n, version, staging FROM dataset WHERE name = ?", (self._name,))
            assert found is not None
            self._connection.execute("UPDATE dataset SET staging = 1 WHERE n = ?", (found[0],))
        return found[0], found[1], bool(found[2])

    def _text_and_row(self, position: int, item: Item) -> tuple[bytes, Row]:
        try:
            return canonical(item).encode() + b"\n", rows.item_row(item)
        except ValueError as error:
            raise Invalid(
                Reason.DATASET_INVALID, f"item {position + 1} ({item.id!r}) cannot be stored: {error}"
            ) from error

    def _refuse_repeated(self, first: int, items: list[Item]) -> None:
        seen: dict[str, int] = {}
        for position, item in enumerate(items, first):
            earlier = seen.get(item.id)
            if earlier is None and first:
                found = self._connection.row(_EARLIER, {"dataset": self._dataset, "id": item.id, "first": first})
                earlier = None if found is None else found[0]
            if earlier is not None:
                raise Invalid(
                    Reason.DATASET_INVALID,
                    f"the id {item.id!r} comes twice: in item {earlier + 1} and in item {position + 1}",
                )
            seen[item.id] = position

    def _store(self, first: int, new: list[Row]) -> bool:
        """Write the rows that differ from what stands at their positions in the latest version."""
        within = {"dataset": self._dataset, "first": first, "end": first + len(new)}
        old = {row[0]: (row[1], row[2:]) for row in (self._connection.rows(_STAGED_OVER, within) if self._base else [])}
        closed: list[Row] = []
        added: list[Row] = []
        for position, row in enumerate(new, first):
            number, content = old.get(position, (None, None))
            if content == row:
                continue
            if number is not None:
                closed.append((self._base, number))
            added.append((self._dataset, position, self._base + 1, *row))
        self._connection.execute_many("UPDATE item SET last_version = ? WHERE n = ?", closed)
        self._connection.execute_many(_INSERT_ITEM, added)
        return bool(added)

    def _end_of_all(self) -> int:
        found = self._connection.row("SELECT max(position) FROM item WHERE dataset = ?", (self._dataset,))
        return 0 if found is None or found[0] is None else int(found[0]) + 1

    def _undo(self, end: int) -> Iterator[None]:
        """Take back what was written at positions before *end*, and was not taken back yet."""
        for first in range(self._undone, end, _UNDONE_AT_ONCE):
            within = (self._dataset, first, first + _UNDONE_AT_ONCE, self._base)
            with self._connection.transaction():
                self._connection.execute(
                    "DELETE FROM item WHERE dataset = ? AND position >= ? AND position < ? AND first_version > ?",
                    within,
                )
                self._connection.execute(
                    "UPDATE item SET last_version = NULL"
                    " WHERE dataset = ? AND position >= ? AND position < ? AND last_version = ?",
                    within,
                )
            self._undone = first + _UNDONE_AT_ONCE
            yield

    def _close(self) -> None:
        self._over = True
        self._end(self._name)


def refuse_busy(name: str) -> Conflict:
    """The error for a second upload of a dataset at the same time."""
    return Conflict(Reason.DATASET_INVALID, f"another upload of the dataset {name!r} is under way: try again after it")
