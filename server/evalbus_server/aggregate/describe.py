"""What is said of very many values, worked out in steps. Each number is the same for any order of them (N6)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain, repeat

from evalbus_server.aggregate.ordered import Ordered
from evalbus_server.aggregate.statistics import histogram, median, sum_and_mean
from evalbus_server.aggregate.steps import Steps
from evalbus_server.model.numbers import Values, no_values
from evalbus_server.model.summary import Distribution, ValueCount

SHOWN_VALUES = 5


@dataclass(frozen=True, slots=True)
class Description:
    """The numbers of values; what nothing has, or a single value, is None (N3)."""

    n: int = 0
    sum: float | None = None
    """None too if it is too large for a float; so is `std`."""
    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    std: float | None = None
    """With n - 1."""
    binary: bool = False
    """Whether all are 0 or 1."""

    @property
    def stderr(self) -> float | None:
        """The standard error of the mean, std / √n."""
        return None if self.std is None else self.std / math.sqrt(self.n)


def describe(values: Values, ordered: Ordered) -> Steps[Description]:
    """The numbers of values, which come in any order and in ascending order too."""
    if not values:
        return Description()
    low, high = ordered.low, ordered.high
    whole, mean = sum_and_mean(values, low, high)
    yield
    std = yield from _std(ordered, mean)
    yield
    return Description(
        n=len(ordered),
        sum=whole,
        mean=mean,
        median=median(ordered),
        min=low,
        max=high,
        std=std,
        binary=low >= 0.0 and high <= 1.0 and ordered.count_upto(0.0) == ordered.count_below(1.0),
    )


def distribution(ordered: Ordered) -> Steps[Distribution]:
    """The five most frequent values, the rest as a count, and ten equal bins (N7)."""
    if not len(ordered):
        return Distribution()
    count = len(ordered)
    frequent = yield from _most_frequent(ordered)
    shown = tuple(ValueCount(value, times, times / count) for value, times in frequent)
    return Distribution(
        shown,
        count - sum(each.count for each in shown),
        histogram(ordered.low, ordered.high, count, ordered.count_below),
    )


def _std(ordered: Ordered, mean: float) -> Steps[float | None]:
    if len(ordered) < 2:
        return None
    scale = max(mean - ordered.low, ordered.high - mean)
    if not scale or not math.isfinite(scale):
        return None if scale else 0.0
    # Divided by a power of two, so that squares stay in range and no digit changes.
    unit = math.ldexp(1.0, math.frexp(scale)[1] - 1)
    squares, of_marks = no_values(), []
    for below, mark, times in ordered.pieces():
        squares.extend([(distance := (value - mean) / unit) * distance for value in below])
        distance = (mark - mean) / unit
        of_marks.append(repeat(distance * distance, times))
        yield
    found = unit * math.sqrt(math.fsum(chain(squares, *of_marks)) / (len(ordered) - 1))
    return found if math.isfinite(found) else None


def _most_frequent(ordered: Ordered) -> Steps[list[tuple[float, int]]]:
    """The most frequent values with their counts; of equals the smaller first."""
    found: list[tuple[float, int]] = []
    for below, mark, times in ordered.pieces():
        # What comes later is larger, so it must be more frequent: that leaves few to be compared.
        least = found[-1][1] if len(found) == SHOWN_VALUES else 0
        counts = chain(Counter(below).items(), [(mark, times)])
        more = [pair for pair in counts if pair[1] > least]
        found = nsmallest(SHOWN_VALUES, [*found, *more], key=lambda pair: (-pair[1], pair[0]))
        yield
    return found
