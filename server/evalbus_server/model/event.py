"""Stored facts about a run, numbered from 1. They hold ids and numbers, never content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from evalbus_server.model.run import Counts, Outcome, RunState, Verdict


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The run's state changed."""

    state: RunState
    counts: Counts
    reason: str = ""
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class TrialsEnded:
    """Trials got their results, all in one commit."""

    trials: tuple[tuple[int, Outcome], ...]
    """Trial ids with their outcomes."""
    counts: Counts
    """Afterwards."""


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """Limits of the run were changed."""

    settings: tuple[tuple[str, str], ...]
    """Paths in the experiment, each with its value as JSON text."""
    counts: Counts


@dataclass(frozen=True, slots=True)
class ContentPurged:
    """The content of trials was purged: what was read of them before is not to be kept."""

    trials: tuple[int, ...]
    """Trial ids."""
    counts: Counts


Fact: TypeAlias = StateChanged | TrialsEnded | LimitsChanged | ContentPurged


@dataclass(frozen=True, slots=True)
class Event:
    """A fact with its number and time."""

    sequence: int
    time: float
    """Seconds since 1970."""
    fact: Fact
