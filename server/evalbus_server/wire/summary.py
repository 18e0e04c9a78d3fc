"""The numbers of a run <-> messages."""

from __future__ import annotations

from dataclasses import replace

from evalbus import FailureCategory, Usage
from evalbus.v1 import run_pb2
from evalbus.wire import duration_from_proto, duration_to_proto, usage_sum_from_proto, usage_to_proto
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.numbers import RunMetric
from evalbus_server.model.run import Verdict
from evalbus_server.model.summary import (
    Bin,
    CriterionResult,
    Distribution,
    Interval,
    Latency,
    ScoreSummary,
    Summary,
    ValueCount,
)
from evalbus_server.wire.experiment import criterion_to_proto
from evalbus_server.wire.run import enum_of, optional, run_from_proto, run_to_proto


def summary_to_proto(summary: Summary) -> run_pb2.Summary:
    """The numbers of a run as a message, each criterion with its result."""
    message = run_pb2.Summary(
        run=run_to_proto(summary.run),
        pass_rate=summary.pass_rate,
        coverage=summary.coverage,
        weighted=summary.weighted,
        scores=[_score_to_proto(score) for score in summary.scores],
        usage=usage_to_proto(summary.usage),
        priced_share=summary.priced_share,
        attempts=summary.attempts,
        failures=[
            run_pb2.FailureCount(category=int(category), count=count)  # type: ignore[arg-type]
            for category, count in summary.failures
        ],
        protocol_faults=summary.run.protocol_faults,
        wall_time=duration_to_proto(summary.wall_time),
        cached=summary.cached,
        work_time=duration_to_proto(summary.work_time),
        warnings=summary.warnings,
    )
    if summary.criteria:
        criteria = Experiment.from_json(summary.run.experiment_json).criteria
        for result in summary.criteria:
            message.criteria.add(
                criterion=criterion_to_proto(criteria[result.criterion]),
                value=result.value,
                outcome=int(result.outcome),
                explanation=result.explanation,
            )
    if summary.latency is not None:
        latency = summary.latency
        message.latency.CopyFrom(
            run_pb2.LatencySummary(
                mean=latency.mean, p50=latency.p50, p90=latency.p90, p95=latency.p95, p99=latency.p99
            )
        )
    return message


def summary_from_proto(message: run_pb2.Summary, experiment: Experiment | None = None) -> Summary:
    """A message as the numbers of a run; what its criteria asked is in its *experiment*."""
    run = replace(run_from_proto(message.run, experiment), protocol_faults=message.protocol_faults)
    latency = message.latency
    return Summary(
        run=run,
        pass_rate=optional(message, "pass_rate"),
        coverage=optional(message, "coverage"),
        weighted=optional(message, "weighted"),
        scores=tuple(_score_from_proto(score) for score in message.scores),
        criteria=tuple(
            CriterionResult(
                place,
                optional(each, "value"),
                enum_of(Verdict, each.outcome, Verdict.INCONCLUSIVE),
                each.explanation,
            )
            for place, each in enumerate(message.criteria)
        ),
        verdict=run.verdict or Verdict.INCONCLUSIVE,
        latency=Latency(latency.mean, latency.p50, latency.p90, latency.p95, latency.p99)
        if message.HasField("latency")
        else None,
        usage=usage_sum_from_proto(message.usage) if message.HasField("usage") else Usage(),
        priced_share=optional(message, "priced_share"),
        attempts=message.attempts,
        failures=tuple(
            (enum_of(FailureCategory, each.category, FailureCategory.INTERNAL), each.count) for each in message.failures
        ),
        wall_time=duration_from_proto(message.wall_time),
        cached=message.cached,
        work_time=duration_from_proto(message.work_time),
        warnings=tuple(message.warnings),
    )


def summary_to_bytes(summary: Summary) -> bytes:
    """A summary as it is stored, where nothing else is left to make it of."""
    return summary_to_proto(summary).SerializeToString(deterministic=True)


def summary_from_bytes(stored: bytes) -> Summary:
    """The summary behind its bytes; its run is not whole, and is replaced by the stored one."""
    return summary_from_proto(run_pb2.Summary.FromString(stored))


def _score_to_proto(score: ScoreSummary) -> run_pb2.ScoreSummary:
    distribution = score.distribution
    message = run_pb2.ScoreSummary(
        key=score.key,
        n=score.n,
        n_trials=score.n_trials,
        errored=score.errored,
        skipped=score.skipped,
        mean=score.mean,
        median=score.median,
        min=score.min,
        max=score.max,
        sum=score.sum,
        std=score.std,
        stderr=score.stderr,
        pass_rate=score.pass_rate,
        coverage=score.coverage,
        threshold=score.threshold,
        distribution=run_pb2.Distribution(
            values=[
                run_pb2.ValueCount(value=each.value, count=each.count, share=each.share) for each in distribution.values
            ],
            other=distribution.other,
            histogram=[run_pb2.Bin(low=each.low, high=each.high, count=each.count) for each in distribution.histogram],
        ),
    )
    for metric in score.metrics:
        message.metrics.add(name=metric.name, value=metric.value, explanation=metric.explanation)
    if score.interval is not None:
        message.interval.CopyFrom(run_pb2.Interval(low=score.interval.low, high=score.interval.high))
    return message


def _score_from_proto(message: run_pb2.ScoreSummary) -> ScoreSummary:
    distribution = message.distribution
    return ScoreSummary(
        message.key,
        message.n,
        message.n_trials,
        message.errored,
        message.skipped,
        mean=optional(message, "mean"),
        median=optional(message, "median"),
        min=optional(message, "min"),
        max=optional(message, "max"),
        sum=optional(message, "sum"),
        std=optional(message, "std"),
        stderr=optional(message, "stderr"),
        interval=Interval(message.interval.low, message.interval.high) if message.HasField("interval") else None,
        pass_rate=optional(message, "pass_rate"),
        coverage=optional(message, "coverage"),
        threshold=optional(message, "threshold"),
        distribution=Distribution(
            tuple(ValueCount(each.value, each.count, each.share) for each in distribution.values),
            distribution.other,
            tuple(Bin(each.low, each.high, each.count) for each in distribution.histogram),
        ),
        metrics=tuple(RunMetric(each.name, optional(each, "value"), each.explanation) for each in message.metrics),
    )
