"""The numbers of a run, as the summary needs them."""

from __future__ import annotations

from array import array
from collections import Counter
from random import Random

import pytest

from evalbus import Failure, FailureCategory, Money, Output, Score, Usage
from evalbus_server.model.numbers import Column, RunNumbers
from evalbus_server.model.run import Outcome, Run
from evalbus_server.model.trial import ScoreRecord, trial_id_of
from evalbus_server.store import Store, numbers
from tests.unit.server.store.making import KEYS, changes, output, result, run_of, scores, started, whole


def test_a_run_without_results_has_no_numbers(store: Store) -> None:
    run = started(store)

    assert store.numbers(run) == RunNumbers(run, dict.fromkeys(range(3), Column()), errored={0: 0, 1: 0, 2: 0})


def test_scores_are_counted_by_key_and_status(store: Store) -> None:
    run = started(store)
    said = [
        Score.scored(1.0),
        Score.scored(0.25),
        Score.skipped("not here"),
        Score.errored("broke"),
        Score.errored("broke"),
    ]
    store.commit(
        run.id,
        changes(
            outputs=[output(i) for i in range(5)],
            scores=[
                ScoreRecord(i, 0, score, None if score.value is None else score.value == 1.0)
                for i, score in enumerate(said)
            ]
            + scores(1, [1]),
            results=[result(5, Outcome.ERRORED), result(6, Outcome.ERRORED)],
        ),
    )

    found = store.numbers(run)

    assert [found.values[key].values.tolist() for key in range(3)] == [[1.0, 0.25], [1.0], []]
    assert found.skipped == {0: 1}
    assert found.errored == {0: 4, 1: 2, 2: 2}


def test_an_errored_trial_with_an_output_is_not_counted_twice(store: Store) -> None:
    run = started(store)
    store.commit(
        run.id,
        changes(
            outputs=[output(0)],
            scores=[*scores(0, [1, 2]), ScoreRecord(0, 0, Score.errored("broke"), None)],
            results=[result(0, Outcome.ERRORED)],
        ),
    )

    assert store.numbers(run).errored == {0: 1, 1: 0, 2: 0}


def test_values_of_an_item_come_by_epoch_in_whatever_order_they_were_stored(store: Store) -> None:
    run = started(store, 3, epochs=2)
    for position, epoch in ((2, 1), (0, 2), (1, 2), (0, 1)):
        value = position + epoch / 10
        store.commit(
            run.id,
            changes(
                scores=scores(position, [2], epoch=epoch, value=value),
                results=[result(position, epoch=epoch, weighted=value)],
            ),
        )

    found = store.numbers(run)

    expected = [
        (trial_id_of(position, epoch), position + epoch / 10) for position, epoch in ((0, 1), (0, 2), (1, 2), (2, 1))
    ]
    assert pairs(found.weighted) == expected
    assert pairs(found.values[2]) == sorted(expected)


def test_one_epoch_needs_no_trial_ids(store: Store) -> None:
    run = started(store, 3)
    store.commit(run.id, whole([2, 0]))

    found = store.numbers(run)

    assert found.values[0] == Column(array("d", [1.0, 1.0]))
    assert found.weighted == Column(array("d", [0.5, 0.5]))


def test_consumption_is_summed_over_results(store: Store) -> None:
    run = started(store)
    usages = [
        Usage(2**62, 1, 2, 3, Money(5)),
        Usage(2**62, 10, 20, 30, Money(50)),
        Usage(2**62),
        None,
    ]
    store.commit(run.id, changes(results=[result(i, usage=usage, attempts=i) for i, usage in enumerate(usages)]))

    found = store.numbers(run)

    assert found.usage == Usage(3 * 2**62, 11, 22, 33, Money(55))
    assert (found.priced, found.with_usage, found.attempts) == (2, 3, 6)


def test_costs_in_two_currencies_have_no_sum(store: Store) -> None:
    run = started(store)
    costs = [Money(1), Money(2, "EUR"), Money(3)]
    store.commit(run.id, changes(results=[result(i, usage=Usage(cost=cost)) for i, cost in enumerate(costs)]))

    assert store.numbers(run).usage.cost is None


def test_latencies_and_failures_are_listed(store: Store) -> None:
    run = started(store)
    timeout, refused = Failure(FailureCategory.TIMEOUT, ""), Failure(FailureCategory.REFUSED, "")
    store.commit(
        run.id,
        changes(
            outputs=[
                output(1, latency=0.5),
                output(0, latency=0.25),
                output(2, latency=None),
                output(3, said=Output(1)),
            ],
            results=[
                result(4, Outcome.ERRORED, failure=timeout),
                result(5, Outcome.ERRORED, failure=timeout),
                result(6, Outcome.ERRORED, failure=refused),
            ],
        ),
    )

    found = store.numbers(run)

    assert sorted(found.latencies_ms) == [250.0, 250.0, 500.0]
    assert found.failures == {FailureCategory.TIMEOUT: 2, FailureCategory.REFUSED: 1}


@pytest.fixture
def paged(store: Store, monkeypatch: pytest.MonkeyPatch) -> Run:
    run = started(store, 20)
    other = store.create_run(run_of(run.dataset, id="02other"))
    store.commit(other.id, whole(range(5)))
    store.commit(run.id, whole(range(20)))
    store.commit(other.id, whole(range(5, 10)))
    monkeypatch.setattr(numbers, "_AT_ONCE", 7)
    return run


def test_pages_make_no_difference(store: Store, paged: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    in_pages = store.numbers(paged)
    monkeypatch.undo()

    assert in_pages == store.numbers(paged)
    assert len(in_pages.values[0].values) == len(in_pages.weighted.values) == len(in_pages.latencies_ms) == 20


async def test_the_loop_runs_between_pages(store: Store, paged: Run) -> None:
    assert await store.numbers_in_turns(paged) == store.numbers(paged)


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("size", [1, 7, 12, 1000])
def test_every_score_is_found_where_some_are_missing(
    store: Store, monkeypatch: pytest.MonkeyPatch, epochs: int, size: int
) -> None:
    """Pages are read in two ways, depending on whether something is missing in them."""
    run = started(store, 60, epochs=epochs)
    random = Random(size)
    expected: dict[int, list[tuple[int, float]]] = {0: [], 1: [], 2: []}
    skipped: Counter[int] = Counter()
    for epoch in range(1, epochs + 1):
        for position in range(60):
            whole_stretch = position % 30 < 15
            for key in range(3):
                said = 1.0 if whole_stretch else random.random()
                if said < 0.1:
                    continue
                score = Score.skipped("") if said < 0.2 else Score.scored(said, name=KEYS[key].declaration.name)
                store.commit(run.id, changes(scores=[ScoreRecord(trial_id_of(position, epoch), key, score, None)]))
                if score.value is None:
                    skipped[key] += 1
                else:
                    expected[key].append((trial_id_of(position, epoch), score.value))
    monkeypatch.setattr(numbers, "_AT_ONCE", size)

    found = store.numbers(run)

    assert {key: column.values.tolist() for key, column in found.values.items()} == {
        key: [value for _, value in rows] for key, rows in expected.items()
    }
    assert epochs == 1 or {key: pairs(column) for key, column in found.values.items()} == expected
    assert found.skipped == skipped


def test_items_far_apart_take_a_page_each_and_no_more(store: Store) -> None:
    run = started(store, 5)
    far = [0, 1_000_000, 3_000_000_000]
    store.commit(run.id, changes(scores=[score for position in far for score in scores(position)]))

    found = store.numbers(run)

    assert [len(column.values) for column in found.values.values()] == [3, 3, 3]


@pytest.mark.parametrize("epochs", [1, 2])
def test_every_page_is_a_range_of_a_primary_key(store: Store, epochs: int) -> None:
    run = started(store, 10, epochs=epochs)
    store.commit(run.id, whole(range(5)))
    failed = result(6, Outcome.ERRORED, failure=Failure(FailureCategory.TIMEOUT, ""), usage=Usage(1))
    store.commit(run.id, changes(scores=[ScoreRecord(6, 0, Score.skipped(""), None)], results=[failed]))
    raw = store._connection.raw
    statements: list[str] = []
    raw.set_trace_callback(statements.append)
    store.numbers(run)
    raw.set_trace_callback(None)
    asked = [sql for sql in statements if sql.split()[0] == "SELECT"]

    plans = {step[3] for sql in asked for step in raw.execute(f"EXPLAIN QUERY PLAN {sql}")}

    assert {plan for plan in plans if "SUBQUERY" not in plan} == {
        "SEARCH score USING PRIMARY KEY (run=? AND trial>?)",
        "SEARCH score USING PRIMARY KEY (run=? AND trial>? AND trial<?)",
        "SEARCH output USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
        "SEARCH result USING PRIMARY KEY (run=? AND position>?)",
        "SEARCH r USING PRIMARY KEY (run=? AND position>? AND position<?)",
        "SEARCH o USING COVERING INDEX output_trial (run=? AND trial=?)",
        "SEARCH metric USING PRIMARY KEY (run=?)",
    }


def pairs(column: Column) -> list[tuple[int, float]]:
    """Trial ids and values."""
    return list(zip(column.trials, column.values, strict=True))
