"""The numbers of a run. One that has no value is None, never 0 or NaN (N3)."""

from __future__ import annotations

from dataclasses import dataclass, field

from evalbus import FailureCategory, Usage
from evalbus_server.model.numbers import RunMetric
from evalbus_server.model.run import Run, Verdict


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ValueCount:
    """How often a value came, and its share of all values (0 to 1)."""

    value: float
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of a histogram: from *low* up to *high*; the last one includes its end."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """The five most frequent values (of equals the smaller first), the rest as a count, and ten equal bins."""

    values: tuple[ValueCount, ...] = ()
    other: int = 0
    histogram: tuple[Bin, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """The numbers of one score key (N1 to N7)."""

    key: str
    n: int
    """Items with a value."""
    n_trials: int
    """Trials with a value."""
    errored: int
    """Trials without a value because something broke, the target included."""
    skipped: int
    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    sum: float | None = None
    std: float | None = None
    stderr: float | None = None
    interval: Interval | None = None
    pass_rate: float | None = None
    coverage: float | None = None
    threshold: float | None = None
    distribution: Distribution = field(default_factory=Distribution)
    metrics: tuple[RunMetric, ...] = ()
    """Those that the experiment asks for."""


@dataclass(frozen=True, slots=True)
class CriterionResult:
    """What one criterion said; *criterion* is its position in the experiment."""

    criterion: int
    value: float | None
    outcome: Verdict
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class Latency:
    """The target's latency in milliseconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of a run, computed from what is stored (N6)."""

    run: Run
    pass_rate: float | None
    coverage: float | None
    weighted: float | None
    scores: tuple[ScoreSummary, ...]
    criteria: tuple[CriterionResult, ...]
    verdict: Verdict
    """What the criteria say of these numbers; the run has it once it is over."""
    latency: Latency | None
    usage: Usage
    priced_share: float | None
    """Trials with a known price / trials with usage."""
    attempts: int
    failures: tuple[tuple[FailureCategory, int], ...]
    wall_time: float
    """Seconds from its start to its end, with the pauses between its sessions."""
    cached: int = 0
    """Trials whose output was remembered from before."""
    work_time: float = 0.0
    """Seconds in which it was at work."""
    warnings: tuple[str, ...] = ()
    """What hinders nothing, and is hardly meant so."""
