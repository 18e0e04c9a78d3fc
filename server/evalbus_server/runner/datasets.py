"""Use cases around datasets, the same for a server and for the command line over a database.

What is long is done in steps, between which the event loop runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from evalbus import Item
from evalbus_server.dataset.importing import bring_in
from evalbus_server.dataset.read import Batch
from evalbus_server.dataset.refusal import DatasetInvalid, Refusal
from evalbus_server.dataset.schema import MOST_FAULTS, checked_schema, checker
from evalbus_server.errors import Conflict, Invalid, NotFound, Reason, StoreTrouble
from evalbus_server.model.dataset import (
    DatasetInfo,
    Edited,
    Fault,
    InfoChange,
    ItemsInvalid,
    Origin,
    Purged,
    Tally,
    checked_name,
)
from evalbus_server.model.run import DatasetVersion
from evalbus_server.runner.disk import clear_disk
from evalbus_server.store import Staging, Store

PAGE = 256
CUT_TRIES = 40
MOST_ITEMS = 1_000
"""Items that one call may add, update or delete."""
MOST_SCORERS = 100
"""Scorers that a dataset may name."""
LONGEST_NAME = 200
"""Characters of their names."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    dataset: DatasetVersion
    changed: bool
    tally: Tally


class Datasets:
    """The datasets of a store."""

    def __init__(self, store: Store, ring: Callable[[str], None] = lambda run_id: None) -> None:
        """Those of *store*; *ring* wakes who watches a run."""
        self._store = store
        self._ring = ring

    async def bring_in(  # noqa: PLR0913  # what is read, and who is told
        self,
        name: str,
        batches: Iterable[Batch],
        *,
        source: str,
        origin: Origin | None = None,
        refused: Callable[[Refusal], None] | None = None,
        told: Callable[[int], None] = lambda count: None,
    ) -> Imported:
        """Make what is read the newest version of a dataset: all of it, or the good rows if *refused* is told the bad ones.

        *origin* is the file that gives it its name; None if somebody named it.

        Raises:
            Invalid: DATASET_INVALID: *name* cannot be one.
            DatasetInvalid: rows are refused, or none is left.
            Conflict: another upload of it is under way, or it has another origin.
        """
        check = self._checker(checked_name(name))
        upload = self._store.upload(name)
        count = 0
        try:
            self._refuse_another(name, origin)
            for count in bring_in(batches, upload, name=source, refused=refused, check=check):
                told(count)
                await asyncio.sleep(0)
            if not count:
                raise DatasetInvalid(source, [Refusal(0, "empty", "no item is left")])
            return self._noted(await _finished(upload), origin)
        finally:
            await _undone(upload)

    async def upload(self, name: str, batches: AsyncIterable[list[Item]], *, origin: Origin | None = None) -> Imported:
        """The same for items that come over the wire: all or nothing.

        Raises:
            Invalid: DATASET_INVALID: an id comes twice, an item does not fit the schemas, there is none, or *name* cannot
                be one.
            Conflict: another upload of it is under way, or it has another origin.
        """
        check = self._checker(checked_name(name))
        upload = self._store.upload(name)
        count = 0
        try:
            self._refuse_another(name, origin)
            async for batch in batches:
                _refuse(name, _shifted(check(batch), count) if check is not None else ())
                upload.add(batch)
                count += len(batch)
                await asyncio.sleep(0)
            if not count:
                raise Invalid(Reason.DATASET_INVALID, f"the dataset {name!r} would have no item; send at least one")
            return self._noted(await _finished(upload), origin)
        finally:
            await _undone(upload)

    def origin(self, name: str) -> str:
        """The file that gave a dataset its name; "" if somebody named it, or there is none yet."""
        try:
            return self._store.dataset_info(name).origin
        except NotFound:
            return ""

    def _refuse_another(self, name: str, origin: Origin | None) -> None:
        known = self.origin(name)
        if origin is not None and known not in ("", origin.file, origin.moved_from):
            message = (
                f"the dataset {name!r} comes from {known}, and {origin.file} is another file: give it a name of its own, "
                f"or name no origin if it is to be a new version of the same"
            )
            raise Conflict(Reason.DATASET_EXISTS, message, field="header.origin")

    def _noted(self, done: Imported, origin: Origin | None) -> Imported:
        if origin is not None and origin.file != self.origin(done.dataset.name):
            self._store.note_origin(done.dataset.name, origin.file)
        return done

    def add(self, name: str, items: Sequence[Item]) -> Edited:
        """Add items; see Store.add_items.

        Raises:
            ItemsInvalid: some do not fit the schemas; none was added.
        """
        self._check(name, items)
        return self._store.add_items(name, items)

    def update(self, name: str, items: Sequence[Item]) -> Edited:
        """Put items in the place of those with their ids; see Store.update_items.

        Raises:
            ItemsInvalid: some do not fit the schemas; none was changed.
        """
        self._check(name, items)
        return self._store.update_items(name, items)

    def delete(self, name: str, ids: Sequence[str]) -> Edited:
        """Take items out; see Store.delete_items."""
        return self._store.delete_items(name, ids)

    def create(self, name: str, change: InfoChange) -> DatasetInfo:
        """Make a dataset without items.

        Raises:
            Conflict: DATASET_EXISTS.
            Invalid: a schema is none, or *name* cannot be one.
        """
        return self._store.create_dataset(checked_name(name), _checked(change))

    async def change(self, name: str, change: InfoChange) -> DatasetInfo:
        """Change description, metadata or schemas; all items that are there must fit new schemas.

        Raises:
            NotFound: DATASET_NOT_FOUND.
            Invalid: a schema is none.
            ItemsInvalid: items do not fit; nothing was changed.
        """
        change = _checked(change)
        if change.input_schema or change.expected_schema:
            wanted = {
                part: text
                for part in ("input_schema", "expected_schema")
                if (text := getattr(change, part)) is not None
            }
            await self._check_all(replace(self._store.dataset_info(name), **wanted))
        return self._store.change_dataset(name, change)

    async def restore(self, name: str, version: int) -> Imported:
        """Make an earlier version the newest again.

        Raises:
            NotFound: DATASET_NOT_FOUND: there is no such version.
        """
        restoration = self._store.restoration(name, version)
        try:
            return await _finished(restoration)
        finally:
            await _undone(restoration)

    async def purge(self, name: str, ids: Sequence[str]) -> Purged:
        """Take the content of items out of everything, on disk too.

        Raises:
            NotFound: DATASET_NOT_FOUND, ITEM_NOT_FOUND: nothing was purged.
            Conflict: DATASET_BUSY.
            StoreTrouble: DATABASE_LOCKED: it is purged, but a reader needs the log, which still has it; ask again.
        """
        purged = await self._purged(name, ids)
        for run_id in purged.runs:
            self._ring(run_id)
        if await clear_disk(self._store, CUT_TRIES):
            return purged
        raise StoreTrouble(
            Reason.DATABASE_LOCKED, "a reader still holds what was purged in the log: purge again when it is gone"
        )

    async def _purged(self, name: str, ids: Sequence[str]) -> Purged:
        steps = self._store.purging(name, ids)
        with closing(steps):
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    assert isinstance(end.value, Purged)
                    return end.value
                await asyncio.sleep(0)

    async def remove(self, name: str) -> None:
        """Delete a dataset with all its versions.

        Raises:
            NotFound: DATASET_NOT_FOUND.
            Unfit: DATASET_IN_USE: runs have used it.
        """
        for _ in self._store.delete_dataset(name):
            await asyncio.sleep(0)

    def _checker(self, name: str) -> Callable[[Sequence[Item]], list[Fault]] | None:
        try:
            return checker(self._store.dataset_info(name))
        except NotFound:
            return None

    def _check(self, name: str, items: Sequence[Item]) -> None:
        if len(items) > MOST_ITEMS:
            raise Invalid(
                Reason.REQUEST_INVALID, f"{len(items):,} items in one call; {MOST_ITEMS:,} are allowed", field="items"
            )
        check = checker(self._store.dataset_info(name))
        _refuse(name, check(items) if check is not None else ())

    async def _check_all(self, info: DatasetInfo) -> None:
        check = checker(info)
        name, version = info.latest.name, info.latest.version
        after, count = -1, 0
        faults: list[Fault] = []
        while check is not None and (page := self._store.items(name, version, after=after, limit=PAGE)):
            faults += _shifted(check([stored.item for stored in page]), count)
            if len(faults) >= MOST_FAULTS:
                break
            after = page[-1].position
            count += len(page)
            await asyncio.sleep(0)
        _refuse(name, faults)


def _checked(change: InfoChange) -> InfoChange:
    _check_scorers(change.scorers or ())
    for part in ("input_schema", "expected_schema"):
        checked_schema(getattr(change, part) or "", part)
    return change


def _check_scorers(names: Sequence[str]) -> None:
    """Which scorers there are only a run can tell; what can be none is refused here."""
    if len(names) > MOST_SCORERS:
        raise Invalid(
            Reason.REQUEST_INVALID, f"{len(names):,} scorers; {MOST_SCORERS} are allowed", field="info.scorers"
        )
    for index, name in enumerate(names):
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            message = f"{name!r} is no name of a scorer: 1 to {LONGEST_NAME} characters, none a control character"
            raise Invalid(Reason.REQUEST_INVALID, message, field=f"info.scorers[{index}]")


def _shifted(faults: Sequence[Fault], count: int) -> list[Fault]:
    return [fault._replace(place=fault.place + count) for fault in faults]


def _refuse(name: str, faults: Sequence[Fault]) -> None:
    if faults:
        raise ItemsInvalid(name, faults)


async def _finished(staging: Staging) -> Imported:
    for _ in staging.settle():
        await asyncio.sleep(0)
    dataset, changed = staging.finish()
    return Imported(dataset, changed, staging.tally if changed else Tally())


async def _undone(staging: Staging) -> None:
    """Take back what was not finished, in steps; at once if somebody is in a hurry."""
    try:
        for _ in staging.undo():
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        staging.abort()
        raise
