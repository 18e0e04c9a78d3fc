"""When the file cannot do what it should: said at once, in one line, and nothing is told that is not stored."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalbus_server.errors import Reason, StoreTrouble
from evalbus_server.model.run import RunState
from evalbus_server.store import Store, open_store
from evalbus_server.store.connection import connect_writing
from evalbus_server.store.runs import Standing
from tests.unit.server.store.making import started, whole

ROOT = Path(__file__).parents[4]


@pytest.fixture
def doomed(path: Path) -> Iterator[Store]:
    """A store whose file comes to harm."""
    store = open_store(path)
    yield store
    store.close()


def replaced(path: Path) -> None:
    shutil.copy(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


HARM = {
    "deleted": lambda path: path.unlink(),
    "replaced": replaced,
    "log deleted": lambda path: Path(f"{path}-wal").unlink(),
    "moved": lambda path: path.rename(f"{path}.moved"),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_a_file_that_is_gone_is_noticed_and_no_run_completes(doomed: Store, harm) -> None:
    """ST-07."""
    run = started(doomed)
    doomed.check()
    harm(doomed.path)

    for call in (
        lambda: doomed.change_state(run.id, RunState.COMPLETED),
        lambda: doomed.commit(run.id, whole([0])),
        doomed.check,
    ):
        with pytest.raises(StoreTrouble) as caught:
            call()
        assert caught.value.reason is Reason.DATABASE_LOST


def test_commits_look_after_the_file_every_second(doomed: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = started(doomed)
    doomed.path.unlink()
    doomed.commit(run.id, whole([0]))
    monkeypatch.setattr("evalbus_server.store.run_writer._LOOKED_AFTER", 0.0)

    with pytest.raises(StoreTrouble) as caught:
        doomed.commit(run.id, whole([1]))

    assert caught.value.reason is Reason.DATABASE_LOST


def test_a_state_is_not_told_if_the_file_goes_while_it_is_written(
    doomed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(doomed)
    standing = doomed._standing(run.id)

    def lost(*_: object, **__: object) -> Standing:
        doomed.path.unlink()
        return standing

    monkeypatch.setattr("evalbus_server.store.runs.set_state", lost)

    with pytest.raises(StoreTrouble):
        doomed.change_state(run.id, RunState.COMPLETED)


def test_a_new_file_at_the_place_of_a_lost_one_is_not_touched(doomed: Store) -> None:
    run = started(doomed)
    doomed.path.unlink()
    with pytest.raises(StoreTrouble):
        doomed.check()
    new = [doomed.path, Path(f"{doomed.path}-wal")]
    for path in new:
        path.unlink(missing_ok=True)
        path.write_text("something new")

    with pytest.raises(StoreTrouble):
        doomed.commit(run.id, whole([0]))
    doomed.close()

    assert [path.read_text() for path in new] == ["something new"] * 2


FULL = """
import asyncio, resource, sys
from evalbus_server.store import RunLog, open_reader, open_store
from tests.unit.server.store.making import changes, output, result, started
path = sys.argv[1]
store = open_store(path)
run = started(store, 1000)
commits, troubles = [], []

async def write(first):
    log = RunLog(store, run, lambda *made: commits.append(made), troubles.append)
    for position in range(first, 1000):
        log.add(outputs=[output(position, said="x" * 50_000)], results=[result(position)])
        await asyncio.sleep(0)
        if troubles:
            return
    await log.flush()

soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, hard))
asyncio.run(write(0))
[trouble] = troubles
print(trouble.reason, "\\n" in str(trouble))
told = sum(len(made.results) for made, _ in commits)
with open_reader(path) as reader:
    print(0 < told < 1000, told == reader.counts(run).passed, len(reader.results(run, limit=told + 1, max_bytes=1 << 40)) == told)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
troubles.clear()
asyncio.run(write(told))
print(troubles, store.counts(run).passed, store.run(run.id).counts.passed)
store.close()
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit on file sizes here")
def test_a_full_disk_ends_the_writing_and_nothing_else(path: Path) -> None:
    """ST-06: what was told is readable, and the run goes on once there is room."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["DATABASE_FULL False", "True True True", "[] 1000 1000"]


def test_reading_and_writing_in_one_transaction_loses_no_update(store: Store) -> None:
    """ST-02."""
    store._connection.raw.execute("CREATE TABLE counter (n INTEGER)")
    store._connection.raw.execute("INSERT INTO counter VALUES (0)")

    def count() -> None:
        connection = connect_writing(store.path)
        for _ in range(200):
            with connection.transaction():
                found = connection.row("SELECT n FROM counter")
                assert found is not None
                connection.execute("UPDATE counter SET n = ?", (found[0] + 1,))
        connection.close()

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert store._connection.row("SELECT n FROM counter") == (400,)


def test_a_damaged_file_is_said_to_be_damaged(path: Path) -> None:
    with open_store(path) as store:
        run = started(store, 2000)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    path.write_bytes(content)

    with pytest.raises(StoreTrouble) as caught, open_store(path) as store:
        store.run(run.id)

    assert caught.value.reason is Reason.DATABASE_INVALID


def test_an_error_inside_a_transaction_is_the_one_that_is_raised(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store._connection.transaction(durable=True):
        store._connection.execute("INSERT INTO dataset (name, version, staging) VALUES ('x', 1, 0)")
        store._connection.raw.execute("COMMIT")
        _ = 1 / 0

    assert store._connection.row("PRAGMA synchronous") == (1,)
