"""The part of the client that is about datasets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from contextlib import aclosing

from evalbus import _datasets as datasets
from evalbus import _run_messages as messages
from evalbus._connection import Connection
from evalbus._datasets import DatasetInfo, DatasetVersion, Edited, ItemChange, ItemVersion, Purged
from evalbus._item import Item
from evalbus._run import Dataset, Upload
from evalbus._value import JsonObject, object_text
from evalbus.v1 import dataset_pb2, item_pb2
from evalbus.wire import item_from_proto, item_to_proto

LONG = 600.0
"""Seconds within which work on a whole dataset must be done."""


class DatasetCalls:
    """What a client can do with datasets."""

    _server: Connection

    async def upload_dataset(
        self, name: str, items: Iterable[Item] | AsyncIterable[Item], *, origin: str = "", moved_from: str = ""
    ) -> Upload:
        """Make *items* the newest version of a dataset: all of them, or nothing. The same items again change nothing.

        They are read as they are sent, so there may be more than fit into memory. *origin* is the file that gave the
        dataset its name, if one did: a dataset that comes from another one is refused, unless *moved_from* is that one,
        because nothing is there any more. "" if somebody chose the name.

        Raises:
            CallFailed: DATASET_INVALID, with the item at fault; ITEM_TOO_LARGE; DATASET_BUSY; DATASET_EXISTS: it has
                another origin.
        """
        response = await self._server.upload(name, items, origin=origin, moved_from=moved_from)
        counts = datasets.counts(response.counts)
        return Upload(
            messages.dataset(response.dataset), response.changed, counts.added, counts.changed, counts.removed
        )

    async def get_dataset(self, name: str, version: int | None = None) -> Dataset:
        """A dataset at a version, or at its newest.

        Raises:
            CallFailed: DATASET_NOT_FOUND.
        """
        request = dataset_pb2.GetDatasetRequest(name=name, version=version)
        response = await self._server.ask(self._server.datasets.GetDataset, request)
        return messages.dataset(response.dataset)

    async def dataset_info(self, name: str) -> DatasetInfo:
        """A dataset at its newest version, with description, metadata and schemas.

        Raises:
            CallFailed: DATASET_NOT_FOUND.
        """
        request = dataset_pb2.GetDatasetRequest(name=name)
        response = await self._server.ask(self._server.datasets.GetDataset, request)
        return datasets.info(response.dataset)

    async def datasets(self) -> AsyncGenerator[Dataset, None]:
        """All datasets at their newest versions, by name, read page by page.

        Raises:
            CallFailed: the server cannot be asked.
        """
        request = dataset_pb2.ListDatasetsRequest(page_size=500)
        async for page in self._server.pages(self._server.datasets.ListDatasets, request):
            for message in page.datasets:
                yield messages.dataset(message)

    async def create_dataset(  # noqa: PLR0913  # each by name
        self,
        name: str,
        *,
        description: str = "",
        metadata: JsonObject | str | None = None,
        input_schema: str = "",
        expected_schema: str = "",
        scorers: Sequence[str] = (),
    ) -> DatasetInfo:
        """Make a dataset without items; its version is 0.

        Raises:
            CallFailed: DATASET_EXISTS; DATASET_INVALID: the name or a schema is not acceptable.
        """
        change = dataset_pb2.DatasetInfoChange(
            description=description,
            metadata=object_text(metadata),
            input_schema=input_schema,
            expected_schema=expected_schema,
            scorers=item_pb2.ScorerNames(names=scorers),
        )
        request = dataset_pb2.CreateDatasetRequest(name=name, info=change)
        response = await self._server.ask(self._server.datasets.CreateDataset, request)
        return datasets.info(response.dataset)

    async def update_dataset(  # noqa: PLR0913  # each by name
        self,
        name: str,
        *,
        description: str | None = None,
        metadata: JsonObject | str | None = None,
        input_schema: str | None = None,
        expected_schema: str | None = None,
        scorers: Sequence[str] | None = None,
    ) -> DatasetInfo:
        """Change what belongs to no version: None leaves a part as it is, "" and () take it away.

        *scorers* are names of those that judge items which name none of their own.

        Raises:
            CallFailed: DATASET_NOT_FOUND; DATASET_INVALID: a schema is none, or items do not fit it.
        """
        change = dataset_pb2.DatasetInfoChange(
            description=description,
            metadata=None if metadata is None else object_text(metadata),
            input_schema=input_schema,
            expected_schema=expected_schema,
            scorers=None if scorers is None else item_pb2.ScorerNames(names=scorers),
        )
        request = dataset_pb2.UpdateDatasetRequest(name=name, info=change)
        response = await self._server.ask(self._server.datasets.UpdateDataset, request, LONG)
        return datasets.info(response.dataset)

    async def delete_dataset(self, name: str) -> None:
        """Delete a dataset with all its versions.

        Raises:
            CallFailed: DATASET_NOT_FOUND; DATASET_IN_USE: runs have used it.
        """
        request = dataset_pb2.DeleteDatasetRequest(name=name)
        await self._server.ask(self._server.datasets.DeleteDataset, request, LONG)

    async def add_items(self, name: str, items: Sequence[Item]) -> Edited:
        """Add items, as one version. Those that were added before, just so, are left as they are now.

        Raises:
            CallFailed: DATASET_NOT_FOUND; ITEM_CONFLICT: ids are taken; DATASET_INVALID; DATASET_BUSY.
        """
        request = dataset_pb2.AddItemsRequest(name=name, items=map(item_to_proto, items))
        return datasets.edited(await self._server.ask(self._server.datasets.AddItems, request))

    async def update_items(self, name: str, items: Sequence[Item]) -> Edited:
        """Put items in the place of those with their ids, as one version.

        Raises:
            CallFailed: DATASET_NOT_FOUND; ITEM_NOT_FOUND; DATASET_INVALID; DATASET_BUSY.
        """
        request = dataset_pb2.UpdateItemsRequest(name=name, items=map(item_to_proto, items))
        return datasets.edited(await self._server.ask(self._server.datasets.UpdateItems, request))

    async def delete_items(self, name: str, ids: Sequence[str]) -> Edited:
        """Take items out, as one version.

        Raises:
            CallFailed: DATASET_NOT_FOUND; DATASET_BUSY.
        """
        request = dataset_pb2.DeleteItemsRequest(name=name, ids=ids)
        return datasets.edited(await self._server.ask(self._server.datasets.DeleteItems, request))

    async def get_item(self, name: str, id: str, version: int | None = None) -> Item:
        """An item as of a version, or of the newest.

        Raises:
            CallFailed: DATASET_NOT_FOUND, ITEM_NOT_FOUND.
        """
        request = dataset_pb2.GetItemRequest(name=name, version=version, id=id)
        response = await self._server.ask(self._server.datasets.GetItem, request)
        return item_from_proto(response.item)

    async def items(
        self, name: str, version: int | None = None, *, tags: Sequence[str] = ()
    ) -> AsyncGenerator[Item, None]:
        """All items as of a version, or of the newest, in the dataset's order, as they are read; with *tags* those
        that have all of them.

        Raises:
            CallFailed: DATASET_NOT_FOUND.
        """
        request = dataset_pb2.ExportDatasetRequest(name=name, version=version, tags=tags)
        async with aclosing(self._server.stream(self._server.datasets.ExportDataset, request)) as batches:
            async for batch in batches:
                for message in batch.items:
                    yield item_from_proto(message)

    async def dataset_versions(self, name: str) -> AsyncGenerator[DatasetVersion, None]:
        """All versions, the newest first, read page by page.

        Raises:
            CallFailed: DATASET_NOT_FOUND.
        """
        request = dataset_pb2.ListVersionsRequest(name=name, page_size=500)
        async for page in self._server.pages(self._server.datasets.ListVersions, request):
            for message in page.versions:
                yield datasets.version(message)

    async def item_history(self, name: str, id: str) -> list[ItemVersion]:
        """What an item was, the newest first.

        Raises:
            CallFailed: DATASET_NOT_FOUND, ITEM_NOT_FOUND.
        """
        request = dataset_pb2.GetItemHistoryRequest(name=name, id=id)
        response = await self._server.ask(self._server.datasets.GetItemHistory, request)
        return [datasets.item_version(message) for message in response.versions]

    async def diff_versions(self, name: str, a: int, b: int | None = None) -> AsyncGenerator[ItemChange, None]:
        """What differs from version *a* to *b*, or to the newest, as it is found.

        Raises:
            CallFailed: DATASET_NOT_FOUND.
        """
        request = dataset_pb2.DiffVersionsRequest(name=name, from_version=a, to_version=b)
        async with aclosing(self._server.stream(self._server.datasets.DiffVersions, request)) as batches:
            async for batch in batches:
                for message in batch.changes:
                    yield datasets.item_change(message)

    async def restore_dataset(self, name: str, version: int) -> Edited:
        """Make an earlier version the newest again.

        Raises:
            CallFailed: DATASET_NOT_FOUND; DATASET_BUSY.
        """
        request = dataset_pb2.RestoreDatasetRequest(name=name, version=version)
        return datasets.edited(await self._server.ask(self._server.datasets.RestoreDataset, request, LONG))

    async def purge_items(self, name: str, ids: Sequence[str]) -> Purged:
        """Take the content of items out of all versions and results, on disk too. Nothing brings it back.

        Raises:
            CallFailed: DATASET_NOT_FOUND, ITEM_NOT_FOUND: nothing was purged; DATASET_BUSY, DATABASE_LOCKED: ask again.
        """
        request = dataset_pb2.PurgeItemsRequest(name=name, ids=ids)
        response = await self._server.ask(self._server.datasets.PurgeItems, request, LONG)
        return Purged(response.item_versions, response.results)
