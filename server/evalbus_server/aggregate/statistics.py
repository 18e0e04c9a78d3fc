"""Numbers over numbers: means, errors, intervals, percentiles, bins.

A function takes finite floats only, says None where there is no number (N3), and gives the same for any order of its
values (N6); where these are called *ordered*, they have to come in ascending order.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from evalbus_server.model.summary import Bin, Interval

Z = 1.959963984540054
"""97.5 % of a normal distribution lie below mean + Z standard deviations."""
BINS = 10
RESAMPLES = 2000

_T_EXACT = 1000
"""Degrees of freedom from which the quantile of t comes from its expansion around the normal one."""


class Ranked(Protocol):
    """At least one value, by rank from 0: a sorted list, or something that does as if it were one."""

    def __len__(self) -> int: ...

    def __getitem__(self, rank: int, /) -> float: ...


def exact_mean(values: Sequence[float]) -> float:
    """The mean of at least one value, which is never outside of them."""
    count = len(values)
    if count == 1:
        return values[0]
    if count == 2:
        half = (values[0] + values[1]) / 2  # one rounding, as halving has none
        if math.isfinite(half):
            return half
    try:
        found = math.fsum(values) / count
    except OverflowError:  # the sum is no float, the mean is
        return float(sum(map(Fraction, values)) / count)
    # Summing and dividing round twice: three values of 0.7 would have a mean just below 0.7.
    return min(max(found, min(values)), max(values))


def sum_and_mean(values: Sequence[float], low: float, high: float) -> tuple[float | None, float]:
    """The exact sum of values from *low* to *high*, None if it is too large for a float, and their mean."""
    try:
        whole = math.fsum(values)
    except OverflowError:
        return _float(sum(map(Fraction, values), Fraction())), exact_mean(values)
    return whole, min(max(whole / len(values), low), high)


def weighted_mean(values: Sequence[float], weights: Sequence[float | None]) -> float | None:
    """Σ w·v / Σ w over the values with w > 0; a weight of None is 1. None if no weight is left."""
    products: list[float] = []
    taken: list[float] = []
    heavy: list[float] = []
    for value, weight in zip(values, weights, strict=True):
        if weight is None:
            weight = 1.0
        if weight > 0.0:
            taken.append(value)
            heavy.append(weight)
            products.append(value * weight)
    if not taken:
        return None
    try:
        found = math.fsum(products) / math.fsum(heavy)
    except (OverflowError, ValueError):  # a product is infinite, or two are with different signs
        found = math.nan
    if not math.isfinite(found):
        exact = [(Fraction(value), Fraction(weight)) for value, weight in zip(taken, heavy, strict=True)]
        found = float(sum(value * weight for value, weight in exact) / sum(weight for _, weight in exact))
    return min(max(found, min(taken)), max(taken))


def clustered_stderr(values: Sequence[float], clusters: Sequence[Hashable]) -> tuple[float | None, int]:
    """The standard error of the mean where values of one cluster go together, and the number of clusters (N5).

    √(G / (G - 1) · Σ over clusters of (the sum of their distances from the mean)²) / n; None for fewer than two
    clusters. With each value in a cluster of its own it is the plain standard error.
    """
    members: defaultdict[Hashable, list[float]] = defaultdict(list)
    for value, cluster in zip(values, clusters, strict=True):
        members[cluster].append(value)
    count = len(members)
    if count < 2:
        return None, count
    centre = exact_mean(values)
    sums = [math.fsum([value - centre for value in group]) for group in members.values()]
    squares = math.fsum([each * each for each in sums])
    return _finite(math.sqrt(squares * count / (count - 1)) / len(values)), count


def wilson(passed: float, count: int) -> Interval | None:
    """The Wilson 95 % interval of the rate passed / count; None of nothing. It holds at 0 % and 100 % too."""
    if not count:
        return None
    rate = passed / count
    share = Z * Z / count
    centre = (rate + share / 2) / (1 + share)
    half = Z / (1 + share) * math.sqrt(rate * (1 - rate) / count + share / (4 * count))
    low = 0.0 if passed <= 0 else max(0.0, centre - half)
    return Interval(low, 1.0 if passed >= count else min(1.0, centre + half))


def t_interval(mean: float, stderr: float, count: int) -> Interval | None:
    """The 95 % interval of a mean of *count* values, two at least, by Student's t with n - 1 degrees of freedom."""
    half = t_quantile(count - 1) * stderr
    low, high = mean - half, mean + half
    return Interval(low, high) if math.isfinite(low) and math.isfinite(high) else None


@lru_cache(maxsize=1024)
def t_quantile(freedom: int) -> float:
    """Below this value lie 97.5 % of Student's t distribution with so many degrees of freedom."""
    if freedom >= _T_EXACT:
        return _t_expanded(freedom)
    low, high = 0.0, math.pi / 2
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return math.sqrt(freedom) * math.tan(middle)
        if _t_within(middle, freedom) < 0.95:
            low = middle
        else:
            high = middle


def bootstrap(values: Sequence[float], seed: int, resamples: int = RESAMPLES) -> Interval | None:
    """The 95 % percentile interval of the mean over resamples; the same for the same values and seed.

    None for fewer than two values.
    """
    if len(values) < 2:
        return None
    ordered = sorted(values)
    generator = random.Random(seed)
    means = sorted(exact_mean(generator.choices(ordered, k=len(ordered))) for _ in range(resamples))
    return Interval(percentile(means, 2.5), percentile(means, 97.5))


def percentile(ordered: Ranked, percent: float) -> float:
    """The value below which *percent* of at least one value lie.

    Of n values, numbered from 0, it is the one at (n - 1) · percent / 100, between two neighbours on the straight
    line between them: what spreadsheets call PERCENTILE.INC and NumPy does by default.
    """
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    part = place - below
    if not part:
        return ordered[below]
    low, high = ordered[below], ordered[below + 1]
    return min(max(low * (1 - part) + high * part, low), high)


def median(ordered: Ranked) -> float:
    """The middle one of at least one value, or the mean of the two."""
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else exact_mean([ordered[middle - 1], ordered[middle]])


def histogram(low: float, high: float, count: int, count_below: Callable[[float], int]) -> tuple[Bin, ...]:
    """*count* values from *low* to *high* in ten equal bins; if all are the same, in one that begins and ends there."""
    if low == high:
        return (Bin(low, high, count),)
    # Written so that it cannot overflow; then counted between the very ends that are shown.
    inner = [low * (1 - number / BINS) + high * (number / BINS) for number in range(1, BINS)]
    ends = [low, *(min(max(end, low), high) for end in inner), high]
    cuts = [0, *map(count_below, ends[1:-1]), count]
    return tuple(Bin(ends[n], ends[n + 1], cuts[n + 1] - cuts[n]) for n in range(BINS))


def _t_within(angle: float, freedom: int) -> float:
    """The share of t that lies within ± √freedom · tan(angle): Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    series = 0.0
    for number in range(2 + odd, freedom + 1, 2):
        series += term
        term *= cosine * cosine * (number - 1) / number
    return 2 / math.pi * (angle + sine * series) if odd else sine * series


def _t_expanded(freedom: int) -> float:
    """The quantile of t from the normal one: Abramowitz and Stegun, 26.7.5."""
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
        (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / 92160,
    )
    return Z + math.fsum(term / math.pow(freedom, power) for power, term in enumerate(terms, start=1))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _float(value: Fraction) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
