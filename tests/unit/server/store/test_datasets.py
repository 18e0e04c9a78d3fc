"""Datasets: versions that share what did not change, published as a whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalbus import Item
from evalbus_server.errors import Conflict, Invalid, NotFound, Reason
from evalbus_server.store import Store, open_reader, open_store
from tests.unit.server.store.making import dataset, items


def ids(store: Store, version: int, name: str = "support") -> list[str]:
    return [stored.item.id for stored in store.items(name, version, limit=1000)]


def rows(store: Store) -> list[tuple]:
    return store._connection.rows("SELECT position, id, first_version, last_version FROM item ORDER BY n")


def test_a_dataset_is_published_with_its_first_version(store: Store) -> None:
    version, changed = store.publish("support", [items(3), items(2, "r")])

    assert changed
    assert (version.name, version.version, version.items) == ("support", 1, 5)
    assert store.dataset("support") == version
    assert ids(store, 1) == ["q0", "q1", "q2", "r0", "r1"]


def test_items_come_in_pages_after_a_position(store: Store) -> None:
    dataset(store, 5)

    assert [stored.position for stored in store.items("support", 1, limit=2)] == [0, 1]
    assert [stored.position for stored in store.items("support", 1, after=1, limit=10)] == [2, 3, 4]
    assert store.items("support", 1, after=4, limit=10) == []


def test_the_last_position_of_a_version_is_known(store: Store) -> None:
    for count in (5, 2, 0):
        dataset(store, count)

    assert [store.last_position("support", version) for version in (1, 2, 3)] == [4, 1, -1]


def test_the_same_items_are_no_new_version(store: Store) -> None:
    first = dataset(store, 5)

    assert store.publish("support", [items(2), items(5)[2:]]) == (first, False)


def test_the_same_items_in_another_order_are_a_new_version(store: Store) -> None:
    first = dataset(store, 5)

    second, changed = store.publish("support", [items(5)[::-1]])

    assert changed
    assert second.digest != first.digest


def test_the_same_items_have_the_same_digest_under_any_name(store: Store) -> None:
    assert dataset(store, 5).digest == dataset(store, 5, "other").digest


def test_an_item_that_does_not_change_keeps_its_row(store: Store) -> None:
    dataset(store, 3)
    changed = items(4)
    changed[1] = Item("q1", "another question")

    dataset(store, changed)

    assert rows(store) == [
        (0, "q0", 1, None),
        (1, "q1", 1, 1),
        (2, "q2", 1, None),
        (1, "q1", 2, None),
        (3, "q3", 2, None),
    ]


def test_every_version_can_be_read_as_it_was(store: Store) -> None:
    versions = [items(3), items(5), [*items(2), Item("new", "x")], items(3), [], items(1)]
    for content in versions:
        dataset(store, content)

    read = [[stored.item for stored in store.items("support", i + 1, limit=9)] for i in range(len(versions))]

    assert read == versions
    assert store.dataset("support", 2).items == 5
    assert store.dataset("support").version == 6


def test_an_id_that_comes_twice_is_refused_with_both_places(store: Store) -> None:
    with pytest.raises(Invalid) as caught:
        store.publish("support", [items(3), [Item("r"), Item("q1")]])

    assert caught.value.reason is Reason.DATASET_INVALID
    assert "'q1'" in str(caught.value)
    assert "item 2" in str(caught.value)
    assert "item 5" in str(caught.value)


def test_an_id_that_comes_twice_in_one_batch_is_refused(store: Store) -> None:
    with pytest.raises(Invalid, match="item 1 and in item 3"):
        store.publish("support", [[Item("a"), Item("b"), Item("a")]])


def test_an_id_may_move_to_another_place(store: Store) -> None:
    dataset(store, 4)

    dataset(store, [*items(4)[1:], items(1)[0]])

    assert ids(store, 2) == ["q1", "q2", "q3", "q0"]
    with pytest.raises(Invalid, match="'q2' comes twice: in item 2 and in item 4"):
        store.publish("support", [items(4)[1:], [Item("q2")]])


def test_an_item_that_has_no_form_in_a_file_is_refused_by_name(store: Store) -> None:
    with pytest.raises(Invalid, match=r"item 2 \('b'\) cannot be stored: .*surrogates"):
        store.publish("support", [[Item("a"), Item("b", "\ud800")]])


def broken(batches: list[list[Item]]) -> Iterator[list[Item]]:
    yield from batches
    raise OSError("the source broke")


def test_a_first_upload_that_breaks_leaves_nothing(store: Store) -> None:
    with pytest.raises(OSError, match="the source broke"):
        store.publish("support", broken([items(3)]))

    assert rows(store) == []
    with pytest.raises(NotFound):
        store.dataset("support")
    assert store.datasets() == []


def test_a_later_upload_that_breaks_leaves_the_version_before_it(store: Store) -> None:
    first = dataset(store, 4)
    before = rows(store)

    with pytest.raises(OSError, match="the source broke"):
        store.publish("support", broken([[Item("other"), *items(2)[1:]], [Item("more")]]))

    assert store.dataset("support") == first
    assert rows(store) == before
    assert store.publish("support", [items(4)]) == (first, False)


def test_an_upload_is_seen_only_when_it_is_finished(store: Store) -> None:
    dataset(store, 3)
    with store.upload("support") as upload, open_reader(store.path) as reader:
        upload.add([Item("other"), *items(2)[1:]])

        assert ids(store, 1) == ["q0", "q1", "q2"]
        assert [stored.item.id for stored in reader.items("support", 1, limit=9)] == ["q0", "q1", "q2"]
        assert reader.dataset("support").version == 1

        version, changed = upload.finish()

        assert changed
        assert reader.dataset("support") == version
        assert [stored.item.id for stored in reader.items("support", 2, limit=9)] == ["other", "q1"]


def test_an_upload_can_be_taken_back_in_steps(store: Store) -> None:
    dataset(store, 1)
    upload = store.upload("support")
    for first in range(0, 3000, 500):
        upload.add(items(3000)[first : first + 500])

    steps = sum(1 for _ in upload.undo())

    assert steps == 3
    assert rows(store) == [(0, "q0", 1, None)]


def test_who_stops_taking_back_gets_the_rest_at_once(store: Store) -> None:
    upload = store.upload("support")
    upload.add(items(3000))
    for _ in upload.undo():
        break

    upload.abort()

    assert rows(store) == []
    store.upload("support").abort()


def test_there_is_one_upload_of_a_dataset_at_a_time(store: Store) -> None:
    with store.upload("support"), store.upload("another"), pytest.raises(Conflict):
        store.upload("support")

    store.upload("support").abort()


def test_an_upload_whose_process_died_is_taken_back_by_the_next(path: Path) -> None:
    store = open_store(path)
    dataset(store, 3)
    store.upload("support").add([Item("half"), *items(9)[1:]])
    store.upload("fresh").add(items(2))
    store.close()

    with open_store(path) as store:
        assert [found.name for found in store.datasets()] == ["support"]
        dataset(store, 2)
        dataset(store, 1, "fresh")

        assert ids(store, 1) == ["q0", "q1", "q2"]
        assert ids(store, 2) == ["q0", "q1"]
        assert ids(store, 1, "fresh") == ["q0"]


def test_a_dataset_that_is_missing_is_refused_with_names_near_it(store: Store) -> None:
    dataset(store, 1, "support")

    with pytest.raises(NotFound, match="there is no dataset 'suport': did you mean 'support'") as caught:
        store.dataset("suport")
    assert caught.value.reason is Reason.DATASET_NOT_FOUND
    with pytest.raises(NotFound, match="no version 7: its latest is 1"):
        store.dataset("support", 7)


def test_datasets_are_listed_by_name_at_their_latest_versions(store: Store) -> None:
    for name in ("b", "c", "a"):
        dataset(store, 1, name)
    dataset(store, 2, "b")

    assert [(found.name, found.version) for found in store.datasets()] == [("a", 1), ("b", 2), ("c", 1)]
    assert [found.name for found in store.datasets(limit=1, after_name="a")] == ["b"]


def test_publishing_writes_little_however_large_the_dataset_is(store: Store) -> None:
    upload = store.upload("support")
    for first in range(0, 5000, 250):
        upload.add(items(5000)[first : first + 250])
    before = store._connection.raw.total_changes

    upload.finish()

    assert store._connection.raw.total_changes - before <= 2


def test_sqlite_finds_nothing_wrong_after_many_versions(store: Store) -> None:
    for count in (50, 20, 70, 0, 30):
        dataset(store, count)

    with sqlite3.connect(store.path) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    raw.close()
