"""The numbers of a run, as the summary needs them."""

from __future__ import annotations

import pytest

from evalbus import Failure, FailureCategory, Money, Output, Score, Usage
from evalbus_server.model.numbers import RunNumbers
from evalbus_server.model.run import Outcome, Run
from evalbus_server.model.trial import ScoreRecord, trial_id_of
from evalbus_server.store import Store, numbers
from tests.unit.server.store.making import changes, output, result, run_of, scores, started, whole


def test_a_run_without_results_has_no_numbers(store: Store) -> None:
    run = started(store)

    assert store.numbers(run) == RunNumbers(run, errored={0: 0, 1: 0, 2: 0})


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

    assert found.values == {0: [(0, 1.0), (1, 0.25)], 1: [(1, 1.0)]}
    assert found.passed == {0: 1}
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


def test_values_come_by_trial_id_in_whatever_order_they_were_stored(store: Store) -> None:
    run = started(store, 3, epochs=2)
    for position, epoch in ((2, 1), (0, 2), (1, 2), (0, 1)):
        store.commit(run.id, whole([position], epoch=epoch))

    found = store.numbers(run)

    trials = [trial_id_of(0, 1), trial_id_of(2, 1), trial_id_of(0, 2), trial_id_of(1, 2)]
    assert [trial for trial, _ in found.values[2]] == trials
    assert found.weighted == [(trial, 0.5) for trial in trials]


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

    assert found.latencies_ms == [250.0, 500.0, 250.0]
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
    assert len(in_pages.values[0]) == len(in_pages.weighted) == len(in_pages.latencies_ms) == 20


async def test_the_loop_runs_between_pages(store: Store, paged: Run) -> None:
    assert await store.numbers_in_turns(paged) == store.numbers(paged)
