"""Messages of the server's services as values of a client. What a client does not know yet is left out, never refused."""

from __future__ import annotations

import json
from typing import Any

from evalbus import wire
from evalbus._failure import FailureCategory
from evalbus._run import (
    Bin,
    ContentPurged,
    Counts,
    CriterionResult,
    Dataset,
    Distribution,
    Event,
    Idle,
    Interval,
    Latency,
    LimitsChanged,
    MetricSummary,
    News,
    Outcome,
    Plan,
    Run,
    RunDataset,
    RunProgress,
    RunState,
    ScoreFilter,
    ScoreProgress,
    ScoreResult,
    ScoreSummary,
    Snapshot,
    StateChanged,
    Summary,
    TrialResult,
    TrialsEnded,
    ValueCount,
    Verdict,
)
from evalbus.v1 import dataset_pb2, experiment_pb2, run_pb2, score_pb2
from evalbus.wire._value import enum_of


def dataset(message: dataset_pb2.Dataset) -> Dataset:
    """A dataset at one version."""
    return Dataset(message.name, message.version, message.items, message.digest, _time(message, "created_at"))


def run(message: run_pb2.Run) -> Run:
    """A run as it stands."""
    return Run(
        id=message.id,
        name=message.name,
        state=enum_of(RunState, message.state, RunState.QUEUED),
        reason=message.reason,
        verdict=_verdict(message.verdict),
        partial=message.partial,
        counts=_counts(message.counts),
        dataset=_dataset_of(message.dataset),
        digest=message.digest,
        tags=tuple(message.tags),
        created_at=_time(message, "created_at"),
        started_at=_time(message, "started_at"),
        ended_at=_time(message, "ended_at"),
        last_sequence=message.last_sequence,
        source=message.source,
        session_began_at=_time(message, "session_began_at"),
        worked=wire.duration_from_proto(message.worked),
        changed_limits={each.path: json.loads(each.value) for each in message.changed_limits},
    )


def _dataset_of(message: run_pb2.RunDataset) -> RunDataset:
    return RunDataset(message.name, message.version, message.digest)


def plan(message: run_pb2.Plan) -> Plan:
    """What a run would do."""
    return Plan(
        message.items,
        message.epochs,
        message.trials,
        message.target_calls,
        message.scorer_calls,
        tuple(wire.plugin_info_from_proto(info) for info in message.plugins),
        tuple(message.scores),
        {
            key: wire.declaration_from_proto(each.declaration)
            for key, each in zip(message.scores, message.planned_scores, strict=False)
        },
        _dataset_of(message.dataset) if message.HasField("dataset") else None,
        tuple(message.first_items),
        tuple(message.warnings),
    )


def news(message: run_pb2.WatchRunResponse) -> News | None:
    """One message to a watcher; None for a kind of a later server."""
    match message.WhichOneof("message"):
        case "snapshot":
            return Snapshot(run(message.snapshot.run), _running(message.snapshot.scores))
        case "event":
            return _event(message.event)
        case "progress":
            progress = message.progress
            return RunProgress(
                _counts(progress.counts), progress.answered, progress.in_flight, _running(progress.scores)
            )
        case "idle":
            return Idle(message.idle.last_sequence)
    return None


def score_filter(wanted: ScoreFilter) -> run_pb2.ScoreFilter:
    """A condition on a score as it is sent."""
    return run_pb2.ScoreFilter(
        key=wanted.key,
        status=score_pb2.ScoreStatus.ValueType(wanted.status or 0),
        missing=wanted.missing,
        above=wanted.above,
        at_least=wanted.at_least,
        at_most=wanted.at_most,
        below=wanted.below,
    )


def _event(message: run_pb2.Event) -> Event:
    fact: StateChanged | TrialsEnded | LimitsChanged | ContentPurged | None = None
    match message.WhichOneof("kind"):
        case "state":
            changed = message.state
            fact = StateChanged(
                enum_of(RunState, changed.state, RunState.QUEUED),
                _counts(changed.counts),
                changed.reason,
                _verdict(changed.verdict),
            )
        case "trials":
            ended = tuple(
                (each.trial_id, enum_of(Outcome, each.outcome, Outcome.ERRORED)) for each in message.trials.trials
            )
            fact = TrialsEnded(ended, _counts(message.trials.counts))
        case "limits":
            settings = {each.path: json.loads(each.value) for each in message.limits.settings}
            fact = LimitsChanged(settings, _counts(message.limits.counts))
        case "purge":
            fact = ContentPurged(tuple(message.purge.trial_ids), _counts(message.purge.counts))
    return Event(message.sequence, wire.time_from_proto(message.time), fact)


def _running(messages: Any) -> tuple[ScoreProgress, ...]:
    return tuple(ScoreProgress(each.key, each.n, _number(each, "mean")) for each in messages)


def result(message: run_pb2.TrialResult) -> TrialResult:
    """The result of one trial."""
    return TrialResult(
        trial_id=message.trial_id,
        item=wire.item_from_proto(message.item),
        epoch=message.epoch,
        outcome=enum_of(Outcome, message.outcome, Outcome.ERRORED),
        output=wire.output_from_proto(message.output) if message.HasField("output") else None,
        scores=tuple(
            ScoreResult(
                each.key, wire.score_from_proto(each.score), _number(each, "threshold"), _number(each, "passed")
            )
            for each in message.scores
        ),
        failure=wire.failure_from_proto(message.failure) if message.HasField("failure") else None,
        weighted=_number(message, "weighted"),
        attempts=message.attempts,
        latency=wire.duration_from_proto(message.latency) if message.HasField("latency") else None,
        usage=wire.usage_sum_from_proto(message.usage) if message.HasField("usage") else None,
        cached=message.cached,
    )


def summary(message: run_pb2.Summary) -> Summary:
    """The numbers of a run."""
    latency = message.latency
    return Summary(
        run=run(message.run),
        pass_rate=_number(message, "pass_rate"),
        coverage=_number(message, "coverage"),
        weighted=_number(message, "weighted"),
        scores=tuple(_score(each) for each in message.scores),
        criteria=tuple(_criterion(each) for each in message.criteria),
        latency=Latency(latency.mean, latency.p50, latency.p90, latency.p95, latency.p99)
        if message.HasField("latency")
        else None,
        usage=wire.usage_sum_from_proto(message.usage) if message.HasField("usage") else None,
        priced_share=_number(message, "priced_share"),
        attempts=message.attempts,
        failures=tuple(
            (enum_of(FailureCategory, each.category, FailureCategory.INTERNAL), each.count) for each in message.failures
        ),
        protocol_faults=message.protocol_faults,
        wall_time=wire.duration_from_proto(message.wall_time),
        work_time=wire.duration_from_proto(message.work_time),
        warnings=tuple(message.warnings),
        cached=message.cached,
    )


def _score(message: run_pb2.ScoreSummary) -> ScoreSummary:
    distribution = message.distribution
    return ScoreSummary(
        message.key,
        message.n,
        message.n_trials,
        message.errored,
        message.skipped,
        mean=_number(message, "mean"),
        median=_number(message, "median"),
        min=_number(message, "min"),
        max=_number(message, "max"),
        sum=_number(message, "sum"),
        std=_number(message, "std"),
        stderr=_number(message, "stderr"),
        interval=Interval(message.interval.low, message.interval.high) if message.HasField("interval") else None,
        pass_rate=_number(message, "pass_rate"),
        coverage=_number(message, "coverage"),
        threshold=_number(message, "threshold"),
        distribution=Distribution(
            tuple(ValueCount(each.value, each.count, each.share) for each in distribution.values),
            distribution.other,
            tuple(Bin(each.low, each.high, each.count) for each in distribution.histogram),
        ),
        metrics=tuple(MetricSummary(each.name, _number(each, "value"), each.explanation) for each in message.metrics),
    )


def _criterion(message: run_pb2.CriterionResult) -> CriterionResult:
    criterion = message.criterion
    warns = criterion.severity == experiment_pb2.SEVERITY_WARN
    return CriterionResult(
        label=criterion.label,
        metric=criterion.metric,
        scorer=criterion.scorer,
        value=_number(message, "value"),
        min=_number(criterion, "min"),
        max=_number(criterion, "max"),
        severity="warn" if warns else "error",
        outcome=_verdict(message.outcome),
        explanation=message.explanation,
    )


def _counts(message: run_pb2.Counts) -> Counts:
    return Counts(message.planned, message.passed, message.failed, message.errored, message.skipped, message.pending)


def _verdict(number: int) -> Verdict | None:
    verdict: Verdict | None = enum_of(Verdict, number, None)
    return verdict


def _number(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _time(message: Any, field: str) -> float | None:
    return wire.time_from_proto(getattr(message, field)) if message.HasField(field) else None
