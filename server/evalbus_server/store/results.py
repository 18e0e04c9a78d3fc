"""Results read back whole: item, output, scores and outcome of each trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from evalbus_server.model.result_filter import EVERYTHING, ResultFilter
from evalbus_server.model.trial import CACHED, StoredResult, epoch_of, position_of, trial_id_of
from evalbus_server.store import rows
from evalbus_server.store.connection import Row
from evalbus_server.store.datasets import AS_OF
from evalbus_server.store.documents import dumps
from evalbus_server.store.runs import OfRun
from evalbus_server.store.trials import SCORES_OF_TRIALS, matching

_KEYS_AT_ONCE = 256
_WHOLE_AT_ONCE = 32

_TEXTS_AT_ONCE = 32
_SIGNS = {"above": ">", "at_least": ">=", "at_most": "<=", "below": "<"}

PAGE_OF_RESULTS = f"""
    SELECT r.position, r.epoch, i.id FROM result r
    CROSS JOIN item i ON i.dataset = :dataset AND i.position = +r.position AND {AS_OF}
    WHERE r.run = :run AND (r.position, r.epoch) > (:position, :epoch) {{conditions}}
    ORDER BY r.position, r.epoch LIMIT :limit
"""
TEXTS_OF_RESULTS = f"""
    SELECT j.value, i.id, i.input, i.expected, o.content, o.answer, json_extract(r.failure, '$.message')
    FROM json_each(:trials) j
    CROSS JOIN result r ON r.run = :run AND r.position = j.value & 4294967295 AND r.epoch = (j.value >> 32) + 1
    CROSS JOIN item i ON i.dataset = :dataset AND i.position = +r.position AND {AS_OF}
    LEFT JOIN output o ON o.run = :outputs AND o.trial = j.value
"""
TEXTS_OF_SCORES = """
    SELECT s.trial, s.label, s.explanation FROM json_each(:trials) j
    CROSS JOIN score s ON s.run = :run AND s.trial = j.value
"""
WHOLE_RESULTS = f"""
    SELECT r.position, r.epoch, r.outcome, r.weighted, r.failure, r.attempts, {rows.qualified("r", rows.USAGE)},
        {rows.qualified("i", rows.ITEM)}, o.id, iif(:run = :outputs, o.latency, NULL), o.attempt, {rows.qualified("o", rows.OUTPUT)}
    FROM json_each(:trials) j
    CROSS JOIN result r ON r.run = :run AND r.position = j.value & 4294967295 AND r.epoch = (j.value >> 32) + 1
    CROSS JOIN item i ON i.dataset = :dataset AND i.position = +r.position AND {AS_OF}
    LEFT JOIN output o ON o.run = :outputs AND o.trial = j.value
"""


Place: TypeAlias = tuple[int, int]
"""Position and epoch of a trial."""


class Wanted(NamedTuple):
    """Which results, and how many at most."""

    filter: ResultFilter = EVERYTHING
    after: Place | None = None
    """The last place seen."""
    limit: int = 100
    max_bytes: int = 1 << 20
    """Of content, about; one result comes in any case."""


class ResultPage(NamedTuple):
    """Some results."""

    results: list[StoredResult]
    place: Place | None
    """To go on behind; None: there are no more."""
    size: int
    """About how many bytes they have; more than were wanted, if more would have been too much."""


def page(of: OfRun, wanted: Wanted) -> ResultPage:
    """The next results in dataset order, then epoch.

    It looks at some hundred results, so that a filter which few fulfil does not hold the event loop: a page may be empty
    though others follow.
    """
    trials, place = _wanted_trials(of, wanted)
    found: list[StoredResult] = []
    size = 0
    for first in range(0, len(trials), _WHOLE_AT_ONCE):
        for result, length in _whole(of, trials[first : first + _WHOLE_AT_ONCE]):
            size += length
            if found and size > wanted.max_bytes:
                return ResultPage(found, _place_of(found[-1].trial_id), size)
            found.append(result)
    return ResultPage(found, place, size)


def of_trials(of: OfRun, trial_ids: Sequence[int]) -> list[StoredResult]:
    """The results of some trials, in the order of their ids as given."""
    found: list[StoredResult] = []
    for first in range(0, len(trial_ids), _WHOLE_AT_ONCE):
        found += [result for result, _ in _whole(of, list(trial_ids[first : first + _WHOLE_AT_ONCE]))]
    return found


def _wanted_trials(of: OfRun, wanted: Wanted) -> tuple[list[int], Place | None]:
    """The trial ids of the page, so that no content is read for those that are left out, and the last place looked at;
    None: there is nothing behind the last of them.
    """
    filter = wanted.filter
    matches = matching((filter.item,) if filter.item else ())
    conditions, parameters = _conditions(of, filter)
    at_once = _TEXTS_AT_ONCE if filter.text else _KEYS_AT_ONCE
    position, epoch = wanted.after or (-1, 0)
    page = of.connection.rows(
        PAGE_OF_RESULTS.format(conditions=conditions),
        {
            **parameters,
            "dataset": of.dataset,
            "version": of.run.dataset.version,
            "run": of.number,
            "position": position,
            "epoch": epoch,
            "limit": at_once,
        },
    )
    trials = [trial_id_of(row[0], row[1]) for row in page if matches is None or matches(row[2])]
    if filter.text:
        trials = _with_text(of, trials, filter.text.casefold())
    if len(trials) > wanted.limit:
        return trials[: wanted.limit], _place_of(trials[wanted.limit - 1])
    return trials, None if len(page) < at_once else (page[-1][0], page[-1][1])


def _place_of(trial_id: int) -> Place:
    return position_of(trial_id), epoch_of(trial_id)


def _conditions(of: OfRun, filter: ResultFilter) -> tuple[str, dict[str, object]]:
    """What the rows of results must fulfil, and the values that stand in it."""
    told: list[str] = []
    values: dict[str, object] = {}
    if filter.outcomes:
        told.append(f"r.outcome IN ({', '.join(str(int(outcome)) for outcome in filter.outcomes)})")
    for place, tag in enumerate(filter.tags):
        values[f"tag{place}"] = tag
        told.append(f"EXISTS (SELECT 1 FROM json_each(i.detail, '$.tags') WHERE value = :tag{place})")
    keys = [key.key for key in of.run.score_keys]
    for place, each in enumerate(filter.scores):
        score = "SELECT 1 FROM score s WHERE s.run = :run AND s.trial = ((r.epoch - 1) << 32) + r.position"
        score += f" AND s.key = {keys.index(each.key)}"
        if each.missing:
            told.append(f"NOT EXISTS ({score})")
            continue
        if each.status is not None:
            score += f" AND s.status = {int(each.status)}"
        for name, sign in _SIGNS.items():
            bound = getattr(each, name)
            if bound is not None:
                values[f"{name}{place}"] = bound
                score += f" AND s.value {sign} :{name}{place}"
        told.append(f"EXISTS ({score})")
    return "".join(f" AND {condition}" for condition in told), values


def _with_text(of: OfRun, trials: list[int], text: str) -> list[int]:
    """Those of some trials in which a text stands, which is casefolded already."""
    place = {
        "run": of.number,
        "outputs": of.outputs,
        "dataset": of.dataset,
        "version": of.run.dataset.version,
        "trials": dumps(trials),
    }
    found = set()
    for query in (TEXTS_OF_RESULTS, TEXTS_OF_SCORES):
        for trial_id, *cells in of.connection.rows(query, place):
            if trial_id not in found and any(text in cell.casefold() for cell in cells if isinstance(cell, str)):
                found.add(trial_id)
    return [trial_id for trial_id in trials if trial_id in found]


def _whole(of: OfRun, trials: list[int]) -> list[tuple[StoredResult, int]]:
    """Results with about how many bytes of content each has, in the order of *trials*."""
    of_trials = {"run": of.number, "outputs": of.outputs, "trials": dumps(trials)}
    results = {}
    for row in of.connection.rows(
        WHOLE_RESULTS, {**of_trials, "dataset": of.dataset, "version": of.run.dataset.version}
    ):
        result = _read(row)
        results[result.trial_id] = (result, _length(row))
    for trial_id, *columns in of.connection.rows(SCORES_OF_TRIALS, of_trials):
        key, score = rows.read_score(tuple(columns))
        result, length = results[trial_id]
        result.scores[key] = score
        results[trial_id] = (result, length + _length(columns))
    return [results[trial_id] for trial_id in trials]


def _read(row: Row) -> StoredResult:
    position, epoch, outcome, weighted, failure, attempts = row[:6]
    usage_end = 6 + rows.USAGE_WIDTH
    item_end = usage_end + rows.ITEM_WIDTH
    output, latency, attempt = row[item_end : item_end + 3]
    return StoredResult(
        trial_id=trial_id_of(position, epoch),
        item=rows.read_item(row[usage_end:item_end]),
        outcome=rows.OUTCOMES[outcome],
        output=None if output is None else rows.read_output(row[item_end + 3 :]),
        scores={},
        weighted=weighted,
        failure=rows.read_failure(failure),
        attempts=attempts,
        latency=latency,
        usage=rows.read_usage(row[6:usage_end]),
        cached=attempt == CACHED,
    )


def _length(row: Sequence[object]) -> int:
    return sum(len(cell) for cell in row if isinstance(cell, (str, bytes)))
