"""Datasets of a server, for the commands of `evalbus dataset`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from evalbus import CallFailed, Item, client
from evalbus_server.cli.client import ENCRYPTED
from evalbus_server.dataset.read import Batch
from evalbus_server.dataset.refusal import Refusal
from evalbus_server.model.dataset import (
    DatasetInfo,
    Edited,
    InfoChange,
    ItemChange,
    ItemVersion,
    Purged,
    Tally,
    VersionInfo,
)
from evalbus_server.model.run import DatasetVersion
from evalbus_server.runner.datasets import Datasets, Imported
from evalbus_server.settings import TOKEN_VARIABLE
from evalbus_server.store import Store, open_store

PAGE = 256


class RemoteDatasets:
    """A server. Every call raises CallFailed for what it could not do."""

    def __init__(self, address: str, environ: Mapping[str, str]) -> None:
        """*address* is `host:port` or `unix:/path`, with `https://` in front if the way is encrypted."""
        encrypted = address.startswith(ENCRYPTED)
        self._client = client.Client(address.removeprefix(ENCRYPTED), environ.get(TOKEN_VARIABLE), tls=encrypted)

    async def __aenter__(self) -> RemoteDatasets:
        """The server itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Hang up."""
        await self._client.close()

    async def bring_in(
        self,
        name: str,
        batches: Iterable[Batch],
        source: str,
        refused: Callable[[Refusal], None] | None,
        told: Callable[[int], None],
    ) -> Imported:
        """Import what is read: into a database of its own first, so that what is wrong is found with its line."""
        with TemporaryDirectory(prefix="evalbus-") as folder, open_store(Path(folder, "import.db")) as store:
            store.create_dataset(name, await self._schemas(name))
            await Datasets(store).bring_in(name, batches, source=source, refused=refused, told=told)
            done = await self._client.upload_dataset(name, _items(store, name))
        tally = Tally(done.added, done.items_changed, done.removed)
        return Imported(_dataset(done.dataset), done.changed, tally)

    async def _schemas(self, name: str) -> InfoChange:
        try:
            info = await self._client.dataset_info(name)
        except CallFailed as failed:
            if failed.reason != "DATASET_NOT_FOUND":
                raise
            return InfoChange()
        return InfoChange(input_schema=info.input_schema, expected_schema=info.expected_schema)

    async def datasets(self) -> list[DatasetVersion]:
        """All datasets."""
        return [_dataset(each) async for each in self._client.datasets()]

    async def info(self, name: str) -> DatasetInfo:
        """A dataset at its newest version."""
        return _info(await self._client.dataset_info(name))

    async def dataset(self, name: str, version: int | None) -> DatasetVersion:
        """A dataset at a version."""
        return _dataset(await self._client.get_dataset(name, version))

    async def items(self, name: str, version: int, tags: Sequence[str]) -> AsyncIterator[list[Item]]:
        """The items of a version that have all of some tags, in pages."""
        page: list[Item] = []
        async with aclosing(self._client.items(name, version, tags=tags)) as items:
            async for item in items:
                page.append(item)
                if len(page) == PAGE:
                    yield page
                    page = []
        if page:
            yield page

    async def item(self, name: str, version: int | None, id: str) -> Item:
        """An item of a version."""
        return await self._client.get_item(name, id, version)

    async def create(self, name: str, change: InfoChange) -> DatasetInfo:
        """Make a dataset without items."""
        made = await self._client.create_dataset(
            name, description=change.description or "", metadata=change.metadata_json or None
        )
        return _info(made)

    async def change(self, name: str, change: InfoChange) -> DatasetInfo:
        """Change what does not belong to a version."""
        changed = await self._client.update_dataset(
            name,
            description=change.description,
            metadata=change.metadata_json,
            input_schema=change.input_schema,
            expected_schema=change.expected_schema,
            scorers=change.scorers,
        )
        return _info(changed)

    async def add(self, name: str, items: Sequence[Item]) -> Edited:
        """Add items."""
        return _edited(await self._client.add_items(name, items))

    async def update(self, name: str, items: Sequence[Item]) -> Edited:
        """Change items."""
        return _edited(await self._client.update_items(name, items))

    async def delete(self, name: str, ids: Sequence[str]) -> Edited:
        """Take items out."""
        return _edited(await self._client.delete_items(name, ids))

    async def remove(self, name: str) -> None:
        """Delete a dataset."""
        await self._client.delete_dataset(name)

    async def versions(self, name: str, limit: int) -> list[VersionInfo]:
        """Versions, the newest first."""
        found: list[VersionInfo] = []
        async with aclosing(self._client.dataset_versions(name)) as versions:
            async for each in versions:
                counts = each.counts
                found.append(
                    VersionInfo(_dataset(each.dataset), each.cause, counts.added, counts.changed, counts.removed)
                )
                if len(found) == limit:
                    break
        return found

    async def differences(self, name: str, a: int, b: int) -> AsyncIterator[list[ItemChange]]:
        """What differs between two versions."""
        async with aclosing(self._client.diff_versions(name, a, b)) as changes:
            async for each in changes:
                yield [ItemChange(each.before, each.after, each.fields)]

    async def history(self, name: str, id: str) -> list[ItemVersion]:
        """What an item was."""
        return [ItemVersion(each.version, each.until, each.item) for each in await self._client.item_history(name, id)]

    async def restore(self, name: str, version: int) -> Imported:
        """Make an earlier version the newest again."""
        edited = _edited(await self._client.restore_dataset(name, version))
        return Imported(edited.dataset, edited.changed, edited.tally)

    async def purge(self, name: str, ids: Sequence[str]) -> Purged:
        """Take the content of items out of everything."""
        purged = await self._client.purge_items(name, ids)
        return Purged(purged.item_versions, purged.results)


async def _items(store: Store, name: str) -> AsyncIterator[Item]:
    after = -1
    while page := store.items(name, 1, after=after, limit=PAGE):
        for stored in page:
            yield stored.item
        after = page[-1].position
        await asyncio.sleep(0)


def _dataset(dataset: client.Dataset) -> DatasetVersion:
    return DatasetVersion(dataset.name, dataset.version, dataset.items, dataset.digest, dataset.created_at or 0.0)


def _info(info: client.DatasetInfo) -> DatasetInfo:
    return DatasetInfo(
        _dataset(info.dataset),
        info.description,
        info.metadata_json,
        info.input_schema,
        info.expected_schema,
        info.scorers,
        info.origin,
    )


def _edited(edited: client.Edited) -> Edited:
    tally = Tally(edited.counts.added, edited.counts.changed, edited.counts.removed)
    return Edited(_dataset(edited.dataset), edited.changed, tally, edited.replayed, edited.missing)
