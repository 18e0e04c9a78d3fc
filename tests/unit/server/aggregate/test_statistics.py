"""Means, spread, intervals, percentiles and distributions."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus_server.aggregate import statistics
from evalbus_server.model.summary import Bin, Distribution, Interval, ValueCount
from tests.unit.server.aggregate import vectors

FINITE = st.floats(allow_nan=False, allow_infinity=False)
MODERATE = st.floats(-1e6, 1e6)


class TestMean:
    def test_nothing_has_no_mean(self):
        assert statistics.mean([]) is None

    def test_three_times_0_7_is_0_7(self):
        assert statistics.mean([0.7, 0.7, 0.7]) == 0.7

    @given(st.lists(FINITE, min_size=1), st.randoms())
    def test_it_lies_among_the_values_and_is_the_same_in_any_order(self, values, random):
        found = statistics.exact_mean(values)
        assert min(values) <= found <= max(values)
        random.shuffle(values)
        assert statistics.exact_mean(values) == found

    @given(FINITE, st.integers(1, 50))
    def test_the_mean_of_equal_values_is_that_value(self, value, count):
        assert statistics.exact_mean([value] * count) == value

    @given(st.lists(FINITE, min_size=1))
    def test_it_is_exact_to_the_last_digits(self, values):
        exact = sum(map(Fraction, values)) / len(values)
        assert statistics.exact_mean(values) == pytest.approx(float(exact), rel=1e-15, abs=1e-323)


class TestWeightedMean:
    @given(st.lists(st.tuples(FINITE, st.floats(1e-3, 1e3)), min_size=1))
    def test_it_lies_among_the_values_and_is_the_same_in_any_order(self, pairs):
        values, weights = [value for value, _ in pairs], [weight for _, weight in pairs]
        found = statistics.weighted_mean(values, weights)
        assert found is not None
        assert min(values) <= found <= max(values)
        assert statistics.weighted_mean(values[::-1], weights[::-1]) == found

    @pytest.mark.parametrize("row", vectors.rows("numbers.jsonl", function="weighted_score"), ids=vectors.name_of)
    def test_another_system_weighs_the_same(self, row):
        records = {name: each.get("correction", each["score"]) for name, each in row["input"]["records"].items()}
        scored = {name: float(value) for name, value in records.items() if value is not None}
        weights = [row["input"]["weights"].get(name) for name in scored]
        assert statistics.weighted_mean(list(scored.values()), weights) == row["expected"]


class TestTotal:
    def test_nothing_has_no_sum(self):
        assert statistics.total([]) is None

    @given(st.lists(FINITE, min_size=1), st.randoms())
    def test_it_is_exact_in_any_order(self, values, random):
        try:
            exact = float(sum(map(Fraction, values)))
        except OverflowError:
            exact = None
        assert statistics.total(values) == exact
        random.shuffle(values)
        assert statistics.total(values) == exact


class TestSpread:
    @pytest.mark.parametrize("function", [statistics.std, statistics.stderr, statistics.t_interval])
    @pytest.mark.parametrize("values", [[], [0.5]])
    def test_fewer_than_two_values_have_none(self, function, values):
        assert function(values) is None

    @given(st.lists(FINITE, min_size=2), st.randoms())
    def test_it_is_never_negative_nor_infinite_and_the_same_in_any_order(self, values, random):
        found = statistics.std(values)
        assert found is None or (found >= 0.0 and math.isfinite(found))
        random.shuffle(values)
        assert statistics.std(values) == found

    @given(MODERATE, st.integers(2, 50))
    def test_equal_values_have_none_at_all(self, value, count):
        assert statistics.std([value] * count) == 0.0

    def test_values_too_small_to_be_squared_still_have_one(self):
        assert statistics.std([1e-200, 3e-200]) == pytest.approx(math.sqrt(2) * 1e-200, rel=1e-12)

    @given(st.lists(MODERATE, min_size=2, max_size=20))
    def test_with_each_value_in_its_own_cluster_the_clustered_error_is_the_plain_one(self, values):
        error, clusters = statistics.clustered_stderr(values, range(len(values)))
        assert clusters == len(values)
        assert error == pytest.approx(statistics.stderr(values), rel=1e-9, abs=1e-9)

    def test_a_single_cluster_has_no_error_but_is_counted(self):
        assert statistics.clustered_stderr([1.0, 0.0, 1.0], ["a", "a", "a"]) == (None, 1)

    def test_no_value_has_no_cluster(self):
        assert statistics.clustered_stderr([], []) == (None, 0)


class TestIntervals:
    @given(st.integers(1, 10_000), st.data())
    def test_wilson_holds_the_rate_and_stays_within_0_and_1(self, count, data):
        passed = data.draw(st.integers(0, count))
        found = statistics.wilson(passed, count)
        assert found is not None
        assert 0.0 <= found.low <= passed / count <= found.high <= 1.0

    def test_wilson_of_nothing_is_none(self):
        assert statistics.wilson(0, 0) is None

    @pytest.mark.parametrize(
        ("freedom", "quantile"),
        [(1, 12.7062047361747), (2, 4.30265272974946), (5, 2.57058183563631), (30, 2.04227245630124), (10**9, 1.96)],
    )
    def test_the_quantiles_of_t_are_those_of_the_tables(self, freedom, quantile):
        assert statistics.t_quantile(freedom) == pytest.approx(quantile, rel=1e-4 if freedom > 30 else 1e-12)

    def test_the_quantile_of_t_falls_without_a_jump(self):
        quantiles = [statistics.t_quantile(freedom) for freedom in range(990, 1010)]
        steps = [before - after for before, after in pairwise(quantiles)]
        assert all(2e-6 < step < 3e-6 for step in steps)

    def test_the_bootstrap_is_reproducible_and_holds_the_mean(self):
        values = [number / 10 for number in range(10)]
        found = statistics.bootstrap(values, seed=7, resamples=500)
        assert found is not None
        assert found.low < 0.45 < found.high
        assert statistics.bootstrap(values[::-1], seed=7, resamples=500) == found
        assert statistics.bootstrap(values, seed=8, resamples=500) != found

    def test_the_bootstrap_of_one_value_is_none(self):
        assert statistics.bootstrap([1.0], seed=0) is None


class TestPercentiles:
    def test_they_lie_on_the_line_between_neighbours(self):
        values = [40.0, 10.0, 30.0, 20.0]
        assert statistics.percentiles(values, [0, 50, 90, 100]) == pytest.approx([10.0, 25.0, 37.0, 40.0])

    def test_of_one_value_each_is_that_value(self):
        assert statistics.percentile([3.0], 99) == 3.0

    def test_of_nothing_there_is_none(self):
        assert statistics.percentile([], 50) is None
        assert statistics.median([]) is None

    @given(st.lists(FINITE, min_size=1), st.floats(0, 100))
    def test_they_lie_among_the_values(self, values, percent):
        found = statistics.percentile(values, percent)
        assert found is not None
        assert min(values) <= found <= max(values)

    @given(st.lists(MODERATE, min_size=1))
    def test_half_of_all_lie_below_the_median(self, values):
        assert statistics.median(values) == pytest.approx(statistics.percentile(values, 50), rel=1e-12)


class TestDistribution:
    def test_nothing_is_distributed_nowhere(self):
        assert statistics.distribution([]) == Distribution()

    def test_the_five_most_frequent_come_first_and_of_equals_the_smaller(self):
        found = statistics.distribution([0.3, 0.9, 0.9, 0.1, 0.2, 0.5, 0.4, 0.6])
        assert [each.value for each in found.values] == [0.9, 0.1, 0.2, 0.3, 0.4]
        assert found.values[0] == ValueCount(0.9, 2, 0.25)
        assert found.other == 2

    def test_the_last_bin_holds_its_end(self):
        found = statistics.distribution([0.0, 0.05, 0.1, 1.0, 1.0])
        assert [each.count for each in found.histogram] == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]
        assert found.histogram[0].low == 0.0
        assert found.histogram[-1].high == 1.0

    def test_equal_values_share_one_bin(self):
        assert statistics.distribution([5.0, 5.0, 5.0]).histogram == (Bin(5.0, 5.0, 3),)

    @given(st.lists(FINITE, min_size=1), st.randoms())
    def test_every_value_is_counted_once_in_any_order(self, values, random):
        found = statistics.distribution(values)
        assert sum(each.count for each in found.values) + found.other == len(values)
        assert sum(each.count for each in found.histogram) == len(values)
        for each in found.histogram[:-1]:
            assert each.count == sum(each.low <= value < each.high for value in values)
        random.shuffle(values)
        assert statistics.distribution(values) == found

    @pytest.mark.parametrize(
        "row", vectors.rows("numbers.jsonl", function="aggregate.distribution"), ids=vectors.name_of
    )
    def test_another_system_counts_the_same_though_it_sorts_by_text(self, row):
        theirs = {float(each["score"]): (each["count"], each["percentage"]) for each in row["expected"]}
        found = statistics.distribution(list(map(float, row["input"]["scores"])))
        assert {each.value: (each.count, each.share) for each in found.values} == theirs


NO_NUMBER = "no number instead of a 0 that nobody scored"
ON_PURPOSE = {
    ("metric.mean", 0): (None, NO_NUMBER),
    ("metric.std", 0): (None, NO_NUMBER),
    ("metric.std", 1): (None, "one value has no spread, which is not a spread of 0"),
    ("metric.stderr", 0): (None, NO_NUMBER),
    ("metric.stderr", 1): (None, "one value says nothing about its own error"),
    ("metric.var", 1): (None, "one value has no spread"),
    ("metric.ci", 0): (None, NO_NUMBER),
}
"""Where another number than theirs is right, by how many values there are, and why."""


def variance(values: list[float]) -> float | None:
    spread = statistics.std(values)
    return None if spread is None else spread**2


FUNCTIONS = {
    "metric.mean": statistics.mean,
    "metric.std": statistics.std,
    "metric.var": variance,
    "metric.stderr": statistics.stderr,
    "metric.ci": statistics.t_interval,
    "metric.ci_wilson": lambda values: statistics.wilson(sum(values), len(values)),
}


def expected_of(row) -> float | Interval | None:
    count = len(row["input"]["values"])
    if (row["function"], count) in ON_PURPOSE:
        return ON_PURPOSE[row["function"], count][0]
    found = row["expected"]
    return Interval(found["lower"], found["upper"]) if isinstance(found, dict) else found


METRIC_ROWS = [
    row
    for row in vectors.rows("numbers.jsonl")
    if row["function"] in FUNCTIONS and "raises" not in str(row["expected"])
]


@pytest.mark.parametrize("row", METRIC_ROWS, ids=vectors.name_of)
def test_the_numbers_of_another_system_are_ours_too(row):
    found = FUNCTIONS[row["function"]]([vectors.number(value) or 0.0 for value in row["input"]["values"]])
    expected = expected_of(row)
    if isinstance(expected, Interval):
        assert isinstance(found, Interval)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    else:
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("row", vectors.rows("numbers.jsonl", function="metric.stderr(cluster)"), ids=vectors.name_of)
def test_the_clustered_errors_of_another_system_are_ours_too(row):
    clusters = [each[row["input"]["cluster"]] for each in row["input"]["metadata"]]
    error, count = statistics.clustered_stderr(list(map(float, row["input"]["values"])), clusters)
    assert count == len(set(clusters))
    # On purpose: one cluster says nothing about how far clusters lie apart, so there is no number instead of 0.
    assert error == pytest.approx(row["expected"] if count > 1 else None, abs=1e-9)


@pytest.mark.parametrize("row", vectors.rows("numbers.jsonl", function="aggregate.basic"), ids=vectors.name_of)
def test_sums_and_means_of_another_system_are_ours_too(row):
    scores = list(map(float, row["input"]["scores"]))
    if scores:  # on purpose: of nothing there is no number instead of 0
        assert statistics.mean(scores) == pytest.approx(row["expected"]["average"], abs=1e-9)
        assert statistics.total(scores) == pytest.approx(row["expected"]["sum"], abs=1e-9)
    else:
        assert statistics.mean(scores) is statistics.total(scores) is None


@pytest.mark.parametrize("row", vectors.rows("aggregation_cases.jsonl", case="AG-07"), ids=vectors.name_of)
def test_case_ag_07_errors_and_intervals_at_the_edges(row):
    scores = list(map(float, row.get("scores", ())))
    passed, count = row.get("passes", sum(scores)), row.get("n", len(scores))
    if "stderr" in row:
        assert statistics.stderr(scores) == pytest.approx(row["stderr"], abs=1e-12)
    if "mean" in row:
        assert statistics.mean(scores) == pytest.approx(row["mean"], abs=1e-12)
    if "wilson95" in row:
        found = statistics.wilson(passed, count)
        assert found is not None
        assert (found.low, found.high) == pytest.approx(row["wilson95"], abs=1e-12)
