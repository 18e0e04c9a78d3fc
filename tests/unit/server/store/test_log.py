"""Group commit: few transactions, in order, and the truth about what is stored."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from typing import Any

import pytest

from evalbus import Message, Output, ToolCall
from evalbus_server.errors import Reason, StoreTrouble
from evalbus_server.model.run import Counts, Run
from evalbus_server.model.trial import Changes
from evalbus_server.store import Committed, RunLog, Store, log
from tests.unit.server.store.making import changes, output, result, scores, started, whole


class Listener:
    """Hears of commits and of failure."""

    def __init__(self) -> None:
        self.commits: list[tuple[Changes, Committed]] = []
        self.troubles: list[StoreTrouble] = []

    def log(self, store: Any, run: Run) -> RunLog:
        return RunLog(store, run, self.committed, self.troubles.append)

    def committed(self, stored: Changes, committed: Committed) -> None:
        self.commits.append((stored, committed))

    def sizes(self) -> list[int]:
        """How many outputs each commit had."""
        return [len(stored.outputs) for stored, _ in self.commits]


class FakeStore:
    """Commits nothing; fails when it is told to."""

    def __init__(self, *failures: Exception | None) -> None:
        self.failures = list(failures)
        self.commits: list[Changes] = []
        self.next_commit = 0.0
        self.excludes_commits = False

    def commit(self, run_id: str, changes: Changes, *, at_once: bool) -> Committed:
        if self.failures and (failure := self.failures.pop(0)):
            raise failure
        self.commits.append(changes)
        return Committed(len(self.commits), None, Counts())


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def run(store: Store) -> Run:
    return started(store, 2000)


async def test_what_is_added_is_stored_in_the_next_turn_of_the_loop(store: Store, run: Run, listener: Listener) -> None:
    store._checkpointer.close()  # while it moves pages, a commit comes a moment later
    runlog = listener.log(store, run)

    runlog.add(outputs=[output(0)])
    runlog.add(outputs=[output(1)])
    assert store.output_count(run) == 0
    await asyncio.sleep(0)

    assert store.output_count(run) == 2
    assert listener.sizes() == [2]
    assert listener.commits[0][1] == Committed(2, None, Counts(2000))


async def test_commits_keep_a_distance(run: Run, listener: Listener) -> None:
    store = FakeStore()
    runlog = listener.log(store, run)
    store.next_commit = time.monotonic() + 3600
    for i in range(9):
        runlog.add(outputs=[output(i)])
        await asyncio.sleep(0.001)
    assert store.commits == []

    store.next_commit = time.monotonic()
    runlog.add(outputs=[output(9)])
    await asyncio.sleep(0)
    assert listener.sizes() == [10]


async def test_much_is_committed_at_once(run: Run, listener: Listener) -> None:
    store = FakeStore()
    runlog = listener.log(store, run)
    store.next_commit = time.monotonic() + 60

    runlog.add(outputs=[output(i) for i in range(100)])
    await asyncio.sleep(0)
    assert store.commits == []
    runlog.add(outputs=[output(i) for i in range(100, 256)])
    await asyncio.sleep(0)

    assert listener.sizes() == [256]


async def test_a_mebibyte_is_committed_at_once(run: Run, listener: Listener) -> None:
    store = FakeStore()
    runlog = listener.log(store, run)
    store.next_commit = time.monotonic() + 60

    runlog.add(outputs=[output(i, said="x" * 300_000) for i in range(4)])
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert sum(listener.sizes()) == 3
    await runlog.flush()
    assert sum(listener.sizes()) == 4


@pytest.mark.parametrize(
    "large",
    [
        Output(messages=[Message("user", "x" * 300_000)]),
        Output(answer="x" * 300_000),
        Output(metadata={"k": "x" * 300_000}),
        Output(tool_calls=[ToolCall("t", {"k": "x" * 150_000}, result="x" * 150_000)]),
    ],
    ids=["messages", "answer", "metadata", "tool calls"],
)
async def test_every_large_part_of_an_output_counts(run: Run, listener: Listener, large: Output) -> None:
    runlog = listener.log(FakeStore(), run)

    runlog.add(outputs=[output(i, said=large) for i in range(5)])
    await runlog.flush()

    assert listener.sizes() == [3, 2]


async def test_a_large_addition_is_split_and_the_loop_runs_in_between(
    store: Store, run: Run, listener: Listener
) -> None:
    runlog = listener.log(store, run)
    turns: list[int] = []

    runlog.add(*whole(range(1000)))
    while len(listener.commits) < 4 or sum(listener.sizes()) < 1000:
        await asyncio.sleep(0)
        turns.append(len(listener.commits))
    await runlog.flush()

    assert len(set(turns)) > 1
    assert all(
        len(stored.outputs) <= 256 and len(stored.results) <= 256 and len(stored.scores) <= 1024
        for stored, _ in listener.commits
    )
    assert store.counts(run) == Counts(2000, passed=1000)


async def test_a_result_is_never_stored_before_its_scores(run: Run, listener: Listener) -> None:
    store = FakeStore()
    runlog = listener.log(store, run)

    for first in (0, 700):
        runlog.add(*whole(range(first, first + 700)))
    await runlog.flush()

    seen: set[tuple[str, int]] = set()
    for stored in store.commits:
        seen |= {("output", record.trial_id) for record in stored.outputs}
        seen |= {("score", record.trial_id) for record in stored.scores}
        for record in stored.results:
            assert ("output", record.trial_id) in seen
            assert ("score", record.trial_id) in seen
    assert sum(len(stored.results) for stored in store.commits) == 1400


async def test_a_commit_that_would_wait_comes_a_moment_later(run: Run, listener: Listener) -> None:
    store = FakeStore()
    store.excludes_commits = True
    runlog = listener.log(store, run)

    runlog.add(outputs=[output(i) for i in range(256)])
    flushed = asyncio.ensure_future(runlog.flush())
    await asyncio.sleep(0.02)
    assert store.commits == []
    store.excludes_commits = False
    await flushed

    assert listener.sizes() == [256]


async def test_flush_waits_for_all_of_it(store: Store, run: Run, listener: Listener) -> None:
    runlog = listener.log(store, run)
    await runlog.flush()

    runlog.add(*whole(range(700)))
    await runlog.flush()

    assert store.counts(run).passed == 700
    assert [committed.sequence for _, committed in listener.commits if committed.sequence] != []


async def test_a_listener_may_add_what_follows(store: Store, run: Run, listener: Listener) -> None:
    runlog: RunLog

    def committed(stored: Changes, committed: Committed) -> None:
        listener.committed(stored, committed)
        for record in stored.outputs:
            runlog.add(scores=scores(record.trial_id), results=[result(record.trial_id)])

    runlog = RunLog(store, run, committed, listener.troubles.append)
    runlog.add(outputs=[output(i) for i in range(300)])
    await runlog.flush()

    assert store.counts(run) == Counts(2000, passed=300)


async def test_after_a_failed_write_nothing_is_written(run: Run, listener: Listener) -> None:
    full = StoreTrouble(Reason.DATABASE_FULL, "the disk is full")
    store = FakeStore(None, full)
    runlog = listener.log(store, run)
    runlog.add(outputs=[output(0)])
    await asyncio.sleep(0)

    runlog.add(outputs=[output(1)])
    await asyncio.sleep(0)
    runlog.add(outputs=[output(2)])
    await asyncio.sleep(0.01)

    assert listener.troubles == [full]
    assert listener.sizes() == [1]
    with pytest.raises(StoreTrouble, match="the disk is full"):
        await runlog.flush()


async def test_flush_tells_of_a_write_that_fails_during_it(run: Run, listener: Listener) -> None:
    runlog = listener.log(FakeStore(StoreTrouble(Reason.DATABASE_LOST, "gone")), run)
    runlog.add(outputs=[output(0)])

    with pytest.raises(StoreTrouble, match="gone"):
        await runlog.flush()

    assert len(listener.troubles) == 1


async def test_a_file_that_another_program_locks_for_a_moment_is_waited_for(run: Run, listener: Listener) -> None:
    locked = StoreTrouble(Reason.DATABASE_LOCKED, "locked")
    runlog = listener.log(FakeStore(locked, locked), run)

    runlog.add(outputs=[output(0)])
    await asyncio.sleep(0)
    runlog.add(outputs=[output(1)])
    await runlog.flush()

    assert listener.sizes() == [2]
    assert [record.trial_id for record in listener.commits[0][0].outputs] == [0, 1]
    assert listener.troubles == []


async def test_a_file_that_stays_locked_is_given_up(
    run: Run, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_PATIENCE", 0.05)
    runlog = listener.log(FakeStore(*[StoreTrouble(Reason.DATABASE_LOCKED, "locked")] * 100), run)
    runlog.add(outputs=[output(0)])

    with pytest.raises(StoreTrouble):
        await runlog.flush()

    assert len(listener.troubles) == 1


async def test_another_program_that_writes_holds_up_a_run_but_not_the_loop(
    store: Store, run: Run, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No try to commit waits for the other, which would take a second each time."""
    took: list[float] = []
    commit = store.commit

    def timed(*arguments: Any, **more: Any) -> Committed:
        begun = time.monotonic()
        try:
            return commit(*arguments, **more)
        finally:
            took.append(time.monotonic() - begun)

    monkeypatch.setattr(store, "commit", timed)
    runlog = listener.log(store, run)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    runlog.add(*whole(range(3)))
    async with asyncio.timeout(60):
        while len(took) < 6:
            await asyncio.sleep(0.001)
    assert listener.commits == []
    assert min(took) < 0.5
    other.execute("COMMIT")
    other.close()
    await runlog.flush()

    assert store.counts(run).passed == 3


async def test_nothing_is_committed_if_nothing_is_added(store: Store, run: Run, listener: Listener) -> None:
    runlog = listener.log(store, run)

    runlog.add()
    await asyncio.sleep(0.01)
    await runlog.flush()

    assert listener.commits == []
    assert changes() == Changes([], [], [], [])
