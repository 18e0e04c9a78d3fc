"""The stored numbers of a run, from which its summary is computed. No content, and nothing reduced yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from evalbus import FailureCategory, Usage
from evalbus_server.model.run import Run


@dataclass(frozen=True, slots=True)
class RunNumbers:
    """What the store knows of a run in numbers.

    Keys of the dictionaries are positions in the run's score keys; a key about which nothing is stored may be
    missing. Lists are in the order of trial ids, so that the same rows give the same numbers whenever they are read.
    """

    run: Run
    values: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """By score key: trial id and value of every score that is SCORED."""
    passed: dict[int, int] = field(default_factory=dict)
    """By score key: how many of those values pass the threshold; 0 without one."""
    errored: dict[int, int] = field(default_factory=dict)
    """By score key: trials without a value because something broke, those included whose target failed."""
    skipped: dict[int, int] = field(default_factory=dict)
    """By score key: trials to which the scorer did not apply."""
    latencies_ms: list[float] = field(default_factory=list)
    """The target's latency of every stored output that has one."""
    weighted: list[tuple[int, float]] = field(default_factory=list)
    """Trial id and weighted score of every trial that has one."""
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
