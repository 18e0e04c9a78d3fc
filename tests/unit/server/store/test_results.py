"""Results as callers read them: whole, in dataset order, in pages."""

from __future__ import annotations

from evalbus import Failure, FailureCategory, Item, Usage
from evalbus_server.model.run import Outcome, Run
from evalbus_server.model.trial import epoch_of, position_of
from evalbus_server.store import Store
from tests.unit.server.store.making import changes, dataset, items, output, result, scores, started, whole


def places(store: Store, run: Run, **which) -> list[tuple[int, int]]:
    return [(position_of(found.trial_id), epoch_of(found.trial_id)) for found in store.results(run, **which)]


def test_a_result_comes_back_whole(store: Store) -> None:
    run = started(store)
    failure = Failure(FailureCategory.INTERNAL, "broke")
    store.commit(
        run.id,
        changes(
            outputs=[output(2, latency=0.125)],
            scores=scores(2),
            results=[result(2, Outcome.ERRORED, failure=failure, attempts=4, usage=Usage(7), weighted=0.75)],
        ),
    )

    [found] = store.results(run)

    assert (found.item, found.output, found.latency) == (items(3)[2], output(2).output, 0.125)
    assert (found.outcome, found.failure, found.attempts) == (Outcome.ERRORED, failure, 4)
    assert (found.usage, found.weighted) == (Usage(7), 0.75)
    assert {key: (stored.score.value, stored.passed) for key, stored in found.scores.items()} == {
        0: (1.0, True),
        1: (1.0, None),
        2: (1.0, None),
    }


def test_a_trial_whose_target_failed_has_no_output(store: Store) -> None:
    run = started(store)
    store.commit(run.id, changes(results=[result(1, Outcome.ERRORED)]))

    [found] = store.results(run)

    assert (found.output, found.latency, found.scores) == (None, None, {})


def test_an_output_without_a_result_is_not_shown(store: Store) -> None:
    run = started(store)
    store.commit(run.id, changes(outputs=[output(0)], scores=scores(0)))

    assert store.results(run) == []


def test_results_come_in_dataset_order_then_by_epoch(store: Store) -> None:
    run = started(store, 3, epochs=2)
    for position, epoch in ((2, 2), (0, 1), (2, 1), (1, 2), (0, 2)):
        store.commit(run.id, whole([position], epoch=epoch))

    assert places(store, run) == [(0, 1), (0, 2), (1, 2), (2, 1), (2, 2)]
    assert places(store, run, limit=2) == [(0, 1), (0, 2)]
    assert places(store, run, after=(0, 2), limit=2) == [(1, 2), (2, 1)]
    assert places(store, run, after=(2, 2)) == []


def test_results_are_filtered_by_outcome_and_by_id(store: Store) -> None:
    run = started(store, [Item(id) for id in ("a1", "a2", "b1", "b2")])
    store.commit(run.id, whole([0, 2]))
    store.commit(run.id, whole([1], outcome=Outcome.FAILED))
    store.commit(run.id, whole([3], outcome=Outcome.ERRORED))

    assert places(store, run, outcomes=[Outcome.FAILED, Outcome.ERRORED]) == [(1, 1), (3, 1)]
    assert places(store, run, item_glob="?1") == [(0, 1), (2, 1)]
    assert places(store, run, item_glob="A*") == []
    assert places(store, run, outcomes=[Outcome.PASSED], item_glob="b*") == [(2, 1)]


def test_filters_look_beyond_the_first_page(store: Store) -> None:
    run = started(store, 1000)
    for first in range(0, 1000, 250):
        store.commit(run.id, whole(range(first, first + 250)))

    assert places(store, run, item_glob="q99?", limit=3) == [(990, 1), (991, 1), (992, 1)]
    assert len(store.results(run, limit=1000, max_bytes=1 << 30)) == 1000


def test_a_page_holds_about_so_many_bytes_but_never_none(store: Store) -> None:
    run = started(store, 50)
    store.commit(run.id, changes(outputs=[output(i, said="x" * 10_000) for i in range(50)]))
    store.commit(run.id, changes(results=[result(i) for i in range(50)]))

    assert len(store.results(run, max_bytes=45_000)) == 4
    assert len(store.results(run, max_bytes=1)) == 1


def test_items_are_those_of_the_runs_version(store: Store) -> None:
    run = started(store, 2)
    store.commit(run.id, whole([0, 1]))
    dataset(store, [Item("other"), Item("q1", "changed")])

    assert [found.item for found in store.results(run)] == items(2)


def test_other_runs_are_not_seen(store: Store) -> None:
    run = started(store, 2)
    other = started(store, 2, id="02other")
    store.commit(other.id, whole([0, 1]))

    assert store.results(run) == []
