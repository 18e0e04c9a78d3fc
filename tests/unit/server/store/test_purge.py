"""What is purged is gone: from every version, from results, and from the disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from evalbus import Failure, FailureCategory, Item, Output, Score
from evalbus_server.errors import NotFound, Reason
from evalbus_server.model.run import Outcome
from evalbus_server.model.trial import Changes, ResultRecord, ScoreRecord
from evalbus_server.store import Store, connection, open_store
from evalbus_server.store.purge import GONE
from tests.unit.server.store.making import NOTHING, dataset, failed_attempt, items, output, run_of

SECRET = "the-secret-word-42"


def secret_item(id: str = "q1", word: str = SECRET) -> Item:
    return Item(id, f"who is {word}?", {"name": word}, metadata={"of": word}, tags=[word])


def told(position: int, word: str = SECRET) -> Changes:
    """All that a trial can say."""
    fault = Failure(FailureCategory.INTERNAL, f"cannot bear {word}", details_json=f'{{"w":"{word}"}}')
    spoken = Output(f"it is {word}", metadata={"w": word}, answer=word)
    judged = Score.scored(1.0, f"said {word}", label=word, metadata={"w": word})
    errored = Score.errored(fault)
    return Changes(
        [output(position, said=spoken)],
        [ScoreRecord(position, 0, judged, True), ScoreRecord(position, 1, errored, None)],
        [failed_attempt(position)._replace(failure=fault)],
        [ResultRecord(position, Outcome.ERRORED, None, fault, 2, None)],
    )


def on_disk(path: Path) -> bool:
    return any(SECRET.encode() in file.read_bytes() for file in path.parent.iterdir() if file.is_file())


def test_nothing_of_an_item_is_left_in_the_file(path: Path) -> None:
    with open_store(path) as store:
        dataset(store, [*items(1), secret_item(), *items(300, "r")], "support")
        store.update_items("support", [Item("q1", f"again {SECRET} " * 3000)])
        run = store.begin_session(store.create_run(run_of(store.dataset("support", 1), id="01a")).id)
        store.commit(run.id, told(1))
        for count in (10, 400):  # rows move, pages split
            dataset(store, items(count, "z"), "other")
        assert on_disk(path)

        purged = store.purge_items("support", ["q1"])
        assert store.cut_log()

        assert (purged.rows, purged.results) == (2, 1)
        assert store.dataset("support").version == 2
        assert not on_disk(path)
        result = store.results(run)[0]
        assert result.item == Item("q1", GONE)
        assert (result.outcome, result.scores[0].score.value) == (Outcome.ERRORED, 1.0)
        assert result.failure is not None
        assert result.failure.message == GONE
    assert not on_disk(path)


def test_what_comes_in_later_is_scrubbed(path: Path) -> None:
    for again in (False, True):
        with open_store(path) as store:
            if not again:
                dataset(store, [*items(1), secret_item(), *items(3, "r")], "support")
                store.purge_items("support", ["q1"])
                assert store.cut_log()
            run = store.begin_session(store.create_run(run_of(store.dataset("support", 1), id=f"01{again}")).id)
            store.commit(run.id, told(1))
            store.commit(run.id, NOTHING._replace(outputs=[output(0, said="kept")]))

            stored = store.results(run)
            assert [stored.output and stored.output.text for stored in stored] == [GONE]
            assert not on_disk(path)


def test_digests_are_those_of_what_is_left(store: Store) -> None:
    dataset(store, [*items(1), secret_item(), *items(2, "r")], "support")
    store.add_items("support", [Item("more")])
    store.purge_items("support", ["q1"])
    left = [*items(1), Item("q1", GONE), *items(2, "r")]

    assert store.dataset("support", 1).digest == store.publish("a", [left])[0].digest
    assert store.dataset("support", 2).digest == store.publish("b", [[*left, Item("more")]])[0].digest
    store.delete_items("support", ["q1"])
    assert store.dataset("support").digest == store.publish("c", [[*items(1), *items(2, "r"), Item("more")]])[0].digest


def test_a_purged_item_may_be_purged_again_and_an_unknown_one_not(store: Store) -> None:
    dataset(store, [secret_item()], "support")
    store.purge_items("support", ["q1"])
    store.purge_items("support", ["q1"])

    with pytest.raises(NotFound, match="never had an item 'x'; nothing was purged") as caught:
        store.purge_items("support", ["x"])
    assert caught.value.reason is Reason.ITEM_NOT_FOUND


def test_a_reader_prevents_the_log_from_being_cut_only_while_it_reads(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_WAIT", 3_600_000)  # Whoever waited for the reader would wait for an hour.
    with open_store(path) as store:
        dataset(store, [secret_item()], "support")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM item").fetchall()
        store.purge_items("support", ["q1"])
        assert not store.cut_log()

        reader.execute("COMMIT")
        reader.close()
        assert store.cut_log()
        assert not on_disk(path)
