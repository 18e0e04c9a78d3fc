"""Means, errors of clusters, intervals and percentiles."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus_server.aggregate import statistics
from tests.unit.server.aggregate import vectors
from tests.unit.server.aggregate.runs import described

FINITE = st.floats(allow_nan=False, allow_infinity=False)
MODERATE = st.floats(-1e6, 1e6)


class TestMean:
    def test_three_times_0_7_is_0_7(self):
        assert statistics.exact_mean([0.7, 0.7, 0.7]) == 0.7

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


class TestClusters:
    @given(st.lists(MODERATE, min_size=2, max_size=20))
    def test_with_each_value_in_its_own_cluster_the_clustered_error_is_the_plain_one(self, values):
        error, clusters = statistics.clustered_stderr(values, range(len(values)))
        assert clusters == len(values)
        assert error == pytest.approx(described(values).stderr, rel=1e-9, abs=1e-9)

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
        found = [statistics.percentile([10.0, 20.0, 30.0, 40.0], percent) for percent in (0, 50, 90, 100)]
        assert found == pytest.approx([10.0, 25.0, 37.0, 40.0])

    def test_of_one_value_each_is_that_value(self):
        assert statistics.percentile([3.0], 99) == 3.0

    @given(st.lists(FINITE, min_size=1), st.floats(0, 100))
    def test_they_lie_among_the_values(self, values, percent):
        assert min(values) <= statistics.percentile(sorted(values), percent) <= max(values)

    @given(st.lists(MODERATE, min_size=1).map(sorted))
    def test_half_of_all_lie_below_the_median(self, ordered):
        assert statistics.median(ordered) == pytest.approx(statistics.percentile(ordered, 50), rel=1e-12)


@pytest.mark.parametrize("row", vectors.rows("numbers.jsonl", function="metric.stderr(cluster)"), ids=vectors.name_of)
def test_the_clustered_errors_of_another_system_are_ours_too(row):
    clusters = [each[row["input"]["cluster"]] for each in row["input"]["metadata"]]
    error, count = statistics.clustered_stderr(list(map(float, row["input"]["values"])), clusters)
    assert count == len(set(clusters))
    # On purpose: one cluster says nothing about how far clusters lie apart, so there is no number instead of 0.
    assert error == pytest.approx(row["expected"] if count > 1 else None, abs=1e-9)
