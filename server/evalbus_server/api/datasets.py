"""DatasetService: decode, call, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc.aio

from evalbus.v1 import dataset_pb2, dataset_pb2_grpc
from evalbus_server.api.pages import Tokens, page_size
from evalbus_server.api.upload import Incoming, stored
from evalbus_server.store import Store
from evalbus_server.wire.dataset import dataset_to_proto

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

PAGE = 50
LONGEST_PAGE = 500


class DatasetService(dataset_pb2_grpc.DatasetServiceServicer):
    """The datasets of a store."""

    def __init__(self, store: Store) -> None:
        """Serve those of *store*."""
        self._store = store

    async def UploadDataset(
        self, requests: AsyncIterator[dataset_pb2.UploadDatasetRequest], context: Context
    ) -> dataset_pb2.UploadDatasetResponse:
        """All or nothing."""
        async with Incoming(requests, context) as incoming:
            dataset, changed = await stored(self._store, await incoming.name(), incoming.batches())
        return dataset_pb2.UploadDatasetResponse(dataset=dataset_to_proto(dataset), changed=changed)

    async def GetDataset(
        self, request: dataset_pb2.GetDatasetRequest, context: Context
    ) -> dataset_pb2.GetDatasetResponse:
        """One dataset at a version, or at its newest."""
        version = request.version if request.HasField("version") else None
        dataset = self._store.dataset(request.name, version)
        return dataset_pb2.GetDatasetResponse(dataset=dataset_to_proto(dataset))

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
