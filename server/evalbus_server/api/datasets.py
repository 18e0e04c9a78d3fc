"""DatasetService: decode, call, encode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import grpc.aio
from google.protobuf.message import Message

from evalbus.v1 import dataset_pb2, dataset_pb2_grpc
from evalbus.wire import item_to_proto
from evalbus_server.api.pages import Tokens, page_size
from evalbus_server.api.upload import MOST_ITEMS, Incoming, batch_of, ids_of
from evalbus_server.model.dataset import Edited
from evalbus_server.model.trial import StoredItem
from evalbus_server.runner.datasets import Datasets, Imported
from evalbus_server.store import Store
from evalbus_server.wire.dataset import (
    change_from_proto,
    counts_to_proto,
    dataset_to_proto,
    info_to_proto,
    item_change_to_proto,
    item_version_to_proto,
    version_to_proto,
)

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
T_ = TypeVar("T_", bound=Message)

PAGE = 50
LONGEST_PAGE = 500
BYTES = 1 << 20
"""A page or a batch ends at about this size; a larger item is alone in it."""
LARGEST_ANSWER = 3 << 20
"""Bytes of an answer that is not paged."""


class DatasetService(dataset_pb2_grpc.DatasetServiceServicer):
    """The datasets of a store."""

    def __init__(self, store: Store, ring: Callable[[str], None]) -> None:
        """Serve those of *store*; *ring* wakes who watches a run."""
        self._store = store
        self._datasets = Datasets(store, ring)

    async def UploadDataset(
        self, requests: AsyncIterator[dataset_pb2.UploadDatasetRequest], context: Context
    ) -> dataset_pb2.UploadDatasetResponse:
        """All or nothing."""
        async with Incoming(requests, context) as incoming:
            name, origin = await incoming.header()
            done = await self._datasets.upload(name, incoming.batches(), origin=origin)
        return dataset_pb2.UploadDatasetResponse(**_outcome(done))

    async def GetDataset(
        self, request: dataset_pb2.GetDatasetRequest, context: Context
    ) -> dataset_pb2.GetDatasetResponse:
        """One dataset at a version, or at its newest."""
        dataset = self._store.dataset(request.name, _version(request))
        info = replace(self._store.dataset_info(request.name), latest=dataset)
        return dataset_pb2.GetDatasetResponse(dataset=info_to_proto(info))

    async def ListDatasets(
        self, request: dataset_pb2.ListDatasetsRequest, context: Context
    ) -> dataset_pb2.ListDatasetsResponse:
        """A page of datasets, by name."""
        tokens = Tokens("datasets")
        after = tokens.place(request.page_token, [str])
        size = page_size(request.page_size, default=PAGE, most=LONGEST_PAGE)
        found = self._store.datasets(size + 1, after[0] if after else "")  # one more tells whether a page follows
        return dataset_pb2.ListDatasetsResponse(
            datasets=[dataset_to_proto(dataset) for dataset in found[:size]],
            next_page_token=tokens.after(found[size - 1].name) if len(found) > size else "",
        )

    async def CreateDataset(
        self, request: dataset_pb2.CreateDatasetRequest, context: Context
    ) -> dataset_pb2.CreateDatasetResponse:
        """A dataset without items."""
        info = self._datasets.create(request.name, change_from_proto(request.info))
        return dataset_pb2.CreateDatasetResponse(dataset=info_to_proto(info))

    async def UpdateDataset(
        self, request: dataset_pb2.UpdateDatasetRequest, context: Context
    ) -> dataset_pb2.UpdateDatasetResponse:
        """What belongs to no version."""
        info = await self._datasets.change(request.name, change_from_proto(request.info))
        return dataset_pb2.UpdateDatasetResponse(dataset=info_to_proto(info))

    async def DeleteDataset(
        self, request: dataset_pb2.DeleteDatasetRequest, context: Context
    ) -> dataset_pb2.DeleteDatasetResponse:
        """All versions."""
        await self._datasets.remove(request.name)
        return dataset_pb2.DeleteDatasetResponse()

    async def AddItems(self, request: dataset_pb2.AddItemsRequest, context: Context) -> dataset_pb2.AddItemsResponse:
        """One version, or none."""
        edited = self._datasets.add(request.name, batch_of(request.items))
        return dataset_pb2.AddItemsResponse(**_outcome(edited), replayed=edited.replayed)

    async def UpdateItems(
        self, request: dataset_pb2.UpdateItemsRequest, context: Context
    ) -> dataset_pb2.UpdateItemsResponse:
        """One version, or none."""
        return dataset_pb2.UpdateItemsResponse(**_outcome(self._datasets.update(request.name, batch_of(request.items))))

    async def DeleteItems(
        self, request: dataset_pb2.DeleteItemsRequest, context: Context
    ) -> dataset_pb2.DeleteItemsResponse:
        """One version, or none."""
        edited = self._datasets.delete(request.name, ids_of(request.ids))
        return dataset_pb2.DeleteItemsResponse(**_outcome(edited), missing=edited.missing)

    async def GetItem(self, request: dataset_pb2.GetItemRequest, context: Context) -> dataset_pb2.GetItemResponse:
        """One item."""
        version = self._store.dataset(request.name, _version(request)).version
        item = self._store.item(request.name, version, request.id).item
        return dataset_pb2.GetItemResponse(item=item_to_proto(item))

    async def ListItems(self, request: dataset_pb2.ListItemsRequest, context: Context) -> dataset_pb2.ListItemsResponse:
        """A page of items. A token belongs to the version that the first page was of, also if that was the newest."""
        wanted = _version(request)
        tags = list(request.tags)
        tokens = Tokens("items", request.name, wanted, *tags)
        place = tokens.place(request.page_token, [int, int])
        version = self._store.dataset(request.name, wanted if place is None else place[0]).version
        after = -1 if place is None else place[1]
        size = page_size(request.page_size, default=PAGE, most=LONGEST_PAGE)
        response = dataset_pb2.ListItemsResponse(version=version)
        length = 0
        page, further = self._page(request.name, version, tags, after, size + 1)
        for stored in page:
            message = item_to_proto(stored.item)
            length += message.ByteSize()
            if response.items and (len(response.items) == size or length > BYTES):
                response.next_page_token = tokens.after(version, after)
                break
            response.items.append(message)
            after = stored.position
        else:
            response.next_page_token = "" if further is None else tokens.after(version, further)
        return response

    async def ExportDataset(
        self, request: dataset_pb2.ExportDatasetRequest, context: Context
    ) -> AsyncIterator[dataset_pb2.ExportDatasetResponse]:
        """All items, in batches."""
        version = self._store.dataset(request.name, _version(request)).version
        after: int | None = -1
        while after is not None:
            page, after = self._page(request.name, version, list(request.tags), after, MOST_ITEMS)
            messages = [item_to_proto(stored.item) for stored in page]
            for batch in _batches(messages, BYTES):
                yield dataset_pb2.ExportDatasetResponse(items=batch)
            await asyncio.sleep(0)

    def _page(
        self, name: str, version: int, tags: list[str], after: int, limit: int
    ) -> tuple[list[StoredItem], int | None]:
        """Items with all of some tags, and behind which position to go on; None: these were the last."""
        if tags:
            return self._store.items_with(name, version, tags, after=after, limit=limit)
        page = self._store.items(name, version, after=after, limit=limit)
        return page, page[-1].position if len(page) == limit else None

    async def ListVersions(
        self, request: dataset_pb2.ListVersionsRequest, context: Context
    ) -> dataset_pb2.ListVersionsResponse:
        """A page of versions, the newest first."""
        tokens = Tokens("versions", request.name)
        place = tokens.place(request.page_token, [int])
        size = page_size(request.page_size, default=PAGE, most=LONGEST_PAGE)
        before = None if place is None else place[0]
        found = self._store.dataset_versions(request.name, before=before, limit=size + 1)
        return dataset_pb2.ListVersionsResponse(
            versions=[version_to_proto(each) for each in found[:size]],
            next_page_token=tokens.after(found[size - 1].dataset.version) if len(found) > size else "",
        )

    async def GetItemHistory(
        self, request: dataset_pb2.GetItemHistoryRequest, context: Context
    ) -> dataset_pb2.GetItemHistoryResponse:
        """What an item was; the newest that fit into a message."""
        response = dataset_pb2.GetItemHistoryResponse()
        length = 0
        for life in self._store.item_history(request.name, request.id):
            message = item_version_to_proto(life)
            length += message.ByteSize()
            if length > LARGEST_ANSWER:
                break
            response.versions.append(message)
        return response

    async def DiffVersions(
        self, request: dataset_pb2.DiffVersionsRequest, context: Context
    ) -> AsyncIterator[dataset_pb2.DiffVersionsResponse]:
        """What differs, as it is found."""
        b = request.to_version if request.HasField("to_version") else None
        to = self._store.dataset(request.name, b).version
        for _, changes in self._store.dataset_changes(request.name, request.from_version, to):
            for batch in _batches([item_change_to_proto(change) for change in changes], BYTES):
                yield dataset_pb2.DiffVersionsResponse(changes=batch)
            await asyncio.sleep(0)

    async def RestoreDataset(
        self, request: dataset_pb2.RestoreDatasetRequest, context: Context
    ) -> dataset_pb2.RestoreDatasetResponse:
        """An earlier version again."""
        return dataset_pb2.RestoreDatasetResponse(
            **_outcome(await self._datasets.restore(request.name, request.version))
        )

    async def PurgeItems(
        self, request: dataset_pb2.PurgeItemsRequest, context: Context
    ) -> dataset_pb2.PurgeItemsResponse:
        """Content out of everything."""
        purged = await self._datasets.purge(request.name, ids_of(request.ids))
        return dataset_pb2.PurgeItemsResponse(item_versions=purged.rows, results=purged.results)


def _version(request: Any) -> int | None:
    return request.version if request.HasField("version") else None


def _outcome(done: Edited | Imported) -> dict[str, Any]:
    return {
        "dataset": dataset_to_proto(done.dataset),
        "changed": done.changed,
        "counts": counts_to_proto(done.tally),
    }


def _batches(messages: Sequence[T_], most: int) -> Iterator[list[T_]]:
    """Messages in batches of about *most* bytes; a larger one is alone."""
    batch: list[T_] = []
    length = 0
    for message in messages:
        size = message.ByteSize()
        if batch and (length + size > most or len(batch) == MOST_ITEMS):
            yield batch
            batch, length = [], 0
        batch.append(message)
        length += size
    if batch:
        yield batch
