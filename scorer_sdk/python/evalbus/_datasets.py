"""Datasets of a server as they change, as frozen values, and how messages become them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evalbus import _run_messages as messages
from evalbus._item import Item
from evalbus._run import Dataset
from evalbus.v1 import dataset_pb2
from evalbus.wire import item_from_proto


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """A dataset at its newest version, with what belongs to no version."""

    dataset: Dataset
    description: str = ""
    metadata_json: str = ""
    """A JSON object; "" for none."""
    input_schema: str = ""
    """JSON Schema that each input must fit; "" for none."""
    expected_schema: str = ""
    scorers: tuple[str, ...] = ()
    """Names of those that judge items which name none of their own."""
    origin: str = ""
    """Where its items come from, as the last upload with an origin said it; "" if none did."""


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many items a version changes."""

    added: int = 0
    changed: int = 0
    removed: int = 0


_NOTHING = ChangeCounts()


@dataclass(frozen=True, slots=True)
class Edited:
    """What a change of a dataset did."""

    dataset: Dataset
    changed: bool
    """Whether there is a new version."""
    counts: ChangeCounts = _NOTHING
    replayed: tuple[int, ...] = ()
    """Indexes of items that had been added before, just so."""
    missing: tuple[str, ...] = ()
    """Ids to be deleted that were not there."""


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """One version of a dataset, and what it changed."""

    dataset: Dataset
    cause: str
    """`upload`, `add`, `update`, `delete`, `restore 3`; `create` for version 0."""
    counts: ChangeCounts


@dataclass(frozen=True, slots=True)
class ItemVersion:
    """What an item was for some versions."""

    version: int
    until: int | None
    """The last one; None: it still is so."""
    item: Item | None
    """None: it was not there."""


@dataclass(frozen=True, slots=True)
class ItemChange:
    """How an item differs between two versions; None on a side: it is not there."""

    before: Item | None
    after: Item | None
    fields: tuple[str, ...] = ()
    """What differs; () for an item that has only moved."""


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge reached."""

    item_versions: int
    results: int


def info(message: dataset_pb2.Dataset) -> DatasetInfo:
    """A dataset with what belongs to no version."""
    about = message.info
    return DatasetInfo(
        messages.dataset(message),
        about.description,
        about.metadata,
        about.input_schema,
        about.expected_schema,
        tuple(about.scorers),
        about.origin,
    )


def counts(message: dataset_pb2.ChangeCounts) -> ChangeCounts:
    """How many items a version changes."""
    return ChangeCounts(message.added, message.changed, message.removed)


def edited(message: Any) -> Edited:
    """What any change of a dataset did."""
    return Edited(
        messages.dataset(message.dataset),
        message.changed,
        counts(message.counts),
        tuple(getattr(message, "replayed", ())),
        tuple(getattr(message, "missing", ())),
    )


def version(message: dataset_pb2.DatasetVersion) -> DatasetVersion:
    """One version."""
    return DatasetVersion(messages.dataset(message.dataset), message.cause, counts(message.counts))


def item_version(message: dataset_pb2.ItemVersion) -> ItemVersion:
    """What an item was for some versions."""
    return ItemVersion(
        message.version,
        message.until if message.HasField("until") else None,
        item_from_proto(message.item) if message.HasField("item") else None,
    )


def item_change(message: dataset_pb2.ItemChange) -> ItemChange:
    """How an item differs between two versions."""
    return ItemChange(
        item_from_proto(message.before) if message.HasField("before") else None,
        item_from_proto(message.after) if message.HasField("after") else None,
        tuple(message.fields),
    )
