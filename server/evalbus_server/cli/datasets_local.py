"""Datasets of a database file, for the commands of `evalbus dataset`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType

from evalbus import Item
from evalbus_server.dataset.read import Batch
from evalbus_server.dataset.refusal import Refusal
from evalbus_server.model.dataset import DatasetInfo, Edited, InfoChange, ItemChange, ItemVersion, Purged, VersionInfo
from evalbus_server.model.run import DatasetVersion
from evalbus_server.runner.datasets import Datasets, Imported
from evalbus_server.store import Reader, Store, open_reader, open_store

PAGE = 256
NAMES = 500


class LocalDatasets:
    """A database, opened for reading, or for writing if something is to be changed."""

    def __init__(self, path: Path, *, writing: bool) -> None:
        """Open it.

        Raises:
            StoreTrouble: it is no database, or somebody else writes it.
        """
        self._reader: Reader = open_store(path) if writing else open_reader(path)

    async def __aenter__(self) -> LocalDatasets:
        """The database itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close it."""
        self._reader.close()

    @property
    def _datasets(self) -> Datasets:
        assert isinstance(self._reader, Store), "it was opened for reading"
        return Datasets(self._reader)

    async def bring_in(
        self,
        name: str,
        batches: Iterable[Batch],
        source: str,
        refused: Callable[[Refusal], None] | None,
        told: Callable[[int], None],
    ) -> Imported:
        """Import what is read."""
        return await self._datasets.bring_in(name, batches, source=source, refused=refused, told=told)

    async def datasets(self) -> list[DatasetVersion]:
        """All datasets."""
        found: list[DatasetVersion] = []
        while page := self._reader.datasets(NAMES, found[-1].name if found else ""):
            found += page
        return found

    async def info(self, name: str) -> DatasetInfo:
        """A dataset at its newest version."""
        return self._reader.dataset_info(name)

    async def dataset(self, name: str, version: int | None) -> DatasetVersion:
        """A dataset at a version."""
        return self._reader.dataset(name, version)

    async def items(self, name: str, version: int, tags: Sequence[str]) -> AsyncIterator[list[Item]]:
        """The items of a version that have all of some tags, in pages."""
        after: int | None = -1
        while after is not None:
            page, after = self._reader.items_with(name, version, tags, after=after, limit=PAGE)
            if page:
                yield [stored.item for stored in page]

    async def item(self, name: str, version: int | None, id: str) -> Item:
        """An item of a version."""
        return self._reader.item(name, self._reader.dataset(name, version).version, id).item

    async def create(self, name: str, change: InfoChange) -> DatasetInfo:
        """Make a dataset without items."""
        return self._datasets.create(name, change)

    async def change(self, name: str, change: InfoChange) -> DatasetInfo:
        """Change what does not belong to a version."""
        return await self._datasets.change(name, change)

    async def add(self, name: str, items: Sequence[Item]) -> Edited:
        """Add items."""
        return self._datasets.add(name, items)

    async def update(self, name: str, items: Sequence[Item]) -> Edited:
        """Change items."""
        return self._datasets.update(name, items)

    async def delete(self, name: str, ids: Sequence[str]) -> Edited:
        """Take items out."""
        return self._datasets.delete(name, ids)

    async def remove(self, name: str) -> None:
        """Delete a dataset."""
        await self._datasets.remove(name)

    async def versions(self, name: str, limit: int) -> list[VersionInfo]:
        """Versions, the newest first."""
        return self._reader.dataset_versions(name, limit=limit)

    async def differences(self, name: str, a: int, b: int) -> AsyncIterator[list[ItemChange]]:
        """What differs between two versions."""
        for _, changes in self._reader.dataset_changes(name, a, b):
            yield changes

    async def history(self, name: str, id: str) -> list[ItemVersion]:
        """What an item was."""
        return self._reader.item_history(name, id)

    async def restore(self, name: str, version: int) -> Imported:
        """Make an earlier version the newest again."""
        return await self._datasets.restore(name, version)

    async def purge(self, name: str, ids: Sequence[str]) -> Purged:
        """Take the content of items out of everything."""
        return await self._datasets.purge(name, ids)
