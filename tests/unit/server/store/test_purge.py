"""What is purged is gone: from every version, from results, and from the disk."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from evalbus import Failure, FailureCategory, Item, Output, Score
from evalbus_server.errors import Conflict, NotFound, Reason
from evalbus_server.model.event import ContentPurged, TrialsEnded
from evalbus_server.model.run import Counts, Outcome
from evalbus_server.model.trial import Changes, ResultRecord, ScoreRecord
from evalbus_server.store import Store, connection, open_store
from evalbus_server.store.purge import GONE
from tests.unit.server.store.making import NOTHING, dataset, failed_attempt, items, output, result, run_of

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


def cut(store: Store) -> None:
    """Cut the log; the thread that moves it may be at work just now."""
    end = time.monotonic() + 60
    while not store.cut_log():
        assert time.monotonic() < end
        time.sleep(0.01)


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
        cut(store)

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
                cut(store)
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
        cut(store)
        assert not on_disk(path)


def test_each_run_has_an_event_that_names_the_trials(path: Path) -> None:
    with open_store(path) as store:
        dataset(store, [*items(1), secret_item()], "support")
        run = store.begin_session(
            store.create_run(run_of(store.dataset("support"), id="01a", epochs=3, counts=Counts(6))).id
        )
        for epoch in (1, 3):
            store.commit(run.id, NOTHING._replace(outputs=[output(1, epoch=epoch, said=SECRET)]))
        before = store.last_sequence(run.id)

        purged = store.purge_items("support", ["q1"])
        store.commit(run.id, NOTHING._replace(outputs=[output(0)], results=[result(0)]))

        assert purged.runs == {"01a"}
        events = store.events(run.id, after=before, limit=9)
        assert [each.sequence for each in events] == [before + 1, before + 2]
        assert events[0].fact == ContentPurged((1, 2 << 32 | 1), Counts(6))
        assert isinstance(events[1].fact, TrialsEnded)


def test_a_purge_that_was_broken_off_is_finished_when_the_file_is_opened_again(path: Path) -> None:
    with open_store(path) as store:
        dataset(store, [secret_item(f"q{n}") for n in range(3)], "support")
        run = store.begin_session(store.create_run(run_of(store.dataset("support"), id="01a")).id)
        store.commit(run.id, told(1))
        steps = store.purging("support", ["q0", "q1", "q2"])
        next(steps)
        with pytest.raises(Conflict) as caught:
            store.add_items("support", [Item("more")])
        assert caught.value.reason is Reason.DATASET_BUSY
        store.commit(run.id, NOTHING._replace(outputs=[output(0, said=SECRET)]))
        assert len(store._connection.rows("SELECT item FROM purged WHERE NOT done")) == 3
        copy = path.parent / "copy"
        copy.mkdir()
        for file in path.parent.glob(f"{path.name}*"):  # what would be there if the process died now
            shutil.copy(file, copy)
        steps.close()
    with open_store(copy / path.name) as again:
        assert again._connection.rows("SELECT item FROM purged WHERE NOT done") == []
        assert {stored.item.input.text for stored in again.items("support", 1, limit=9)} == {GONE}
        cut(again)
        assert not on_disk(copy / path.name)


def test_who_stops_a_purge_gets_the_rest_at_once(store: Store) -> None:
    dataset(store, [secret_item(f"q{n}") for n in range(3)], "support")
    steps = store.purging("support", ["q0", "q1", "q2"])
    next(steps)
    steps.close()

    assert {stored.item.input.text for stored in store.items("support", 1, limit=9)} == {GONE}
    store.add_items("support", [Item("more")])


def live(store: Store, version: int) -> list[str]:
    """What a run of a version keeps of an output for each of its items."""
    run = store.begin_session(store.create_run(run_of(store.dataset("support", version), id=f"v{version}")).id)
    stored = store.items("support", version, limit=9)
    store.commit(run.id, NOTHING._replace(outputs=[output(each.position, said="said") for each in stored]))
    number = store._numbers(run.id)[0]
    rows = store._connection.rows("SELECT trial, content FROM output WHERE run = ?", (number,))
    kept: dict[int, str] = dict(rows)
    assert {position for position, text in kept.items() if text == GONE} == store.purged(run.id)
    return [kept[each.position] for each in stored]


def test_what_is_imported_later_under_a_purged_id_is_another_item(path: Path) -> None:
    with open_store(path) as store:
        dataset(store, [*items(1), secret_item()], "support")
        store.purge_items("support", ["q1"])
        dataset(store, [*items(1), Item("q1", "anew")], "support")
        store.update_items("support", [Item("q1", "and again")])
        assert [live(store, version) for version in (1, 2, 3)] == [["said", GONE], ["said", "said"], ["said", "said"]]
    with open_store(path) as store:
        assert store.purged("v1") == {1}
        assert store.purged("v2") == frozenset()
        store.purge_items("support", ["q1"])
        assert [store.purged(f"v{version}") for version in (1, 2, 3)] == [{1}] * 3


def test_a_placeholder_that_comes_back_under_its_id_is_still_purged(store: Store) -> None:
    dataset(store, [*items(2), secret_item("s")], "support")
    store.purge_items("support", ["s"])
    store.update_items("support", [Item("s", GONE, tags=["nice"])])
    store.delete_items("support", ["s"])
    with store.restoration("support", 1) as restoration:
        restoration.finish()
    exported = [each.item for each in store.items("support", 4, limit=9)]
    dataset(store, [exported[2], *exported[:2]], "support")

    assert [live(store, version) for version in (1, 2, 3, 4, 5)] == [
        ["said", "said", GONE],
        ["said", "said", GONE],
        ["said", "said"],
        ["said", "said", GONE],
        [GONE, "said", "said"],
    ]


def test_a_text_that_is_like_the_placeholder_is_a_text(store: Store) -> None:
    dataset(store, [Item("a", GONE), secret_item()], "support")
    store.purge_items("support", ["q1"])
    store.add_items("support", [Item("b", GONE)])

    assert live(store, 2) == ["said", GONE, "said"]


def test_marks_go_with_their_dataset(store: Store) -> None:
    """Numbers of rows are given again."""
    dataset(store, [secret_item()], "support")
    store.purge_items("support", ["q1"])
    for _ in store.delete_dataset("support"):
        pass
    assert store._connection.rows("SELECT * FROM purged") == []
    dataset(store, [secret_item()], "support")
    assert live(store, 1) == ["said"]
