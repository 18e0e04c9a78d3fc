"""How SQLite goes about reads and changes of datasets: none walks through rows of other datasets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evalbus import Item
from evalbus_server.model.dataset import InfoChange
from evalbus_server.model.run import Run
from evalbus_server.store import Store
from tests.unit.server.store.making import dataset, items, started, whole


def restore(store: Store) -> None:
    with store.restoration("support", 1) as restoration:
        restoration.finish()


CALLS: dict[str, Callable[[Store], object]] = {
    "info": lambda store: store.dataset_info("support"),
    "item": lambda store: store.item("support", 1, "q3"),
    "versions": lambda store: store.dataset_versions("support"),
    "history": lambda store: store.item_history("support", "q3"),
    "differences": lambda store: list(store.dataset_changes("support", 1, 2)),
    "create": lambda store: store.create_dataset("new", InfoChange("x")),
    "add": lambda store: store.add_items("support", [Item("new"), *items(2)]),
    "update": lambda store: store.update_items("support", [Item("q3", "y")]),
    "delete": lambda store: store.delete_items("support", ["q3", "q4"]),
    "upload": lambda store: dataset(store, 4),
    "restore": restore,
    "purge": lambda store: store.purge_items("support", ["q3"]),
    "delete all": lambda store: list(store.delete_dataset("other")),
}


@pytest.fixture
def run(store: Store) -> Run:
    run = started(store, 10, epochs=2)
    store.commit(run.id, whole([0, 1, 2, 3]))
    store.update_items("support", [Item("q2", "x")])
    dataset(store, 5, "other")
    return run


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_call_sorts_or_scans(store: Store, run: Run, call: Callable[[Store], object]) -> None:
    raw = store._connection.raw
    statements: list[str] = []
    raw.set_trace_callback(statements.append)
    call(store)
    raw.set_trace_callback(None)

    asked = [sql for sql in statements if sql.split()[0] in ("SELECT", "UPDATE", "DELETE", "INSERT")]
    steps = [(step[3], sql) for sql in asked for step in raw.execute(f"EXPLAIN QUERY PLAN {sql}")]

    assert asked
    assert [step for step in steps if "TEMP B-TREE" in step[0]] == []
    scans = [step for step in steps if step[0].startswith("SCAN") and "VIRTUAL TABLE" not in step[0]]
    assert [step for step in scans if "CONSTANT ROW" not in step[0]] == []
