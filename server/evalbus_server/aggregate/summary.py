"""The summary of a run, computed from its stored numbers alone: live, resumed and re-read runs agree (N6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalbus_server.aggregate.criteria import judge_criteria, verdict_of
from evalbus_server.aggregate.describe import Description
from evalbus_server.aggregate.metrics import Metrics
from evalbus_server.aggregate.reduce import Reducer
from evalbus_server.aggregate.statistics import t_interval, wilson
from evalbus_server.aggregate.steps import Steps, at_once
from evalbus_server.aggregate.unlike import warnings_about
from evalbus_server.model.bounds import Criterion
from evalbus_server.model.numbers import RunNumbers
from evalbus_server.model.run import Run, ScoreKey
from evalbus_server.model.summary import Interval, ScoreSummary, Summary

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
    is. *now* (seconds since 1970) ends the times of a run that has not ended.
    """
    return at_once(summarise_in_steps(numbers, criteria, reducer, baselines=baselines, now=now))


def summarise_in_steps(
    numbers: RunNumbers,
    criteria: Sequence[Criterion] = (),
    reducer: Reducer = _MEAN,
    *,
    baselines: Mapping[str, RunNumbers] | None = None,
    now: float | None = None,
) -> Steps[Summary]:
    """The same, letting the caller do something else after every step."""
    run = numbers.run
    metrics = Metrics(numbers, reducer)
    yield from metrics.measure(criteria)
    before = {name: Metrics(each, reducer) for name, each in (baselines or {}).items()}
    for each in before.values():
        yield from each.measure(criteria)
    results = judge_criteria(criteria, metrics, run, before)
    return Summary(
        run=run,
        pass_rate=metrics.pass_rate(),
        coverage=metrics.coverage(),
        weighted=metrics.weighted,
        scores=tuple(_score(numbers, metrics, reducer, position) for position in range(len(run.score_keys))),
        criteria=results,
        verdict=verdict_of(criteria, results, run),
        latency=metrics.latency,
        usage=numbers.usage,
        priced_share=numbers.priced / numbers.with_usage if numbers.with_usage else None,
        attempts=numbers.attempts,
        cached=numbers.cached,
        failures=tuple(sorted(numbers.failures.items())),
        wall_time=_wall_time(run, now),
        work_time=run.work_time(now),
        warnings=tuple(warnings_about(run.score_keys, criteria)),
    )


def _score(numbers: RunNumbers, metrics: Metrics, reducer: Reducer, position: int) -> ScoreSummary:
    """Mean, spread and so on are over items, the distribution is over trials."""
    key = numbers.run.score_keys[position]
    items, trials = metrics.items(position), metrics.trials[position]
    return ScoreSummary(
        key=key.key,
        n=items.n,
        n_trials=trials.count,
        errored=numbers.errored.get(position, 0),
        skipped=numbers.skipped.get(position, 0),
        mean=items.mean,
        median=items.median,
        min=items.min,
        max=items.max,
        sum=items.sum,
        std=items.std,
        stderr=items.stderr,
        interval=_interval(items, key, reducer),
        pass_rate=metrics.pass_rate(key.key),
        coverage=metrics.coverage(key.key),
        threshold=key.threshold,
        distribution=trials.distribution,
        metrics=metrics.made(position),
    )


def _interval(items: Description, key: ScoreKey, reducer: Reducer) -> Interval | None:
    """Wilson's where every item is a 0 or a 1, else Student's, cut off where no value can be."""
    if items.binary and items.sum is not None:
        return wilson(items.sum, items.n)
    if items.mean is None or items.stderr is None:
        return None
    found = t_interval(items.mean, items.stderr, items.n)
    if found is None:
        return None
    low, high = (0.0, 1.0) if reducer.counts else (key.declaration.minimum, key.declaration.maximum)
    return Interval(
        found.low if low is None else max(low, found.low), found.high if high is None else min(high, found.high)
    )


def _wall_time(run: Run, now: float | None) -> float:
    end = run.ended_at if run.ended_at is not None else now
    return 0.0 if run.started_at is None or end is None else max(0.0, end - run.started_at)
