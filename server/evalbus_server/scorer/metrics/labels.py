"""Metrics over labels: what was said beside what was expected. All are made of counts, so they are exact."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from evalbus_server.scorer.builtin._compared import setting
from evalbus_server.scorer.metrics.base import Made, Metric, MetricRow, none_had

_CASE = "Whether upper and lower case are the same."
_BOTH = "both something said and something expected"

Pair = tuple[str, str]
"""What was said, and what was expected."""


@dataclass(frozen=True, slots=True)
class LabelSettings:
    """How labels are compared."""

    ignore_case: bool = setting(False, _CASE)


@dataclass(frozen=True, slots=True)
class ClassSettings:
    """How labels are compared, and how the classes become one number."""

    average: Literal["macro", "micro", "weighted"] = setting(
        "macro", "macro: the mean over the classes; weighted: by how often each is expected; micro: over all trials."
    )
    positive: str = setting("", "One class alone counts; empty: all of them.")
    ignore_case: bool = setting(False, _CASE)


def pair(row: MetricRow, settings: LabelSettings | ClassSettings) -> Pair | None:
    """Both labels, outer space aside; of several that would be right, the one that was said, else the first."""
    accepted = [_label(str(value), settings.ignore_case) for value in row.accepted()]
    if not accepted:
        return None
    said = _label(str(row.said()), settings.ignore_case)
    return said, said if said in accepted else accepted[0]


def _label(text: str, ignore_case: bool) -> str:
    return text.strip().casefold() if ignore_case else text.strip()


def _accuracy(pairs: Sequence[Pair], settings: LabelSettings) -> Made:
    if not pairs:
        return none_had(_BOTH)
    right = sum(said == expected for said, expected in pairs)
    return right / len(pairs), f"{right} of {len(pairs)} trials"


class Counts:
    """How often each class was said, expected, and both."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        """Count."""
        self.said = Counter(said for said, _ in pairs)
        self.expected = Counter(expected for _, expected in pairs)
        self.both = Counter(said for said, expected in pairs if said == expected)
        self.total = len(pairs)
        self.classes = sorted({*self.said, *self.expected})

    def share(self, kind: str, label: str) -> Fraction:
        """Precision, recall or F1 of one class; 0 where nothing can be right."""
        both, said, expected = self.both[label], self.said[label], self.expected[label]
        below = {"precision": said, "recall": expected, "f1": said + expected}[kind]
        return Fraction(both * (2 if kind == "f1" else 1), below) if below else Fraction(0)


def _of_classes(kind: str, pairs: Sequence[Pair], settings: ClassSettings) -> Made:
    if not pairs:
        return none_had(_BOTH)
    counts = Counts(pairs)
    if settings.positive:
        label = _label(settings.positive, settings.ignore_case)
        if label not in counts.classes:
            return None, f"no trial says or expects {settings.positive!r}"
        return float(counts.share(kind, label)), f"of {label!r}, over {counts.total} trials"
    if settings.average == "micro":  # over all classes, precision, recall and F1 are the share that is right
        return float(Fraction(sum(counts.both.values()), counts.total)), f"micro, over {counts.total} trials"
    weights = {label: counts.expected[label] if settings.average == "weighted" else 1 for label in counts.classes}
    total = sum((counts.share(kind, label) * weight for label, weight in weights.items()), Fraction(0))
    told = f"{settings.average} of {len(counts.classes)} classes, over {counts.total} trials"
    return float(total / sum(weights.values())), told


def _kappa(pairs: Sequence[Pair], settings: LabelSettings) -> Made:
    if not pairs:
        return none_had(_BOTH)
    counts = Counts(pairs)
    observed = Fraction(sum(counts.both.values()), counts.total)
    by_chance = Fraction(sum(counts.said[each] * counts.expected[each] for each in counts.classes), counts.total**2)
    told = f"agreement {float(observed):.3f}, by chance {float(by_chance):.3f}, over {counts.total} trials"
    if by_chance == 1:
        return 1.0, f"{told}: there is one class only"
    return float((observed - by_chance) / (1 - by_chance)), told


def _matthews(pairs: Sequence[Pair], settings: LabelSettings) -> Made:
    if not pairs:
        return none_had(_BOTH)
    counts = Counts(pairs)
    total, right = counts.total, sum(counts.both.values())
    above = right * total - sum(counts.said[each] * counts.expected[each] for each in counts.classes)
    said = total**2 - sum(count**2 for count in counts.said.values())
    expected = total**2 - sum(count**2 for count in counts.expected.values())
    told = f"{len(counts.classes)} classes, over {total} trials"
    if not said * expected:
        return None, f"only one class was {'said' if not said else 'expected'}, over {total} trials"
    return above / (math.sqrt(said) * math.sqrt(expected)), told


def _of(kind: str, about: str) -> Metric:
    def make(pairs: Sequence[Pair], settings: ClassSettings) -> Made:
        return _of_classes(kind, pairs, settings)

    return Metric(kind, about, ClassSettings, pair, make)


LABELS = (
    Metric(
        "accuracy", "The share of trials in which what was said is what was expected.", LabelSettings, pair, _accuracy
    ),
    _of("precision", "Of those said to be of a class, the share that is."),
    _of("recall", "Of those that are of a class, the share that was said to be."),
    _of("f1", "The harmonic mean of precision and recall."),
    Metric(
        "cohen_kappa",
        "Cohen's kappa: agreement beyond chance; 1 if there is one class only.",
        LabelSettings,
        pair,
        _kappa,
    ),
    Metric(
        "matthews",
        "Matthews' correlation of what was said and what was expected, of any number of classes.",
        LabelSettings,
        pair,
        _matthews,
    ),
)
