"""Datasets and their items <-> messages."""

from __future__ import annotations

from evalbus import Item
from evalbus.v1 import dataset_pb2
from evalbus.wire import item_to_proto, time_from_proto, time_to_proto
from evalbus_server.model.run import DatasetVersion


def item_size(item: Item) -> int:
    """The bytes of an encoded item."""
    return item_to_proto(item).ByteSize()


def dataset_to_proto(dataset: DatasetVersion) -> dataset_pb2.Dataset:
    """A dataset at a version as a message."""
    return dataset_pb2.Dataset(
        name=dataset.name,
        version=dataset.version,
        items=dataset.items,
        digest=dataset.digest,
        created_at=time_to_proto(dataset.created_at),
    )


def dataset_from_proto(message: dataset_pb2.Dataset) -> DatasetVersion:
    """A message as a dataset at a version."""
    return DatasetVersion(
        message.name, message.version, message.items, message.digest, time_from_proto(message.created_at)
    )
