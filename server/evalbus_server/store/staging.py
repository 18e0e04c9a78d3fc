"""The next version of a dataset on its way in: all of it appears at the end, or nothing.

The rows of the next version are written in place, where nobody sees them: they begin after the latest version, and a
row that they close still belongs to it. So publishing is one small transaction, however large the dataset is. What a
process that died has left is taken back by the next change.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from evalbus import Item
from evalbus_server.errors import Invalid, Reason, StoreTrouble
from evalbus_server.model.dataset import Repeated, Tally
from evalbus_server.model.run import DatasetVersion
from evalbus_server.store import purge, rows
from evalbus_server.store.connection import Connection, Row
from evalbus_server.store.datasets import AS_OF, find
from evalbus_server.store.difference import end_of, tallies
from evalbus_server.store.digest import EMPTY, Content

_LIVE = f"""
    SELECT i.position, i.n, {rows.qualified("i", rows.ITEM)} FROM item i
    WHERE i.dataset = :dataset AND i.position > :after AND i.first_version <= :base AND i.last_version IS NULL
    ORDER BY i.position LIMIT :limit
"""
_EARLIER = """
    SELECT position FROM item INDEXED BY item_id
    WHERE dataset = :dataset AND id = :id AND position <= :last AND last_version IS NULL
"""
_EARLIER_OF_MANY = """
    SELECT j.value, i.position FROM json_each(:ids) j CROSS JOIN item i INDEXED BY item_id
    ON i.dataset = :dataset AND i.id = j.value AND i.position <= :last AND i.last_version IS NULL
"""
_COUNT_BEFORE = """
    SELECT count(*) FROM item WHERE dataset = ? AND position < ? AND last_version IS NULL
"""
_CLOSE_BEHIND = """
    UPDATE item SET last_version = :base
    WHERE dataset = :dataset AND position >= :first AND position < :end AND last_version IS NULL
"""
INSERT_VERSION = """
    INSERT INTO dataset_version (dataset, version, items, digest, created_at, sum, cause, added, changed, removed)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
INSERT_ITEM = rows.insert("item", f"dataset, position, first_version, {rows.ITEM}")
_AT_ONCE = 1_000


def stored_row(number: int, item: Item) -> Row:
    """The columns of an item, the *number*-th of its call.

    Raises:
        Invalid: DATASET_INVALID: it has a part that cannot be stored.
    """
    try:
        row = rows.item_row(item)
        for cell in row:
            if isinstance(cell, str):
                cell.encode()
        return row
    except ValueError as error:
        raise Invalid(Reason.DATASET_INVALID, f"item {number} ({item.id!r}) cannot be stored: {error}") from error


class Staging:
    """A version on its way. `with` takes back what was written unless it was published."""

    def __init__(self, connection: Connection, name: str, now: Callable[[], float], end: Callable[[str], None]) -> None:
        """Begin; *end* is told the name once it is over, either way."""
        self._connection = connection
        self._name = name
        self._now = now
        self._end = end
        self._over = False
        self._undone = 0
        self._dataset, self._base, self._exists, staging = self._begin()
        self._end_before = end_of(connection, self._dataset)
        if staging:  # Left by a process that died, or by one whose disk was full.
            for _ in self._undo(self._end_before):
                pass
            self._undone = 0
            self._end_before = end_of(connection, self._dataset)
        self._end_now = self._end_before
        """The position behind all that was written or closed."""
        self._placeholders: list[str] = []
        """Ids of new rows that have what stands where content was purged."""
        self._tally: Tally | None = None

    def settle(self) -> Iterator[None]:
        """Do all but the publishing, some of it at each step, so that the event loop can run in between."""
        raise NotImplementedError

    def finish(self) -> tuple[DatasetVersion, bool]:
        """Publish the version; returns it and True, or the latest one and False if nothing differs from it."""
        raise NotImplementedError

    def abort(self) -> None:
        """Take back all that was written."""
        if self._over:
            return
        try:
            for _ in self._undo(self._end_now):
                pass
            with self._connection.transaction():
                self._connection.execute("UPDATE dataset SET staging = 0 WHERE n = ?", (self._dataset,))
                if not self._exists:
                    self._connection.execute("DELETE FROM dataset WHERE n = ?", (self._dataset,))
        finally:
            self._close()  # What is left is seen by nobody, and taken back when the next upload begins.

    def undo(self) -> Iterator[None]:
        """Take back all that was written, some of it at each step, so that the event loop can run in between.

        Who stops in between gets the rest at once.
        """
        if self._over:
            return
        try:
            yield from self._undo(self._end_now)
        finally:
            self.abort()

    def __enter__(self) -> Self:
        """The version on its way."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Take back what was not finished; trouble with that never hides the error that led here."""
        with contextlib.suppress(*([StoreTrouble] if error is not None else [])):
            self.abort()

    @property
    def tally(self) -> Tally:
        """What it changes; known once it is settled."""
        return self._tally or Tally()

    def _count(self) -> Iterator[None]:
        """Find out what the version changes, some of it at each step."""
        tally = Tally()
        for each in tallies(self._connection, self._dataset, self._base, self._base + 1):
            tally = tally.plus(each)
            yield
        self._tally = tally

    def _publish(self, items: int, content: Content, cause: str) -> DatasetVersion:
        tally, now = self.tally, self._now()
        row = (self._dataset, self._base + 1, items, content.digest, now, content.stored, cause, *tally)
        with self._connection.transaction(durable=True):
            self._connection.execute(INSERT_VERSION, row)
            self._connection.execute(
                "UPDATE dataset SET version = version + 1, staging = 0 WHERE n = ?", (self._dataset,)
            )
            purge.carry(self._connection, self._dataset, self._placeholders, now)
        self._close()
        return find(self._connection, self._name)

    def _begin(self) -> tuple[int, int, bool, bool]:
        with self._connection.transaction():
            self._connection.execute(
                "INSERT INTO dataset (name, version, staging) VALUES (?, 0, 0) ON CONFLICT (name) DO NOTHING",
                (self._name,),
            )
            found = self._connection.row("SELECT n, version, staging FROM dataset WHERE name = ?", (self._name,))
            assert found is not None
            known = self._connection.row("SELECT 1 FROM dataset_version WHERE dataset = ? LIMIT 1", (found[0],))
            self._connection.execute("UPDATE dataset SET staging = 1 WHERE n = ?", (found[0],))
        return found[0], found[1], known is not None, bool(found[2])

    def _undo(self, end: int) -> Iterator[None]:
        """Take back what was written at positions before *end*, and was not taken back yet."""
        for first in range(self._undone, end, _AT_ONCE):
            within = (self._dataset, first, first + _AT_ONCE, self._base)
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
            self._undone = first + _AT_ONCE
            yield

    def _close(self) -> None:
        self._over = True
        self._end(self._name)


class Upload(Staging):
    """A whole dataset that takes the place of what was there.

    The k-th item comes to the place of the k-th one that is there, so that what is the same stays where it is; what is
    more goes behind all positions that ever were. There is one upload of a dataset at a time.
    """

    def __init__(self, connection: Connection, name: str, now: Callable[[], float], end: Callable[[str], None]) -> None:
        """Begin; *end* is told the name once it is over, either way."""
        super().__init__(connection, name, now, end)
        self._items = 0
        self._last = -1
        """The position of the last item that came."""
        self._exhausted = self._base == 0
        """Whether every item that was there has met one that came."""
        self._last_id: str | None = None
        self._changed = False
        self._content = Content()
        self._settled = False

    def add(self, items: list[Item]) -> None:
        """Take the next items, in one transaction.

        Raises:
            Invalid: DATASET_INVALID: an id comes a second time, or an item has a part that cannot be stored.
            StoreTrouble: the database cannot be written.
        """
        first = self._items
        repeated = self.add_new(items, strict=True)
        if repeated:
            index, id, earlier = repeated[0]
            raise Invalid(
                Reason.DATASET_INVALID,
                f"the id {id!r} comes twice: in item {earlier + 1} and in item {first + index + 1}",
            )

    def add_new(self, items: list[Item], *, strict: bool = False) -> list[Repeated]:
        """Take the next items, in one transaction, but for those whose id came before; returns those.

        *strict*: take none if there are such.

        Raises:
            Invalid: DATASET_INVALID: an item has a part that cannot be stored.
            StoreTrouble: the database cannot be written.
        """
        assert not self._over, "the upload is over"
        repeated = self._repeated(items)
        if repeated:
            if strict:
                return repeated
            left = {index for index, _, _ in repeated}
            items = [item for index, item in enumerate(items) if index not in left]
        new = [stored_row(self._items + number, item) for number, item in enumerate(items, 1)]
        if not new:
            return repeated
        with self._connection.transaction():
            changed = self._store(new)
        add, before = self._content.add, self._last_id
        for row in new:
            add(before, row)
            before = row[0]
        self._last_id = before
        self._items += len(new)
        self._changed = self._changed or changed
        return repeated

    def settle(self) -> Iterator[None]:
        """Do all but the publishing, some of it at each step, so that the event loop can run in between."""
        if self._settled:
            return
        if self._base and not self._exhausted:
            for first in range(self._last + 1, self._end_before, _AT_ONCE):
                within = {"base": self._base, "dataset": self._dataset, "first": first, "end": first + _AT_ONCE}
                with self._connection.transaction():
                    closed = self._connection.execute(_CLOSE_BEHIND, within)
                self._changed = self._changed or closed > 0
                yield
        if not self._base:
            self._tally = Tally(added=self._items)
        elif self._changed:
            yield from self._count()
        self._settled = True

    def finish(self) -> tuple[DatasetVersion, bool]:
        """Publish the version; returns it and True, or the latest one and False if nothing differs from it."""
        assert not self._over, "the upload is over"
        for _ in self.settle():
            pass
        if self._changed or not self._exists:
            return self._publish(self._items, self._content, "upload"), True
        with self._connection.transaction():
            self._connection.execute("UPDATE dataset SET staging = 0 WHERE n = ?", (self._dataset,))
        self._close()
        return find(self._connection, self._name), False

    def _repeated(self, items: list[Item]) -> list[Repeated]:
        known = self._known([item.id for item in items]) if self._items else {}
        seen: dict[str, int] = {}
        found: list[Repeated] = []
        for place, item in enumerate(items):
            id = item.id
            if id in known:
                found.append(Repeated(place, id, self._count_before(known[id])))
            elif id in seen:
                found.append(Repeated(place, id, seen[id]))
            else:
                seen[id] = self._items + len(seen)
        return found

    def _known(self, ids: list[str]) -> dict[str, int]:
        """The positions of those ids that came in earlier batches."""
        where = {"dataset": self._dataset, "last": self._last}
        if any("\0" in id for id in ids):  # which JSON inside SQLite cuts short
            found = {id: self._connection.row(_EARLIER, {**where, "id": id}) for id in ids}
            return {id: row[0] for id, row in found.items() if row is not None}
        return dict(self._connection.rows(_EARLIER_OF_MANY, {**where, "ids": json.dumps(ids)}))

    def _count_before(self, position: int) -> int:
        if not self._base:
            return position  # nothing was there before, so positions count
        found = self._connection.row(_COUNT_BEFORE, (self._dataset, position))
        return 0 if found is None else int(found[0])

    def _store(self, new: list[Row]) -> bool:
        """Write the rows that differ from what stands at their places in the latest version."""
        old: list[Row] = []
        if not self._exhausted:
            where = {"dataset": self._dataset, "after": self._last, "base": self._base, "limit": len(new)}
            old = self._connection.rows(_LIVE, where)
            self._exhausted = len(old) < len(new)
        closed: list[Row] = []
        added: list[Row] = []
        for place, row in enumerate(new):
            if place < len(old):
                position, number, *content = old[place]
                self._last = position
                if tuple(content) == row:
                    continue
                closed.append((self._base, number))
            else:
                position = self._last = self._end_now
                self._end_now += 1
            added.append((self._dataset, position, self._base + 1, *row))
            if purge.is_placeholder(row):
                self._placeholders.append(row[0])
        self._connection.execute_many("UPDATE item SET last_version = ? WHERE n = ?", closed)
        self._connection.execute_many(INSERT_ITEM, added)
        return bool(added)


_UNLIKE = f"""
    i.dataset = :dataset AND i.position >= :first AND i.position < :end AND i.last_version IS NULL
    AND i.first_version <= :base AND NOT {AS_OF}
"""
_SAME = " AND ".join(f"o.{column.strip()} IS i.{column.strip()}" for column in rows.ITEM.split(","))
_CLOSE_UNLIKE = f"""
    UPDATE item AS i SET last_version = :base WHERE {_UNLIKE} AND NOT EXISTS (
      SELECT 1 FROM item o WHERE o.dataset = :dataset AND o.position = i.position AND o.first_version <= :version
      AND (o.last_version IS NULL OR o.last_version >= :version) AND {_SAME})
"""
_BRING_BACK = f"""
    INSERT INTO item (dataset, position, first_version, {rows.ITEM})
    SELECT i.dataset, i.position, :base + 1, {rows.qualified("i", rows.ITEM)} FROM item i
    WHERE i.dataset = :dataset AND i.position >= :first AND i.position < :end AND {AS_OF} AND NOT EXISTS (
      SELECT 1 FROM item o WHERE o.dataset = :dataset AND o.position = i.position AND o.last_version IS NULL)
"""
_PLACEHOLDERS = """
    SELECT id FROM item WHERE dataset = :dataset AND position >= :first AND position < :end
    AND first_version = :base + 1 AND input = :gone AND input_type IS NULL
"""


class Restoration(Staging):
    """An earlier version that becomes the latest again: items come back to the positions that they had."""

    def __init__(
        self, connection: Connection, dataset: DatasetVersion, now: Callable[[], float], end: Callable[[str], None]
    ) -> None:
        """Begin to restore *dataset*."""
        super().__init__(connection, dataset.name, now, end)
        self._version = dataset
        self._changed = False
        self._settled = find(connection, dataset.name).digest == dataset.digest

    def settle(self) -> Iterator[None]:
        """Do all but the publishing, some of it at each step."""
        if self._settled:
            return
        for first in range(0, self._end_before, _AT_ONCE):
            within = {
                "base": self._base,
                "version": self._version.version,
                "dataset": self._dataset,
                "first": first,
                "end": first + _AT_ONCE,
            }
            with self._connection.transaction():
                closed = self._connection.execute(_CLOSE_UNLIKE, within)
                opened = self._connection.execute(_BRING_BACK, within)
                back = self._connection.rows(_PLACEHOLDERS, {**within, "gone": purge.GONE}) if opened else ()
            self._placeholders.extend(row[0] for row in back)
            self._changed = self._changed or closed > 0 or opened > 0
            yield
        if self._changed:
            yield from self._count()
        self._settled = True

    def finish(self) -> tuple[DatasetVersion, bool]:
        """Publish the version; returns it and True, or the latest one and False if nothing differs from it."""
        for _ in self.settle():
            pass
        if not self._changed:
            self.abort()
            return find(self._connection, self._name), False
        found = self._connection.row(
            "SELECT sum FROM dataset_version WHERE dataset = ? AND version = ?", (self._dataset, self._version.version)
        )
        content = Content(EMPTY if found is None else found[0])
        return self._publish(self._version.items, content, f"restore {self._version.version}"), True
