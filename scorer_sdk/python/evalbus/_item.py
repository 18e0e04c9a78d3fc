"""What a dataset holds, and what is asked of a target or a scorer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evalbus._draft import draft
from evalbus._output import Message, Output
from evalbus._value import JsonObject, Value, ValueLike, maybe, object_data, object_text

_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class ToolMock:
    """An answer prepared for a tool."""

    tool: str
    arguments_json: str | None = None
    """The arguments that the call must have, as JSON text; None: any arguments will do."""
    output: Value | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, init=False)
class Item:
    """One row of a dataset."""

    id: str
    input: Value
    expected: Value | None
    """The reference answer. None: there is none. A JSON list means any of these."""
    metadata_json: str
    tags: tuple[str, ...]
    choices: tuple[str, ...]
    messages: tuple[Message, ...]
    tool_mocks: tuple[ToolMock, ...]
    scorers: tuple[str, ...] | None
    """The item's own scorers; None: the dataset or the run decides; (): none."""
    output: Output | None
    """An output that the dataset brings along."""

    def __init__(
        self,
        id: str,
        input: ValueLike = "",
        expected: ValueLike | None = None,
        *,
        metadata: JsonObject | str | None = None,
        tags: Sequence[str] = (),
        choices: Sequence[str] = (),
        messages: Sequence[Message] = (),
        tool_mocks: Sequence[ToolMock] = (),
        scorers: Sequence[str] | None = None,
        output: Output | None = None,
    ) -> None:
        """Make an item; *input* and *expected* are text as str, JSON as Python objects, or Values."""
        _set(self, "id", id)
        _set(self, "input", input if type(input) is Value else Value.of(input))
        _set(self, "expected", maybe(expected))
        _set(self, "metadata_json", metadata if type(metadata) is str else object_text(metadata))
        _set(self, "tags", tuple(tags))
        _set(self, "choices", tuple(choices))
        _set(self, "messages", tuple(messages))
        _set(self, "tool_mocks", tuple(tool_mocks))
        _set(self, "scorers", None if scorers is None else tuple(scorers))
        _set(self, "output", output)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata as Python objects (parsed at each access)."""
        return object_data(self.metadata_json)

    @property
    def accepted(self) -> tuple[Value, ...]:
        """The expected answers of which any one will do: () if there is none, several if `expected` is a JSON list."""
        if self.expected is None:
            return ()
        if self.expected.kind == "json":
            document = self.expected.data
            if isinstance(document, list):
                return tuple(Value.of(entry) for entry in document)
        return (self.expected,)


ItemDraft = draft(Item)


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """Bounds for the work on one trial; None does not bound."""

    messages: int | None = None
    tokens: int | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One item asked once: what a target is given."""

    trial_id: int
    """Made of position and epoch; opaque to plugins."""
    attempt: int
    item: Item
    epoch: int = 1
    index: int = 0
    total: int = 0
    remaining: float | None = None
    """Seconds left for this attempt when it was sent; None: no limit."""
    limits: TrialLimits | None = None


@dataclass(frozen=True, slots=True)
class ScoreTask:
    """One output to be judged: what a scorer is given."""

    trial_id: int
    attempt: int
    item: Item
    output: Output
    inputs: dict[str, Value] = field(default_factory=dict)
    """Named values that the experiment's field mapping made for this scorer."""
    against: Output | None = None
    """For a pairwise scorer: the output to compare with."""
    epoch: int = 1
    remaining: float | None = None
    """Seconds left for this attempt when it was sent; None: no limit."""


TaskDraft = draft(ScoreTask)
