"""What builtin metrics have in common: numbers over all trials of a score, made of what each trial says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from evalbus import Item, Output, Score, ScoreTask, TrialFailed, Value
from evalbus.kit import value_in
from evalbus_server.scorer.builtin._compared import accepted_of, actual_of, quoted

Find = Callable[[Item, Output, int, Score], Value | None]
Made = tuple[float | None, str]
"""The number, or none, and of what it was made, or why there is none."""

INPUTS = ("output", "expected")


class MetricFault(Exception):
    """A number cannot be made; the text says why."""


class Mapped(NamedTuple):
    """An input of a metric."""

    path: str
    find: Find


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One score with a value, and what it is about."""

    task: ScoreTask
    """With the scorer's own inputs."""
    score: Score
    mapped: Mapping[str, Mapped]
    """The metric's own inputs."""
    lower_is_better: bool = False

    @property
    def value(self) -> float:
        """The score's value."""
        return self.score.value or 0.0

    def said(self) -> Value:
        """What the target said: what the scorer found in it, else its word for it, else the output that it judged.

        Raises:
            MetricFault: what is mapped is not there.
        """
        if "output" in self.mapped:
            return self._find("output")
        if self.score.answer is not None:
            return self.score.answer
        return Value(self.score.label) if self.score.label else actual_of(self.task)

    def judged(self) -> Value:
        """The output that the scorer judged."""
        return self._find("output") if "output" in self.mapped else actual_of(self.task)

    def accepted(self) -> list[Value]:
        """What would be right: any one of these; none if nobody knows."""
        if "expected" not in self.mapped:
            return accepted_of(self.task)
        return accepted_of(ScoreTask(0, 0, self.task.item, self.task.output, {"expected": self._find("expected")}))

    def _find(self, name: str) -> Value:
        mapped = self.mapped[name]
        found = mapped.find(self.task.item, self.task.output, self.task.trial_id, self.score)
        if found is None:
            told = f"the mapped input {name!r} has no value for item {self.task.item.id!r}: there is no {mapped.path}"
            raise MetricFault(told)
        return found


@dataclass(frozen=True, slots=True)
class Metric:
    """A builtin metric."""

    name: str
    about: str
    settings: type
    take: Callable[[MetricRow, Any], Any]
    """What is needed of a row, small; None if it has no part in the number."""
    make: Callable[[Sequence[Any], Any], Made]
    """The number; the order of what was taken makes no difference."""
    lower_is_better: bool = False


@dataclass(frozen=True, slots=True)
class NoSettings:
    """None."""


def number_of(value: Value, what: str) -> float:
    """A number that stands in a value as text or JSON.

    Raises:
        MetricFault: there is none.
    """
    if isinstance(value.body, str):
        if value.body in ("true", "false"):
            return float(value.body == "true")
        try:
            return value_in(value.body)
        except TrialFailed:
            pass
    raise MetricFault(f"{what} is {quoted(value)}, which is no finite number")


def none_had(what: str) -> Made:
    """Where nothing was taken of any row."""
    return None, f"no trial has {what}"
