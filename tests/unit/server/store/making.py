"""Stores, runs and records made up for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from evalbus import Failure, FailureCategory, Item, Output, Score, ScoreDeclaration, Usage
from evalbus_server.model.run import Counts, DatasetVersion, Outcome, Run, RunState, ScoreKey, Selection
from evalbus_server.model.trial import (
    AttemptRecord,
    Changes,
    OutputRecord,
    ResultRecord,
    ScoreRecord,
    trial_id_of,
)
from evalbus_server.store import Store

KEYS = (
    ScoreKey("exact", 0, ScoreDeclaration(), 1.0),
    ScoreKey("tone.warm", 1, ScoreDeclaration("warm"), weight=2.0),
    ScoreKey("tone.brief", 1, ScoreDeclaration("brief", minimum=None, maximum=None)),
)
"""Two scorers, the second of which gives two scores."""

NOTHING = Changes([], [], [], [])


def items(count: int, prefix: str = "q") -> list[Item]:
    """Items with ids from q0 on."""
    return [Item(f"{prefix}{i}", f"question {i}", f"answer {i}") for i in range(count)]


def dataset(store: Store, content: Sequence[Item] | int = 10, name: str = "support") -> DatasetVersion:
    """Publish a dataset."""
    return store.publish(name, [items(content) if isinstance(content, int) else list(content)])[0]


def run_of(version: DatasetVersion, **more: Any) -> Run:
    """A run over all of a dataset, not stored yet."""
    epochs = more.get("epochs", 1)
    made = Run(
        id="01run",
        name="nightly",
        state=RunState.QUEUED,
        created_at=1_700_000_000.25,
        dataset=version,
        selection=Selection(False, version.items, version.items - 1),
        epochs=epochs,
        experiment_json='{"name":"nightly"}',
        digest="abc",
        score_keys=KEYS,
        counts=Counts(version.items * epochs),
    )
    return replace(made, **more)


def started(store: Store, content: Sequence[Item] | int = 10, **more: Any) -> Run:
    """A stored run that is RUNNING."""
    run = store.create_run(run_of(dataset(store, content), **more))
    return store.begin_session(run.id)


def output(position: int, *, epoch: int = 1, said: str | Output | None = None, **more: Any) -> OutputRecord:
    """An output to be stored."""
    made = said if isinstance(said, Output) else Output(said or f"said {position}")
    record = OutputRecord(trial_id_of(position, epoch), made, 1001, 1, 0.25)
    return record._replace(**more)


def scores(position: int, keys: Iterable[int] = (0, 1, 2), *, epoch: int = 1, value: float = 1.0) -> list[ScoreRecord]:
    """Scores to be stored."""
    return [
        ScoreRecord(
            trial_id_of(position, epoch),
            key,
            Score.scored(value, name=KEYS[key].declaration.name),
            KEYS[key].passes(value),
        )
        for key in keys
    ]


def result(position: int, outcome: Outcome = Outcome.PASSED, *, epoch: int = 1, **more: Any) -> ResultRecord:
    """A result to be stored."""
    record = ResultRecord(trial_id_of(position, epoch), outcome, 0.5, None, 1, None)
    return record._replace(**more)


def failed_attempt(position: int, role: int = -1, attempt: int = 1001, usage: Usage | None = None) -> AttemptRecord:
    """A failed attempt to be stored."""
    failure = Failure(FailureCategory.TIMEOUT, "no answer in time")
    return AttemptRecord(trial_id_of(position, 1), role, attempt, failure, usage, 1_700_000_000.5, 60.0)


def changes(**records: list[Any]) -> Changes:
    """Changes, from those that there are."""
    return NOTHING._replace(**records)


def whole(positions: Iterable[int], *, epoch: int = 1, outcome: Outcome = Outcome.PASSED) -> Changes:
    """All that is stored of trials that went well."""
    places = list(positions)
    return Changes(
        [output(position, epoch=epoch) for position in places],
        [score for position in places for score in scores(position, epoch=epoch)],
        [],
        [result(position, outcome, epoch=epoch) for position in places],
    )
