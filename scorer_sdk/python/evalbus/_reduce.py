"""Numbers over the scores of a run, made by a scorer's metrics; what cannot be made says why."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evalbus._definition import Scorer, revision_failure
from evalbus._errors import SettingsInvalid
from evalbus._failure import Failure, FailureCategory
from evalbus._metric import Metric, MetricAnswer, MetricValue, ScoreRow
from evalbus._plugin import REVISION, Open
from evalbus._results import ResultInvalid, failure_of, one_line
from evalbus._score import Score, ScoreDeclaration
from evalbus._value import Value


class Reduction(NamedTuple):
    """What is asked for."""

    opening: Open
    metrics: tuple[str, ...]
    scores: tuple[ScoreDeclaration, ...]


class Row(NamedTuple):
    """What a scorer said of one trial: its scores that have a value."""

    trial_id: int
    item_id: str
    epoch: int
    scores: tuple[Score, ...]
    expected: Value | None = None
    answer: Value | None = None
    inputs: Mapping[str, Value] = {}


async def reduce(scorer: Scorer[Any, Any], asked: Reduction, rows: Sequence[Row]) -> list[MetricAnswer] | Failure:
    """A number, or why there is none, for each metric and score that is asked for; a failure for all together."""
    if asked.opening.revision != REVISION:
        return revision_failure(asked.opening.revision)
    known = {each.declaration.name: each for each in scorer.options.metrics}
    unknown = [name for name in asked.metrics if name not in known]
    if unknown:
        text = f"{scorer.name} has no metric {unknown[0]!r}; there is {', '.join(known) or 'none'}"
        return Failure(FailureCategory.INVALID, text, "METRIC_UNKNOWN")
    try:
        settings = scorer._settings.read(asked.opening.settings_json)
    except SettingsInvalid as error:
        return Failure(FailureCategory.INVALID, str(error), "SETTINGS_INVALID", field=error.field)
    found: list[MetricAnswer] = []
    for declaration in asked.scores:
        own = [_row(row, score) for row in rows for score in row.scores if score.name == declaration.name]
        found += [await _made(known[name], own, settings, declaration.name) for name in asked.metrics]
    return found


def _row(row: Row, score: Score) -> ScoreRow:
    return ScoreRow(row.trial_id, row.item_id, row.epoch, score, row.expected, row.answer, row.inputs)


async def _made(metric: Metric, rows: list[ScoreRow], settings: Any, score: str) -> MetricAnswer:
    name = metric.declaration.name
    try:
        if metric.is_async:
            returned = await metric.ask(rows, settings)
        else:
            returned = await asyncio.to_thread(metric.ask, rows, settings)
            returned = await returned if inspect.isawaitable(returned) else returned
        made = _value(returned)
    except Exception as error:  # an author's code ends here
        failure = failure_of(error, name)
        return MetricAnswer(name, score, explanation=failure.message, failure=failure)
    return MetricAnswer(name, score, made.value, one_line(made.explanation))


def _value(returned: Any) -> MetricValue:
    if returned is None:
        return MetricValue(None, "it has no value for these scores")
    if isinstance(returned, MetricValue):
        return returned if returned.value is None else MetricValue(_number(returned.value), returned.explanation)
    return MetricValue(_number(returned))


def _number(returned: Any) -> float:
    try:
        number = float(returned)
    except (TypeError, ValueError, OverflowError):
        raise ResultInvalid(
            f"returned a value of type {type(returned).__name__}; return a number, None or a MetricValue"
        ) from None
    if not math.isfinite(number):
        raise ResultInvalid(f"returned {number}, which is not a finite number; return None where there is none")
    return number + 0.0
