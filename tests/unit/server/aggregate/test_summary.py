"""The summary of a run."""

from __future__ import annotations

from array import array
from dataclasses import astuple, replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import FailureCategory, Money, Usage
from evalbus_server.aggregate import ordered
from evalbus_server.aggregate.reduce import parse_reducer
from evalbus_server.aggregate.steps import Work
from evalbus_server.aggregate.summary import summarise, summarise_in_steps
from evalbus_server.model.bounds import Criterion
from evalbus_server.model.numbers import Column, RunNumbers
from evalbus_server.model.run import Counts, RunState, Verdict
from evalbus_server.model.summary import Distribution, Interval
from tests.unit.server.aggregate import vectors
from tests.unit.server.aggregate.runs import ERROR, SKIP, key, lower, numbers_of, run_of

SAID: st.SearchStrategy[Any] = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, ERROR, SKIP]))


def in_order_of_trials(column: Column) -> Column:
    """A column in the order in which a store has it: epoch by epoch."""
    pairs = sorted(zip(column.trials, column.values, strict=True))
    return Column(array("d", [value for _, value in pairs]), array("q", [trial for trial, _ in pairs]))


class TestScores:
    def test_errored_and_skipped_trials_are_counted_and_left_out_of_the_mean(self):
        [score] = summarise(numbers_of({key(): [1, 0.5, ERROR, SKIP]})).scores
        assert (score.n, score.n_trials, score.errored, score.skipped) == (2, 2, 1, 1)
        assert (score.mean, score.sum, score.min, score.max, score.median) == (0.75, 1.5, 0.5, 1.0, 0.75)
        assert score.coverage == pytest.approx(2 / 3)

    def test_nothing_scored_has_no_numbers_at_all(self):
        [score] = summarise(numbers_of({key(threshold=0.5): [SKIP, SKIP]})).scores
        numbers = (score.mean, score.median, score.min, score.max, score.sum, score.std, score.stderr, score.interval)
        assert numbers == (None,) * 8
        assert (score.pass_rate, score.coverage) == (None, None)
        assert score.distribution == Distribution()
        assert score.n == 0

    def test_epochs_are_reduced_by_item_first(self):
        numbers = numbers_of({key(): [[1, 1, 1], [0, ERROR, ERROR]]})
        [score] = summarise(numbers).scores
        assert score.mean == 0.5  # and not 3 of 4 trials
        assert (score.n, score.n_trials) == (2, 4)

    def test_the_runs_reducer_decides_how(self):
        numbers = numbers_of({key(threshold=0.5): [[1, 0, 0], [0.4, 0.4, 0.6]]})
        means = {
            text: summarise(numbers, reducer=parse_reducer(text, 3)).scores[0].mean
            for text in ("max", "min", "all", "any", "pass_at(2)", "pass_hat(1)")
        }
        assert means == pytest.approx(
            {"max": 0.8, "min": 0.2, "all": 0.0, "any": 1.0, "pass_at(2)": 2 / 3, "pass_hat(1)": 1 / 3}
        )

    def test_items_with_too_few_scored_trials_have_no_part_in_the_mean(self):
        numbers = numbers_of({key(): [[1, 1], [1, ERROR]]})
        [score] = summarise(numbers, reducer=parse_reducer("pass_at(2)", 2)).scores
        assert (score.n, score.n_trials, score.mean) == (1, 3, 1.0)

    def test_the_pass_rate_counts_errors_against_it(self):
        [score] = summarise(numbers_of({key(threshold=0.5): [1, 0, ERROR, SKIP]})).scores
        assert score.pass_rate == pytest.approx(1 / 3)
        assert score.threshold == 0.5

    def test_without_a_threshold_there_is_no_pass_rate(self):
        assert summarise(numbers_of({key(): [1, 1]})).scores[0].pass_rate is None

    def test_a_threshold_of_zero_has_a_pass_rate(self):
        assert summarise(numbers_of({key(threshold=0.0): [0, 0]})).scores[0].pass_rate == 1.0

    def test_zeros_and_ones_have_an_interval_that_works_at_the_edges(self):
        [score] = summarise(numbers_of({key(): [0] * 20})).scores
        assert score.interval is not None
        assert (score.interval.low, score.interval.high) == pytest.approx((0.0, 0.16112515805281938), abs=1e-12)

    def test_other_values_have_one_that_stays_in_the_range(self):
        [score] = summarise(numbers_of({key(): [0.9, 1, 0.2]})).scores
        assert score.interval == Interval(0.0, 1.0)
        [unbounded] = summarise(numbers_of({key(maximum=None): [0.9, 1, 0.2]})).scores
        assert unbounded.interval is not None
        assert unbounded.interval.high > 1.0

    def test_the_distribution_is_over_trials(self):
        [score] = summarise(numbers_of({key(): [[1, 0], [1, 1]]})).scores
        assert [(each.value, each.count) for each in score.distribution.values] == [(1.0, 3), (0.0, 1)]

    def test_scores_come_in_the_order_of_the_experiment(self):
        scores = summarise(numbers_of({key("b"): [1], key("a"): [0]})).scores
        assert [score.key for score in scores] == ["b", "a"]


class TestRun:
    def test_rates_count_trials_and_errors_against_the_pass_rate(self):
        found = summarise(numbers_of({key(threshold=0.5): [1, 1, 0, ERROR, SKIP]}))
        assert (found.pass_rate, found.coverage) == (0.5, 0.75)

    def test_nothing_run_has_no_rates(self):
        found = summarise(RunNumbers(run_of([], Counts(planned=3))))
        assert (found.pass_rate, found.coverage, found.weighted, found.latency, found.priced_share) == (None,) * 5

    def test_weighted_is_the_mean_over_items(self):
        numbers = numbers_of({key("a", weight=1.0): [[1, 1], [0, 0]], key("b", weight=3.0): [[0, SKIP], [1, 1]]})
        assert summarise(numbers).weighted == pytest.approx((0.25 + 1 + 0.75 + 0.75) / 4)

    def test_a_reducer_of_values_reduces_the_weighted_scores_too(self):
        numbers = numbers_of({key(): [[1, 0.2], [0.4, 0]]})
        assert summarise(numbers, reducer=parse_reducer("max", 2)).weighted == pytest.approx(0.7)

    def test_one_that_only_counts_passes_leaves_them_their_mean(self):
        numbers = numbers_of({key(): [[1, 0.2], [0.4, 0]]})
        assert summarise(numbers, reducer=parse_reducer("any", 2)).weighted == pytest.approx(0.4)

    def test_latency_usage_failures_and_attempts_are_handed_on(self):
        numbers = replace(
            numbers_of({key(): [1]}),
            latencies_ms=array("d", [30.0, 10.0, 20.0]),
            usage=Usage(1, 2, cost=Money(5)),
            priced=1,
            with_usage=4,
            failures={FailureCategory.INTERNAL: 2, FailureCategory.TIMEOUT: 1},
            attempts=7,
        )
        found = summarise(numbers)
        assert found.latency is not None
        assert astuple(found.latency) == pytest.approx((20.0, 20.0, 28.0, 29.0, 29.8))
        assert (found.usage, found.priced_share, found.attempts) == (numbers.usage, 0.25, 7)
        assert found.failures == ((FailureCategory.TIMEOUT, 1), (FailureCategory.INTERNAL, 2))

    @pytest.mark.parametrize(
        ("ended", "now", "seconds"), [(105.0, None, 5.0), (105.0, 900.0, 5.0), (None, 103.0, 3.0), (None, None, 0.0)]
    )
    def test_the_wall_time_goes_on_until_the_run_has_ended(self, ended, now, seconds):
        numbers = RunNumbers(run_of([], Counts(), started_at=100.0, ended_at=ended))
        assert summarise(numbers, now=now).wall_time == seconds

    def test_a_run_that_has_not_started_took_no_time(self):
        assert summarise(RunNumbers(run_of([], Counts(), started_at=None)), now=5.0).wall_time == 0.0

    @given(st.lists(st.tuples(SAID, SAID), min_size=1), st.randoms())
    def test_rows_in_any_order_give_the_same_summary(self, said, random):
        numbers = numbers_of({key("a", threshold=0.5): [a for a, _ in said], key("b"): [b for _, b in said]})
        expected = summarise(numbers)
        for column in (*numbers.values.values(), numbers.weighted):
            random.shuffle(column.values)
        assert summarise(numbers) == expected

    @given(st.lists(st.lists(SAID, min_size=3, max_size=3), min_size=1), st.sampled_from(["mean", "mode", "any"]))
    def test_epochs_one_after_the_other_give_the_same_as_items_one_after_the_other(self, said, name):
        numbers = numbers_of({key(threshold=0.5): said})
        reducer = parse_reducer(name, 3)
        expected = summarise(numbers, reducer=reducer)
        by_epoch = replace(
            numbers,
            values={position: in_order_of_trials(column) for position, column in numbers.values.items()},
            weighted=in_order_of_trials(numbers.weighted),
        )
        assert summarise(by_epoch, reducer=reducer) == expected

    def test_a_caller_may_do_something_else_between_short_steps(self):
        numbers = numbers_of({key(): [number / 1000 for number in range(1000)]})
        with mock.patch.object(ordered, "STEP", 10):
            work = Work(summarise_in_steps(numbers))
            steps = sum(1 for _ in work)
        assert steps > 100
        assert work.result == summarise(numbers)

    @given(st.lists(st.tuples(SAID, SAID), min_size=1), st.integers(0, 5))
    def test_every_trial_is_counted_once(self, said, pending):
        numbers = numbers_of(
            {key("a", threshold=0.5): [a for a, _ in said], key("b"): [b for _, b in said]}, planned=len(said) + pending
        )
        found = summarise(numbers)
        counts = found.run.counts
        assert counts.planned == counts.passed + counts.failed + counts.errored + counts.skipped + counts.pending
        assert counts.pending == pending
        for score in found.scores:
            assert score.n_trials + score.errored + score.skipped == counts.done
            assert score.mean is None or 0.0 <= score.mean <= 1.0
            assert (score.mean is None) == (score.n == 0)


def test_case_ag_01_what_errors_do_to_the_average():
    [row] = vectors.rows("aggregation_cases.jsonl", case="AG-01")
    said: dict[str, Any] = {"pass": 1.0, "fail": 0.0, "error": ERROR}
    found = summarise(numbers_of({key(threshold=1.0): [said[each] for each in row["items"]]}))
    [score] = found.scores
    assert (found.run.counts.done, score.n, score.errored) == (row["n_total"], row["n_scored"], row["n_error"])
    assert score.mean == row["pass_rate_of_scored"]
    assert found.pass_rate == score.pass_rate == row["pass_rate_of_total"]


def test_case_ag_02_every_item_errors():
    [row] = vectors.rows("aggregation_cases.jsonl", case="AG-02")
    found = summarise(numbers_of({key(threshold=1.0): row["items"]}))
    assert (found.scores[0].mean, found.pass_rate, found.scores[0].errored) == (None, 0.0, 5)
    # On purpose: nothing was found wrong with the target, so nothing is concluded; it is still never a PASS.
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("row", vectors.rows("aggregation_cases.jsonl", case="AG-10"), ids=vectors.name_of)
def test_case_ag_10_an_average_exactly_at_the_threshold(row):
    numbers = numbers_of({key(): row["scores"]})
    criterion = Criterion(metric="mean", scorer="score", min=row["threshold"])
    assert summarise(numbers, [criterion]).verdict is Verdict[row["verdict"]]


@pytest.mark.parametrize("row", vectors.rows("numbers.jsonl", function="e2e.epochs"), ids=vectors.name_of)
def test_a_whole_run_with_epochs_gives_the_numbers_of_another_system(row):
    said: list[list[Any]] = [
        [SKIP if each == "U" else each for each in item] for item in row["input"]["scores"].values()
    ]
    for theirs in row["expected"]["scores"]:
        name = (theirs["reducer"] or "mean").replace("pass_k_2", "pass_hat(2)").replace("at_least_2", "at_least(2)")
        [score] = summarise(numbers_of({key(): said}), reducer=parse_reducer(name, 3)).scores
        assert score.n == theirs["scored"]
        assert score.mean == pytest.approx(theirs["metrics"]["mean"], abs=1e-9)
        assert score.stderr == pytest.approx(theirs["metrics"]["stderr"], abs=1e-9)


def test_a_partial_run_has_its_numbers_and_no_verdict():
    found = summarise(numbers_of({key(threshold=0.5): [1, 1]}, planned=5, state=RunState.CANCELLED))
    assert found.pass_rate == 1.0
    assert found.run.counts.pending == 3
    assert found.verdict is Verdict.INCONCLUSIVE


def test_lower_is_better_scores_pass_at_the_threshold_or_below():
    [score] = summarise(numbers_of({lower(threshold=3.0): [2, 3, 4]}), reducer=parse_reducer("all", 1)).scores
    assert score.mean == score.pass_rate == pytest.approx(2 / 3)
