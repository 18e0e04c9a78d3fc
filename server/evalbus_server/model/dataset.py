"""Datasets as they change: what versions did, what became of items, and what a change was refused for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evalbus import Item
from evalbus_server.errors import Conflict, Invalid, Reason
from evalbus_server.model.run import DatasetVersion
from evalbus_server.model.written import plain_dataset_name


def checked_name(name: str, field: str = "name") -> str:
    """The name that a dataset is to have.

    Raises:
        Invalid: DATASET_INVALID: it cannot be one.
    """
    try:
        return plain_dataset_name(name)
    except ValueError as fault:
        rule = "it has 1 to 200 characters, no control characters, and no white space at its ends"
        raise Invalid(
            Reason.DATASET_INVALID, f"the dataset's name {name[:80]!r} {fault}: {rule}", field=field
        ) from None


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """A dataset at its latest version, with what does not belong to a version."""

    latest: DatasetVersion
    description: str = ""
    metadata_json: str = ""
    """A JSON object; "" for none."""
    input_schema: str = ""
    """JSON Schema that each input must fit; "" for none."""
    expected_schema: str = ""
    scorers: tuple[str, ...] = ()
    """Names of those that judge items which name none of their own."""
    origin: str = ""
    """The file that gave it its name; "" if somebody named it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that gives a dataset its name, because nobody else does. Only where it lies can be seen what is there."""

    file: str
    moved_from: str = ""
    """The origin that the dataset had, of which somebody has seen that nothing is there any more."""


@dataclass(frozen=True, slots=True)
class InfoChange:
    """What is to be changed of a dataset beside its items; None leaves a part as it is, "" and () take it away."""

    description: str | None = None
    metadata_json: str | None = None
    input_schema: str | None = None
    expected_schema: str | None = None
    scorers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """One version of a dataset, and what it changed of the one before."""

    dataset: DatasetVersion
    cause: str
    """`upload`, `add`, `update`, `delete`, `restore 3`; `create` for version 0."""
    added: int
    changed: int
    removed: int


@dataclass(frozen=True, slots=True)
class ItemVersion:
    """What an item was from one version on. A tombstone has no item."""

    version: int
    until: int | None
    """The last version in which it was so; None: it still is."""
    item: Item | None

    @property
    def deleted(self) -> bool:
        """Whether it was not there."""
        return self.item is None


@dataclass(frozen=True, slots=True)
class ItemChange:
    """How an item differs between two versions. None on a side: it is not there."""

    before: Item | None
    after: Item | None
    fields: tuple[str, ...] = ()
    """What differs; () for an item that has only moved to another place."""

    @property
    def id(self) -> str:
        """The item's id."""
        item = self.after or self.before
        assert item is not None
        return item.id

    @property
    def kind(self) -> str:
        """`added`, `removed`, `changed` or `moved`."""
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        return "changed" if self.fields else "moved"


class Tally(NamedTuple):
    """How many items a change added, changed, removed."""

    added: int = 0
    changed: int = 0
    removed: int = 0

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(self.added + other.added, self.changed + other.changed, self.removed + other.removed)


NO_TALLY = Tally()


@dataclass(frozen=True, slots=True)
class Edited:
    """What a change of items did."""

    dataset: DatasetVersion
    changed: bool
    """Whether there is a new version."""
    tally: Tally = NO_TALLY
    replayed: tuple[int, ...] = ()
    """Indexes of items that had been added before, just so."""
    missing: tuple[str, ...] = ()
    """Ids to be deleted that were not there."""


class Repeated(NamedTuple):
    """An item of an upload whose id came before."""

    place: int
    """Within the batch."""
    id: str
    earlier: int
    """How many items came before the one that has the id."""


class Fault(NamedTuple):
    """Why an item of a call was refused."""

    place: int
    """Within the call."""
    id: str
    reason: str
    """A constant: `ID_TAKEN`, `ID_DELETED`, `ID_TWICE`, `SCHEMA`."""
    message: str
    path: str = ""
    """A JSON pointer with the field in front, such as `input/address/city`."""


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge reached."""

    rows: int
    """Of the item, over all versions."""
    results: int
    """Trials in runs."""
    runs: frozenset[str] = frozenset()
    """Ids of the runs that have these."""


SHOWN = 5
"""So many refused items stand in the message of an error."""


class ItemConflict(Conflict):
    """Items of a call cannot be added, since their ids are taken; none was."""

    def __init__(self, name: str, faults: Sequence[Fault]) -> None:
        """Say why, with the first few."""
        message = (
            f"nothing was changed in {name!r}: {_told(faults, lambda fault: f'the id {fault.id!r} {fault.message}')}"
        )
        super().__init__(Reason.ITEM_CONFLICT, message, field=f"items[{faults[0].place}]")
        self.faults = tuple(faults)


class ItemsInvalid(Invalid):
    """Items do not fit the schemas of their dataset."""

    def __init__(self, name: str, faults: Sequence[Fault], what: str = "item") -> None:
        """Say where, with the first few."""
        told = _told(faults, lambda fault: f"{fault.id!r} at {fault.path}: {fault.message}", what)
        super().__init__(Reason.DATASET_INVALID, f"{name!r}: {told}", field=f"items[{faults[0].place}]")
        self.faults = tuple(faults)


def _told(faults: Sequence[Fault], say: Callable[[Fault], str], what: str = "item") -> str:
    told = "; ".join(f"{what} {fault.place + 1}: {say(fault)}" for fault in faults[:SHOWN])
    return told + (f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else "")
