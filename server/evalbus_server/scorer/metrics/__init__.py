"""Numbers over all trials of a score that ship with the server, and which of them an experiment asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalbus import Item, MetricDeclaration, Output, Score, SettingsInvalid, Value
from evalbus._settings import settings_type
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.faults import suggestion
from evalbus_server.model.plugin_use import MetricUse
from evalbus_server.scorer.mapping import parse_path, parse_score_path
from evalbus_server.scorer.metrics.base import INPUTS, Find, Mapped, Metric, MetricFault, MetricRow
from evalbus_server.scorer.metrics.corpus import CORPUS
from evalbus_server.scorer.metrics.labels import LABELS
from evalbus_server.scorer.metrics.values import VALUES

METRICS: Mapping[str, Metric] = {each.name: each for each in (*LABELS, *VALUES, *CORPUS)}
"""By the name that an experiment uses."""

AMONG_METRICS = "; it is a number over all trials, which stands in `metrics` of a scorer"
"""What is said where the name of a metric stands in the place of a scorer's."""


@dataclass(frozen=True, slots=True)
class AskedMetric:
    """A metric that an experiment asks of a scorer."""

    name: str
    """As the experiment calls it."""
    declared: MetricDeclaration | None = None
    """Of one that the scorer makes itself."""
    builtin: Metric | None = None
    settings: Any = None
    mapped: Mapping[str, Mapped] | None = None

    @property
    def lower_is_better(self) -> bool:
        """Which way is better."""
        if self.builtin is not None:
            return self.builtin.lower_is_better
        return self.declared is not None and self.declared.direction == 2  # as in the contract

    def take(self, row: MetricRow) -> Any:
        """What a builtin needs of a row."""
        assert self.builtin is not None
        return self.builtin.take(row, self.settings)

    def make(self, taken: Sequence[Any]) -> tuple[float | None, str]:
        """The number that a builtin makes of what it took."""
        assert self.builtin is not None
        return self.builtin.make(taken, self.settings)


def asked_metric(use: MetricUse, declared: Sequence[MetricDeclaration], where: str) -> AskedMetric:
    """A metric that an experiment asks for at *where*: one that the scorer declares, else a builtin.

    Raises:
        Invalid: there is none of this name, or settings or inputs do not fit it.
    """
    own = next((each for each in declared if each.name == use.use), None)
    if own is not None:
        for key in ("settings", "map"):
            if getattr(use, key):
                message = (
                    f"{where}.{key}: {use.use} is made by the scorer, by its own settings and inputs; leave it out"
                )
                raise _invalid(message, f"{where}.{key}")
        return AskedMetric(use.called, own)
    builtin = METRICS.get(use.use)
    if builtin is None:
        known = sorted({*METRICS, *(each.name for each in declared)})
        raise _invalid(f"{where}: there is no metric {use.use!r}{suggestion(use.use, known, known)}", where)
    try:
        settings = settings_type(builtin.settings, {}, use.use).read(json.dumps(use.settings))
    except SettingsInvalid as error:
        raise _invalid(f"{where}.{error}", f"{where}.{error.field}") from None
    return AskedMetric(use.called, None, builtin, settings, _mapped(use, where))


def _mapped(use: MetricUse, where: str) -> dict[str, Mapped]:
    found = {}
    for name, path in use.map.items():
        field = f"{where}.map.{name}"
        if name not in INPUTS:
            raise _invalid(f"{field}: a metric takes no input {name!r}{suggestion(name, INPUTS, INPUTS)}", field)
        found[name] = Mapped(path, _find(path, field))
    return found


def _find(path: str, field: str) -> Find:
    if path.startswith("score."):
        follow = parse_score_path(path, field)

        def in_score(item: Item, output: Output, trial_id: int, score: Score) -> Value | None:
            return follow(score)

        return in_score
    found = parse_path(path, field)

    def elsewhere(item: Item, output: Output, trial_id: int, score: Score) -> Value | None:
        return found.find(item, output, trial_id)

    return elsewhere


def _invalid(message: str, field: str) -> Invalid:
    return Invalid(Reason.EXPERIMENT_INVALID, message, field=field)


__all__ = ["AMONG_METRICS", "METRICS", "AskedMetric", "Metric", "MetricFault", "MetricRow", "asked_metric"]
