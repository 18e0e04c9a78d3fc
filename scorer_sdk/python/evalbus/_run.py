"""Runs as a client sees them: how they stand, what happens in them, what came out. Numbers of enums as in the contract.

Numbers that have no value are None, never 0 or NaN. Points in time are seconds since 1970, lengths of time seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias

from evalbus._failure import Failure, FailureCategory
from evalbus._item import Item
from evalbus._output import Output, Usage
from evalbus._plugin import PluginInfo
from evalbus._score import Score, ScoreDeclaration, ScoreStatus


class RunState(IntEnum):
    """How far a run is."""

    QUEUED = 1
    RUNNING = 2
    PAUSED = 3
    COMPLETED = 4
    CANCELLED = 5
    INTERRUPTED = 6
    ABORTED = 7

    @property
    def over(self) -> bool:
        """Whether nothing more happens unless somebody resumes the run."""
        return self not in (RunState.QUEUED, RunState.RUNNING, RunState.PAUSED)


class Verdict(IntEnum):
    """What the criteria say."""

    PASS = 1
    FAIL = 2
    INCONCLUSIVE = 3


class Outcome(IntEnum):
    """What became of a trial."""

    PASSED = 1
    FAILED = 2
    ERRORED = 3
    SKIPPED = 4


@dataclass(frozen=True, slots=True)
class Counts:
    """How the trials of a run stand: `planned` is the sum of the others."""

    planned: int = 0
    passed: int = 0
    failed: int = 0
    errored: int = 0
    skipped: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset at one version."""

    name: str
    version: int
    items: int
    """How many."""
    digest: str
    """The same items in the same order give the same one."""
    created_at: float | None = None


@dataclass(frozen=True, slots=True)
class RunDataset:
    """The dataset version that a run uses."""

    name: str
    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class Upload:
    """What an upload did."""

    dataset: Dataset
    changed: bool
    """Whether there is a new version."""
    added: int = 0
    """Items that were not there before."""
    items_changed: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of an experiment."""

    id: str
    name: str
    """The experiment's name."""
    state: RunState
    reason: str
    """Why it is in this state; "" if there is nothing to say."""
    verdict: Verdict | None
    """None until the run has ended."""
    partial: bool
    """Whether trials are missing although the run is over or halted."""
    counts: Counts
    dataset: RunDataset
    digest: str
    """Of the experiment."""
    tags: tuple[str, ...] = ()
    created_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    last_sequence: int = 0
    """The number of its last event."""
    source: str = ""
    """The run whose outputs are scored anew; "" for one that has its own."""
    session_began_at: float | None = None
    """When the session that is at work began; None while nobody works on it."""
    worked: float = 0.0
    """Seconds of work in the sessions that are over."""
    changed_limits: Mapping[str, Any] = field(default_factory=dict)
    """By path, what was set anew in the limits of its experiment."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do."""

    items: int
    epochs: int
    trials: int
    target_calls: int
    scorer_calls: int
    plugins: tuple[PluginInfo, ...]
    """The target first, then the scorers in order."""
    scores: tuple[str, ...]
    """The score keys that results would have."""
    declarations: Mapping[str, ScoreDeclaration] = field(default_factory=dict)
    """By score key, what its scorer promises with its settings."""
    dataset: RunDataset | None = None
    """None if the items came with the experiment and are not stored."""
    first_items: tuple[str, ...] = ()
    """The ids of the first few items."""
    warnings: tuple[str, ...] = ()
    """What hinders nothing and is hardly meant so."""


# --- watching ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The run's state changed."""

    state: RunState
    counts: Counts
    reason: str = ""
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class TrialsEnded:
    """Trials got their results."""

    trials: tuple[tuple[int, Outcome], ...]
    """Trial ids with their outcomes."""
    counts: Counts
    """Afterwards."""


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """Limits of the run were changed."""

    settings: dict[str, Any]
    """By path in the experiment."""
    counts: Counts


@dataclass(frozen=True, slots=True)
class ContentPurged:
    """The content of trials was purged: whoever holds copies of what they said drops them."""

    trials: tuple[int, ...]
    """Trial ids."""
    counts: Counts


@dataclass(frozen=True, slots=True)
class Event:
    """A stored fact about a run, with its number."""

    sequence: int
    time: float
    fact: StateChanged | TrialsEnded | LimitsChanged | ContentPurged | None
    """None: of a kind that this client does not know yet."""


@dataclass(frozen=True, slots=True)
class ScoreProgress:
    """A score's running numbers, for display."""

    key: str
    n: int
    mean: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run as it was at the sequence `run.last_sequence`."""

    run: Run
    scores: tuple[ScoreProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is, between stored events."""

    counts: Counts
    answered: int
    """Trials that the target has answered."""
    in_flight: int
    scores: tuple[ScoreProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing happened for a while."""

    last_sequence: int


# --- results ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScoreFilter:
    """A condition on one score of a trial; all of its parts hold, bounds for values only."""

    key: str
    status: ScoreStatus | None = None
    missing: bool = False
    """There is no such score of the trial; excludes all else."""
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    below: float | None = None


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """One score of a result."""

    key: str
    score: Score
    threshold: float | None = None
    passed: bool | None = None
    """None without a threshold or a value."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of one trial."""

    trial_id: int
    item: Item
    epoch: int
    outcome: Outcome
    output: Output | None
    scores: tuple[ScoreResult, ...]
    failure: Failure | None
    weighted: float | None
    attempts: int
    """At the target."""
    latency: float | None
    usage: Usage | None
    cached: bool = False
    """Whether the output was remembered from before, and the target not asked."""


News: TypeAlias = Snapshot | Event | RunProgress | Idle | TrialResult
"""What a watcher gets; results only if it asks for them."""


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
    """A bin of a histogram; the last one includes its end."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """The five most frequent values, the rest as a count, and ten equal bins."""

    values: tuple[ValueCount, ...] = ()
    other: int = 0
    histogram: tuple[Bin, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """A number over all trials of a score, made once the run was complete."""

    name: str
    """As the experiment calls it."""
    value: float | None
    explanation: str = ""
    """What it was made of, or why there is none."""


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """The numbers of one score."""

    key: str
    n: int
    """Items with a value."""
    n_trials: int
    """Trials with a value."""
    errored: int
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
    metrics: tuple[MetricSummary, ...] = ()
    """Those that the experiment asks for."""


@dataclass(frozen=True, slots=True)
class CriterionResult:
    """What a criterion said."""

    label: str
    metric: str
    scorer: str
    """A score key; "" for the run's own number."""
    value: float | None
    min: float | None
    max: float | None
    severity: str
    """`error` or `warn`."""
    outcome: Verdict | None
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
    """The numbers of a run."""

    run: Run
    pass_rate: float | None
    coverage: float | None
    weighted: float | None
    scores: tuple[ScoreSummary, ...]
    criteria: tuple[CriterionResult, ...]
    latency: Latency | None
    usage: Usage | None
    priced_share: float | None
    attempts: int
    failures: tuple[tuple[FailureCategory, int], ...]
    protocol_faults: int
    wall_time: float
    """Seconds from its start to its end, with the pauses between its sessions."""
    cached: int = 0
    """Trials whose output was remembered from before."""
    work_time: float = 0.0
    """Seconds in which it was at work."""
    warnings: tuple[str, ...] = ()
    """What hinders nothing and is hardly meant so."""

    def score(self, key: str) -> ScoreSummary:
        """The numbers of one score.

        Raises:
            KeyError: the run has no such score.
        """
        for each in self.scores:
            if each.key == key:
                return each
        raise KeyError(f"no score {key!r}; there is: {', '.join(each.key for each in self.scores) or 'none'}")
