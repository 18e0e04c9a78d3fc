"""The summary of a run, computed from its stored numbers alone: live, resumed and re-read runs agree (N6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalbus_server.aggregate.criteria import judge_criteria, verdict_of
from evalbus_server.aggregate.metrics import Metrics
from evalbus_server.aggregate.reduce import Reducer
from evalbus_server.aggregate.statistics import (
    distribution,
    exact_mean,
    mean,
    median,
    percentiles,
    std,
    stderr,
    t_interval,
    total,
    wilson,
)
from evalbus_server.model.experiment import Criterion
from evalbus_server.model.numbers import RunNumbers
from evalbus_server.model.run import Run, ScoreKey
from evalbus_server.model.summary import Interval, Latency, ScoreSummary, Summary

_MEAN = Reducer()


def summarise(
    numbers: RunNumbers,
    criteria: Sequence[Criterion] = (),
    reducer: Reducer = _MEAN,
    *,
    baselines: Mapping[str, RunNumbers] | None = None,
    now: float | None = None,
) -> Summary:
    """All numbers of a run and what its criteria say of them.

    *baselines* are the numbers of the runs that criteria name, by the name they use; they are reduced as this run
    is. *now* (seconds since 1970) ends the wall time of a run that has not ended.
    """
    run = numbers.run
    metrics = Metrics(numbers, reducer)
    before = {name: Metrics(each, reducer) for name, each in (baselines or {}).items()}
    results = judge_criteria(criteria, metrics, run, before)
    return Summary(
        run=run,
        pass_rate=metrics.pass_rate(),
        coverage=metrics.coverage(),
        weighted=metrics.number("weighted").value,
        scores=tuple(_score(numbers, metrics, reducer, position) for position in range(len(run.score_keys))),
        criteria=results,
        verdict=verdict_of(criteria, results, run),
        latency=_latency(numbers.latencies_ms),
        usage=numbers.usage,
        priced_share=numbers.priced / numbers.with_usage if numbers.with_usage else None,
        attempts=numbers.attempts,
        failures=tuple(sorted(numbers.failures.items())),
        wall_time=_wall_time(run, now),
    )


def _score(numbers: RunNumbers, metrics: Metrics, reducer: Reducer, position: int) -> ScoreSummary:
    """Mean, spread and so on are over items, the distribution is over trials."""
    key = numbers.run.score_keys[position]
    of_trials = [value for _, value in numbers.values.get(position, ())]
    values = metrics.items(position).values
    return ScoreSummary(
        key=key.key,
        n=len(values),
        n_trials=len(of_trials),
        errored=numbers.errored.get(position, 0),
        skipped=numbers.skipped.get(position, 0),
        mean=mean(values),
        median=median(values),
        min=min(values, default=None),
        max=max(values, default=None),
        sum=total(values),
        std=std(values),
        stderr=stderr(values),
        interval=_interval(values, key, reducer),
        pass_rate=metrics.pass_rate(key.key),
        coverage=metrics.coverage(key.key),
        threshold=key.threshold,
        distribution=distribution(of_trials),
    )


def _interval(values: Sequence[float], key: ScoreKey, reducer: Reducer) -> Interval | None:
    """Wilson's where every item is a 0 or a 1, else Student's, cut off where no value can be."""
    if values and all(value in (0.0, 1.0) for value in values):
        return wilson(sum(values), len(values))
    found = t_interval(values)
    if found is None:
        return None
    low, high = (0.0, 1.0) if reducer.counts else (key.declaration.minimum, key.declaration.maximum)
    return Interval(
        found.low if low is None else max(low, found.low), found.high if high is None else min(high, found.high)
    )


def _latency(milliseconds: Sequence[float]) -> Latency | None:
    if not milliseconds:
        return None
    return Latency(exact_mean(milliseconds), *percentiles(milliseconds, (50, 90, 95, 99)))


def _wall_time(run: Run, now: float | None) -> float:
    end = run.ended_at if run.ended_at is not None else now
    return 0.0 if run.started_at is None or end is None else max(0.0, end - run.started_at)
