"""Rows that were moved leave no trace in the file, whatever is written afterwards."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from evalbus_server.errors import Reason, StoreTrouble
from evalbus_server.store import Store, open_store, traces, wiper
from tests.unit.server.store.making import dataset, items

SECRET = b"the-secret-word-42"


def scattered(store: Store) -> None:
    """Rows with the secret, written in such an order that pages are split, and overwritten so that they are joined."""
    dice = random.Random(1)
    connection = store._connection
    with connection.transaction():
        connection.execute("CREATE TABLE words (k INTEGER PRIMARY KEY, word TEXT) WITHOUT ROWID")
    numbers = list(range(3000))
    dice.shuffle(numbers)
    for begin in range(0, 3000, 100):
        with connection.transaction():
            for number in numbers[begin : begin + 100]:
                word = SECRET.decode() + "x" * dice.randrange(200)
                connection.execute("INSERT INTO words VALUES (?, ?)", (number, word))
    for begin in range(0, 3000, 500):
        with connection.transaction():
            connection.execute("UPDATE words SET word = 'gone' WHERE k >= ? AND k < ?", (begin, begin + 500))


def cleared(store: Store) -> int:
    """Wipe everything; how many steps that took. The thread that moves the log may be at work just now."""
    return [done for done in store.wipe() if done].count(True)


def held(path: Path) -> int:
    """How often the secret stands in the files."""
    return sum(file.read_bytes().count(SECRET) for file in path.parent.iterdir() if file.is_file())


def test_nothing_of_rows_that_were_moved_is_left_and_nothing_brings_it_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "PAGES_AT_ONCE", 20)
    with open_store(path) as store:
        scattered(store)
        while not store.cut_log():
            pass
        assert held(path) > 0  # or there would be nothing to be wiped

        assert cleared(store) > 2
        assert held(path) == 0
        dataset(store, items(300), "d")
        with store._connection.transaction():  # on pages that were read before they were wiped
            store._connection.execute("UPDATE words SET word = 'still gone, and longer than it was' WHERE k % 3 = 0")
        while not store.cut_log():
            pass
        assert held(path) == 0
        assert store._connection.rows("SELECT count(*), count(DISTINCT k) FROM words") == [(3000, 3000)]
    with closing(sqlite3.connect(path)) as found:
        assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_reader_puts_it_off(path: Path) -> None:
    with open_store(path) as store:
        scattered(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM words").fetchall()
            with store._connection.transaction():
                store._connection.execute("UPDATE words SET word = 'again'")
            steps = store.wipe()
            assert [next(steps), next(steps)] == [False, False]
            reader.execute("COMMIT")
        while not next(steps):
            pass
        assert all(steps)
        assert held(path) == 0


def test_a_file_that_cannot_be_written_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(path) as store:
        scattered(store)
        monkeypatch.setattr(traces, "_WIPER", Path(__file__))  # which answers nothing
        with pytest.raises(StoreTrouble, match="traces of rows cannot be overwritten") as caught:
            cleared(store)
        assert caught.value.reason is Reason.DATABASE_FULL
        dataset(store, items(3), "d")  # it goes on


@pytest.mark.parametrize("change", ["reserved", "vacuum", "other"])
def test_pages_of_another_form_are_left_alone(tmp_path: Path, change: str) -> None:
    """Where parts of pages have another meaning than is known here, nothing is overwritten."""
    file = tmp_path / "a.db"
    with open_store(file) as store:
        scattered(store)
        while not store.cut_log():
            pass
    content = bytearray(file.read_bytes())
    place, value = {"reserved": (20, 8), "vacuum": (55, 1), "other": (0, 0)}[change]
    content[place] = value
    file.write_bytes(content)

    said = subprocess.run(
        [sys.executable, "-I", "-S", wiper.__file__, str(file)], input="0 100000\n", capture_output=True, text=True
    )

    assert (said.stdout, said.stderr, said.returncode) == ("0\n", "", 0)
    assert file.read_bytes() == content


def test_only_the_middle_of_pages_is_wiped(path: Path) -> None:
    """Every page keeps its rows and pointers byte for byte."""
    with open_store(path) as store:
        scattered(store)
        while not store.cut_log():
            pass
        before = path.read_bytes()
        cleared(store)
        after = path.read_bytes()

    assert len(before) == len(after)
    for place in range(0, len(after), 4096):
        begin, end = wiper.unused(before, place, place + (100 if place == 0 else 0), 4096)
        if place:  # where the file counts what was written to it
            assert before[place:begin] == after[place:begin] if begin < end else True
            assert before[max(end, place) : place + 4096] == after[max(end, place) : place + 4096]
        assert not any(after[begin:end])
