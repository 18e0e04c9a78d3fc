"""Datasets and their items <-> messages."""

from __future__ import annotations

import re

from evalbus import Item, _json
from evalbus.v1 import dataset_pb2
from evalbus.wire import item_to_proto, time_from_proto, time_to_proto
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset import DatasetInfo, InfoChange, ItemChange, ItemVersion, Origin, Tally, VersionInfo
from evalbus_server.model.run import DatasetVersion

LONGEST_DESCRIPTION = 10_000
LARGEST_INFO = 1 << 20
LONGEST_ORIGIN = 4_096

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


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


def info_to_proto(info: DatasetInfo) -> dataset_pb2.Dataset:
    """A dataset with what belongs to no version as a message."""
    message = dataset_to_proto(info.latest)
    message.info.description = info.description
    message.info.metadata = info.metadata_json
    message.info.input_schema = info.input_schema
    message.info.expected_schema = info.expected_schema
    message.info.scorers.extend(info.scorers)
    message.info.origin = info.origin
    return message


def origin_from_proto(message: dataset_pb2.UploadHeader) -> Origin | None:
    """Where the items of an upload come from; None: somebody named them.

    Raises:
        Invalid: REQUEST_INVALID: a part is too long, or no text in one line.
    """
    for name in ("origin", "moved_from"):
        text = getattr(message, name)
        if len(text) > LONGEST_ORIGIN or _CONTROL.search(text):
            fault = f"{name} has up to {LONGEST_ORIGIN:,} characters, and no control characters"
            raise Invalid(Reason.REQUEST_INVALID, fault, field=f"header.{name}")
    return Origin(message.origin, message.moved_from) if message.origin else None


def change_from_proto(message: dataset_pb2.DatasetInfoChange) -> InfoChange:
    """A message as what is to be changed.

    Raises:
        Invalid: REQUEST_INVALID: a part is too long, or the metadata is no JSON object.
    """
    change = InfoChange(
        message.description if message.HasField("description") else None,
        message.metadata if message.HasField("metadata") else None,
        message.input_schema if message.HasField("input_schema") else None,
        message.expected_schema if message.HasField("expected_schema") else None,
        tuple(message.scorers.names) if message.HasField("scorers") else None,
    )
    for name, text, longest in (
        ("description", change.description, LONGEST_DESCRIPTION),
        ("metadata", change.metadata_json, LARGEST_INFO),
        ("input_schema", change.input_schema, LARGEST_INFO),
        ("expected_schema", change.expected_schema, LARGEST_INFO),
    ):
        if text is not None and len(text) > longest:
            raise Invalid(Reason.REQUEST_INVALID, f"{name} has more than {longest:,} characters", field=f"info.{name}")
    if change.metadata_json:
        try:
            fits = isinstance(_json.loads(change.metadata_json), dict)
        except ValueError:
            fits = False
        if not fits:
            raise Invalid(Reason.REQUEST_INVALID, "metadata is no JSON object", field="info.metadata")
    return change


def counts_to_proto(tally: Tally) -> dataset_pb2.ChangeCounts:
    """How many items a version changes, as a message."""
    return dataset_pb2.ChangeCounts(added=tally.added, changed=tally.changed, removed=tally.removed)


def version_to_proto(version: VersionInfo) -> dataset_pb2.DatasetVersion:
    """A version as a message."""
    counts = Tally(version.added, version.changed, version.removed)
    return dataset_pb2.DatasetVersion(
        dataset=dataset_to_proto(version.dataset), cause=version.cause, counts=counts_to_proto(counts)
    )


def item_version_to_proto(life: ItemVersion) -> dataset_pb2.ItemVersion:
    """What an item was, as a message."""
    item = None if life.item is None else item_to_proto(life.item)
    return dataset_pb2.ItemVersion(version=life.version, until=life.until, item=item)


def item_change_to_proto(change: ItemChange) -> dataset_pb2.ItemChange:
    """How an item differs, as a message."""
    before = None if change.before is None else item_to_proto(change.before)
    after = None if change.after is None else item_to_proto(change.after)
    return dataset_pb2.ItemChange(before=before, after=after, fields=change.fields)
