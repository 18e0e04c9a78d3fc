"""The hot path: what happened to many trials of a run, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from evalbus_server.errors import Reason, StoreTrouble
from evalbus_server.model.event import TrialsEnded
from evalbus_server.model.run import Counts, Outcome
from evalbus_server.model.trial import Changes, ResultRecord, epoch_of, position_of
from evalbus_server.store import events, retry, rows
from evalbus_server.store.connection import Connection, is_repetition, trouble
from evalbus_server.store.documents import dumps, loads
from evalbus_server.store.runs import Standing

T = TypeVar("T")

_BLOCK = 64
"""Rows that one statement stores: 64 at once take a third less than one by one, and the interpreter is let go less often."""
_STANDS = """
    UPDATE progress SET passed = ?, failed = ?, errored = ?, skipped = ?, last_sequence = ?, era = ? WHERE run = ?
"""
_STORED_OUTPUTS = "SELECT trial FROM output WHERE run = ? AND trial IN (SELECT value FROM json_each(?))"
_STORED_SCORES = """
    SELECT s.trial, s.key FROM json_each(?) j CROSS JOIN score s ON s.run = ? AND s.trial = j.value
"""
_STORED_ATTEMPTS = """
    SELECT a.trial, a.role, a.attempt FROM json_each(?) j CROSS JOIN attempt a ON a.run = ? AND a.trial = j.value
"""
_STORED_RESULTS = """
    SELECT j.value FROM json_each(?) j
    CROSS JOIN result r ON r.run = ? AND r.position = j.value & 4294967295 AND r.epoch = (j.value >> 32) + 1
"""


class Stamp(NamedTuple):
    """What events are given."""

    now: float
    era: int


class Committed(NamedTuple):
    """What a commit made true."""

    last_n: int
    """The number of the run's last output."""
    sequence: int | None
    """The number of the event about results; None without results."""
    counts: Counts
    """Afterwards."""
    repeated_outputs: tuple[int, ...] = ()
    """Trial ids whose outputs were not stored, since there was one already: that one stands."""
    repeated_results: tuple[int, ...] = ()
    """The same for results."""


def commit(
    connection: Connection, standing: Standing, changes: Changes, stamp: Stamp, *, at_once: bool
) -> tuple[Committed, Standing]:
    """Store changes of a run, all or nothing. What is stored already stays as it is.

    *at_once*: fail, and do not wait, while somebody else writes.

    Raises:
        StoreTrouble: nothing was stored; DATABASE_LOCKED: somebody else writes just now.
    """
    try:
        return _write(connection, standing, changes, stamp, at_once)
    except sqlite3.IntegrityError as error:
        connection.roll_back()
        if not is_repetition(error):
            raise _refusal(error, connection, changes) from error
    except (sqlite3.Error, OverflowError, ValueError) as error:
        connection.roll_back()
        raise _refusal(error, connection, changes) from error
    except BaseException:
        connection.roll_back()
        raise
    fresh, outputs, results = _without_repetitions(connection, standing.run, changes)
    if fresh == changes:
        raise StoreTrouble(Reason.INTERNAL, f"{connection.path} was changed by another program: nothing was stored")
    committed, after = commit(connection, standing, fresh, stamp, at_once=at_once)
    return committed._replace(repeated_outputs=outputs, repeated_results=results), after


def _write(
    connection: Connection, standing: Standing, changes: Changes, stamp: Stamp, at_once: bool
) -> tuple[Committed, Standing]:
    raw = connection.raw
    run = standing.run
    outputs, scores, attempts, results = changes
    # The rows are made before the file is locked.
    output_rows = rows.output_rows(run, standing.outputs + 1, outputs)
    score_rows = rows.score_rows(run, scores)
    attempt_rows = rows.attempt_rows(run, attempts)
    result_rows = rows.result_rows(run, results)
    connection.begin(at_once=at_once)
    if standing.retrying:
        replaced = retry.make_room(raw, run, changes, stamp.now)
        counts = standing.counts
        standing = replace(standing, counts=replace(counts, errored=counts.errored - replaced))
    _insert(raw, "output", output_rows)
    _insert(raw, "score", score_rows)
    _insert(raw, "attempt", attempt_rows)
    after = replace(standing, outputs=standing.outputs + len(outputs))
    if results:
        _insert(raw, "result", result_rows)
        after = _tell(raw, after, results, stamp)
    raw.execute("COMMIT")
    connection.note_commit()
    sequence = after.sequence if results else None
    return Committed(after.outputs, sequence, after.counts), after


def _insert(raw: sqlite3.Connection, table: str, batch: rows.Batch) -> None:
    for columns, found in batch.items():
        whole = len(found) - len(found) % _BLOCK
        for first in range(0, whole, _BLOCK):
            cells = [cell for row in found[first : first + _BLOCK] for cell in row]
            raw.execute(rows.insert(table, columns, _BLOCK), cells)
        if whole < len(found):
            raw.executemany(rows.insert(table, columns), found[whole:])


def _tell(raw: sqlite3.Connection, standing: Standing, results: Sequence[ResultRecord], stamp: Stamp) -> Standing:
    """Write the event about results, and the counts after them."""
    run = standing.run
    outcomes = [result.outcome for result in results]
    counts = standing.counts.plus(*(outcomes.count(outcome) for outcome in Outcome))
    sequence = standing.next_sequence(stamp.era)
    fact = TrialsEnded(tuple((result.trial_id, result.outcome) for result in results), counts)
    raw.execute(events.INSERT_EVENT, (run, sequence, stamp.now, "trials", events.body_of(fact)))
    raw.execute(_STANDS, (counts.passed, counts.failed, counts.errored, counts.skipped, sequence, stamp.era, run))
    return replace(standing, sequence=sequence, counts=counts, era=stamp.era)


def _without_repetitions(
    connection: Connection, run: int, changes: Changes
) -> tuple[Changes, tuple[int, ...], tuple[int, ...]]:
    """The changes that are not stored yet, and the trial ids of the outputs and results that were left out."""
    outputs, scores, attempts, results = changes
    trials = dumps(
        [record.trial_id for record in outputs]
        + [record.trial_id for record in scores]
        + [record.trial_id for record in attempts]
        + [record.trial_id for record in results]
    )
    stored = {row[0] for row in connection.rows(_STORED_OUTPUTS, (run, trials))}
    kept_outputs, left_outputs = _first_of_each(outputs, lambda record: record.trial_id, stored)
    marked = retry.marks(connection.raw, run, loads(trials))  # these are to be replaced
    stored_scores = set(connection.rows(_STORED_SCORES, (trials, run))) - marked.keys()
    kept_scores, _ = _first_of_each(scores, lambda record: (record.trial_id, record.key), stored_scores)
    stored_attempts = set(connection.rows(_STORED_ATTEMPTS, (trials, run)))
    kept_attempts, _ = _first_of_each(
        attempts, lambda record: (record.trial_id, record.role, record.attempt), stored_attempts
    )
    stored = {row[0] for row in connection.rows(_STORED_RESULTS, (trials, run)) if (row[0], -1) not in marked}
    kept_results, left_results = _first_of_each(results, lambda record: record.trial_id, stored)
    return (
        Changes(kept_outputs, kept_scores, kept_attempts, kept_results),
        tuple(record.trial_id for record in left_outputs),
        tuple(record.trial_id for record in left_results),
    )


def _first_of_each(records: Sequence[T], key: Callable[[T], object], stored: set[Any]) -> tuple[list[T], list[T]]:
    """The first record for each key that is not among *stored*, and all others."""
    seen = set(stored)
    kept: list[T] = []
    left: list[T] = []
    for record in records:
        if key(record) in seen:
            left.append(record)
        else:
            seen.add(key(record))
            kept.append(record)
    return kept, left


def _refusal(error: Exception, connection: Connection, changes: Changes) -> Exception:
    """The error for a failed commit; names the trial if a value of it has no form in the database."""
    if isinstance(error, sqlite3.Error) and not isinstance(error, (sqlite3.IntegrityError, sqlite3.DataError)):
        return trouble(error, connection.path)
    for what, make, records in (
        ("output", lambda record: rows.output_rows(0, 1, [record]), changes.outputs),
        ("score", lambda record: rows.score_rows(0, [record]), changes.scores),
        ("failed attempt", lambda record: rows.attempt_rows(0, [record]), changes.attempts),
        ("result", lambda record: rows.result_rows(0, [record]), changes.results),
    ):
        for record in records:
            fault = _fault(make, record)
            if fault:
                where = f"item {position_of(record.trial_id) + 1} in epoch {epoch_of(record.trial_id)}"
                return StoreTrouble(Reason.INTERNAL, f"the {what} of {where} cannot be stored: {fault}")
    return StoreTrouble(Reason.INTERNAL, f"something of a trial cannot be stored: {error}")


def _fault(make: Callable[[Any], rows.Batch], record: object) -> str:
    """What is wrong with the row of a record; "" for nothing that can be seen without the database."""
    try:
        for cell in (cell for found in make(record).values() for row in found for cell in row):
            if isinstance(cell, str):
                cell.encode()
            elif isinstance(cell, int) and not -(2**63) <= cell < 2**63:
                return f"{cell} has more than 63 bits"
    except (OverflowError, ValueError) as error:
        return str(error)
    return ""
