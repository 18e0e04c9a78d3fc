"""Which stored output a target once gave, by the digest of all that it was asked with: so it need not be asked again.

An entry holds no content; it names a trial whose output has it. What is purged or deleted there is gone here as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from evalbus import Output
from evalbus_server.store import rows
from evalbus_server.store.connection import Connection
from evalbus_server.store.documents import dumps

MOST = 1_000_000
"""So many answers are remembered; the oldest are forgotten first."""
_AT_ONCE = 1_000

FIND_CACHED = f"""
    SELECT j.value, {rows.qualified("o", rows.OUTPUT)} FROM json_each(:keys) j
    CROSS JOIN cached c ON c.key = j.value CROSS JOIN output o ON o.run = c.run AND o.trial = c.trial
"""
OLDEST_CACHED = "SELECT key FROM cached ORDER BY run, trial LIMIT ?"
_NO_USAGE = (None,) * rows.USAGE_WIDTH


class Remembered(NamedTuple):
    """An output that was given before."""

    output: Output
    """Without its usage: that was spent once."""
    size: int
    """About how many bytes it has."""


def find(connection: Connection, keys: Sequence[str]) -> dict[str, Remembered]:
    """The outputs that are remembered under some keys."""
    found = {}
    for key, *columns in connection.rows(FIND_CACHED, {"keys": dumps(list(keys))}):
        content = tuple(columns[rows.USAGE_WIDTH :])
        size = sum(len(cell) for cell in content if isinstance(cell, str | bytes))
        found[key] = Remembered(rows.read_output((*_NO_USAGE, *content)), size)
    return found


def remember(connection: Connection, run: int, answers: Iterable[tuple[str, int]]) -> None:
    """Remember the outputs of trials of a run, by their keys; the newest one counts."""
    with connection.transaction():
        for key, trial_id in answers:
            connection.execute("INSERT OR REPLACE INTO cached (key, run, trial) VALUES (?, ?, ?)", (key, run, trial_id))


def count(connection: Connection) -> int:
    """How many answers are remembered."""
    found = connection.row("SELECT count(*) FROM cached")
    return int(found[0]) if found else 0


def forget(connection: Connection, keep: int = 0) -> Iterator[int]:
    """Forget all but the *keep* newest answers, step by step; yields how many each step has taken."""
    left = count(connection) - keep
    while left > 0:
        with connection.transaction():
            gone = connection.execute(f"DELETE FROM cached WHERE key IN ({OLDEST_CACHED})", (min(left, _AT_ONCE),))
        if not gone:
            return
        left -= gone
        yield gone
