"""The write-ahead log stays short, whoever reads meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from evalbus_server.store import RunLog, Store, checkpoint, open_reader, open_store
from tests.unit.server.store.making import changes, output, result, started, whole

MEBIBYTE = 1 << 20


def log_size(store: Store) -> int:
    return Path(f"{store.path}-wal").stat().st_size


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


async def test_a_reader_that_stops_halfway_does_not_make_the_log_grow(store: Store) -> None:
    """ST-03: no read transaction is held while a client thinks; the log is bounded, and small again when idle."""
    run = started(store, 12_000)
    sizes: list[int] = []
    runlog = RunLog(store, run, lambda *_: sizes.append(log_size(store)), lambda trouble: None)
    for position in range(100):
        runlog.add(outputs=[output(position, said="x" * 2000)], results=[result(position)])
    await runlog.flush()
    with open_reader(store.path) as reader:
        first = reader.results(run, limit=50)

        for begin in range(100, 12_000, 100):
            runlog.add(
                outputs=[output(position, said="x" * 1000) for position in range(begin, begin + 100)],
                results=[result(position) for position in range(begin, begin + 100)],
            )
            await asyncio.sleep(0.005)
        await runlog.flush()

        rest = reader.results(run, after=(49, 1), limit=50)
        assert [found.item.id for found in first + rest] == [f"q{i}" for i in range(100)]
        assert max(sizes) < 64 * MEBIBYTE
        await asyncio.to_thread(wait_until, lambda: log_size(store) < 4 * MEBIBYTE)


def test_an_idle_log_is_cut_to_nothing(store: Store) -> None:
    run = started(store)
    store.commit(run.id, whole(range(5)))
    assert log_size(store) > 0

    wait_until(lambda: log_size(store) == 0)

    store.commit(run.id, whole(range(5, 7)))
    assert store.counts(run).passed == 7


def test_a_foreign_reader_that_holds_a_transaction_harms_nothing(store: Store) -> None:
    run = started(store, 200)
    foreign = sqlite3.connect(store.path, isolation_level=None)
    foreign.execute("BEGIN")
    seen = foreign.execute("SELECT count(*) FROM output").fetchone()
    for position in range(200):
        store.commit(run.id, whole([position]))
    time.sleep(1.5)

    assert foreign.execute("SELECT count(*) FROM output").fetchone() == seen == (0,)
    foreign.execute("COMMIT")
    assert foreign.execute("SELECT count(*) FROM output").fetchone() == (200,)
    assert foreign.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    foreign.close()
    wait_until(lambda: log_size(store) == 0)


def test_no_checkpoint_begins_while_all_of_the_log_may_be_moved(store: Store) -> None:
    """SQLite before 3.51.3 may lose a commit that begins the log anew in that instant."""
    checkpointer = store._checkpointer
    run = started(store)
    checkpointer.close()
    raw = sqlite3.connect(store.path, isolation_level=None)
    asked: list[str] = []
    raw.set_trace_callback(asked.append)

    checkpointer._move(raw)
    checkpointer._move(raw)
    store.commit(run.id, whole([0]))
    checkpointer._move(raw)
    assert asked == ["PRAGMA wal_checkpoint(PASSIVE)"]
    store.commit(run.id, whole([1]))
    checkpointer._move(raw)
    assert asked == ["PRAGMA wal_checkpoint(PASSIVE)"] * 2

    assert checkpointer._begin_anew(raw)
    checkpointer._move(raw)
    assert asked[2:] == [
        "PRAGMA wal_checkpoint(RESTART)",
        "UPDATE recovery SET clean = 0",
        "PRAGMA wal_checkpoint(PASSIVE)",
    ]
    raw.close()


def test_a_long_log_begins_anew_while_commits_go_on(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(checkpoint, "_LONG", 100_000)
    run = started(store, 2000)
    end = time.monotonic() + 1.5
    sizes = []
    position = 0
    while time.monotonic() < end:
        store.commit(run.id, changes(outputs=[output(position, said="x" * 1000)]))
        sizes.append(log_size(store))
        position += 1
        time.sleep(0.001)

    assert max(sizes) < 40 * MEBIBYTE
    assert store.output_count(run) == position


def test_the_thread_ends_with_the_store(path: Path) -> None:
    store = open_store(path)
    thread = store._checkpointer._thread

    store.close()

    assert not thread.is_alive()


def test_commits_are_not_excluded_for_long(store: Store) -> None:
    """The thread may starve behind a busy loop; a commit that waits for its lock lets it run."""
    store._checkpointer._excluding_since = time.monotonic() + 60  # a moment that no pause of this test reaches
    assert store.excludes_commits

    store._checkpointer._excluding_since = time.monotonic() - 2 * checkpoint._STARVED

    assert not store.excludes_commits


def test_the_thread_never_says_that_the_file_was_closed_in_order(store: Store) -> None:
    run = started(store)
    with sqlite3.connect(store.path, isolation_level=None) as raw:
        for position in range(8):
            store.commit(run.id, whole([position]))
            time.sleep(0.1)
            assert raw.execute("SELECT clean FROM recovery").fetchone() == (0,)
    raw.close()
