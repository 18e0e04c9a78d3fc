"""How the values of an item's epochs become one value (N4). They stand in the order of epochs, however they came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import comb
from typing import NamedTuple, TypeAlias

from evalbus_server.aggregate.statistics import exact_mean, median
from evalbus_server.aggregate.steps import STEP, Steps
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.numbers import Column, Values, no_values
from evalbus_server.model.reducers import parse_reducer as parse
from evalbus_server.model.run import ScoreKey
from evalbus_server.model.trial import position_of

Passes: TypeAlias = Callable[[float], bool]
"""Whether a trial with this value counts as a pass."""

_ITEMS = STEP // 8
"""So many items are reduced in a step."""


class Reduced(NamedTuple):
    """One value made of an item's epochs; None with the reason if there is none."""

    value: float | None
    reason: str = ""


class ItemValues(NamedTuple):
    """A score's values by item."""

    values: Values
    """In dataset order."""
    short: int = 0
    """Items that have scored trials, but too few of them."""
    reason: str = ""
    """Why the first of those has no value."""


@dataclass(frozen=True, slots=True)
class Reducer:
    """One of the reducers by name, with its k where it takes one. Make it with `parse_reducer`."""

    name: str = "mean"
    k: int | None = None

    def __str__(self) -> str:
        """As people write it."""
        return self.name if self.k is None else f"{self.name}({self.k})"

    @property
    def counts(self) -> bool:
        """Whether it looks at which trials pass, and not at their values."""
        return self.name in _COUNTING

    def reduce(self, in_order: Sequence[float], passes: Passes) -> Reduced:
        """One value from those of an item's scored trials, in the order of epochs."""
        if not in_order:
            return Reduced(None, "no trial scored")
        if not self.counts:
            return Reduced(_VALUES[self.name](in_order))
        scored, passed = len(in_order), sum(map(passes, in_order))
        if self.k is not None and scored < self.k:
            return Reduced(None, f"{scored} of {self.k} needed trials scored")
        return Reduced(_COUNTING[self.name](scored, passed, self.k or 0))


def parse_reducer(text: str, epochs: int) -> Reducer:
    """A reducer as people write it: `mean`, `majority`, `pass_at(3)`.

    Raises:
        Invalid: there is no such reducer, or its k is missing, below 1, or more than there are epochs.
    """
    try:
        reducer = Reducer(*parse(text))
    except ValueError as error:
        raise Invalid(Reason.EXPERIMENT_INVALID, f"epochs.reducer: {error}", field="epochs.reducer") from None
    if reducer.k is not None and reducer.k > epochs:
        raise Invalid(
            Reason.EXPERIMENT_INVALID,
            f"epochs.reducer: {reducer} needs {reducer.k} epochs, but there are {epochs}; raise epochs.count or lower k",
            field="epochs.reducer",
        )
    return reducer


def passes_of(key: ScoreKey | None) -> Passes:
    """What counts as a pass: a value that passes the score's threshold, or without one a value of at least 1."""
    if key is None or key.threshold is None:
        return _full
    return lambda value: bool(key.passes(value))


def reduce_items(column: Column, reducer: Reducer, passes: Passes) -> Steps[ItemValues]:
    """A value for each item, from the trials of a score key."""
    items: Iterable[Sequence[float]]
    if column.trials:
        items = yield from _by_item(column)
    elif reducer.counts:
        items = ((value,) for value in column.values)
    else:
        return ItemValues(column.values)
    values, reasons = no_values(), []
    left = iter(items)
    while some := list(islice(left, _ITEMS)):
        for each in some:
            value, reason = reducer.reduce(each, passes)
            if value is None:
                reasons.append(reason)
            else:
                values.append(value)
        yield
    return ItemValues(values, len(reasons), reasons[0] if reasons else "")


def _by_item(column: Column) -> Steps[Iterable[list[float]]]:
    """The values of each item, in dataset order."""
    found: dict[int, list[float]] = {}
    for start in range(0, len(column.trials), STEP):
        stop = start + STEP
        for trial, value in zip(column.trials[start:stop], column.values[start:stop], strict=True):
            found.setdefault(position_of(trial), []).append(value)
        yield
    return (found[position] for position in sorted(found))


def _full(value: float) -> bool:
    return value >= 1.0


def _mode(in_order: Sequence[float]) -> float:
    """The most frequent value; of equals the one that came in the lowest epoch."""
    counts: dict[float, int] = {}
    for value in in_order:
        counts[value] = counts.get(value, 0) + 1
    return max(counts, key=counts.__getitem__)  # the first of equals: dicts keep their order


@lru_cache(maxsize=4096)
def _pass_at(scored: int, passed: int, k: int) -> float:
    """The chance that at least one of k trials passes, drawn from those that are scored."""
    ways = comb(scored, k)
    return (ways - comb(scored - passed, k)) / ways


@lru_cache(maxsize=4096)
def _pass_hat(scored: int, passed: int, k: int) -> float:
    """The chance that all of k trials pass, drawn from those that are scored."""
    return comb(passed, k) / comb(scored, k)


_VALUES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": exact_mean,
    "median": lambda in_order: median(sorted(in_order)),
    "mode": _mode,
    "max": max,
    "min": min,
}
_COUNTING: dict[str, Callable[[int, int, int], float]] = {
    "all": lambda scored, passed, _: float(passed == scored),
    "any": lambda scored, passed, _: float(passed > 0),
    "majority": lambda scored, passed, _: float(2 * passed > scored),
    "at_least": lambda scored, passed, k: float(passed >= k),
    "pass_at": _pass_at,
    "pass_hat": _pass_hat,
}
