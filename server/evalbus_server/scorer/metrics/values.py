"""Metrics over values: a score's value beside what people say, or beside itself in other epochs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Literal

from evalbus_server.scorer.builtin._compared import setting, setting_list
from evalbus_server.scorer.metrics.base import Made, Metric, MetricRow, NoSettings, none_had, number_of

_TRUE = ["true", "yes", "1"]


@dataclass(frozen=True, slots=True)
class AucSettings:
    """What counts as positive."""

    positive: list[str] = setting_list("Expected answers that mean yes, whatever their case; empty: true, yes, 1.")


@dataclass(frozen=True, slots=True)
class AlphaSettings:
    """What is compared."""

    level: Literal["interval", "nominal"] = setting(
        "interval", "interval: values, nearer ones agree more; nominal: what was said, the same or not."
    )


def _positive(row: MetricRow, settings: AucSettings) -> tuple[bool, float] | None:
    accepted = row.accepted()
    if not accepted:
        return None
    wanted = {each.strip().casefold() for each in settings.positive or _TRUE}
    value = -row.value if row.lower_is_better else row.value
    return any(str(each).strip().casefold() in wanted for each in accepted), value


def _auc(pairs: Sequence[tuple[bool, float]], settings: AucSettings) -> Made:
    """By ranks: the share of pairs of a positive and a negative in which the positive has the better value."""
    if not pairs:
        return none_had("an expected answer")
    positive = sum(each for each, _ in pairs)
    negative = len(pairs) - positive
    told = f"{positive} positive and {negative} negative trials"
    if not positive or not negative:
        return None, f"{told}: there must be some of both"
    below, won_twice = 0, 0
    for _, same in groupby(sorted(pairs, key=lambda each: each[1]), key=lambda each: each[1]):
        kinds = Counter(each for each, _ in same)
        won_twice += kinds[True] * (2 * below + kinds[False])
        below += kinds[False]
    return float(Fraction(won_twice, 2 * positive * negative)), told


def _beside(row: MetricRow, settings: NoSettings) -> tuple[float, float] | None:
    accepted = row.accepted()
    return (row.value, number_of(accepted[0], f"what item {row.task.item.id!r} expects")) if accepted else None


def _pearson(pairs: Sequence[tuple[float, float]], settings: NoSettings) -> Made:
    told = f"{len(pairs)} trials"
    if len(pairs) < 2:
        return None, f"{told} have an expected number, and two are needed"
    left, right = [each for each, _ in pairs], [each for _, each in pairs]
    mean_left, mean_right = math.fsum(left) / len(left), math.fsum(right) / len(right)
    along = math.fsum((a - mean_left) * (b - mean_right) for a, b in pairs)
    spread_left = math.fsum((a - mean_left) ** 2 for a in left)
    spread_right = math.fsum((b - mean_right) ** 2 for b in right)
    if not spread_left or not spread_right:
        return None, f"{told}: {'the values' if not spread_left else 'what is expected'} are all the same"
    return max(-1.0, min(1.0, along / (math.sqrt(spread_left) * math.sqrt(spread_right)))), told


def _spearman(pairs: Sequence[tuple[float, float]], settings: NoSettings) -> Made:
    left, right = _ranks([each for each, _ in pairs]), _ranks([each for _, each in pairs])
    return _pearson(list(zip(left, right, strict=True)), settings)


def _ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value; equal ones share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    below = 0
    for _, same in groupby(order, key=values.__getitem__):
        places = list(same)
        for place in places:
            ranks[place] = below + (len(places) + 1) / 2
        below += len(places)
    return ranks


def _error(pairs: Sequence[tuple[float, float]], settings: NoSettings) -> Made:
    if not pairs:
        return none_had("an expected number")
    return math.fsum(abs(a - b) for a, b in pairs) / len(pairs), f"{len(pairs)} trials"


def _rating(row: MetricRow, settings: AlphaSettings) -> tuple[str, float | str]:
    said: float | str = row.value if settings.level == "interval" else str(row.said()).strip()
    return row.task.item.id, said


def _alpha(ratings: Sequence[tuple[str, float | str]], settings: AlphaSettings) -> Made:
    """Krippendorff's alpha; the epochs of an item are its raters. Of counts, so exact; values are exact fractions."""
    units: dict[str, Counter[float | str]] = defaultdict(Counter)
    for item, said in ratings:
        units[item][said] += 1
    usable = [unit for unit in units.values() if unit.total() > 1]
    told = f"{len(usable)} items with more than one value"
    if not usable:
        return None, f"{told}: ask each item in several epochs"
    totals: Counter[float | str] = Counter()
    observed = Fraction(0)
    for unit in usable:
        totals.update(unit)
        observed += _disagreement(unit, settings.level) / (unit.total() - 1)
    n = totals.total()
    expected = _disagreement(totals, settings.level) / (n - 1)
    if not expected:
        return 1.0, f"{told}, and all of them the same"
    return float(1 - observed / expected), told


def _disagreement(counts: Counter[float | str], level: str) -> Fraction:
    """The sum over ordered pairs of how far they are apart."""
    n = counts.total()
    if level == "nominal":
        return Fraction(n**2 - sum(count**2 for count in counts.values()))
    # Σ over pairs of (a - b)², without going through the pairs.
    first = sum((Fraction(value) * count for value, count in counts.items()), Fraction(0))
    second = sum((Fraction(value) ** 2 * count for value, count in counts.items()), Fraction(0))
    return 2 * (n * second - first**2)


VALUES = (
    Metric(
        "auc",
        "The area under the ROC curve: how well values tell positive items from negative ones.",
        AucSettings,
        _positive,
        _auc,
    ),
    Metric("pearson", "Pearson's correlation of values and expected numbers.", NoSettings, _beside, _pearson),
    Metric("spearman", "Spearman's rank correlation of values and expected numbers.", NoSettings, _beside, _spearman),
    Metric(
        "mean_absolute_error",
        "The mean distance of values from expected numbers.",
        NoSettings,
        _beside,
        _error,
        lower_is_better=True,
    ),
    Metric(
        "krippendorff_alpha",
        "Krippendorff's alpha of the epochs of each item: how far they agree beyond chance.",
        AlphaSettings,
        _rating,
        _alpha,
    ),
)
