"""A run and how it stands. Numbers of the enums are those of the contract."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from evalbus import ScoreDeclaration
from evalbus_server.model.assignment import Assignment


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
    """How the trials of a run stand (O5): planned = passed + failed + errored + skipped + pending."""

    planned: int = 0
    passed: int = 0
    failed: int = 0
    errored: int = 0
    skipped: int = 0

    @property
    def done(self) -> int:
        """Trials that have a result."""
        return self.passed + self.failed + self.errored + self.skipped

    @property
    def pending(self) -> int:
        """Trials that have none."""
        return self.planned - self.done

    def plus(self, passed: int, failed: int, errored: int, skipped: int) -> Counts:
        """The counts after so many more results of each kind."""
        return replace(
            self,
            passed=self.passed + passed,
            failed=self.failed + failed,
            errored=self.errored + errored,
            skipped=self.skipped + skipped,
        )


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """A dataset at one version."""

    name: str
    version: int
    items: int
    digest: str
    """Hexadecimal; the same items in the same order give the same one."""
    created_at: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which items of a dataset version a run asks, and in which order."""

    listed: bool = False
    """Whether they are in a list of the run's own; else they are the first ones of the version, in dataset order."""
    items: int = 0
    """How many items are selected."""
    last: int = -1
    """The position of the last selected item, or its place in the list, from 0; -1 if none is selected."""


@dataclass(frozen=True, slots=True)
class ScoreKey:
    """One score of a run: which scorer gives it, and what it means here."""

    key: str
    """As in results: the scorer's name, or `scorer.score` if it gives several."""
    scorer: int
    """The scorer's position in the run, from 0."""
    declaration: ScoreDeclaration
    threshold: float | None = None
    weight: float | None = None

    def passes(self, value: float) -> bool | None:
        """Whether a value passes the threshold (O2); None without one."""
        if self.threshold is None:
            return None
        if self.declaration.direction == 2:  # lower is better
            return value <= self.threshold
        return value >= self.threshold


@dataclass(frozen=True, slots=True)
class PluginIdentity:
    """What must stay the same of a plugin for a run's results to belong together."""

    name: str
    version: str = ""
    digest: str = ""
    schema: str = ""
    """SHA-256 of its settings schema, hexadecimal; "" without one."""


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of an experiment, as it is stored."""

    id: str
    """Opaque; sorts by time of creation."""
    name: str
    """The experiment's name."""
    state: RunState
    created_at: float
    dataset: DatasetVersion
    selection: Selection
    epochs: int
    experiment_json: str
    """The resolved experiment, canonical JSON."""
    digest: str
    """Of the experiment, hexadecimal."""
    score_keys: tuple[ScoreKey, ...]
    counts: Counts
    plugins: tuple[PluginIdentity, ...] = ()
    """As they were when the run was made: the target first, if there is one, then the scorers in order."""
    tags: tuple[str, ...] = ()
    reason: str = ""
    verdict: Verdict | None = None
    started_at: float | None = None
    ended_at: float | None = None
    session: int = 0
    """How often work on it has begun; attempt numbers are session * 1000 + n."""
    session_began_at: float | None = None
    """When the session that is at work began; None while nobody works on it."""
    worked: float = 0.0
    """Seconds of work in the sessions that are over."""
    last_sequence: int = 0
    """The number of its last event."""
    protocol_faults: int = 0
    request_id: str = ""
    limits_json: str = ""
    """By path, what was set anew in the limits of the experiment; "" for nothing."""
    source: str = ""
    """The run whose outputs are scored; "" for a run that has its own."""
    assignment: Assignment | None = None
    """Who judges which trial; None: all scorers judge all."""

    @property
    def partial(self) -> bool:
        """Whether trials are missing although nothing more happens by itself."""
        return self.counts.pending > 0 and (self.state.over or self.state is RunState.PAUSED)

    @property
    def changed_limits(self) -> dict[str, Any]:
        """By path, what was set anew in the limits of the experiment."""
        found: dict[str, Any] = json.loads(self.limits_json) if self.limits_json else {}
        return found

    def work_time(self, now: float | None) -> float:
        """Seconds of work in all sessions; *now* (seconds since 1970) ends the one that is at work, if there is one."""
        if self.session_began_at is None or now is None:
            return self.worked
        return self.worked + max(0.0, now - self.session_began_at)
