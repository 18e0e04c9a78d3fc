"""One trial on its way through the line, and the records that the store keeps of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from evalbus import Failure, Item, Output, Score, Usage
from evalbus_server.model.run import Outcome

EPOCH_BITS = 32
"""A trial id is (epoch - 1) << EPOCH_BITS | position."""
POSITIONS = 1 << EPOCH_BITS
"""More positions than this no dataset has."""
POSITION_MASK = POSITIONS - 1
"""The bits of a trial id that are the position."""
_ROW = 64
"""About so many bytes an item takes beside its content."""
EPOCHS = 10_000
"""More epochs than this no run has, so every trial id is below 2^53."""


def trial_id_of(position: int, epoch: int) -> int:
    """The trial id of an item's position (from 0) in an epoch (from 1); ids sort in the order of the plan."""
    return (epoch - 1) << EPOCH_BITS | position


def position_of(trial_id: int) -> int:
    """The item's position behind a trial id."""
    return trial_id & POSITION_MASK


def epoch_of(trial_id: int) -> int:
    """The epoch behind a trial id."""
    return (trial_id >> EPOCH_BITS) + 1


class StoredItem:
    """An item of a dataset version and its position there; the value is made when somebody looks at it.

    Most items of a run only pass through, from the store's columns to a plugin's message.
    """

    __slots__ = ("_columns", "_item", "_read", "position")

    def __init__(self, position: int, columns: tuple[Any, ...], read: Callable[[tuple[Any, ...]], Item]) -> None:
        """*columns* are id, input, its type, expected, its type, metadata, detail; *read* makes the value of them."""
        self.position = position
        self._columns = columns
        self._read = read
        self._item: Item | None = None

    @property
    def id(self) -> str:
        """The item's id."""
        identity: str = self._columns[0]
        return identity

    @property
    def item(self) -> Item:
        """The item."""
        if self._item is None:
            self._item = self._read(self._columns)
        return self._item

    @property
    def texts(self) -> tuple[str, str, str | None, str | None] | None:
        """Id, input, expected and metadata if the item has nothing else and both are plain texts; None for others."""
        identity, asked, asked_type, expected, expected_type, metadata, detail = self._columns
        if asked_type is None and expected_type is None and detail is None:
            return identity, asked, expected, metadata
        return None

    @property
    def columns(self) -> tuple[Any, ...]:
        """All of it, as the store has it."""
        return self._columns

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        _, asked, _, expected, _, metadata, detail = self._columns
        return _ROW + len(asked) + len(expected or "") + len(metadata or "") + len(detail or "")


class Outline(NamedTuple):
    """What can be chosen by in an item of a dataset version."""

    position: int
    id: str
    tags: tuple[str, ...]


class OpenTrial:
    """A trial that has no result yet. Mutable: the stations of the line fill it in.

    What most trials never change stands in the class, since hundreds of thousands are made a minute.
    """

    output: Output | None = None
    waiting = 0
    """Bit i is set while scorer i has not answered."""
    holding = 0
    """Bit i is set while scorer i has been asked and has not answered."""
    encoded_item: bytes | None = None
    """How plugins are sent the item: made once, by the codec."""
    encoded_task: bytes | None = None
    """How scorers are sent item and output: made once, by the codec."""
    task_record: tuple[int, bytes, bytes] | None = None
    """The score task as it was sent last: attempt, the time that remained, and the encoded record."""
    attempts = 0
    """Attempts at the target so far."""
    usage: Usage | None = None
    """Consumed so far, by all attempts at target and scorers."""

    def __init__(self, trial_id: int, item: Item | StoredItem, output: Output | None = None) -> None:
        """A trial as it leaves the plan, or with its stored *output*."""
        self.trial_id = trial_id
        self.stored = item
        """The item, as a value or as the store has read it."""
        if output is not None:
            self.output = output
        self.scores: dict[int, Score] = {}
        """By position in the run's score keys; those that are known."""

    @property
    def item(self) -> Item:
        """The item."""
        return self.stored.item if isinstance(self.stored, StoredItem) else self.stored

    @property
    def size(self) -> int:
        """About how many bytes its item takes."""
        stored = self.stored
        if isinstance(stored, StoredItem):
            return stored.size
        expected = 0 if stored.expected is None else len(stored.expected.body)
        return _ROW + len(stored.input.body) + expected + len(stored.metadata_json)


CACHED = -1
"""The attempt of an output that the target had given before, so that nobody asked it."""


class OutputRecord(NamedTuple):
    """An output to be stored; its place among the outputs of the run is given by the store."""

    trial_id: int
    output: Output
    attempt: int
    """The number of the attempt that gave it; 0 if the dataset brought it, CACHED if it was remembered."""
    attempts: int
    """Attempts at the target up to and with this one."""
    latency: float | None
    """Seconds from sending to answer; None if the dataset brought it."""


class ScoreRecord(NamedTuple):
    """A score to be stored."""

    trial_id: int
    key: int
    """Position in the run's score keys."""
    score: Score
    passed: bool | None


class AttemptRecord(NamedTuple):
    """A failed attempt to be stored; one that succeeded is stored with its output or scores."""

    trial_id: int
    role: int
    """-1 for the target, else the scorer's position in the run."""
    attempt: int
    """session * 1000 + n."""
    failure: Failure
    usage: Usage | None
    sent_at: float
    """Seconds since 1970."""
    duration: float
    """Seconds."""


class ResultRecord(NamedTuple):
    """The result of a trial to be stored: its outcome, for good."""

    trial_id: int
    outcome: Outcome
    weighted: float | None
    failure: Failure | None
    """Why it is ERRORED."""
    attempts: int
    """Attempts at the target."""
    usage: Usage | None
    """Consumed by all attempts at target and scorers."""


class Changes(NamedTuple):
    """What one transaction stores of a run."""

    outputs: list[OutputRecord]
    scores: list[ScoreRecord]
    attempts: list[AttemptRecord]
    results: list[ResultRecord]


class StoredScore(NamedTuple):
    """A score as it is read back."""

    score: Score
    passed: bool | None


class StoredResult(NamedTuple):
    """The result of a trial as it is read back, whole."""

    trial_id: int
    item: Item
    outcome: Outcome
    output: Output | None
    scores: dict[int, StoredScore]
    """By position in the run's score keys."""
    weighted: float | None
    failure: Failure | None
    attempts: int
    latency: float | None
    """Seconds."""
    usage: Usage | None
    cached: bool = False
    """Whether the output was remembered, and the target not asked."""
