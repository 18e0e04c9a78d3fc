"""Runs that are deleted: gone at once, whole in the end, and others stay as they are."""

from __future__ import annotations

import pytest

from evalbus_server.errors import NotFound, Reason, Unfit
from evalbus_server.model.run import Run, RunState
from evalbus_server.store import Store
from tests.unit.server.store.making import failed_attempt, run_of, started, whole

TABLES = ("progress", "output", "score", "attempt", "result", "event", "retry")


def rows_of(store: Store, number: int) -> int:
    counts = (store._connection.row(f"SELECT count(*) FROM {table} WHERE run = ?", (number,)) for table in TABLES)
    return sum(found[0] for found in counts if found is not None)


def two_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, Run]:
    """Over several pages each, from the beginning; the numbers of both are 1 and 2."""
    monkeypatch.setattr("evalbus_server.store.removal._AT_ONCE", 7)
    run = started(store, 60, request_id="once")
    other = store.create_run(run_of(run.dataset, id="02other"))
    for which in (run, other):
        store.commit(which.id, whole(range(60))._replace(attempts=[failed_attempt(n) for n in range(30)]))
        store.change_state(which.id, RunState.COMPLETED)
    return run, other


def test_a_run_is_gone_after_the_first_step_and_its_rows_after_the_last(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = two_runs(store, monkeypatch)
    kept = rows_of(store, 2)

    steps = store.delete_run(run.id)

    with pytest.raises(NotFound):
        store.run(run.id)
    assert [each.id for each in store.runs()] == [other.id]
    assert store.run_of_request("once") is None
    assert rows_of(store, 1) > 100
    assert len(list(steps)) > 20
    assert rows_of(store, 1) == 0
    assert rows_of(store, 2) == kept
    assert store.counts(other).passed == 60


def test_a_deletion_that_was_broken_off_is_finished_after_opening(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = two_runs(store, monkeypatch)
    next(store.delete_run(run.id))
    assert rows_of(store, 1) > 100

    store.finish_deletions()

    assert rows_of(store, 1) == 0
    assert store._connection.rows("SELECT id FROM run") == [(other.id,)]


def test_a_run_whose_outputs_are_scored_elsewhere_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = two_runs(store, monkeypatch)
    again = store.create_run(run_of(run.dataset, id="03again", source=run.id))

    with pytest.raises(Unfit, match="03again") as caught:
        store.delete_run(run.id)
    assert caught.value.reason is Reason.RUN_IN_USE
    assert store.run(run.id).id == run.id

    list(store.delete_run(again.id))
    list(store.delete_run(run.id))
    assert rows_of(store, 1) == rows_of(store, 3) == 0


def test_the_place_of_a_deleted_run_is_taken_by_another(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = two_runs(store, monkeypatch)
    list(store.delete_run(other.id))

    third = store.create_run(run_of(run.dataset, id="03third"))
    store.begin_session(third.id)
    store.commit(third.id, whole(range(3)))

    assert store.counts(third).passed == 3
    assert [event.sequence for event in store.events(third.id, after=0, limit=9)] == [1, 2, 3]
