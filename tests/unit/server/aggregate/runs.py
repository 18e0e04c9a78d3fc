"""Runs made up for tests: what the store would hand over."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalbus import Direction, Score, ScoreDeclaration, ScoreStatus
from evalbus_server.aggregate.describe import Description, describe, distribution
from evalbus_server.aggregate.judge import judge
from evalbus_server.aggregate.ordered import in_order
from evalbus_server.aggregate.steps import at_once
from evalbus_server.model.numbers import Column, RunNumbers
from evalbus_server.model.run import Counts, DatasetVersion, Outcome, Run, RunState, ScoreKey, Selection
from evalbus_server.model.summary import Distribution
from evalbus_server.model.trial import trial_id_of

ERROR = "error"
SKIP = "skip"
Said = float | str
"""What a scorer said of a trial: a value, "error" or "skip"."""


def key(
    name: str = "score", *, threshold: float | None = None, weight: float | None = None, **declared: Any
) -> ScoreKey:
    """A score key."""
    return ScoreKey(name, 0, ScoreDeclaration(**declared), threshold, weight)


def lower(name: str = "steps", **more: Any) -> ScoreKey:
    """A score key where lower is better."""
    return key(name, maximum=None, direction=Direction.LOWER_IS_BETTER, **more)


def run_of(keys: Sequence[ScoreKey], counts: Counts, *, epochs: int = 1, **more: Any) -> Run:
    """A run with these counts."""
    dataset = DatasetVersion("items", 1, 1, "00", 0.0)
    made = Run(
        "r1",
        "test",
        RunState.COMPLETED,
        0.0,
        dataset,
        Selection(),
        epochs,
        "{}",
        "00",
        tuple(keys),
        counts,
        started_at=0.0,
    )
    return replace(made, **more)


def numbers_of(
    *said: Mapping[ScoreKey, Sequence[Said | Sequence[Said]]], planned: int | None = None, **more: Any
) -> RunNumbers:
    """The numbers of a run in which scorers said this, item by item; a list holds what they said in each epoch.

    A trial of which all scorers say "error" is one whose target failed.
    """
    [table] = said
    keys = list(table)
    columns = [[[each] if isinstance(each, (int, float, str)) else list(each) for each in table[key]] for key in keys]
    epochs = max(len(cell) for column in columns for cell in column)
    numbers = RunNumbers(run_of(keys, Counts(), epochs=epochs, **more))
    outcomes = dict.fromkeys(Outcome, 0)
    for position, cells in enumerate(zip(*columns, strict=True)):
        for epoch in range(1, len(cells[0]) + 1):
            trial = trial_id_of(position, epoch)
            scores = {index: _score(cell[epoch - 1]) for index, cell in enumerate(cells)}
            outcome, weighted, _ = judge(scores, keys)
            outcomes[outcome] += 1
            if weighted is not None:
                _add(numbers, numbers.weighted, trial, weighted)
            for index, score in scores.items():
                _note(numbers, index, trial, score)
    counts = Counts(sum(outcomes.values()) if planned is None else planned).plus(*outcomes.values())
    return replace(numbers, run=replace(numbers.run, counts=counts))


def described(values: Sequence[float]) -> Description:
    """What is said of some values."""
    packed = array("d", values)
    return at_once(describe(packed, at_once(in_order(packed))))


def distributed(values: Sequence[float]) -> Distribution:
    """How some values are distributed."""
    return at_once(distribution(at_once(in_order(array("d", values)))))


def _score(said: Said) -> Score:
    if said == ERROR:
        return Score.errored("broke")
    return Score.skipped("no expected answer") if said == SKIP else Score.scored(float(said))


def _note(numbers: RunNumbers, index: int, trial: int, score: Score) -> None:
    if score.status is ScoreStatus.SCORED and score.value is not None:
        _add(numbers, numbers.values.setdefault(index, Column()), trial, score.value)
    else:
        states = numbers.errored if score.status is ScoreStatus.ERRORED else numbers.skipped
        states[index] = states.get(index, 0) + 1


def _add(numbers: RunNumbers, column: Column, trial: int, value: float) -> None:
    column.values.append(value)
    if numbers.run.epochs > 1:
        column.trials.append(trial)
