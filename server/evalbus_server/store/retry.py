"""Results that are to be replaced: marked, so that they count as open, and replaced once the new ones come.

What stood there before is kept among the attempts of its trial, as the last of the sessions before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from evalbus import Failure, FailureCategory, FailureOrigin, Usage
from evalbus_server.model.run import Outcome, ScoreKey
from evalbus_server.model.trial import AttemptRecord, Changes, epoch_of, position_of
from evalbus_server.store import rows
from evalbus_server.store.connection import Connection
from evalbus_server.store.documents import dumps
from evalbus_server.store.runs import OfRun
from evalbus_server.store.trials import so_far

_ERRORED_SCORE = 3
_LAST = 999
"""Attempts are numbered session * 1000 + n."""
_MARK_RESULTS = f"""
    INSERT OR IGNORE INTO retry (run, trial, key, scorer)
    SELECT run, ((epoch - 1) << 32) + position, -1, -1 FROM result r
    WHERE run = :run AND outcome = {Outcome.ERRORED.value} AND (:outputs = :run OR EXISTS (
        SELECT 1 FROM output o WHERE o.run = :outputs AND o.trial = ((r.epoch - 1) << 32) + r.position
    ))
"""
_MARK_UNANSWERED = f"""
    INSERT OR IGNORE INTO retry (run, trial, key, scorer)
    SELECT run, ((epoch - 1) << 32) + position, -1, -1 FROM result r
    WHERE run = :run AND :outputs = :run AND outcome = {Outcome.ERRORED.value} AND NOT EXISTS (
        SELECT 1 FROM output o WHERE o.run = :outputs AND o.trial = ((r.epoch - 1) << 32) + r.position
    )
"""
_MARKED_WITHOUT_SCORES = """
    SELECT trial FROM retry m WHERE run = :run AND key = -1
    AND NOT EXISTS (SELECT 1 FROM retry k WHERE k.run = m.run AND k.trial = m.trial AND k.key >= 0)
"""
_MARKED = "SELECT trial FROM retry WHERE run = :run AND key = -1"
_SCORES = f"SELECT trial, {rows.SCORE} FROM score WHERE {rows.OF_TRIALS}"
_COUNT_AGAIN = f"""
    UPDATE result SET attempts = ?, {", ".join(f"{column.strip()} = ?" for column in rows.USAGE.split(","))}
    WHERE run = ? AND position = ? AND epoch = ?
"""
_GIVEN_UP = Failure(FailureCategory.CANCELLED, "the retry was cancelled", "CANCELLED", FailureOrigin.SERVER, False)
_MARK_SCORES = """
    INSERT OR IGNORE INTO retry (run, trial, key, scorer)
    SELECT m.run, m.trial, k.value, :scorer FROM retry m
    CROSS JOIN score s ON s.run = m.run AND s.trial = m.trial CROSS JOIN json_each(:keys) k
    WHERE m.run = :run AND m.key = -1 AND s.status = :errored AND s.key IN (SELECT value FROM json_each(:keys))
"""
_MARKS = """
    SELECT m.trial, m.key, m.scorer FROM json_each(?) j CROSS JOIN retry m ON m.run = ? AND m.trial = j.value
"""
_TAKE_MARK = "DELETE FROM retry WHERE run = ? AND trial = ? AND key = ?"
_TAKE_MARKS = "DELETE FROM retry WHERE run = ? AND trial = ?"
_OLD_SCORE = f"SELECT {rows.SCORE} FROM score WHERE run = ? AND trial = ? AND key = ?"
_OLD_SCORES = f"SELECT {rows.SCORE} FROM score WHERE run = ? AND trial = ?"
_TAKE_SCORE = "DELETE FROM score WHERE run = ? AND trial = ? AND key = ?"
_OLD_RESULT = "SELECT failure FROM result WHERE run = ? AND position = ? AND epoch = ?"
_TAKE_RESULT = "DELETE FROM result WHERE run = ? AND position = ? AND epoch = ?"
_KNOWN = "SELECT 1 FROM attempt WHERE run = ? AND trial = ? AND failure = ?"
_NUMBERS = "SELECT attempt FROM attempt WHERE run = ? AND trial = ? AND role = ?"


def mark(connection: Connection, run: int, outputs: int, keys: Sequence[ScoreKey], *, kept: bool) -> int:
    """Mark what is ERRORED in the open transaction, and return how many trials have a mark.

    Where a run scores the *outputs* of another one, there is nobody to make one that is missing. If they are not *kept*,
    there is nothing that its scorers could be asked about.
    """
    connection.execute(_MARK_RESULTS if kept else _MARK_UNANSWERED, {"run": run, "outputs": outputs})
    for scorer in sorted({key.scorer for key in keys}):
        own = dumps([place for place, key in enumerate(keys) if key.scorer == scorer])
        connection.execute(_MARK_SCORES, {"run": run, "scorer": scorer, "keys": own, "errored": _ERRORED_SCORE})
    return left(connection, run)


def give_up(of: OfRun, now: float) -> None:
    """Let what is marked stand, in the open transaction, without what has come for it so far; that was consumed, though.

    A trial whose target had failed has no mark for a score; a new output of it is kept among the attempts.
    """
    connection, run = of.connection, of.number
    marked = [trial for (trial,) in connection.rows(_MARKED, {"run": run})]
    trials = [trial for (trial,) in connection.rows(_MARKED_WITHOUT_SCORES, {"run": run})]
    of_trials = {"run": run, "trials": dumps(trials)}
    take_back(of, of_trials, _GIVEN_UP, now)
    connection.execute("DELETE FROM retry WHERE run = :run", {"run": run})
    for trial, (attempts, usage) in so_far(of, marked).items():
        connection.execute(_COUNT_AGAIN, (attempts, *rows.usage_row(usage), run, position_of(trial), epoch_of(trial)))


def take_back(of: OfRun, of_trials: dict[str, object], why: Failure, now: float) -> None:
    """Make outputs of trials failed attempts, in the open transaction, and their scores too: what they consumed counts."""
    connection = of.connection
    failure = rows.write_failure(why)
    connection.execute(rows.OUTPUTS_TO_ATTEMPTS, {**of_trials, "now": now, "failure": failure})
    keeper = _Keeper(connection.raw, of.number, of.run.session + 1, now)
    for trial, *columns in connection.rows(_SCORES, of_trials):
        key, stored = rows.read_score(tuple(columns))
        if stored.score.usage is not None:
            keeper.among_attempts(trial, of.run.score_keys[key].scorer, why, stored.score.usage)
    for table in ("score", "output"):
        connection.execute(f"DELETE FROM {table} WHERE {rows.OF_TRIALS}", of_trials)


def left(connection: Connection, run: int) -> int:
    """How many results are still to be replaced."""
    found = connection.row("SELECT count(*) FROM retry WHERE run = ? AND key = -1", (run,))
    return found[0] if found else 0


def marks(raw: sqlite3.Connection, run: int, trial_ids: Sequence[int]) -> dict[tuple[int, int], int]:
    """The scorer of each marked trial and key, of those among *trial_ids*."""
    return {(trial, key): scorer for trial, key, scorer in raw.execute(_MARKS, (dumps(list(trial_ids)), run))}


def make_room(raw: sqlite3.Connection, run: int, changes: Changes, now: float) -> int:
    """Take away, in the open transaction, what the changes replace; returns how many results, all of them ERRORED."""
    touched = [record.trial_id for record in changes.scores] + [record.trial_id for record in changes.results]
    marked = marks(raw, run, touched)
    if not marked:
        return 0
    (session,) = raw.execute("SELECT session FROM progress WHERE run = ?", (run,)).fetchone()
    keep = _Keeper(raw, run, session, now)
    for score in changes.scores:
        scorer = marked.pop((score.trial_id, score.key), None)
        if scorer is None:
            continue
        place = (run, score.trial_id, score.key)
        for row in raw.execute(_OLD_SCORE, place).fetchall():
            _, old = rows.read_score(row)
            if old.score.failure is not None:
                keep.among_attempts(score.trial_id, scorer, old.score.failure, old.score.usage)
        raw.execute(_TAKE_SCORE, place)
        raw.execute(_TAKE_MARK, place)
    replaced = 0
    for result in changes.results:
        if marked.pop((result.trial_id, -1), None) is None:
            continue
        replaced += 1
        where = (run, position_of(result.trial_id), epoch_of(result.trial_id))
        for (text,) in raw.execute(_OLD_RESULT, where).fetchall():
            failure = rows.read_failure(text)
            if failure is None or _found_again(failure, result.failure) or keep.stands(result.trial_id, failure):
                continue
            keep.among_attempts(result.trial_id, -1, failure, None)
        raw.execute(_TAKE_RESULT, where)
        raw.execute(_TAKE_MARKS, (run, result.trial_id))  # also of scores, where nobody was asked for them any more
    return replaced


def _found_again(before: Failure, now: Failure | None) -> bool:
    """Whether the server has found the same again, such as that an item was purged: that was no attempt of anybody."""
    return before.origin is FailureOrigin.SERVER and now is not None and now.reason == before.reason


class _Keeper:
    """Keeps failures that stood in a result, unless an attempt has them already."""

    def __init__(self, raw: sqlite3.Connection, run: int, session: int, now: float) -> None:
        """They are numbered as the last ones before a *session*."""
        self._raw = raw
        self._run = run
        self._last = (session - 1) * 1000 + _LAST
        self._now = now

    def stands(self, trial_id: int, failure: Failure) -> bool:
        """Whether it is a failure of a score that stays, since its scorer was not asked again: then it is kept there."""
        scores = self._raw.execute(_OLD_SCORES, (self._run, trial_id)).fetchall()
        return any(rows.read_score(row)[1].score.failure == failure for row in scores)

    def among_attempts(self, trial_id: int, role: int, failure: Failure, usage: Usage | None) -> None:
        """Keep one, of a trial and of who was asked, with what that took, in the open transaction."""
        text = rows.write_failure(failure)
        known = self._raw.execute(_KNOWN, (self._run, trial_id, text)).fetchone()
        if known is not None and usage is None:
            return
        taken = {number for (number,) in self._raw.execute(_NUMBERS, (self._run, trial_id, role))}
        number = self._last
        while number in taken:
            number -= 1
        record = AttemptRecord(trial_id, role, number, failure, usage, self._now, 0.0)
        for columns, found in rows.attempt_rows(self._run, [record]).items():
            self._raw.executemany(rows.insert("attempt", columns), found)
