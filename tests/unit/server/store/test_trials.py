"""What a run still has to do, found in what is stored."""

from __future__ import annotations

import pytest

from evalbus import Item, Output, Score, Usage
from evalbus_server.model.run import Counts, Outcome, Run, Selection
from evalbus_server.model.trial import ScoreRecord, position_of, trial_id_of
from evalbus_server.store import Store, selected, trials
from tests.unit.server.store.making import (
    changes,
    dataset,
    failed_attempt,
    items,
    output,
    result,
    run_of,
    scores,
    started,
    whole,
)


def open_positions(store: Store, run: Run, epoch: int = 1, *, fresh: bool = False, limit: int = 100) -> list[int]:
    found: list[int] = []
    after = -1
    while after < run.selection.last:
        page, after = store.open_page(run, epoch, after=after, limit=limit, fresh=fresh)
        found += [stored.position for stored in page]
    return found


def test_all_items_of_a_fresh_run_are_open_in_dataset_order(store: Store) -> None:
    run = started(store, 10)

    page = store.open_items(run, 1, after=-1, limit=4, fresh=True)

    assert [stored.item for stored in page] == items(4)
    assert open_positions(store, run, fresh=True, limit=4) == list(range(10))


def test_items_with_an_output_or_a_result_are_not_open(store: Store) -> None:
    run = started(store, 10)
    store.commit(run.id, changes(outputs=[output(0), output(4)], results=[result(4), result(9, Outcome.ERRORED)]))

    assert open_positions(store, run) == [1, 2, 3, 5, 6, 7, 8]
    assert open_positions(store, run, limit=1) == [1, 2, 3, 5, 6, 7, 8]


def test_each_epoch_has_its_own_open_items(store: Store) -> None:
    run = started(store, 3, epochs=3)
    store.commit(run.id, whole([0, 1]))
    store.commit(run.id, whole([1], epoch=2))

    assert [open_positions(store, run, epoch) for epoch in (1, 2, 3)] == [[2], [0, 2], [0, 1, 2]]


def test_what_another_run_has_done_is_open_here(store: Store) -> None:
    run = started(store, 3)
    other = store.create_run(run_of(run.dataset, id="02other"))
    store.commit(run.id, whole([0]))

    assert open_positions(store, other) == [0, 1, 2]


def test_items_are_those_of_the_runs_version(store: Store) -> None:
    run = started(store, 3)
    dataset(store, [Item("other"), *items(5)[1:]])

    assert [stored.item.id for stored in store.open_items(run, 1, after=-1, limit=9, fresh=True)] == ["q0", "q1", "q2"]


@pytest.mark.parametrize("limit", [1, 2, 9])
@pytest.mark.parametrize("fresh", [True, False])
def test_only_chosen_items_are_open_in_the_order_of_the_list(store: Store, limit: int, fresh: bool) -> None:
    run = store.create_run(run_of(dataset(store), selection=Selection(True, 4, 3), counts=Counts(4)), [7, 0, 9, 2])

    assert open_positions(store, run, fresh=fresh, limit=limit) == [7, 0, 9, 2]
    store.begin_session(run.id)
    store.commit(run.id, whole([0, 9]))
    assert open_positions(store, run, limit=limit) == [7, 2]


def test_a_limit_ends_the_selection(store: Store) -> None:
    run = started(store, 10, selection=Selection(False, 4, 3), counts=Counts(4))

    assert open_positions(store, run, fresh=True) == [0, 1, 2, 3]


def test_nothing_is_open_if_nothing_is_selected(store: Store) -> None:
    run = started(store, 10, selection=Selection(True, 0, -1), counts=Counts(0))

    assert open_positions(store, run, fresh=True) == []


def test_a_list_may_be_long(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept in parts, and a page ends where a part does."""
    monkeypatch.setattr(selected, "PART", 3)
    chosen = [9, 8, 7, 1, 2, 3, 4, 0]
    run = store.create_run(run_of(dataset(store), selection=Selection(True, 8, 7), counts=Counts(8)), chosen)

    assert [len(blob) for (blob,) in store._connection.rows("SELECT positions FROM chosen")] == [12, 12, 8]
    assert open_positions(store, run, fresh=True) == chosen
    for _ in store.delete_run(run.id):
        pass
    assert store._connection.rows("SELECT * FROM chosen") == []


def test_one_page_looks_at_a_bounded_number_of_items(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_AT_ONCE", 4)
    chosen = list(range(10))
    run = store.create_run(run_of(dataset(store), selection=Selection(True, 10, 9), counts=Counts(10)), chosen)
    store.begin_session(run.id)
    store.commit(run.id, whole([0, 2, 3, 4, 5, 6, 7, 8]))

    looks = []
    after = -1
    while after < run.selection.last:
        page, after = store.open_page(run, 1, after=after, limit=5, fresh=False)
        looks.append(([stored.position for stored in page], after))

    assert looks == [([1], 3), ([], 7), ([9], 9)]
    assert open_positions(store, run) == [1, 9]


def test_outputs_come_in_the_order_of_their_commits(store: Store) -> None:
    run = started(store)
    store.commit(run.id, changes(outputs=[output(7), output(3)]))
    store.commit(run.id, changes(outputs=[output(5, said="five", attempts=3)]))

    found, last = store.unscored(run, 0, after=0, limit=10)

    assert [(n, trial.trial_id) for n, trial in found] == [(1, 7), (2, 3), (3, 5)]
    assert last == 3
    trial = found[2][1]
    assert (trial.item, trial.output, trial.attempts) == (items(6)[5], Output("five"), 3)
    assert (trial.scores, trial.waiting, trial.usage) == ({}, 0b11, None)


def test_each_scorer_is_asked_for_what_it_has_not_scored(store: Store) -> None:
    run = started(store)
    store.commit(run.id, changes(outputs=[output(i) for i in range(4)]))
    store.commit(run.id, changes(scores=scores(0, [0]) + scores(1, [1, 2]) + scores(2, [0, 1, 2])))
    store.commit(run.id, changes(results=[result(3)]))

    first, last_of_first = store.unscored(run, 0, after=0, limit=10)
    second, last_of_second = store.unscored(run, 1, after=0, limit=10)

    assert [(trial.trial_id, trial.waiting, sorted(trial.scores)) for _, trial in first] == [(1, 0b01, [1, 2])]
    assert [(trial.trial_id, trial.waiting, sorted(trial.scores)) for _, trial in second] == [(0, 0b10, [0])]
    assert last_of_first == last_of_second == 4


def test_a_page_of_nothing_still_goes_on(store: Store) -> None:
    run = started(store)
    store.commit(run.id, whole(range(4)))
    store.commit(run.id, changes(outputs=[output(4)]))

    assert store.unscored(run, 0, after=0, limit=3) == ([], 3)
    [(n, trial)], last = store.unscored(run, 0, after=3, limit=3)
    assert (n, trial.trial_id, last) == (5, 4, 5)
    assert store.unscored(run, 0, after=5, limit=3) == ([], 5)


def test_outputs_of_other_runs_are_not_seen(store: Store) -> None:
    first = started(store)
    second = store.create_run(run_of(first.dataset, id="02second"))
    third = store.create_run(run_of(first.dataset, id="03third"))
    for position, run in enumerate((first, third, second, first, third)):
        store.commit(run.id, changes(outputs=[output(position)]))

    found, last = store.unscored(second, 0, after=0, limit=10)

    assert [(n, trial.trial_id) for n, trial in found] == [(1, 2)]
    assert last == 1


def test_consumption_so_far_is_that_of_all_attempts(store: Store) -> None:
    run = started(store)
    store.commit(
        run.id,
        changes(
            outputs=[output(0, said=Output("x", usage=Usage(100)))],
            scores=[ScoreRecord(0, 0, Score.scored(1.0, usage=Usage(10)), True)],
            attempts=[
                failed_attempt(0, usage=Usage(1000)),
                failed_attempt(0, 1, usage=Usage(1)),
                failed_attempt(0, 1, 1002),
                failed_attempt(1, usage=Usage(5)),
            ],
        ),
    )

    [(_, trial)], _ = store.unscored(run, 1, after=0, limit=10)

    assert trial.usage == Usage(1111)


def test_the_item_and_the_epoch_of_an_output_are_found(store: Store) -> None:
    run = started(store, 5, epochs=3)
    store.commit(run.id, changes(outputs=[output(4, epoch=3)]))

    [(_, trial)], _ = store.unscored(run, 0, after=0, limit=10)

    assert trial.trial_id == trial_id_of(4, 3)
    assert trial.item.id == f"q{position_of(trial.trial_id)}"
