"""Runs, their counts and plans <-> messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from evalbus import PluginInfo
from evalbus.v1 import run_pb2
from evalbus.wire import (
    declaration_from_proto,
    declaration_to_proto,
    duration_from_proto,
    duration_to_proto,
    plugin_info_to_proto,
    time_from_proto,
    time_to_proto,
)
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import (
    Counts,
    DatasetVersion,
    Outcome,
    Run,
    RunState,
    ScoreKey,
    Selection,
    Verdict,
)

E_ = TypeVar("E_")


class Planned(Protocol):
    """What a run will do, as the runner says it."""

    @property
    def items(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def trials(self) -> int: ...
    @property
    def plugins(self) -> Sequence[PluginInfo]: ...
    @property
    def keys(self) -> Sequence[ScoreKey]: ...
    @property
    def has_target(self) -> bool: ...
    @property
    def scorer_calls(self) -> int: ...
    @property
    def dataset(self) -> DatasetVersion | None: ...
    @property
    def first_items(self) -> Sequence[str]: ...
    @property
    def warnings(self) -> Sequence[str]: ...


def plan_to_proto(plan: Planned) -> run_pb2.Plan:
    """A plan as a message."""
    return run_pb2.Plan(
        items=plan.items,
        epochs=plan.epochs,
        trials=plan.trials,
        target_calls=plan.trials if plan.has_target else 0,
        scorer_calls=plan.scorer_calls,
        plugins=[plugin_info_to_proto(info) for info in plan.plugins],
        scores=[key.key for key in plan.keys],
        planned_scores=[
            run_pb2.PlannedScore(
                scorer=key.scorer,
                declaration=declaration_to_proto(key.declaration),
                threshold=key.threshold,
                weight=key.weight,
            )
            for key in plan.keys
        ],
        dataset=None if plan.dataset is None else _dataset_to_proto(plan.dataset),
        first_items=plan.first_items,
        warnings=plan.warnings,
    )


def planned_keys(message: run_pb2.Plan) -> tuple[ScoreKey, ...]:
    """The scores of a plan."""
    return tuple(
        ScoreKey(
            key,
            each.scorer,
            declaration_from_proto(each.declaration),
            each.threshold if each.HasField("threshold") else None,
            each.weight if each.HasField("weight") else None,
        )
        for key, each in zip(message.scores, message.planned_scores, strict=False)
    )


def dataset_of_plan(message: run_pb2.Plan) -> DatasetVersion | None:
    """The dataset of a plan; None if it is not stored."""
    found = message.dataset
    return DatasetVersion(found.name, found.version, 0, found.digest, 0.0) if message.HasField("dataset") else None


def _dataset_to_proto(dataset: DatasetVersion) -> run_pb2.RunDataset:
    return run_pb2.RunDataset(name=dataset.name, version=dataset.version, digest=dataset.digest)


def limit_settings(messages: Iterable[run_pb2.LimitSetting]) -> dict[str, Any]:
    """Limits to be changed, by path.

    Raises:
        Invalid: there is none, or a value is no JSON.
    """
    settings: dict[str, Any] = {}
    for index, message in enumerate(messages):
        try:
            settings[message.path] = json.loads(message.value)
        except ValueError:
            field = f"settings[{index}].value"
            raise Invalid(Reason.REQUEST_INVALID, f"{field}: {message.value!r} is no JSON", field=field) from None
    if not settings:
        raise Invalid(Reason.REQUEST_INVALID, "settings: there is nothing to be changed", field="settings")
    return settings


def counts_to_proto(counts: Counts) -> run_pb2.Counts:
    """Counts as a message."""
    return run_pb2.Counts(
        planned=counts.planned,
        passed=counts.passed,
        failed=counts.failed,
        errored=counts.errored,
        skipped=counts.skipped,
        pending=counts.pending,
    )


def counts_from_proto(message: run_pb2.Counts) -> Counts:
    """A message as counts; what is pending follows from the rest."""
    return Counts(message.planned, message.passed, message.failed, message.errored, message.skipped)


def run_to_proto(run: Run) -> run_pb2.Run:
    """A run as a message."""
    message = run_pb2.Run(
        id=run.id,
        name=run.name,
        state=int(run.state),  # type: ignore[arg-type]  # the numbers are those of the contract
        reason=run.reason,
        verdict=verdict_number(run.verdict),  # type: ignore[arg-type]
        partial=run.partial,
        counts=counts_to_proto(run.counts),
        created_at=time_to_proto(run.created_at),
        dataset=_dataset_to_proto(run.dataset),
        digest=run.digest,
        tags=run.tags,
        last_sequence=run.last_sequence,
        source=run.source,
        worked=duration_to_proto(run.worked),
        changed_limits=[
            run_pb2.LimitSetting(path=path, value=json.dumps(value, ensure_ascii=False))
            for path, value in run.changed_limits.items()
        ],
    )
    if run.started_at is not None:
        message.started_at.CopyFrom(time_to_proto(run.started_at))
    if run.ended_at is not None:
        message.ended_at.CopyFrom(time_to_proto(run.ended_at))
    if run.session_began_at is not None:
        message.session_began_at.CopyFrom(time_to_proto(run.session_began_at))
    return message


def run_from_proto(message: run_pb2.Run, experiment: Experiment | None = None) -> Run:
    """A message as a run, as far as a caller may know it: no selection, no score keys.

    With its *experiment*, it holds that too.
    """
    return Run(
        id=message.id,
        name=message.name,
        state=enum_of(RunState, message.state, RunState.QUEUED),
        created_at=time_from_proto(message.created_at),
        dataset=DatasetVersion(message.dataset.name, message.dataset.version, 0, message.dataset.digest, 0.0),
        selection=Selection(),
        epochs=0 if experiment is None else experiment.epochs.count,
        experiment_json="" if experiment is None else experiment.canonical_json(),
        digest=message.digest,
        score_keys=(),
        counts=counts_from_proto(message.counts),
        tags=tuple(message.tags),
        reason=message.reason,
        verdict=enum_of(Verdict, message.verdict, None),
        started_at=time_from_proto(message.started_at) if message.HasField("started_at") else None,
        ended_at=time_from_proto(message.ended_at) if message.HasField("ended_at") else None,
        last_sequence=message.last_sequence,
        source=message.source,
        session_began_at=time_from_proto(message.session_began_at) if message.HasField("session_began_at") else None,
        worked=duration_from_proto(message.worked),
        limits_json=_limits_json(message.changed_limits),
    )


def _limits_json(messages: Iterable[run_pb2.LimitSetting]) -> str:
    limits = {message.path: json.loads(message.value) for message in messages}
    return json.dumps(limits, ensure_ascii=False) if limits else ""


def verdict_number(verdict: Verdict | None) -> int:
    """The contract's number of a verdict; 0 while there is none."""
    return 0 if verdict is None else int(verdict)


def state_filter(number: int) -> RunState | None:
    """The state in a filter of runs; None filters nothing, and so does a state that is not known."""
    return enum_of(RunState, number, None)


def outcomes_filter(numbers: Iterable[int]) -> list[Outcome]:
    """The outcomes in a filter of results.

    Raises:
        Invalid: one of them is none; to leave it out would widen what was asked for.
    """
    outcomes: list[Outcome] = []
    for index, number in enumerate(numbers):
        outcome = enum_of(Outcome, number, None)
        if outcome is None:
            field = f"outcomes[{index}]"
            raise Invalid(Reason.REQUEST_INVALID, f"{field}: {number} is no outcome", field=field)
        outcomes.append(outcome)
    return outcomes


def enum_of(kind: type[Any], number: int, fallback: E_) -> Any | E_:
    """The member with this number; *fallback* for zero and for numbers that are not known."""
    try:
        return kind(number)
    except ValueError:
        return fallback


def optional(message: Message, field: str) -> Any:
    """A field, or None if it is not set."""
    return getattr(message, field) if message.HasField(field) else None
