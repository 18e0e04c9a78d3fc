"""Numbers over all trials of a score, made once when a run is complete. What cannot be made says why, and nothing else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from evalbus import Direction, Failure, Score, ScoreTask, Value
from evalbus._metric import MetricAnswer
from evalbus._reduce import Reduction, Row
from evalbus._results import one_line
from evalbus_server.errors import ServerError, StoreTrouble
from evalbus_server.model.numbers import RunMetric
from evalbus_server.model.run import Run, ScoreKey
from evalbus_server.model.trial import StoredResult, epoch_of, position_of
from evalbus_server.runner.floor import Floor, Working
from evalbus_server.scorer.mapping import Path
from evalbus_server.scorer.metrics import AskedMetric, MetricFault, MetricRow
from evalbus_server.store import Store

PAGE = 64
"""Results read at once."""
LONGEST = 500
"""Bytes of an explanation."""

_log = structlog.get_logger("evalbus.run")

Keys = Sequence[tuple[int, ScoreKey]]
"""The score keys of one scorer, with their positions in the run."""
Found = dict[int, list[RunMetric]]


class _Sought(NamedTuple):
    """A scorer's metrics and where they are made of."""

    store: Store
    run: Run
    scorer: int
    keys: Keys
    asked: Sequence[AskedMetric]
    paths: Mapping[str, Path]


def wants_metrics(working: Working) -> bool:
    """Whether the experiment asks for any."""
    return any(working.crew.metrics)


def unmeasure(floor: Floor, working: Working) -> None:
    """Take back the numbers that an earlier session has made: they are not of what comes now.

    Raises:
        StoreTrouble: that cannot be stored.
    """
    run, why = working.run, "it was not made since the run went on"
    floor.store.set_metrics(
        run.id,
        {
            place: [_none(each, why) for each in working.crew.metrics[key.scorer]]
            for place, key in enumerate(run.score_keys)
            if working.crew.metrics[key.scorer]
        },
    )


async def measure(floor: Floor, working: Working) -> None:
    """Make and store the numbers that the experiment asks for.

    Raises:
        StoreTrouble: they cannot be read or stored.
    """
    run, found = working.run, {}
    for index, asked in enumerate(working.crew.metrics):
        if asked:
            keys = [(place, key) for place, key in enumerate(run.score_keys) if key.scorer == index]
            sought = _Sought(floor.store, run, index, keys, asked, working.crew.paths[index])
            if run.session > 1 and not working.experiment.keep.outputs:
                why = "outputs of an earlier session are not kept, and it is made of all or none"
                found.update(_without(sought, asked, why))
            else:
                found.update(await _unless_asked_to_end(working, sought))
    floor.store.set_metrics(run.id, found)


async def _unless_asked_to_end(working: Working, sought: _Sought) -> Found:
    """The numbers of one scorer; without values if somebody ends the run meanwhile."""
    work = asyncio.ensure_future(_of_scorer(working, sought))
    asked = asyncio.ensure_future(working.asked_to_end.wait())
    try:
        await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        return _without(sought, sought.asked, "the run was stopped while it was made")
    finally:
        for each in (work, asked):
            each.cancel()
        await asyncio.gather(work, asked, return_exceptions=True)


async def _of_scorer(working: Working, sought: _Sought) -> Found:
    builtin = [each for each in sought.asked if each.builtin is not None]
    own = [each for each in sought.asked if each.builtin is None]
    made = await _builtin(sought, builtin) if builtin else {}
    reduced = await _reduced(working, sought, own) if own else {}
    order = [each.name for each in sought.asked]
    return {
        place: sorted([*made.get(place, ()), *reduced.get(place, ())], key=lambda each: order.index(each.name))
        for place, _ in sought.keys
    }


# --- builtins -----------------------------------------------------------------------------------------------------


async def _builtin(sought: _Sought, asked: Sequence[AskedMetric]) -> Found:
    """Those that ship with the server: what they need of each page is taken in a thread, and so is the number made."""
    taken: dict[tuple[int, str], list[Any] | MetricFault] = {
        (place, each.name): [] for place, _ in sought.keys for each in asked
    }

    def take(page: Sequence[StoredResult]) -> None:
        for result in page:
            for place, key in sought.keys:
                row = _metric_row(sought, result, place, key)
                if row is not None:
                    for each in asked:
                        _take(each, row, taken, place)

    async for page in _pages(sought):
        await asyncio.to_thread(take, page)
    return {
        place: [await asyncio.to_thread(_make, each, taken[place, each.name]) for each in asked]
        for place, _ in sought.keys
    }


def _take(
    asked: AskedMetric, row: MetricRow, taken: dict[tuple[int, str], list[Any] | MetricFault], place: int
) -> None:
    into = taken[place, asked.name]
    if isinstance(into, MetricFault):
        return
    try:
        part = asked.take(replace(row, mapped=asked.mapped or {}))
    except MetricFault as fault:
        taken[place, asked.name] = fault
        return
    if part is not None:
        into.append(part)


def _make(asked: AskedMetric, taken: list[Any] | MetricFault) -> RunMetric:
    if isinstance(taken, MetricFault):
        return _none(asked, str(taken))
    try:
        value, explanation = asked.make(taken)
    except OverflowError:
        return _none(asked, "the values are too large to be put together")
    return RunMetric(asked.name, value, one_line(explanation, LONGEST), asked.lower_is_better)


def _metric_row(sought: _Sought, result: StoredResult, place: int, key: ScoreKey) -> MetricRow | None:
    stored = result.scores.get(place)
    if stored is None or stored.score.value is None or result.output is None:
        return None
    task = ScoreTask(result.trial_id, 1, result.item, result.output, _inputs(sought, result))
    return MetricRow(task, stored.score, {}, key.declaration.direction is Direction.LOWER_IS_BETTER)


# --- those that the scorer makes itself ---------------------------------------------------------------------------


async def _reduced(working: Working, sought: _Sought, asked: Sequence[AskedMetric]) -> Found:
    """Those that the scorer makes: it is sent all rows, and answers once."""
    names = tuple(each.declared.name for each in asked if each.declared is not None)
    crew, limit = working.crew, working.experiment.limits.trial_timeout
    reduction = Reduction(
        crew.openings[sought.scorer], tuple(dict.fromkeys(names)), tuple(key.declaration for _, key in sought.keys)
    )
    try:
        answers = await crew.reduce(sought.scorer, reduction, _batches(sought), limit)
    except StoreTrouble:
        raise
    except ServerError as error:
        return _without(sought, asked, str(error))
    except Exception as error:  # the outside world ends here, and a run is not lost for a number
        _log.exception("a metric could not be made", run=sought.run.id)
        return _without(sought, asked, repr(error))
    keep = working.experiment.keep.outputs
    if isinstance(answers, Failure):
        return _without(sought, asked, f"{answers.reason or answers.category.name}: {answers.message}")
    return {
        place: [_checked(each, key.declaration.name, answers, keep) for each in asked] for place, key in sought.keys
    }


def _checked(asked: AskedMetric, score: str, answers: Sequence[MetricAnswer], keep: bool) -> RunMetric:
    """A number as the scorer made it, held to what it had declared. Its words may quote outputs, and are *kept* or not."""
    declared = asked.declared
    assert declared is not None
    found = [each for each in answers if (each.metric, each.score) == (declared.name, score)]
    if len(found) != 1:
        return _none(asked, f"the scorer gave {len(found)} values for it, where one was due")
    (answer,) = found
    value = answer.value
    if answer.failure is not None:
        said = f": {answer.failure.message}" if keep else ""
        return _none(asked, f"{answer.failure.reason or answer.failure.category.name}{said}")
    explanation = answer.explanation if keep else ""
    if value is None:
        return _none(asked, explanation or "the scorer gave no value, and no reason")
    low, high = declared.minimum, declared.maximum
    if not math.isfinite(value) or (low is not None and value < low) or (high is not None and value > high):
        return _none(asked, f"{value} is not finite, or outside of its declared range {low} to {high}")
    return RunMetric(asked.name, value + 0.0, one_line(explanation, LONGEST), asked.lower_is_better)


async def _batches(sought: _Sought) -> AsyncIterator[list[Row]]:
    async for page in _pages(sought):
        rows = []
        for result in page:
            scores = _scores(sought, result)
            if scores and result.output is not None:
                output = result.output
                rows.append(
                    Row(
                        result.trial_id,
                        result.item.id,
                        epoch_of(result.trial_id),
                        scores,
                        result.item.expected,
                        output.content if output.answer is None else output.answer,
                        _inputs(sought, result),
                    )
                )
        if rows:
            yield rows


def _scores(sought: _Sought, result: StoredResult) -> tuple[Score, ...]:
    """The scores of the scorer that have a value, under the names that it declared."""
    found = [result.scores[place].score for place, _ in sought.keys if place in result.scores]
    return tuple(score for score in found if score.value is not None)


# --- what both need -----------------------------------------------------------------------------------------------


async def _pages(sought: _Sought) -> AsyncIterator[list[StoredResult]]:
    """All results of the run, page by page, in the order of the dataset and then of the epochs, but for those of
    purged items: nothing is left there to be looked at.
    """
    after: tuple[int, int] | None = None
    while page := sought.store.results(sought.run, after=after, limit=PAGE):
        last = page[-1].trial_id
        after = position_of(last), epoch_of(last)
        gone = sought.store.purged(sought.run.id)
        yield [result for result in page if position_of(result.trial_id) not in gone] if gone else page
        await asyncio.sleep(0)


def _inputs(sought: _Sought, result: StoredResult) -> dict[str, Value]:
    assert result.output is not None
    found = {}
    for name, path in sought.paths.items():
        value = path.find(result.item, result.output, result.trial_id)
        if value is not None:
            found[name] = value
    return found


def _without(sought: _Sought, asked: Sequence[AskedMetric], why: str) -> Found:
    return {place: [_none(each, why) for each in asked] for place, _ in sought.keys}


def _none(asked: AskedMetric, why: str) -> RunMetric:
    return RunMetric(asked.name, None, one_line(why, LONGEST), asked.lower_is_better)
