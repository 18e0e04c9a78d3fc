"""The content of an item taken out of everything that holds it: all versions, outputs, scores, failures.

What stays are ids, numbers and outcomes. There is no new version. The digests of the versions that had the item are made
again, since they would tell whether somebody has guessed its content. On disk, freed bytes are overwritten
(`secure_delete`), and the caller cuts the log. A purge is done in steps; one that was broken off is finished when the
database is opened again.

Rows are purged, not ids: what comes in later from trials of such a row is scrubbed before it is stored, while an item
that is imported under its id afterwards is another row, and kept. Only the placeholder that comes back under its id, by
a restore or an edit of other parts, is a purged row again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from evalbus import Failure, FailureOrigin, Item, Output, Score
from evalbus_server.errors import NotFound, Reason
from evalbus_server.model.dataset import Purged
from evalbus_server.model.trial import POSITION_MASK, Changes
from evalbus_server.store import rows
from evalbus_server.store.connection import Connection, Row
from evalbus_server.store.datasets import AS_OF, find, number
from evalbus_server.store.digest import Content

GONE = "[purged]"
"""Stands where content was."""
ITEM_PURGED = "ITEM_PURGED"
"""The reason of the failure of trials of purged items."""

_ROWS = f"SELECT n, position, first_version, last_version, {rows.ITEM} FROM item WHERE dataset = ? AND id = ?"
_VERSIONS = """
    SELECT version, sum FROM dataset_version WHERE dataset = ? AND version >= ? AND version <= ? ORDER BY version
"""
_BEFORE = f"""
    SELECT i.id FROM item i WHERE i.dataset = :dataset AND i.position < :position AND {AS_OF}
    ORDER BY i.position DESC LIMIT 1
"""
_RUNS = """
    SELECT n, epochs FROM run WHERE dataset = ? AND dataset_version >= ? AND dataset_version <= ?
"""
_POSITIONS = """
    SELECT i.position FROM run r CROSS JOIN purged p ON p.dataset = r.dataset
    CROSS JOIN item i ON i.n = p.item AND i.dataset = p.dataset AND i.first_version <= r.dataset_version
    AND (i.last_version IS NULL OR i.last_version >= r.dataset_version)
    WHERE r.n = ?
"""
_MARK = """
    INSERT INTO purged (dataset, item, purged_at, done) SELECT dataset, n, :now, 0 FROM item
    WHERE dataset = :dataset AND id = :id ON CONFLICT DO UPDATE SET done = 0
"""
_CARRY = """
    INSERT OR IGNORE INTO purged (dataset, item, purged_at, done)
    SELECT i.dataset, i.n, :now, 1 FROM item i INDEXED BY item_id
    WHERE i.dataset = :dataset AND i.id = :id AND i.last_version IS NULL AND EXISTS (
        SELECT 1 FROM item o INDEXED BY item_id CROSS JOIN purged p ON p.dataset = o.dataset AND p.item = o.n
        WHERE o.dataset = :dataset AND o.id = :id)
"""
_UNDONE = """
    SELECT DISTINCT p.dataset, i.id FROM purged p CROSS JOIN item i ON i.n = p.item AND i.dataset = p.dataset
    WHERE NOT p.done
"""
_DONE = """
    UPDATE purged SET done = 1
    WHERE dataset = :dataset AND item IN (SELECT n FROM item WHERE dataset = :dataset AND id = :id)
"""
_NO_END = 1 << 62
_TRIALS_AT_ONCE = 64

Note: TypeAlias = Callable[[int, Sequence[int]], object]
"""Is told the number of a run, and which of its trials were scrubbed."""


class Purge:
    """A purge on its way: the items are marked first, so that nothing new is kept of them and a purge that was broken
    off can be finished; then their content goes, some of it at each step.
    """

    def __init__(self, connection: Connection, dataset: int, note: Note) -> None:
        """*note* is told in the open transaction which trials of a run were scrubbed."""
        self._connection = connection
        self._dataset = dataset
        self._note = note

    def mark(self, name: str, ids: Sequence[str], now: float) -> None:
        """Mark items of a dataset.

        Raises:
            NotFound: ITEM_NOT_FOUND: an id never was there; nothing was marked.
        """
        with self._connection.transaction(durable=True):
            for id in ids:
                if not self._connection.execute(_MARK, {"dataset": self._dataset, "id": id, "now": now}):
                    text = f"the dataset {name!r} never had an item {id!r}; nothing was purged"
                    raise NotFound(Reason.ITEM_NOT_FOUND, text)

    def steps(self, ids: Iterable[str]) -> Generator[None, None, Purged]:
        """Take the content of marked items out, some of it at each step; returns what was reached."""
        reached = results = 0
        for id in ids:
            for row in self._connection.rows(_ROWS, (self._dataset, id)):
                # Who judges it stays: the numbers of its runs are counted by that.
                empty = rows.item_row(Item(id, GONE, scorers=rows.read_item(row[4:]).scorers))
                with self._connection.transaction():
                    _scrub_item(self._connection, self._dataset, row, empty)
                reached += 1
                yield
                results += yield from self._runs(row)
            with self._connection.transaction(durable=True):
                self._connection.execute(_DONE, {"dataset": self._dataset, "id": id})
            yield
        return Purged(reached, results)

    def _runs(self, row: Row) -> Generator[None, None, int]:
        _, position, first, last = row[:4]
        scrubbed = 0
        for run, epochs in self._connection.rows(_RUNS, (self._dataset, first, _NO_END if last is None else last)):
            for begin in range(0, epochs, _TRIALS_AT_ONCE):
                trials = [epoch << 32 | position for epoch in range(begin, min(begin + _TRIALS_AT_ONCE, epochs))]
                with self._connection.transaction():
                    reached = [trial for trial in trials if _scrub_trial(self._connection, run, trial)]
                    if reached:
                        self._note(run, reached)
                scrubbed += len(reached)
                yield
        return scrubbed


def begin(
    connection: Connection, name: str, ids: Sequence[str], now: float, note: Note
) -> Generator[None, None, Purged]:
    """Mark items as purged; the steps that are returned take their content out of everything.

    Raises:
        NotFound: DATASET_NOT_FOUND; ITEM_NOT_FOUND: an id never was there; nothing was purged.
    """
    find(connection, name)
    begun = Purge(connection, number(connection, name), note)
    begun.mark(name, ids, now)
    return begun.steps(ids)


def finish(connection: Connection, note: Note) -> bool:
    """Finish purges that were broken off; whether there were any."""
    undone = connection.rows(_UNDONE)
    for dataset, id in undone:
        for _ in Purge(connection, dataset, note).steps([id]):
            pass
    return bool(undone)


def is_any(connection: Connection) -> bool:
    """Whether something was ever purged."""
    return bool(connection.rows("SELECT 1 FROM purged LIMIT 1"))


def is_placeholder(row: Sequence[object]) -> bool:
    """Whether the columns of an item have what stands where content was. Somebody's own text may be just so."""
    return row[1] == GONE and row[2] is None


def carry(connection: Connection, dataset: int, ids: Iterable[str], now: float) -> None:
    """Mark placeholders of a version that is being published in the open transaction, by their ids: they are purged as
    well where an earlier row of the id is.
    """
    for id in ids:
        connection.execute(_CARRY, {"dataset": dataset, "id": id, "now": now})


def positions(connection: Connection, run: int) -> frozenset[int]:
    """The positions of purged items in a run."""
    return frozenset(row[0] for row in connection.rows(_POSITIONS, (run,)))


def scrubbed(changes: Changes, purged: frozenset[int]) -> Changes:
    """Changes without what they say about purged items."""

    def gone(trial_id: int) -> bool:
        return trial_id & POSITION_MASK in purged

    return Changes(
        [each._replace(output=output(each.output)) if gone(each.trial_id) else each for each in changes.outputs],
        [each._replace(score=score(each.score)) if gone(each.trial_id) else each for each in changes.scores],
        [each._replace(failure=failure(each.failure)) if gone(each.trial_id) else each for each in changes.attempts],
        [
            each._replace(failure=failure(each.failure)) if each.failure is not None and gone(each.trial_id) else each
            for each in changes.results
        ],
    )


def output(made: Output) -> Output:
    """An output without content."""
    return Output(None if made.content is None else GONE, usage=made.usage, timing=made.timing)


def score(given: Score, gone: str = GONE) -> Score:
    """A score without words."""
    fault = None if given.failure is None else failure(given.failure, gone)
    bare = Score(given.status, given.value, name=given.name, failure=fault, usage=given.usage)
    return replace_explanation(bare, given, gone)


def replace_explanation(bare: Score, given: Score, gone: str) -> Score:
    """Say that there was an explanation, if there was one."""
    if given.explanation:
        object.__setattr__(bare, "explanation", gone)
    return bare


def failure(fault: Failure, gone: str = GONE) -> Failure:
    """A failure without words, but for ours that says why there are none."""
    if fault.reason == ITEM_PURGED and fault.origin is FailureOrigin.SERVER:
        return fault
    return replace(fault, message=gone, details_json="")


def _scrub_item(connection: Connection, dataset: int, row: Row, empty: Row) -> None:
    n, position, first, last = row[:4]
    if tuple(row[4:]) == empty:
        return
    end = _NO_END if last is None else last
    for version, stored in connection.rows(_VERSIONS, (dataset, first, end)):
        where = {"dataset": dataset, "position": position, "version": version}
        found = connection.row(_BEFORE, where)
        before = None if found is None else found[0]
        content = Content(stored)
        content.remove(before, tuple(row[4:]))
        content.add(before, empty)
        connection.execute(
            "UPDATE dataset_version SET sum = ?, digest = ? WHERE dataset = ? AND version = ?",
            (content.stored, content.digest, dataset, version),
        )
    columns = ", ".join(f"{column.strip()} = ?" for column in rows.ITEM.split(","))
    connection.execute(f"UPDATE item SET {columns} WHERE n = ?", (*empty, n))


def _scrub_trial(connection: Connection, run: int, trial: int) -> bool:
    key = (run, trial)
    connection.execute("DELETE FROM cached WHERE run = ? AND trial = ?", key)
    reached = connection.execute(
        "UPDATE output SET content = iif(content IS NULL, NULL, ?), content_type = NULL, answer = NULL,"
        " answer_type = NULL, metadata = NULL, detail = NULL WHERE run = ? AND trial = ?",
        (GONE, *key),
    )
    for place, *columns in connection.rows(f"SELECT key, {rows.SCORE} FROM score WHERE run = ? AND trial = ?", key):
        _, stored = rows.read_score(tuple(columns))
        bare = score(stored.score)
        detail = rows.score_detail(bare)
        connection.execute(
            "UPDATE score SET label = '', explanation = ?, detail = ? WHERE run = ? AND trial = ? AND key = ?",
            (bare.explanation, detail, *key, place),
        )
    for role, attempt, text in connection.rows(
        "SELECT role, attempt, failure FROM attempt WHERE run = ? AND trial = ?", key
    ):
        connection.execute(
            "UPDATE attempt SET failure = ? WHERE run = ? AND trial = ? AND role = ? AND attempt = ?",
            (_scrubbed_text(text), *key, role, attempt),
        )
    place_of = (run, trial & POSITION_MASK, (trial >> 32) + 1)
    found = connection.row("SELECT failure FROM result WHERE run = ? AND position = ? AND epoch = ?", place_of)
    if found is not None and found[0] is not None:
        connection.execute(
            "UPDATE result SET failure = ? WHERE run = ? AND position = ? AND epoch = ?",
            (_scrubbed_text(found[0]), *place_of),
        )
    return bool(reached) or found is not None


def _scrubbed_text(text: str) -> str:
    found = rows.read_failure(text)
    assert found is not None
    return rows.write_failure(failure(found))
