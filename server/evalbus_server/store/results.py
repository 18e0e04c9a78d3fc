"""Results read back whole: item, output, scores and outcome of each trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evalbus_server.model.run import Outcome
from evalbus_server.model.trial import CACHED, StoredResult, trial_id_of
from evalbus_server.store import rows
from evalbus_server.store.connection import Row
from evalbus_server.store.datasets import AS_OF
from evalbus_server.store.documents import dumps
from evalbus_server.store.runs import OfRun
from evalbus_server.store.trials import SCORES_OF_TRIALS, matching

_KEYS_AT_ONCE = 256
_WHOLE_AT_ONCE = 32

PAGE_OF_RESULTS = f"""
    SELECT r.position, r.epoch, i.id FROM result r
    CROSS JOIN item i ON i.dataset = :dataset AND i.position = +r.position AND {AS_OF}
    WHERE r.run = :run AND (r.position, r.epoch) > (:position, :epoch) {{outcomes}}
    ORDER BY r.position, r.epoch LIMIT :limit
"""
WHOLE_RESULTS = f"""
    SELECT r.position, r.epoch, r.outcome, r.weighted, r.failure, r.attempts, {rows.qualified("r", rows.USAGE)},
        {rows.qualified("i", rows.ITEM)}, o.id, iif(:run = :outputs, o.latency, NULL), o.attempt, {rows.qualified("o", rows.OUTPUT)}
    FROM json_each(:trials) j
    CROSS JOIN result r ON r.run = :run AND r.position = j.value & 4294967295 AND r.epoch = (j.value >> 32) + 1
    CROSS JOIN item i ON i.dataset = :dataset AND i.position = +r.position AND {AS_OF}
    LEFT JOIN output o ON o.run = :outputs AND o.trial = j.value
"""


class Wanted(NamedTuple):
    """Which results, and how many at most."""

    outcomes: Sequence[Outcome] = ()
    item_glob: str = ""
    after: tuple[int, int] | None = None
    """Position and epoch of the last one seen."""
    limit: int = 100
    max_bytes: int = 1 << 20
    """Of content, about; one result comes in any case."""


def page(of: OfRun, wanted: Wanted) -> list[StoredResult]:
    """The next results in dataset order, then epoch."""
    trials = _wanted_trials(of, wanted)
    found: list[StoredResult] = []
    size = 0
    for first in range(0, len(trials), _WHOLE_AT_ONCE):
        for result, length in _whole(of, trials[first : first + _WHOLE_AT_ONCE]):
            size += length
            if found and size > wanted.max_bytes:
                return found
            found.append(result)
    return found


def of_trials(of: OfRun, trial_ids: Sequence[int]) -> list[StoredResult]:
    """The results of some trials, in the order of their ids as given."""
    found: list[StoredResult] = []
    for first in range(0, len(trial_ids), _WHOLE_AT_ONCE):
        found += [result for result, _ in _whole(of, list(trial_ids[first : first + _WHOLE_AT_ONCE]))]
    return found


def _wanted_trials(of: OfRun, wanted: Wanted) -> list[int]:
    """The trial ids of the page, so that no content is read for those that are left out."""
    matches = matching((wanted.item_glob,) if wanted.item_glob else ())
    outcomes = ", ".join(str(int(outcome)) for outcome in wanted.outcomes)
    sql = PAGE_OF_RESULTS.format(outcomes=f"AND r.outcome IN ({outcomes})" if outcomes else "")
    position, epoch = wanted.after or (-1, 0)
    trials: list[int] = []
    while len(trials) < wanted.limit:
        page = of.connection.rows(
            sql,
            {
                "dataset": of.dataset,
                "version": of.run.dataset.version,
                "run": of.number,
                "position": position,
                "epoch": epoch,
                "limit": _KEYS_AT_ONCE,
            },
        )
        trials += [trial_id_of(row[0], row[1]) for row in page if matches is None or matches(row[2])]
        if len(page) < _KEYS_AT_ONCE:
            break
        position, epoch, _ = page[-1]
    return trials[: wanted.limit]


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
