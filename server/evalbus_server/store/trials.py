"""Trials that are not done: those to be asked, and those whose output waits for a scorer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from evalbus import Usage
from evalbus_server.model.assignment import Assigned
from evalbus_server.model.run import Outcome
from evalbus_server.model.trial import EPOCH_BITS, OpenTrial, StoredItem, position_of
from evalbus_server.store import rows, selected
from evalbus_server.store.connection import Connection, Row
from evalbus_server.store.datasets import AS_OF
from evalbus_server.store.documents import dumps, loads
from evalbus_server.store.runs import OfRun

_ITEM = rows.qualified("i", rows.ITEM)
_NOBODY = Assigned(0)
_LAST_N = (1 << rows.RUN_BITS) - 1

_AT_ONCE = 4_096
"""Positions at which one page of open items looks."""

PAGE_OF_ITEMS = f"""
    SELECT i.position, {_ITEM}
    FROM item i WHERE i.dataset = :dataset AND i.position > :after AND i.position <= :last AND {AS_OF} {{open}}
    ORDER BY i.position LIMIT :limit
"""
PAGE_OF_CHOSEN = f"""
    SELECT i.position, {_ITEM}, j.key
    FROM json_each(:positions) j CROSS JOIN item i
    ON i.dataset = :dataset AND i.position = j.value AND {AS_OF} {{open}} LIMIT :limit
"""
ALL = ""
IF_OPEN = """
    AND NOT EXISTS (SELECT 1 FROM output o WHERE o.run = :outputs AND o.trial = i.position + :epoch_bits)
    AND (NOT EXISTS (SELECT 1 FROM result r WHERE r.run = :run AND r.position = i.position AND r.epoch = :epoch)
        OR EXISTS (SELECT 1 FROM retry m WHERE m.run = :run AND m.trial = i.position + :epoch_bits AND m.key = -1))
"""

_RESULT = """
    EXISTS (SELECT 1 FROM result r
        WHERE r.run = :run AND r.position = o.trial & 4294967295 AND r.epoch = (o.trial >> 32) + 1)
"""
_MARKED = "EXISTS (SELECT 1 FROM retry m WHERE m.run = :run AND m.trial = o.trial AND m.key {})"
_SCORED = "EXISTS (SELECT 1 FROM score s WHERE s.run = :run AND s.trial = o.trial AND s.key IN ({keys}))"
PAGE_OF_OUTPUTS = f"""
    SELECT o.id, o.trial,
        CASE WHEN {_MARKED.format("= -1")} THEN {_SCORED} AND NOT {_MARKED.format("IN ({keys})")} ELSE {_RESULT} OR {_SCORED} END
    FROM output o WHERE o.id > :after AND o.id < :end ORDER BY o.id LIMIT :limit
"""
PAGE_OF_UNJUDGED = f"""
    SELECT o.id, o.trial, ({_RESULT} AND NOT {_MARKED.format("= -1")}) OR {_MARKED.format(">= 0")},
        (SELECT count(*) FROM score s WHERE s.run = :run AND s.trial = o.trial)
    FROM output o WHERE o.id > :after AND o.id < :end ORDER BY o.id LIMIT :limit
"""
PAGE_OF_UNFINISHED = f"""
    SELECT o.id, o.trial, {_RESULT} FROM output o WHERE o.id > :after AND o.id < :end ORDER BY o.id LIMIT :limit
"""
ANSWERED = f"""
    SELECT (SELECT count(*) FROM output WHERE run = :outputs) + (SELECT count(*) FROM result r
        WHERE r.run = :run AND r.outcome = {Outcome.ERRORED.value}
        AND NOT EXISTS (SELECT 1 FROM output o
            WHERE o.run = :outputs AND o.trial = ((r.epoch - 1) << {EPOCH_BITS}) + r.position)
        AND NOT EXISTS (SELECT 1 FROM retry m
            WHERE m.run = :run AND m.trial = ((r.epoch - 1) << {EPOCH_BITS}) + r.position AND m.key = -1))
"""
WAITING = f"""
    SELECT (SELECT count(*) FROM output WHERE run = :outputs) - (SELECT count(*) FROM result r
        WHERE r.run = :run AND (r.outcome <> {Outcome.ERRORED.value} OR EXISTS (SELECT 1 FROM output o
            WHERE o.run = :outputs AND o.trial = ((r.epoch - 1) << {EPOCH_BITS}) + r.position)))
"""
OWN_SCORERS = f"""
    SELECT j.value, json_extract(i.detail, '$.scorers') FROM json_each(:trials) j
    CROSS JOIN item i ON i.dataset = :dataset AND i.position = j.value & 4294967295 AND {AS_OF}
"""
OUTPUTS_WITH_ITEMS = f"""
    SELECT o.id, o.trial, o.attempts, {_ITEM}, {rows.qualified("o", rows.OUTPUT)}
    FROM json_each(:ids) j CROSS JOIN output o ON o.id = j.value
    CROSS JOIN item i ON i.dataset = :dataset AND i.position = o.trial & 4294967295 AND {AS_OF}
"""
OUTPUTS_OF_TRIALS = """
    SELECT o.id FROM json_each(:trials) j CROSS JOIN output o ON o.run = :outputs AND o.trial = j.value
"""
SCORES_OF_TRIALS = f"""
    SELECT s.trial, {rows.qualified("s", rows.SCORE)}
    FROM json_each(:trials) j CROSS JOIN score s ON s.run = :run AND s.trial = j.value
"""
MARKS_OF_TRIALS = """
    SELECT m.trial, m.key FROM json_each(:trials) j CROSS JOIN retry m ON m.run = :run AND m.trial = j.value
"""
ATTEMPTS_OF_TRIALS = f"""
    SELECT a.trial, a.role, {rows.qualified("a", rows.USAGE)}
    FROM json_each(:trials) j CROSS JOIN attempt a ON a.run = :run AND a.trial = j.value
"""


def open_page(of: OfRun, epoch: int, *, after: int, limit: int, fresh: bool) -> tuple[list[StoredItem], int]:
    """Items of an epoch that have to be asked, and the last position (of a list, the place) that was looked at."""
    condition = ALL if fresh else IF_OPEN
    last = min(after + _AT_ONCE, of.run.selection.last)
    place = {
        "dataset": of.dataset,
        "version": of.run.dataset.version,
        "run": of.number,
        "outputs": of.outputs,
        "epoch": epoch,
        "epoch_bits": (epoch - 1) << EPOCH_BITS,
        "limit": limit,
    }
    if of.run.selection.listed:
        return _chosen_page(of, condition, place, after, limit if fresh else _AT_ONCE)
    page = of.connection.rows(PAGE_OF_ITEMS.format(open=condition), {**place, "after": after, "last": last})
    found = [StoredItem(row[0], row[1:], rows.read_item) for row in page]
    return found, found[-1].position if len(found) == limit else last


def _chosen_page(
    of: OfRun, condition: str, place: dict[str, int], after: int, looked_at: int
) -> tuple[list[StoredItem], int]:
    positions = selected.positions(of.connection, of.number, after + 1, looked_at)
    if not positions:
        return [], of.run.selection.last
    page = of.connection.rows(PAGE_OF_CHOSEN.format(open=condition), {**place, "positions": dumps(positions)})
    found = [StoredItem(row[0], row[1:-1], rows.read_item) for row in page]
    return found, after + 1 + page[-1][-1] if len(page) == place["limit"] else after + len(positions)


def unscored(of: OfRun, scorer: int, *, after: int, limit: int) -> tuple[list[tuple[int, OpenTrial]], int]:
    """The outputs of the next *limit* that a scorer has not scored, by number, and the number of the last looked at."""
    keys = ", ".join(str(i) for i, key in enumerate(of.run.score_keys) if key.scorer == scorer)
    base = of.outputs << rows.RUN_BITS
    page = of.connection.rows(
        PAGE_OF_OUTPUTS.format(keys=keys),
        {"run": of.number, "after": base + after, "end": base + _LAST_N + 1, "limit": limit},
    )
    return _found(of, _assigned_to(of, page, scorer), base) if page else ([], after)


def unjudged(of: OfRun, *, after: int, limit: int) -> tuple[list[tuple[int, OpenTrial]], int]:
    """The same for outputs that have all their scores, and no result: whoever stored the scores did not come further."""
    base = of.outputs << rows.RUN_BITS
    place = {"run": of.number, "after": base + after, "end": base + _LAST_N + 1, "limit": limit}
    page = of.connection.rows(PAGE_OF_UNJUDGED, place)
    expected = expected_scores(of, [trial for _, trial, done, _ in page if not done])
    page = [(id, trial, done or scores < expected(trial)) for id, trial, done, scores in page]
    return _found(of, page, base) if page else ([], after)


def unfinished(of: OfRun, *, after: int, limit: int) -> tuple[list[OpenTrial], int]:
    """Those of the next *limit* outputs that have no result, and the number of the last looked at."""
    base = of.outputs << rows.RUN_BITS
    place = {"run": of.number, "after": base + after, "end": base + _LAST_N + 1, "limit": limit}
    page = of.connection.rows(PAGE_OF_UNFINISHED, place)
    if not page:
        return [], after
    trials, looked_at = _found(of, page, base)
    return [trial for _, trial in trials], looked_at


def answered(connection: Connection, run: int, outputs: int) -> int:
    """How many trials of a run have an output, or ended without one for good."""
    found = connection.row(ANSWERED, {"run": run, "outputs": outputs})
    return found[0] if found else 0


def waiting(connection: Connection, run: int, outputs: int) -> int:
    """How many outputs of a run have no result yet."""
    found = connection.row(WAITING, {"run": run, "outputs": outputs})
    return max(found[0], 0) if found else 0


def has_failed_attempts(of: OfRun) -> bool:
    """Whether an attempt of the run has failed, whoever was asked."""
    return of.connection.row("SELECT 1 FROM attempt WHERE run = ? LIMIT 1", (of.number,)) is not None


def earlier(of: OfRun, trial_ids: Sequence[int]) -> dict[int, tuple[int, Usage | None]]:
    """How often the target was asked in vain for each of some trials, and what that consumed."""
    found: dict[int, tuple[int, Usage | None]] = {}
    for trial_id, role, *columns in of.connection.rows(
        ATTEMPTS_OF_TRIALS, {"run": of.number, "trials": dumps(list(trial_ids))}
    ):
        attempts, usage = found.get(trial_id, (0, None))
        found[trial_id] = (attempts + (role == -1), _both(usage, rows.read_usage(tuple(columns))))
    return found


def so_far(of: OfRun, trial_ids: Sequence[int]) -> dict[int, tuple[int, Usage | None]]:
    """Attempts at the target for each of some trials, and what all attempts at it consumed, as far as it is stored."""
    found: dict[int, tuple[int, Usage | None]] = dict.fromkeys(trial_ids, (0, None)) | earlier(of, trial_ids)
    place = {"outputs": of.outputs, "trials": dumps(list(trial_ids))}
    ids = [id for (id,) in of.connection.rows(OUTPUTS_OF_TRIALS, place)]
    trials = _open_trials(of, ids) if ids else {}
    _add_scores(of, trials)
    return found | {trial_id: (trial.attempts, trial.usage) for trial_id, trial in trials.items()}


def matching(patterns: Sequence[str]) -> Callable[[str], bool] | None:
    """Whether a raw item id matches one of some globs; None if there are no globs, so that all do."""
    if not patterns:
        return None
    return lambda id: any(fnmatchcase(id, pattern) for pattern in patterns)


def assigned(of: OfRun, trial_ids: Sequence[int]) -> dict[int, Assigned]:
    """Who judges each of some trials, in a run that leaves it to its items."""
    assignment = of.run.assignment
    assert assignment is not None
    place = {"trials": dumps(list(trial_ids)), "dataset": of.dataset, "version": of.run.dataset.version}
    return {
        trial_id: assignment.of(None if names is None else loads(names))
        for trial_id, names in of.connection.rows(OWN_SCORERS, place)
    }


def expected_scores(of: OfRun, trial_ids: Sequence[int]) -> Callable[[int], int]:
    """How many scores a trial has when nobody is missing."""
    if of.run.assignment is None:
        every = len(of.run.score_keys)
        return lambda _: every
    found = assigned(of, trial_ids)

    def count(trial_id: int) -> int:
        scorers, unknown = found.get(trial_id, _NOBODY)
        return 0 if unknown else sum(scorers >> key.scorer & 1 for key in of.run.score_keys)

    return count


def _assigned_to(of: OfRun, page: list[Row], scorer: int) -> list[Row]:
    """The page, in which outputs that are not for the scorer to judge count as done."""
    if of.run.assignment is None:
        return page
    who = assigned(of, [trial for _, trial, done in page if not done])
    return [(id, trial, done or not _judges(who.get(trial, _NOBODY), scorer)) for id, trial, done in page]


def _judges(who: Assigned, scorer: int) -> bool:
    return not who.unknown and bool(who.scorers >> scorer & 1)


def _found(of: OfRun, page: list[Row], base: int) -> tuple[list[tuple[int, OpenTrial]], int]:
    """Those outputs of a page that are not done, as trials, and the number of the last one."""
    ids = [id for id, _, done in page if not done]
    trials = _open_trials(of, ids) if ids else {}
    _add_scores(of, trials)
    return [(id - base, trials[trial_id]) for id, trial_id, done in page if not done], page[-1][0] - base


def _open_trials(of: OfRun, ids: list[int]) -> dict[int, OpenTrial]:
    trials = {}
    found = of.connection.rows(
        OUTPUTS_WITH_ITEMS, {"ids": dumps(ids), "dataset": of.dataset, "version": of.run.dataset.version}
    )
    for row in found:
        _, trial_id, attempts = row[:3]
        item = StoredItem(position_of(trial_id), row[3 : 3 + rows.ITEM_WIDTH], rows.read_item)
        output = rows.read_output(row[3 + rows.ITEM_WIDTH :])
        trial = OpenTrial(trial_id, item, output)
        if of.outputs == of.number:  # else they were counted there
            trial.attempts = attempts
            trial.usage = output.usage
        trials[trial_id] = trial
    return trials


def _add_scores(of: OfRun, trials: dict[int, OpenTrial]) -> None:
    """Fill in what is known of the scores, who has not answered, and what was consumed on the way."""
    if not trials:
        return
    of_trials = {"run": of.number, "trials": dumps(list(trials))}
    assignment = of.run.assignment
    everybody = sum(1 << scorer for scorer in {key.scorer for key in of.run.score_keys})
    for trial in trials.values():
        trial.waiting = everybody if assignment is None else assignment.of(trial.item.scorers).scorers
    marks = set(of.connection.rows(MARKS_OF_TRIALS, of_trials))
    for trial_id, *columns in of.connection.rows(SCORES_OF_TRIALS, of_trials):
        key, stored = rows.read_score(tuple(columns))
        trial = trials[trial_id]
        trial.usage = _both(trial.usage, stored.score.usage)
        if (trial_id, key) not in marks:
            trial.scores[key] = stored.score
            trial.waiting &= ~(1 << of.run.score_keys[key].scorer)
    for trial_id, _, *columns in of.connection.rows(ATTEMPTS_OF_TRIALS, of_trials):
        trial = trials[trial_id]
        trial.usage = _both(trial.usage, rows.read_usage(tuple(columns)))


def _both(usage: Usage | None, more: Usage | None) -> Usage | None:
    if usage is None or more is None:
        return usage or more
    return usage + more
