"""What a plugin says of itself, and how a conversation with it begins."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from evalbus._draft import draft
from evalbus._failure import Failure
from evalbus._output import Output, Usage
from evalbus._score import Direction, Score, ScoreDeclaration

REVISION = 1
"""The protocol revision that this package speaks."""


class Isolation(IntEnum):
    """Whether trials of a target can influence each other. Numbers as in the contract."""

    FRESH = 1
    SHARED = 2


class Need(IntEnum):
    """A part of a score task that a scorer cannot do without. Numbers as in the contract."""

    EXPECTED = 1
    MESSAGES = 2
    TOOL_CALLS = 3
    SPANS = 4


class Purpose(IntEnum):
    """What a run is for. Numbers as in the contract."""

    OFFLINE = 1
    LIVE = 2
    CALIBRATION = 3
    CONFORMANCE = 4


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What only a target says of itself."""

    isolation: Isolation = Isolation.SHARED


@dataclass(frozen=True, slots=True)
class MetricDeclaration:
    """What a scorer promises about a number over all trials of one of its scores."""

    name: str
    minimum: float | None = None
    maximum: float | None = None
    direction: Direction = Direction.HIGHER_IS_BETTER
    description: str = ""


@dataclass(frozen=True, slots=True)
class ScorerInfo:
    """What only a scorer says of itself."""

    scores: tuple[ScoreDeclaration, ...]
    needs: tuple[Need, ...] = ()
    inputs: tuple[str, ...] = ()
    deterministic: bool = False
    metrics: tuple[MetricDeclaration, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """What a plugin is and what it can do."""

    name: str
    kind: TargetInfo | ScorerInfo
    version: str = ""
    digest: str = ""
    sdk: str = ""
    language: str = ""
    lowest_revision: int = REVISION
    highest_revision: int = REVISION
    capabilities: frozenset[str] = frozenset()
    max_in_flight: int = 0
    """Unanswered trials held at most; 0: not said."""
    settings_schema: str = ""
    """JSON Schema of the settings, as text; "" for none."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """The first message of a conversation."""

    plugin: str = ""
    revision: int = REVISION
    session_id: str = ""
    run_id: str = ""
    purpose: Purpose = Purpose.OFFLINE
    settings_json: str = ""
    tags: tuple[str, ...] = ()
    silence: float | None = None
    """Seconds without news after which a trial is given up; None: no such limit."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The plugin is ready for trials."""

    max_in_flight: int = 0
    scores: tuple[ScoreDeclaration, ...] = ()


class ProgressKind(IntEnum):
    """The kind of news of a trial. Numbers as in the contract."""

    STARTED = 1
    HEARTBEAT = 2


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """News of one trial."""

    trial_id: int
    attempt: int
    kind: ProgressKind = ProgressKind.HEARTBEAT
    steps: int = 0
    messages: int = 0
    usage: Usage | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a target made of one trial."""

    trial_id: int
    attempt: int
    result: Output | Failure
    usage: Usage | None = None
    """What a failed trial had consumed by then."""


AnswerDraft = draft(Answer)


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """What a scorer made of one task: its scores, or one failure for all of them."""

    trial_id: int
    attempt: int
    result: tuple[Score, ...] | Failure
    usage: Usage | None = None
    """What a failed task had consumed by then."""


ScoreAnswerDraft = draft(ScoreAnswer)
