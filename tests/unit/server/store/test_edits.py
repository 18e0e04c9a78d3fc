"""Items added, changed and taken out, one version a call; restored, compared, and their histories."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbus import Item
from evalbus_server.errors import Conflict, NotFound, Reason, Unfit
from evalbus_server.model.dataset import InfoChange, ItemConflict, Tally
from evalbus_server.store import Store, open_store
from tests.unit.server.store.making import dataset, items, run_of, started


def read(store: Store, version: int, name: str = "d") -> list[Item]:
    return [stored.item for stored in store.items(name, version, limit=10_000)]


def ids(store: Store, version: int) -> list[str]:
    return [item.id for item in read(store, version)]


def changes(store: Store, a: int, b: int) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(change.kind, change.id, change.fields) for _, each in store.dataset_changes("d", a, b) for change in each]


@pytest.fixture
def d(store: Store) -> Store:
    """A store with a dataset of five items."""
    dataset(store, 5, "d")
    return store


def test_a_new_dataset_has_version_0_and_no_items(store: Store) -> None:
    made = store.create_dataset("d", InfoChange("about", '{"a":1}'))

    assert (made.latest.version, made.latest.items, made.description, made.metadata_json) == (0, 0, "about", '{"a":1}')
    assert [found.name for found in store.datasets()] == ["d"]
    assert read(store, 0) == []
    with pytest.raises(Conflict) as caught:
        store.create_dataset("d", InfoChange())
    assert caught.value.reason is Reason.DATASET_EXISTS


def test_a_created_dataset_takes_items_and_uploads(store: Store) -> None:
    store.create_dataset("d", InfoChange())

    assert store.add_items("d", items(2)).dataset.version == 1
    assert store.publish("d", [items(3)])[0].version == 2
    assert store.dataset("d", 0).items == 0


def test_each_call_that_changes_something_is_one_version_and_any_other_none(store: Store) -> None:
    """The steps of a system of the field (mastra: datasetVersionBumps), by our rule: what changes nothing is no version."""
    bumps = [store.create_dataset("d", InfoChange()).latest.version]
    steps = [
        lambda: store.add_items("d", [Item("a", 1)]),
        lambda: store.add_items("d", [Item("b", 2), Item("c", 3)]),
        lambda: store.add_items("d", []),
        lambda: store.update_items("d", [Item("a", 10)]),
        lambda: store.update_items("d", [Item("a", 10)]),
        lambda: store.delete_items("d", ["missing"]),
        lambda: store.delete_items("d", ["a"]),
        lambda: store.delete_items("d", ["a"]),
        lambda: store.delete_items("d", []),
        lambda: store.change_dataset("d", InfoChange("other")),
        lambda: store.purge_items("d", ["b"]),
        lambda: store.add_items("d", [Item("e", 70)]),
        lambda: store.add_items("d", [Item("e", 70)]),
        lambda: store.update_items("d", [Item("e", 71)]),
        lambda: store.add_items("d", [Item("e", 70)]),
        lambda: store.delete_items("d", ["e"]),
    ]
    for step in steps:
        step()
        bumps.append(store.dataset("d").version)

    assert bumps == [0, 1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 5, 5, 6, 6, 7]


def test_new_items_go_behind_all_that_ever_were_and_others_keep_their_positions(d: Store) -> None:
    d.delete_items("d", ["q1", "q4"])
    d.add_items("d", [Item("new", "x")])

    assert [(stored.position, stored.id) for stored in d.items("d", 3, limit=9)] == [
        (0, "q0"),
        (2, "q2"),
        (3, "q3"),
        (5, "new"),
    ]


def test_what_is_added_again_just_so_is_a_replay(d: Store) -> None:
    edited = d.add_items("d", [Item("new", "x"), *items(1)])

    assert edited.changed
    assert edited.tally == Tally(added=1)
    assert edited.replayed == (1,)
    again = d.add_items("d", [Item("new", "x"), *items(1)])
    assert (again.changed, again.replayed, again.dataset) == (False, (0, 1), edited.dataset)


def test_a_replay_is_compared_with_what_was_accepted_first(d: Store) -> None:
    d.update_items("d", [Item("q0", "later")])

    assert d.add_items("d", items(1)).replayed == (0,)
    with pytest.raises(ItemConflict):
        d.add_items("d", [Item("q0", "later")])


def test_a_conflict_lists_every_item_with_its_reason_and_nothing_is_added(d: Store) -> None:
    d.delete_items("d", ["q4"])
    wanted = [Item("fine"), Item("q0", "other"), Item("q4", "question 4", "answer 4"), Item("t", 1), Item("t", 2)]

    with pytest.raises(ItemConflict, match="item 2: the id 'q0' is there with other content") as caught:
        d.add_items("d", wanted)

    assert [(fault.place, fault.id, fault.reason) for fault in caught.value.faults] == [
        (1, "q0", "ID_TAKEN"),
        (2, "q4", "ID_DELETED"),
        (4, "t", "ID_TWICE"),
    ]
    assert d.dataset("d").version == 2


def test_an_update_names_all_ids_that_are_not_there_and_changes_nothing(d: Store) -> None:
    with pytest.raises(NotFound, match="no item 'x', 'y'; nothing was changed") as caught:
        d.update_items("d", [Item("q0", "other"), Item("x"), Item("y")])

    assert caught.value.reason is Reason.ITEM_NOT_FOUND
    assert d.dataset("d").version == 1


def test_deleting_tells_which_ids_were_not_there(d: Store) -> None:
    edited = d.delete_items("d", ["q1", "x", "q1"])

    assert (edited.tally, edited.missing, edited.dataset.items) == (Tally(removed=1), ("x",), 4)


def test_a_version_that_never_was_is_refused(d: Store) -> None:
    for version in (2, -1):
        with pytest.raises(NotFound, match="its latest is 1"):
            d.dataset("d", version)
        with pytest.raises(NotFound):
            d.restoration("d", version)


def test_the_history_of_an_item_has_tombstones(d: Store) -> None:
    d.update_items("d", [Item("q1", "second")])
    d.delete_items("d", ["q1"])
    d.add_items("d", [Item("other")])
    with d.restoration("d", 2) as restoration:
        restoration.finish()
    d.delete_items("d", ["q1"])

    told = [(life.version, life.until, life.item and life.item.input.text) for life in d.item_history("d", "q1")]

    assert told == [
        (6, None, None),
        (5, 5, "second"),
        (3, 4, None),
        (2, 2, "second"),
        (1, 1, "question 1"),
    ]
    with pytest.raises(NotFound, match="never had an item 'x'"):
        d.item_history("d", "x")


def test_two_versions_differ_in_what_was_added_removed_changed_or_moved(d: Store) -> None:
    d.update_items("d", [Item("q1", "second", "answer 1", tags=["hard"], metadata={"a": 1})])
    d.delete_items("d", ["q0"])
    d.add_items("d", [Item("new")])

    assert changes(d, 1, 4) == [
        ("removed", "q0", ()),
        ("changed", "q1", ("input", "metadata", "tags")),
        ("added", "new", ()),
    ]
    assert changes(d, 4, 1) == [
        ("added", "q0", ()),
        ("changed", "q1", ("input", "metadata", "tags")),
        ("removed", "new", ()),
    ]
    assert changes(d, 4, 4) == []
    d.publish("d", [items(5)[::-1]])
    assert {kind for kind, _, _ in changes(d, 1, 5)} == {"moved"}


def test_versions_with_the_same_items_in_the_same_order_do_not_differ(d: Store) -> None:
    d.update_items("d", [Item("q1", "second")])
    with d.restoration("d", 1) as restoration:
        restoration.finish()
    d.publish("d", [items(5)[1:]])
    d.publish("d", [items(5)])

    assert d.dataset("d").version == 5
    assert changes(d, 1, 3) == []
    assert changes(d, 1, 5) == []


def test_an_item_moves_when_another_is_before_it_not_when_one_was_added_or_removed(d: Store) -> None:
    first, *rest = items(5)
    d.publish("d", [rest])
    d.publish("d", [[Item("new"), first, *rest]])
    d.publish("d", [[*rest[:2], first, *rest[2:]]])

    assert changes(d, 1, 2) == [("removed", "q0", ())]
    assert changes(d, 1, 3) == [("added", "new", ())]
    assert changes(d, 2, 4) == [("added", "q0", ())]
    assert changes(d, 1, 4) == [("moved", "q1", ()), ("moved", "q0", ()), ("moved", "q3", ())]


def test_versions_are_listed_with_what_they_changed(d: Store) -> None:
    d.delete_items("d", ["q0", "q1"])
    with d.restoration("d", 1) as restoration:
        restoration.finish()

    told = [
        (each.dataset.version, each.cause, each.added, each.changed, each.removed) for each in d.dataset_versions("d")
    ]

    assert told == [(3, "restore 1", 2, 0, 0), (2, "delete", 0, 0, 2), (1, "upload", 5, 0, 0)]
    assert [each.dataset.version for each in d.dataset_versions("d", before=3, limit=1)] == [2]


def test_an_upload_counts_what_it_changes(d: Store) -> None:
    d.publish("d", [[Item("q1", "other"), *items(5)[2:], Item("new")]])

    version = d.dataset_versions("d")[0]
    assert (version.added, version.changed, version.removed) == (1, 1, 1)


def test_restoring_what_is_there_changes_nothing(d: Store) -> None:
    d.update_items("d", [Item("q1", "second")])
    d.update_items("d", items(2)[1:])

    with d.restoration("d", 1) as restoration:
        assert restoration.finish() == (d.dataset("d", 3), False)


def test_nothing_else_changes_a_dataset_while_an_upload_is_under_way(d: Store) -> None:
    with d.upload("d"):
        for change in (
            lambda: d.add_items("d", [Item("x")]),
            lambda: d.update_items("d", [Item("q0")]),
            lambda: d.delete_items("d", ["q0"]),
            lambda: d.restoration("d", 1),
            lambda: d.delete_dataset("d"),
            lambda: d.purge_items("d", ["q0"]),
        ):
            with pytest.raises(Conflict) as caught:
                change()
            assert caught.value.reason is Reason.DATASET_BUSY


def test_a_change_takes_back_what_a_dead_process_left_of_an_upload(path: Path) -> None:
    store = open_store(path)
    dataset(store, 3, "d")
    store.upload("d").add([Item("half"), *items(9)[1:]])
    store.close()

    with open_store(path) as store:
        edited = store.add_items("d", [Item("new")])

        assert ids(store, 2) == ["q0", "q1", "q2", "new"]
        assert edited.dataset.digest == store.publish("same", [[*items(3), Item("new")]])[0].digest


def test_an_upload_over_gaps_that_changes_nothing_is_no_version(d: Store) -> None:
    d.delete_items("d", ["q1"])

    assert d.publish("d", [[items(1)[0], *items(5)[2:]]]) == (d.dataset("d", 2), False)


def test_a_dataset_that_runs_have_used_keeps_its_versions(store: Store) -> None:
    started(store, 3)

    with pytest.raises(Unfit, match="1 run has used") as caught:
        next(store.delete_dataset("support"))
    assert caught.value.reason is Reason.DATASET_IN_USE
    store.delete_items("support", ["q0", "q1", "q2"])
    assert [stored.id for stored in store.items("support", 1, limit=9)] == ["q0", "q1", "q2"]


def test_a_dataset_is_deleted_in_steps_and_its_name_is_free_at_once(store: Store) -> None:
    dataset(store, 2500, "d")

    steps = store.delete_dataset("d")
    next(steps)
    with pytest.raises(NotFound):
        store.dataset("d")
    dataset(store, 1, "d")

    assert len(list(steps)) == 2
    assert store._connection.rows("SELECT count(*) FROM item") == [(1,)]
    assert ids(store, 1) == ["q0"]


def test_description_metadata_and_schemas_change_without_a_version(d: Store) -> None:
    d.change_dataset("d", InfoChange("about", '{"a":1}', '{"type":"string"}', "{}"))
    d.change_dataset("d", InfoChange(input_schema="", metadata_json=None))

    info = d.dataset_info("d")
    assert (info.description, info.metadata_json, info.input_schema, info.expected_schema) == (
        "about",
        '{"a":1}',
        "",
        "{}",
    )
    assert info.latest.version == 1


def test_a_run_may_be_over_version_0_only_if_it_exists(store: Store) -> None:
    made = store.create_dataset("d", InfoChange()).latest

    assert store.create_run(run_of(made)).dataset == made


ITEMS = st.builds(Item, st.sampled_from("abcdef"), st.sampled_from(["x", "y"]))
UNIQUE = st.lists(ITEMS, max_size=6, unique_by=lambda item: item.id)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upload"), UNIQUE),
        st.tuples(st.just("add"), UNIQUE),
        st.tuples(st.just("update"), UNIQUE),
        st.tuples(st.just("delete"), st.lists(st.sampled_from("abcdef"), max_size=3)),
        st.tuples(st.just("restore"), st.integers(0, 8)),
    ),
    max_size=8,
)


@settings(max_examples=120, deadline=None)
@given(steps=STEPS)
def test_whatever_is_done_every_version_reads_as_it_was_made(tmp_path_factory, steps) -> None:
    """Against a list in memory: contents, order, digests, counts and differences."""
    with open_store(tmp_path_factory.mktemp("edits") / "e.db") as store:
        store.create_dataset("d", InfoChange())
        made: list[list[Item]] = [[]]
        for verb, what in steps:
            _do(store, made, verb, what)
            if read(store, store.dataset("d").version) != made[-1]:
                made.append(read(store, store.dataset("d").version))
        latest = store.dataset("d").version
        assert len(made) == latest + 1
        for version, content in enumerate(made):
            assert read(store, version) == content
            known = store.dataset("d", version)
            assert known.items == len(content)
            assert known.digest == store.publish(f"v{version}", [content])[0].digest if content else True
            _compare(store, made, version, latest)


def _do(store: Store, made: list[list[Item]], verb: str, what) -> None:
    now = {item.id: item for item in made[-1]}
    if verb == "upload":
        store.publish("d", [what])
        expected = what
    elif verb == "add":
        try:
            store.add_items("d", what)
        except ItemConflict:
            expected = made[-1]
        else:
            expected = [*made[-1], *(item for item in what if item.id not in now)]
    elif verb == "update":
        what = [item for item in what if item.id in now]
        store.update_items("d", what)
        expected = list((now | {item.id: item for item in what}).values())
    elif verb == "delete":
        store.delete_items("d", what)
        expected = [item for item in made[-1] if item.id not in what]
    else:
        version = min(what, len(made) - 1)
        with store.restoration("d", version) as restoration:
            restoration.finish()
        expected = made[version]
    assert read(store, store.dataset("d").version) == expected
    if expected != made[-1]:
        assert store.dataset("d").version == len(made)


def _compare(store: Store, made: list[list[Item]], a: int, b: int) -> None:
    before, after = ({item.id: item for item in made[version]} for version in (a, b))
    told = [change for _, each in store.dataset_changes("d", a, b) for change in each]
    kinds = {kind: {change.id for change in told if change.kind == kind} for kind in ("added", "removed", "changed")}
    assert kinds == {
        "added": after.keys() - before.keys(),
        "removed": before.keys() - after.keys(),
        "changed": {id for id in after.keys() & before.keys() if after[id] != before[id]},
    }
    orders = [[item.id for item in made[version] if item.id in before and item.id in after] for version in (a, b)]
    follows = [dict(zip(order, ["", *order], strict=False)) for order in orders]
    moved = {change.id for change in told if change.kind == "moved"}
    assert moved <= {id for id in follows[0] if follows[0][id] != follows[1][id]} - kinds["changed"]
    assert bool(moved | kinds["changed"]) or orders[0] == orders[1]
