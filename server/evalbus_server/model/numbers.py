"""The stored numbers of a run, from which its summary is computed. No content, and nothing reduced yet."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TypeAlias

from evalbus import FailureCategory, Usage
from evalbus_server.model.run import Run

Values: TypeAlias = "array[float]"
"""Packed: a run of 100,000 trials has several hundred thousand values, and a list takes four times the memory."""


def no_values() -> Values:
    """An empty array."""
    return array("d")


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers of trials."""

    values: Values = field(default_factory=no_values)
    trials: array[int] = field(default_factory=lambda: array("q"))
    """The trial id of each value, those of one item in the order of its epochs. Empty if the run has one epoch: each
    value is then of an item of its own, and no number depends on which."""


@dataclass(frozen=True, slots=True)
class RunMetric:
    """A number over all trials of a score, as it was made when the run was complete."""

    name: str
    """As the experiment calls it."""
    value: float | None
    explanation: str = ""
    """What it was made of, or why there is none."""
    lower_is_better: bool = False


@dataclass(frozen=True, slots=True)
class RunNumbers:
    """What the store knows of a run in numbers.

    Keys of the dictionaries are positions in the run's score keys; a key about which nothing is stored may be
    missing.
    """

    run: Run
    values: dict[int, Column] = field(default_factory=dict)
    """By score key: the value of every score that is SCORED."""
    errored: dict[int, int] = field(default_factory=dict)
    """By score key: trials without a value because something broke, those included whose target failed."""
    skipped: dict[int, int] = field(default_factory=dict)
    """By score key: trials to which the scorer did not apply."""
    metrics: dict[int, tuple[RunMetric, ...]] = field(default_factory=dict)
    """By score key: the numbers over all trials that the experiment asks for; none before the run is complete."""
    latencies_ms: Values = field(default_factory=no_values)
    """The target's latency of every stored output that has one."""
    weighted: Column = field(default_factory=Column)
    """The weighted score of every trial that has one."""
    usage: Usage = field(default_factory=Usage)
    """The sum over all attempts at target and scorers."""
    priced: int = 0
    """Trials whose price is known."""
    with_usage: int = 0
    """Trials with usage."""
    failures: dict[FailureCategory, int] = field(default_factory=dict)
    """How many trials are ERRORED, by the category of their failure."""
    attempts: int = 0
    """Attempts at the target."""
    cached: int = 0
    """Outputs that were remembered from before."""
