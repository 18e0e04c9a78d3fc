"""The hot path: one transaction for what happened to many trials."""

from __future__ import annotations

import sqlite3

import pytest

from evalbus import Failure, FailureCategory, Money, Output, Score, ScoreStatus, Usage
from evalbus_server.errors import Reason, StoreTrouble
from evalbus_server.model.event import TrialsEnded
from evalbus_server.model.run import Counts, Outcome, Run
from evalbus_server.model.trial import Changes, ScoreRecord, trial_id_of
from evalbus_server.store import Store
from tests.unit.server.store.making import (
    changes,
    dataset,
    failed_attempt,
    output,
    result,
    run_of,
    scores,
    started,
    whole,
)


@pytest.fixture
def run(store: Store) -> Run:
    return started(store, 300)


def stored(store: Store, table: str) -> int:
    return store._connection.rows(f"SELECT count(*) FROM {table}")[0][0]


def test_a_commit_says_what_is_true_now(store: Store, run: Run) -> None:
    first = store.commit(run.id, changes(outputs=[output(0), output(1)]))
    second = store.commit(run.id, changes(scores=scores(0), results=[result(0, Outcome.FAILED)]))

    assert (first.last_n, first.sequence, first.counts) == (2, None, Counts(300))
    assert (second.last_n, second.sequence, second.counts) == (2, run.last_sequence + 1, Counts(300, failed=1))
    assert store.run(run.id).counts == second.counts == store.counts(run)
    assert store.output_count(run) == 2


def test_a_commit_with_results_is_one_event(store: Store, run: Run) -> None:
    results = [result(0), result(1, Outcome.SKIPPED), result(2, Outcome.ERRORED), result(3, Outcome.FAILED)]

    committed = store.commit(run.id, changes(results=results))

    assert committed.sequence is not None
    [event] = store.events(run.id, after=committed.sequence - 1, limit=9)
    assert event.fact == TrialsEnded(
        ((0, Outcome.PASSED), (1, Outcome.SKIPPED), (2, Outcome.ERRORED), (3, Outcome.FAILED)),
        Counts(300, 1, 1, 1, 1),
    )
    assert store.last_sequence(run.id) == event.sequence


def test_a_commit_of_nothing_changes_nothing(store: Store, run: Run) -> None:
    committed = store.commit(run.id, changes())

    assert (committed.last_n, committed.sequence, committed.counts) == (0, None, Counts(300))


def test_many_trials_of_all_shapes_are_stored(store: Store, run: Run) -> None:
    mixed = whole(range(300))
    mixed.outputs[::3] = [output(i, said=Output([i], usage=Usage(1), trace_ids=["t"])) for i in range(0, 300, 3)]
    mixed.results[::2] = [result(i, usage=Usage(i)) for i in range(0, 300, 2)]

    store.commit(run.id, mixed)

    page = store.results(run, limit=400)
    assert [found.output for found in page] == [record.output for record in mixed.outputs]
    assert [found.usage for found in page] == [record.usage for record in mixed.results]
    assert all(len(found.scores) == 3 for found in page)


def test_the_first_output_and_the_first_result_of_a_trial_stand(store: Store, run: Run) -> None:
    store.commit(run.id, changes(outputs=[output(0, said="first")], results=[result(0)]))

    committed = store.commit(
        run.id,
        changes(
            outputs=[output(0, said="second"), output(1)],
            results=[result(0, Outcome.FAILED), result(1, Outcome.FAILED)],
        ),
    )

    assert committed.repeated_outputs == committed.repeated_results == (0,)
    assert committed.counts == store.counts(run) == Counts(300, passed=1, failed=1)
    assert [(found.outcome, str(found.output.content)) for found in store.results(run) if found.output] == [
        (Outcome.PASSED, "first"),
        (Outcome.FAILED, "said 1"),
    ]
    assert committed.sequence is not None
    [event] = store.events(run.id, after=committed.sequence - 1, limit=9)
    assert event.fact == TrialsEnded(((1, Outcome.FAILED),), committed.counts)


def test_a_repetition_within_one_commit_is_left_out(store: Store, run: Run) -> None:
    committed = store.commit(
        run.id, changes(outputs=[output(0, said="first"), output(0)], results=[result(0), result(0, Outcome.FAILED)])
    )

    assert committed.repeated_outputs == committed.repeated_results == (0,)
    assert committed.counts == Counts(300, passed=1)
    assert stored(store, "output") == stored(store, "result") == 1


def test_a_repeated_commit_is_left_out_as_a_whole(store: Store, run: Run) -> None:
    all_of_it = whole(range(3))._replace(attempts=[failed_attempt(0), failed_attempt(0, 1)])
    store.commit(run.id, all_of_it)
    before = store.last_sequence(run.id)

    committed = store.commit(run.id, all_of_it)

    assert committed.sequence is None
    assert committed.repeated_results == (0, 1, 2)
    assert [stored(store, table) for table in ("output", "score", "attempt", "result")] == [3, 9, 2, 3]
    assert store.last_sequence(run.id) == before


def test_the_first_score_of_a_key_stands(store: Store, run: Run) -> None:
    store.commit(run.id, changes(scores=scores(0, value=1.0)))
    store.commit(run.id, changes(scores=scores(0, value=0.0) + scores(1, value=0.0)))

    assert store.numbers(run).values[0].values.tolist() == [1.0, 0.0]


def test_numbers_of_outputs_go_on_after_a_restart(store: Store, run: Run) -> None:
    store.commit(run.id, changes(outputs=[output(0), output(1)]))
    store._standings.clear()

    assert store.commit(run.id, changes(outputs=[output(2)])).last_n == 3


def test_two_runs_do_not_meet(store: Store, run: Run) -> None:
    other = store.create_run(run_of(run.dataset, id="02other"))

    store.commit(run.id, whole([0, 1]))
    committed = store.commit(other.id, whole([0]))

    assert (committed.last_n, committed.counts) == (1, Counts(300, passed=1))
    assert store.run(run.id).counts == Counts(300, passed=2)
    assert store.output_count(other) == 1


BROKEN: list[tuple[str, Changes, str]] = [
    ("tokens", changes(outputs=[output(0), output(1, said=Output("x", usage=Usage(2**63)))]), "output of item 2"),
    ("money", changes(outputs=[output(4, said=Output("x", usage=Usage(cost=Money(2**64))))]), "more than 63 bits"),
    ("surrogate", changes(outputs=[output(0, epoch=3, said="\udc00")]), "output of item 1 in epoch 3"),
    ("latency", changes(outputs=[output(0, latency=float("nan"))]), "nan is not a finite number"),
    ("value", changes(scores=[ScoreRecord(7, 0, Score.scored(float("inf")), True)]), "score of item 8"),
    ("no value", changes(scores=[ScoreRecord(0, 0, Score(ScoreStatus.SCORED), None)]), "CHECK constraint"),
    ("weighted", changes(results=[result(0, weighted=float("-inf"))]), "result of item 1"),
    ("wait", changes(attempts=[failed_attempt(0)._replace(duration=float("inf"))]), "failed attempt of item 1"),
    (
        "retry",
        changes(results=[result(0, failure=Failure(FailureCategory.TIMEOUT, "", retry_after=float("nan")))]),
        "not JSON compliant",
    ),
]


@pytest.mark.parametrize(("broken", "said"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_has_no_form_in_the_file_is_refused_and_nothing_is_stored(
    store: Store, run: Run, broken: Changes, said: str
) -> None:
    with pytest.raises(StoreTrouble, match=said) as caught:
        store.commit(run.id, broken._replace(results=[*broken.results, result(99)]))

    assert caught.value.reason is Reason.INTERNAL
    assert [stored(store, table) for table in ("output", "score", "attempt", "result")] == [0, 0, 0, 0]
    assert store.commit(run.id, whole([0])).counts == Counts(300, passed=1)


def test_no_number_in_the_file_is_ever_missing_by_accident(store: Store, run: Run) -> None:
    """ST-08: a score that is not a number is never stored, and other statuses have no value at all."""
    store.commit(
        run.id,
        changes(
            scores=[
                ScoreRecord(0, 0, Score.scored(0.5), True),
                ScoreRecord(1, 0, Score.skipped("no expected answer"), None),
                ScoreRecord(2, 0, Score.errored("broke"), None),
            ]
        ),
    )

    strange = "SELECT count(*) FROM score WHERE status = 1 AND (value IS NULL OR abs(value) > 1e308)"
    assert store._connection.rows(strange) == [(0,)]
    assert store._connection.rows("SELECT count(*) FROM score WHERE value < 1") == [(1,)]
    for value in ("NULL", "9e999", "-9e999"):
        with pytest.raises(sqlite3.IntegrityError):
            store._connection.raw.execute(f"INSERT INTO score VALUES (1, 9, 0, 1, {value}, NULL, '', '', '', NULL)")


def test_a_run_that_is_gone_has_no_rows(store: Store, run: Run) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        store._connection.raw.execute(
            "INSERT INTO result (run, position, epoch, outcome, attempts) VALUES (99, 0, 1, 1, 1)"
        )


def test_a_trial_id_of_the_last_epoch_is_kept(store: Store, run: Run) -> None:
    store.commit(run.id, whole([299], epoch=10_000))

    [found] = store.results(run)
    assert found.trial_id == trial_id_of(299, 10_000)


def test_a_failed_commit_leaves_the_numbers_right(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    store.commit(run.id, whole([0]))
    with pytest.raises(StoreTrouble):
        store.commit(run.id, whole([1])._replace(results=[result(1, weighted=float("nan"))]))

    committed = store.commit(run.id, whole([1]))

    assert (committed.last_n, committed.sequence) == (2, run.last_sequence + 2)


def test_more_than_a_block_of_rows_is_stored_in_order(store: Store, run: Run) -> None:
    store.commit(run.id, changes(outputs=[output(i) for i in range(299, -1, -1)]))

    [first, *_], last = store.unscored(run, 0, after=0, limit=300)
    assert (first[0], first[1].trial_id, last) == (1, 299, 300)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_cancelled_commit_is_rolled_back(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalbus_server.store.commit._tell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.commit(run.id, whole([0]))
    monkeypatch.undo()

    assert stored(store, "output") == 0
    assert store.commit(run.id, whole([0])).last_n == 1
    assert dataset(store, 300) == run.dataset
