"""Runs that are deleted: gone after the first step, their rows page by page after it."""

from __future__ import annotations

from collections.abc import Iterator

from evalbus_server.errors import Reason, Unfit
from evalbus_server.store.connection import Connection

_AT_ONCE = 1_000
"""About so many rows go in one step."""
_PLACES = {
    "chosen": "part",
    "cached": "trial",
    "retry": "trial",
    "attempt": "trial",
    "score": "trial",
    "result": "position",
    "output": "trial",
    "metric": "key",
    "event": "sequence",
    "kept_summary": "run",
}
"""What holds rows of a run, and in what order they are."""


def delete(connection: Connection, run: int, run_id: str) -> Iterator[None]:
    """Delete a run, step by step.

    Raises:
        Unfit: RUN_IN_USE: another run scores its outputs.
    """
    using = connection.rows("SELECT id FROM run WHERE source = ? LIMIT 3", (run,))
    if using:
        told = ", ".join(id for (id,) in using)
        raise Unfit(Reason.RUN_IN_USE, f"the outputs of run {run_id} are scored by {told}: delete that first")
    with connection.transaction(durable=True):
        connection.execute("DELETE FROM progress WHERE run = ?", (run,))  # without it nobody finds the run
        connection.execute("UPDATE run SET request_id = NULL WHERE n = ?", (run,))
    yield
    yield from _remove(connection, run)


def finish(connection: Connection) -> None:
    """Delete what is left of runs whose deletion was broken off."""
    for (run,) in connection.rows("SELECT n FROM run WHERE NOT EXISTS (SELECT 1 FROM progress p WHERE p.run = run.n)"):
        for _ in _remove(connection, run):
            pass


def _remove(connection: Connection, run: int) -> Iterator[None]:
    for table, place in _PLACES.items():
        after_the_page = f"SELECT {place} FROM {table} WHERE run = ? ORDER BY {place} LIMIT 1 OFFSET {_AT_ONCE}"
        while (last := connection.row(after_the_page, (run,))) is not None:
            with connection.transaction():
                connection.execute(f"DELETE FROM {table} WHERE run = ? AND {place} <= ?", (run, last[0]))
            yield
        with connection.transaction():
            connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
        yield
    with connection.transaction():
        connection.execute("DELETE FROM run WHERE n = ?", (run,))
