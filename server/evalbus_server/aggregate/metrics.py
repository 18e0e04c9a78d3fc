"""The numbers of a run by name: what a criterion looks at, and what a summary shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evalbus import Direction
from evalbus_server.aggregate.reduce import ItemValues, Reducer, passes_of, reduce_items
from evalbus_server.aggregate.statistics import mean, median, percentile
from evalbus_server.model.faults import suggestion
from evalbus_server.model.numbers import RunNumbers
from evalbus_server.model.reducers import METRICS, REDUCERS_OF_K, parse_reducer
from evalbus_server.model.run import ScoreKey

OVER_ITEMS: Mapping[str, Callable[[list[float]], float | None]] = {
    "mean": mean,
    "median": median,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
}
"""Metrics over the values of items, errored trials left out."""
SHARES = ("pass_rate", "coverage", "error_rate")
"""Metrics that count trials, the errored ones among them."""


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
    known = [*METRICS, *(f"{name}(k)" for name in REDUCERS_OF_K)]
    raise ValueError(f"there is no metric {text!r}{suggestion(text, (*METRICS, *REDUCERS_OF_K), known)}")


def leaves_errored_out(metric: str) -> bool:
    """Whether errored trials take no part in a metric, so that its coverage matters (G1)."""
    return read_metric(metric)[0] in (*OVER_ITEMS, "weighted")


class Metrics:
    """The numbers of one run. Values are reduced by item first, each once however often they are asked for."""

    def __init__(self, numbers: RunNumbers, reducer: Reducer) -> None:
        """Take the stored numbers and the run's own reducer."""
        self._numbers = numbers
        self._reducer = reducer
        self._run = numbers.run
        self._positions = {key.key: position for position, key in enumerate(numbers.run.score_keys)}
        self._items: dict[tuple[int, Reducer], ItemValues] = {}

    def items(self, position: int, reducer: Reducer | None = None) -> ItemValues:
        """The values by item of the score key at *position*, by *reducer* or the run's own."""
        reducer = reducer or self._reducer
        found = self._items.get((position, reducer))
        if found is None:
            trials = self._numbers.values.get(position, ())
            passes = passes_of(self._run.score_keys[position])
            found = self._items[position, reducer] = reduce_items(trials, reducer, passes, self._run.epochs)
        return found

    def number(self, metric: str, scorer: str | None = None) -> Number:
        """A metric of a score key, or of the run without one.

        Raises:
            ValueError: there is no such metric.
        """
        name, reducer = read_metric(metric)
        if scorer is not None and scorer not in self._positions:
            return Number(None, f"the run has no score {scorer!r}")
        if name in OVER_ITEMS:
            positions = range(len(self._run.score_keys)) if scorer is None else [self._positions[scorer]]
            return self._over_items(name, list(positions), reducer or self._reducer)
        if name in SHARES:
            return self._share(name, scorer)
        return {"weighted": self._weighted, "p95_latency_ms": self._latency, "cost": self._cost}[name]()

    def coverage(self, scorer: str | None = None) -> float | None:
        """The share of trials that have a value or an outcome, of those that do not skip (N2)."""
        return self._share("coverage", scorer).value

    def pass_rate(self, scorer: str | None = None) -> float | None:
        """The share of trials that pass; errors count against it (N2)."""
        return self._share("pass_rate", scorer).value

    def _over_items(self, name: str, positions: list[int], reducer: Reducer) -> Number:
        keys = [self._run.score_keys[position] for position in positions]
        lower = not reducer.counts and _all_lower(keys)
        if not reducer.counts and len({_scale(key) for key in keys}) > 1:
            return Number(
                None, f"the scores differ in range or direction, so they have no common {name}; name a scorer"
            )
        reduced = [self.items(position, reducer) for position in positions]
        found = OVER_ITEMS[name]([value for each in reduced for value in each.values])
        if found is not None:
            return Number(found, lower_is_better=lower)
        reason = next((each.reason for each in reduced if each.reason), "no trial has a value")
        return Number(None, reason, lower)

    def _share(self, name: str, scorer: str | None) -> Number:
        counts = self._run.counts
        passed: int | None = counts.passed
        valued, errored = counts.passed + counts.failed, counts.errored
        if scorer is not None:
            position = self._positions[scorer]
            valued, errored = len(self._numbers.values.get(position, ())), self._numbers.errored.get(position, 0)
            has_threshold = self._run.score_keys[position].threshold is not None
            passed = self._numbers.passed.get(position, 0) if has_threshold else None
        lower = name == "error_rate"
        part = {"pass_rate": passed, "coverage": valued, "error_rate": errored}[name]
        if part is None:
            return Number(None, f"{scorer} has no threshold, so nothing passes or fails by it")
        if not valued + errored:
            return Number(None, "no trial has a result that counts", lower)
        return Number(part / (valued + errored), lower_is_better=lower)

    def _weighted(self) -> Number:
        """Epochs are reduced as the run says; by their mean if it only counts passes, which weighted scores have not."""
        reducer = Reducer() if self._reducer.counts else self._reducer
        items = reduce_items(self._numbers.weighted, reducer, passes_of(None), self._run.epochs)
        found = mean(items.values)
        return Number(found, "" if items.values else "no trial has a weighted score", _all_lower(self._run.score_keys))

    def _latency(self) -> Number:
        found = percentile(self._numbers.latencies_ms, 95)
        return Number(found, "" if found is not None else "no latency was measured", lower_is_better=True)

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


def _scale(key: ScoreKey) -> tuple[float | None, float | None, Direction]:
    declaration = key.declaration
    return declaration.minimum, declaration.maximum, declaration.direction


def _all_lower(keys: list[ScoreKey] | tuple[ScoreKey, ...]) -> bool:
    return bool(keys) and all(key.declaration.direction is Direction.LOWER_IS_BETTER for key in keys)
