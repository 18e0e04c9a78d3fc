"""The numbers of a run by name: what a criterion looks at, and what a summary shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evalbus import Direction
from evalbus_server.aggregate.describe import Description, describe, distribution
from evalbus_server.aggregate.ordered import Ordered, in_order
from evalbus_server.aggregate.reduce import Reducer, passes_of, reduce_items
from evalbus_server.aggregate.statistics import percentile, sum_and_mean
from evalbus_server.aggregate.steps import Steps
from evalbus_server.model.bounds import Criterion
from evalbus_server.model.faults import suggestion
from evalbus_server.model.numbers import Column, RunMetric, RunNumbers, no_values
from evalbus_server.model.reducers import METRICS, REDUCERS_OF_K, SHARES, parse_reducer
from evalbus_server.model.run import ScoreKey
from evalbus_server.model.summary import Distribution, Latency

OVER_ITEMS = ("mean", "median", "min", "max")
"""Metrics over the values of items, errored trials left out."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a run; None with the reason if there is none."""

    value: float | None
    reason: str = ""
    lower_is_better: bool = False
    at_least: bool = False
    """Whether more is missing: the true number is this or higher."""


def read_metric(text: str) -> tuple[str, Reducer | None]:
    """A metric's name, and the reducer if it is one: `pass_at(3)` is ("mean", pass_at(3)), the mean over items.

    Raises:
        ValueError: there is no such metric.
    """
    if text in METRICS:
        return text, None
    if text.split("(")[0].strip() in REDUCERS_OF_K:
        return "mean", Reducer(*parse_reducer(text))
    raise ValueError(unknown_metric(text))


def unknown_metric(text: str, made: Iterable[str] = ()) -> str:
    """That there is no such metric, and which there are; *made* are those that scorers' entries ask for."""
    known = [*METRICS, *(f"{name}(k)" for name in REDUCERS_OF_K), *sorted(made)]
    return f"there is no metric {text!r}{suggestion(text, (*METRICS, *REDUCERS_OF_K, *made), known)}"


def is_made(metric: str) -> bool:
    """Whether a metric is none that every run has, but one that a scorer's entry asks for."""
    return metric not in METRICS and metric.split("(")[0].strip() not in REDUCERS_OF_K


def leaves_errored_out(metric: str) -> bool:
    """Whether errored trials take no part in a metric, so that its coverage matters (G1)."""
    return is_made(metric) or read_metric(metric)[0] in (*OVER_ITEMS, "weighted")


@dataclass(frozen=True, slots=True)
class OverItems:
    """The values of items, one or several score keys together."""

    described: Description
    short: str = ""
    """Why an item that has scored trials has no value."""


@dataclass(frozen=True, slots=True)
class OverTrials:
    """The values of one score key before they are reduced."""

    count: int
    passed: int | None
    """None without a threshold."""
    distribution: Distribution


class Metrics:
    """The numbers of one run. They are measured first; then each can be asked for as often as one likes."""

    def __init__(self, numbers: RunNumbers, reducer: Reducer) -> None:
        """Take the stored numbers and the run's own reducer."""
        self._numbers = numbers
        self._reducer = reducer
        self._run = numbers.run
        self._positions = {key.key: position for position, key in enumerate(numbers.run.score_keys)}
        self._items: dict[tuple[tuple[int, ...], Reducer], OverItems] = {}
        self.trials: list[OverTrials] = []
        """By score key."""
        self.weighted: float | None = None
        self.latency: Latency | None = None

    def measure(self, criteria: Sequence[Criterion]) -> Steps[None]:
        """Work out what a summary shows and what these criteria look at."""
        for position in range(len(self._run.score_keys)):
            yield from self._measure_score(position)
        for criterion in criteria:
            yield from self._measure_metric(criterion.metric, criterion.scorer)
        yield from self._measure_weighted()
        yield from self._measure_latency()

    def items(self, position: int) -> Description:
        """The values by item of the score key at *position*, by the run's own reducer."""
        return self._items[(position,), self._reducer].described

    def number(self, metric: str, scorer: str | None = None) -> Number:
        """A metric of a score key, or of the run without one.

        Raises:
            ValueError: there is no such metric.
        """
        if scorer is not None and scorer not in self._positions:
            return Number(None, f"the run has no score {scorer!r}")
        if is_made(metric):
            return self._made(metric, scorer)
        name, reducer = read_metric(metric)
        if name in OVER_ITEMS:
            return self._over_items(name, self._positions_of(scorer), reducer or self._reducer)
        if name in SHARES:
            return self._share(name, scorer)
        return {"weighted": self._weighted, "p95_latency_ms": self._latency, "cost": self._cost}[name]()

    def made(self, position: int) -> tuple[RunMetric, ...]:
        """The numbers over all trials of the score key at *position* that were made at the end of the run."""
        return self._numbers.metrics.get(position, ())

    def coverage(self, scorer: str | None = None) -> float | None:
        """The share of trials that have a value or an outcome, of those that do not skip (N2)."""
        return self._share("coverage", scorer).value

    def pass_rate(self, scorer: str | None = None) -> float | None:
        """The share of trials that pass; errors count against it (N2)."""
        return self._share("pass_rate", scorer).value

    def _made(self, metric: str, scorer: str | None) -> Number:
        """A number that was made at the end of the run: of a score key, or of the only one that has it."""
        for position in self._positions_of(scorer):
            for each in self.made(position):
                if each.name == metric:
                    return Number(each.value, each.explanation, each.lower_is_better)
        return Number(None, "it is made once the run is complete")

    def _over_items(self, name: str, positions: tuple[int, ...], reducer: Reducer) -> Number:
        if not self._comparable(positions, reducer):
            return Number(
                None, f"the scores differ in range or direction, so they have no common {name}; name a scorer"
            )
        keys = [self._run.score_keys[position] for position in positions]
        lower = not reducer.counts and _all_lower(keys)
        found = self._items[positions, reducer]
        value = getattr(found.described, name)
        return Number(value, "" if value is not None else found.short or self._none_valued(positions), lower)

    def _none_valued(self, positions: tuple[int, ...]) -> str:
        """Why no trial has a value, as far as numbers tell."""
        errored = max((self._numbers.errored.get(position, 0) for position in positions), default=0)
        if not errored:
            return "no trial has a value"
        return f"no trial has a value, and {errored:,} of {self._run.counts.planned:,} trials errored"

    def _share(self, name: str, scorer: str | None) -> Number:
        counts = self._run.counts
        passed: int | None = counts.passed
        valued, errored = counts.passed + counts.failed, counts.errored
        if scorer is not None:
            position = self._positions[scorer]
            valued, errored = self.trials[position].count, self._numbers.errored.get(position, 0)
            passed = self.trials[position].passed
        lower = name == "error_rate"
        part = {"pass_rate": passed, "coverage": valued, "error_rate": errored}[name]
        if part is None:
            return Number(None, f"{scorer} has no threshold, so nothing passes or fails by it")
        if not valued + errored:
            return Number(None, "no trial has a result that counts", lower)
        return Number(part / (valued + errored), lower_is_better=lower)

    def _weighted(self) -> Number:
        reason = "" if self.weighted is not None else "no trial has a weighted score"
        return Number(self.weighted, reason, _all_lower(self._run.score_keys))

    def _latency(self) -> Number:
        if self.latency is None:
            return Number(None, "no latency was measured", lower_is_better=True)
        return Number(self.latency.p95, lower_is_better=True)

    def _cost(self) -> Number:
        numbers = self._numbers
        if not numbers.with_usage:
            return Number(None, "no trial has usage", lower_is_better=True)
        if not numbers.priced:
            return Number(None, "the price of no trial is known", lower_is_better=True)
        if numbers.usage.cost is None:
            return Number(None, "the prices are in several currencies", lower_is_better=True)
        missing = numbers.with_usage - numbers.priced
        return Number(
            numbers.usage.cost.micros / 1_000_000,
            f"the price of {missing} of {numbers.with_usage} trials is not known" if missing else "",
            lower_is_better=True,
            at_least=missing > 0,
        )

    def _positions_of(self, scorer: str | None) -> tuple[int, ...]:
        return tuple(range(len(self._positions))) if scorer is None else (self._positions[scorer],)

    def _comparable(self, positions: tuple[int, ...], reducer: Reducer) -> bool:
        """Whether the values of these score keys can be put together."""
        return reducer.counts or len({_scale(self._run.score_keys[position]) for position in positions}) <= 1

    def _column(self, position: int) -> Column:
        return self._numbers.values.get(position) or Column()

    # --- measuring ----------------------------------------------------------------------------------------------

    def _measure_score(self, position: int) -> Steps[None]:
        """A score key before and after its reduction: with one epoch that is the same, and sorted once."""
        key = self._run.score_keys[position]
        column = self._column(position)
        ordered = yield from in_order(column.values)
        frequencies = yield from distribution(ordered)
        self.trials.append(OverTrials(len(ordered), _passed(ordered, key), frequencies))
        reduced = yield from reduce_items(column, self._reducer, passes_of(key))
        if reduced.values is not column.values:
            ordered = yield from in_order(reduced.values)
        described = yield from describe(reduced.values, ordered)
        self._items[(position,), self._reducer] = OverItems(described, reduced.reason)

    def _measure_metric(self, metric: str, scorer: str | None) -> Steps[None]:
        """What a criterion looks at, if it is not measured yet."""
        if is_made(metric):
            return
        name, reducer = read_metric(metric)
        if name not in OVER_ITEMS or (scorer is not None and scorer not in self._positions):
            return
        reducer = reducer or self._reducer
        positions = self._positions_of(scorer)
        if (positions, reducer) not in self._items and self._comparable(positions, reducer):
            self._items[positions, reducer] = yield from self._pooled(positions, reducer)

    def _pooled(self, positions: tuple[int, ...], reducer: Reducer) -> Steps[OverItems]:
        values, short = no_values(), ""
        for position in positions:
            passes = passes_of(self._run.score_keys[position])
            reduced = yield from reduce_items(self._column(position), reducer, passes)
            values += reduced.values
            short = short or reduced.reason
        ordered = yield from in_order(values)
        described = yield from describe(values, ordered)
        return OverItems(described, short)

    def _measure_weighted(self) -> Steps[None]:
        """Epochs are reduced as the run says; by their mean if it only counts passes, which weighted scores have not."""
        reducer = Reducer() if self._reducer.counts else self._reducer
        items = yield from reduce_items(self._numbers.weighted, reducer, passes_of(None))
        if items.values:
            low = min(items.values)
            yield
            high = max(items.values)
            yield
            _, self.weighted = sum_and_mean(items.values, low, high)
            yield

    def _measure_latency(self) -> Steps[None]:
        values = self._numbers.latencies_ms
        ordered = yield from in_order(values)
        if values:
            _, mean = sum_and_mean(values, ordered.low, ordered.high)
            yield
            self.latency = Latency(mean, *(percentile(ordered, percent) for percent in (50, 90, 95, 99)))


def _passed(ordered: Ordered, key: ScoreKey) -> int | None:
    """How many of these values pass the threshold (O2); None without one."""
    if key.threshold is None:
        return None
    if key.declaration.direction is Direction.LOWER_IS_BETTER:
        return ordered.count_upto(key.threshold)
    return len(ordered) - ordered.count_below(key.threshold)


def _scale(key: ScoreKey) -> tuple[float | None, float | None, Direction]:
    declaration = key.declaration
    return declaration.minimum, declaration.maximum, declaration.direction


def _all_lower(keys: list[ScoreKey] | tuple[ScoreKey, ...]) -> bool:
    return bool(keys) and all(key.declaration.direction is Direction.LOWER_IS_BETTER for key in keys)
