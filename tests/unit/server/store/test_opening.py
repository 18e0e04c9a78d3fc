"""Opening a database: who may write it, and what is said when it cannot be opened."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from evalbus import Item
from evalbus_server.errors import Reason, StoreTrouble
from evalbus_server.model.run import RunState
from evalbus_server.store import RunFilter, Store, lock, open_reader, open_store
from tests.unit.server.store.making import dataset, run_of, started, whole

OTHER = """
import sys, time
from evalbus_server.store import open_store
store = open_store(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
store.close()
"""


@pytest.fixture
def writer(path: Path):
    """Another process that has the database open for writing."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield process
    process.kill()
    process.communicate()


def refused(open, path: Path) -> StoreTrouble:
    with pytest.raises(StoreTrouble) as caught:
        open(path)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_second_writer_is_refused_and_told_who_the_first_is(path: Path, writer: subprocess.Popen) -> None:
    trouble = refused(open_store, path)

    assert trouble.reason is Reason.DATABASE_LOCKED
    assert f"process {writer.pid}" in str(trouble)


def test_one_process_cannot_open_a_database_twice_for_writing(store: Store) -> None:
    trouble = refused(open_store, store.path)

    assert trouble.reason is Reason.DATABASE_LOCKED
    assert f"process {os.getpid()}" in str(trouble)


def test_another_name_of_the_same_file_does_not_help(store: Store, tmp_path: Path) -> None:
    (tmp_path / "other.db").symlink_to(store.path)

    assert refused(open_store, tmp_path / "other.db").reason is Reason.DATABASE_LOCKED


def test_the_lock_of_a_killed_writer_is_free(path: Path, writer: subprocess.Popen) -> None:
    writer.send_signal(signal.SIGKILL)
    writer.wait()

    open_store(path).close()


def test_a_writer_waits_for_a_reader_that_looks_at_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(path).close()
    looking = os.open(lock.lock_path(path), os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda seconds: os.close(looking))

    open_store(path).close()


def test_the_lock_is_let_go_when_opening_fails(path: Path) -> None:
    path.write_text("this is no database, but it is long enough to be taken for one" * 20)
    refused(open_store, path)

    assert not lock.is_held(path)


@pytest.mark.parametrize("open", [open_store, open_reader])
def test_what_is_not_a_database_is_refused(open, path: Path) -> None:
    path.write_text("this is no database, but it is long enough to be taken for one" * 20)

    assert refused(open, path).reason is Reason.DATABASE_INVALID


@pytest.mark.parametrize("open", [open_store, open_reader])
def test_the_database_of_another_program_is_refused_and_left_alone(open, path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE photo (id INTEGER)")
    raw.close()
    before = path.read_bytes()

    trouble = refused(open, path)

    assert trouble.reason is Reason.DATABASE_INVALID
    assert "another program" in str(trouble)
    assert path.read_bytes() == before


@pytest.mark.parametrize("open", [open_store, open_reader])
def test_a_file_that_a_newer_program_wrote_is_refused(open, path: Path) -> None:
    open_store(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()

    assert refused(open, path).reason is Reason.DATABASE_NEWER


@pytest.mark.parametrize("open", [open_store, open_reader])
def test_a_folder_is_not_a_database(open, tmp_path: Path) -> None:
    assert refused(open, tmp_path).reason is Reason.DATABASE_INVALID


@pytest.mark.parametrize("open", [open_store, open_reader])
def test_a_folder_that_is_missing_is_named(open, tmp_path: Path) -> None:
    trouble = refused(open, tmp_path / "missing" / "evalbus.db")

    assert trouble.reason is Reason.DATABASE_INVALID
    assert str(tmp_path / "missing") in str(trouble)


@pytest.mark.parametrize("open", [open_store, open_reader])
def test_an_sqlite_that_is_too_old_is_named(open, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(path).close()
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 34, 1))

    assert "3.37 or a newer one is needed" in str(refused(open, path))


def test_reading_makes_no_database(path: Path) -> None:
    assert refused(open_reader, path).reason is Reason.DATABASE_INVALID
    assert not path.exists()


def test_an_empty_file_is_not_yet_a_database_for_readers(path: Path) -> None:
    path.touch()

    assert refused(open_reader, path).reason is Reason.DATABASE_INVALID


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_read_only(path: Path) -> None:
    open_store(path).close()
    path.parent.chmod(0o500)

    assert refused(open_store, path).reason is Reason.DATABASE_READ_ONLY
    with open_reader(path) as reader:
        assert reader.runs() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_read_only(path: Path) -> None:
    open_store(path).close()
    path.chmod(0o400)

    assert refused(open_store, path).reason is Reason.DATABASE_READ_ONLY


def test_a_new_database_is_private(store: Store) -> None:
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_the_settings_that_were_measured_are_on(store: Store) -> None:
    settings = {
        name: store._connection.rows(f"PRAGMA {name}")[0][0]
        for name in ("journal_mode", "synchronous", "wal_autocheckpoint", "foreign_keys", "trusted_schema")
    }

    assert settings == {
        "journal_mode": "wal",
        "synchronous": 1,
        "wal_autocheckpoint": 0,
        "foreign_keys": 1,
        "trusted_schema": 0,
    }


def test_a_reader_cannot_write(store: Store) -> None:
    with open_reader(store.path) as reader, pytest.raises(StoreTrouble) as caught:
        reader._connection.execute("DELETE FROM run")

    assert caught.value.reason is Reason.DATABASE_READ_ONLY


def test_a_reader_sees_what_the_writer_commits(store: Store) -> None:
    run = started(store)
    with open_reader(store.path) as reader:
        before = reader.data_version()
        assert reader.data_version() == before

        store.commit(run.id, whole(range(3)))

        assert reader.data_version() != before
        assert reader.run(run.id).counts.passed == 3
        assert reader.last_sequence(run.id) == store.last_sequence(run.id)


def test_a_run_without_a_process_is_shown_interrupted(path: Path) -> None:
    store = open_store(path)
    run = started(store)
    done = store.create_run(run_of(dataset(store), id="02done"))
    store.change_state(done.id, RunState.COMPLETED)
    with open_reader(path) as reader:
        assert reader.run(run.id).state is RunState.RUNNING

        store.close()

        assert reader.run(run.id).state is RunState.INTERRUPTED
        assert [found.state for found in reader.runs()] == [RunState.COMPLETED, RunState.INTERRUPTED]
        shown = {state: [found.id for found in reader.runs(RunFilter(state=state))] for state in RunState}
        assert {state: ids for state, ids in shown.items() if ids} == {
            RunState.INTERRUPTED: [run.id],
            RunState.COMPLETED: [done.id],
        }


def test_reading_does_not_load_sqlite_utils(store: Store) -> None:
    program = "import sys; from evalbus_server.store import open_reader; open_reader(sys.argv[1]).close()"

    found = subprocess.run(
        [sys.executable, "-c", f"{program}; print('sqlite_utils' in sys.modules)", str(store.path)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout == "False\n"


KILLED = """
import os, signal, sys
from evalbus_server.store import connection, migrations, open_store

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

where = sys.argv[2]
if where == "migrating":
    migrations._number = die
elif where == "renaming":
    connection.os.rename = die
else:
    connection._migrate = die
open_store(sys.argv[1])
"""


@pytest.mark.parametrize("where", ["begun", "migrating", "renaming"])
def test_a_process_that_is_killed_while_it_makes_a_file_leaves_none(tmp_path: Path, where: str) -> None:
    """Readers find no database, and the next one that writes makes it as if nothing had been."""
    path = tmp_path / "new.db"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path), where], timeout=60, check=False)

    assert ended.returncode == -signal.SIGKILL
    assert not path.exists() and Path(f"{path}-new").exists()
    with pytest.raises(StoreTrouble, match="there is no database"):
        open_reader(path)
    open_store(path).close()
    with open_reader(path) as reader:
        assert reader.runs() == []
    assert not list(tmp_path.glob("new.db-new*"))


def test_an_empty_file_is_new(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(StoreTrouble, match="is empty: a command that writes makes it a database") as caught:
        open_reader(path)
    assert caught.value.reason is Reason.DATABASE_INVALID

    open_store(path).close()
    with open_reader(path) as reader:
        assert reader.runs() == []


def test_a_log_whose_file_is_gone_is_not_taken_for_that_of_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    store = open_store(path)
    store.publish("d", [[Item("i", "?")]])
    log = Path(f"{path}-wal").read_bytes()
    store.close()
    path.unlink()
    Path(f"{path}-wal").write_bytes(log)

    assert log
    with open_store(path) as again:
        assert again.runs() == [] and again.datasets() == []
