"""Writing a database: one process does, and holds its lock; one object does in it, on the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path

from evalbus import Item
from evalbus_server.model.dataset import DatasetInfo, Edited, InfoChange, Purged
from evalbus_server.model.run import DatasetVersion
from evalbus_server.store import datasets, edits
from evalbus_server.store.connection import connect_reading
from evalbus_server.store.reader import Reader
from evalbus_server.store.run_writer import RunWriter
from evalbus_server.store.staging import Restoration, Upload


def open_store(path: str | Path, *, clock: Callable[[], float] = time.time) -> Store:
    """Open a database for writing; makes the file, or brings it up to date.

    Raises:
        StoreTrouble: DATABASE_LOCKED (another process writes it), DATABASE_READ_ONLY, DATABASE_INVALID, DATABASE_NEWER,
            DATABASE_FULL.
    """
    return Store(Path(path).resolve(), clock)


def open_reader(path: str | Path) -> Reader:
    """Open a database for reading, whoever writes it meanwhile.

    Raises:
        StoreTrouble: DATABASE_INVALID (also if there is none), DATABASE_NEWER.
    """
    return Reader(connect_reading(Path(path).resolve()))


class Store(RunWriter):
    """A database that this process writes: its datasets, and what a RunWriter writes."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Open it; see open_store."""
        super().__init__(path, clock)
        self._uploads: set[str] = set()

    def upload(self, name: str) -> Upload:
        """Begin the next version of a dataset.

        Raises:
            Conflict: another upload of it is under way.
        """
        self._refuse_busy(name)
        upload = Upload(self._connection, name, self._clock, self._end_upload)
        self._uploads.add(name)
        return upload

    def publish(self, name: str, batches: Iterable[list[Item]]) -> tuple[DatasetVersion, bool]:
        """Store items as the next version of a dataset, all or nothing.

        Returns the version and True; or, if nothing differs from the latest version, that one and False.

        Raises:
            Invalid: DATASET_INVALID: an id comes a second time, or an item has a part that cannot be stored.
            Conflict: an upload of the dataset is under way.
        """
        with self.upload(name) as upload:
            for batch in batches:
                upload.add(batch)
            return upload.finish()

    def create_dataset(self, name: str, change: InfoChange) -> DatasetInfo:
        """Make a dataset without items: its version is 0.

        Raises:
            Conflict: DATASET_EXISTS.
        """
        self._refuse_busy(name)
        with self._connection.transaction(durable=True):
            edits.create(self._connection, name, self._clock())
        datasets.change_info(self._connection, name, change)
        return self.dataset_info(name)

    def change_dataset(self, name: str, change: InfoChange) -> DatasetInfo:
        """Change what does not belong to a version.

        Raises:
            NotFound: DATASET_NOT_FOUND.
        """
        datasets.change_info(self._connection, name, change)
        return self.dataset_info(name)

    def note_origin(self, name: str, origin: str) -> None:
        """Note the file that gives a dataset its name."""
        datasets.note_origin(self._connection, name, origin)

    def delete_dataset(self, name: str) -> Iterator[None]:
        """Delete a dataset with all its versions: it is gone after the first step, and its items after the last.

        Raises:
            NotFound: DATASET_NOT_FOUND.
            Unfit: DATASET_IN_USE: runs have used it.
            Conflict: DATASET_BUSY.
        """
        self._refuse_busy(name)
        return edits.delete_dataset(self._connection, name)

    def add_items(self, name: str, items: Sequence[Item]) -> Edited:
        """Add items behind all others; see edits.add for its errors."""
        self._make_ready(name)
        return edits.add(self._connection, name, items, self._clock())

    def update_items(self, name: str, items: Sequence[Item]) -> Edited:
        """Put items in the place of those with their ids; see edits.update for its errors."""
        self._make_ready(name)
        return edits.update(self._connection, name, items, self._clock())

    def delete_items(self, name: str, ids: Sequence[str]) -> Edited:
        """Take items out; see edits.delete for its errors."""
        self._make_ready(name)
        return edits.delete(self._connection, name, ids, self._clock())

    def restoration(self, name: str, version: int) -> Restoration:
        """Begin to make an earlier version the latest again.

        Raises:
            NotFound: DATASET_NOT_FOUND: there is no such version.
            Conflict: DATASET_BUSY.
        """
        self._make_ready(name)
        restoration = Restoration(self._connection, self.dataset(name, version), self._clock, self._end_upload)
        self._uploads.add(name)
        return restoration

    def purge_items(self, name: str, ids: Sequence[str]) -> Purged:
        """Take the content of items out of everything; see purge.py. Call `cut_log` until it is gone from the disk too.

        Raises:
            NotFound: DATASET_NOT_FOUND, ITEM_NOT_FOUND.
            Conflict: DATASET_BUSY.
        """
        steps = self.purging(name, ids)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            return _purged_in(end)

    def purging(self, name: str, ids: Sequence[str]) -> Generator[None, None, Purged]:
        """The same in steps, between which the event loop may run. Nobody changes the dataset meanwhile.

        Who stops in between gets the rest at once.

        Raises:
            NotFound: DATASET_NOT_FOUND, ITEM_NOT_FOUND: at the first step; nothing was purged.
            Conflict: DATASET_BUSY: at the first step.
        """
        self._make_ready(name)
        self._uploads.add(name)
        try:
            return (yield from self._purges.steps(name, ids))
        finally:
            self._end_upload(name)

    def _refuse_busy(self, name: str) -> None:
        if name in self._uploads:
            raise datasets.refuse_busy(name)

    def _make_ready(self, name: str) -> None:
        """See that nothing of a dataset's next version is there: neither on its way, nor left by a process that died."""
        self._refuse_busy(name)
        if edits.is_staged(self._connection, name):
            self.upload(name).abort()

    def _end_upload(self, name: str) -> None:
        self._uploads.discard(name)


def _purged_in(end: StopIteration) -> Purged:
    purged = end.value
    assert isinstance(purged, Purged)
    return purged
