"""What is said of many values: sum, mean, spread, distribution."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus_server.aggregate import ordered, statistics
from evalbus_server.aggregate.describe import Description
from evalbus_server.model.summary import Bin, Distribution, Interval, ValueCount
from tests import differences
from tests.unit.server.aggregate import vectors
from tests.unit.server.aggregate.runs import described, distributed

FINITE = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)
MODERATE = st.floats(-1e6, 1e6)
FEW = st.sampled_from([0.0, 0.25, 1.0])


def test_nothing_has_no_numbers():
    assert described([]) == Description()


def test_a_single_value_has_no_spread():
    assert described([0.5]) == Description(1, 0.5, 0.5, 0.5, 0.5, 0.5)


@given(st.lists(FINITE | FEW, min_size=1), st.randoms())
def test_numbers_and_distribution_are_the_same_in_any_order_and_in_parts_of_any_size(values, random):
    expected = described(values), distributed(values)
    random.shuffle(values)
    with mock.patch.object(ordered, "STEP", 3):
        assert (described(values), distributed(values)) == expected


class TestMeanAndSum:
    def test_three_times_0_7_is_0_7(self):
        assert described([0.7, 0.7, 0.7]).mean == 0.7

    @given(st.lists(FINITE, min_size=1))
    def test_the_mean_is_that_of_few_values(self, values):
        assert described(values).mean == statistics.exact_mean(values)

    @given(st.lists(FINITE, min_size=1))
    def test_the_sum_is_exact(self, values):
        try:
            exact = float(sum(map(Fraction, values)))
        except OverflowError:
            exact = None
        assert described(values).sum == exact

    @given(st.lists(FINITE | FEW, min_size=1))
    def test_median_and_ends_are_those_of_the_sorted_list(self, values):
        found = described(values)
        assert (found.min, found.max) == (min(values), max(values))
        assert found.median == statistics.median(sorted(values))

    @pytest.mark.parametrize(
        ("values", "binary"), [([0, 1, 1], True), ([1], True), ([0.5, 1], False), ([0, 2], False), ([-1, 1], False)]
    )
    def test_zeros_and_ones_are_told_from_other_values(self, values, binary):
        assert described(values).binary is binary


class TestSpread:
    @given(st.lists(FINITE, min_size=2))
    def test_it_is_never_negative_nor_infinite(self, values):
        found = described(values).std
        assert found is None or (found >= 0.0 and math.isfinite(found))

    @given(st.lists(MODERATE | FEW, min_size=2))
    def test_it_is_that_of_the_definition(self, values):
        mean = sum(map(Fraction, values)) / len(values)
        variance = sum((Fraction(value) - mean) ** 2 for value in values) / (len(values) - 1)
        assert described(values).std == pytest.approx(math.sqrt(variance), rel=1e-9, abs=1e-9)

    @given(MODERATE, st.integers(2, 50))
    def test_equal_values_have_none_at_all(self, value, count):
        assert described([value] * count).std == 0.0

    def test_values_too_small_to_be_squared_still_have_one(self):
        assert described([1e-200, 3e-200]).std == pytest.approx(math.sqrt(2) * 1e-200, rel=1e-12)

    def test_values_too_far_apart_have_none(self):
        assert described([-1.7e308, 1.7e308]).std is None


class TestDistribution:
    def test_nothing_is_distributed_nowhere(self):
        assert distributed([]) == Distribution()

    def test_the_five_most_frequent_come_first_and_of_equals_the_smaller(self):
        found = distributed([0.3, 0.9, 0.9, 0.1, 0.2, 0.5, 0.4, 0.6])
        assert [each.value for each in found.values] == [0.9, 0.1, 0.2, 0.3, 0.4]
        assert found.values[0] == ValueCount(0.9, 2, 0.25)
        assert found.other == 2

    @given(st.lists(FEW | st.integers(0, 20).map(float), min_size=1))
    def test_those_are_the_five_most_frequent_of_all(self, values):
        expected = sorted(Counter(values).items(), key=lambda pair: (-pair[1], pair[0]))[:5]
        with mock.patch.object(ordered, "STEP", 3):
            found = distributed(values)
        assert [(each.value, each.count) for each in found.values] == expected

    def test_the_last_bin_holds_its_end(self):
        found = distributed([0.0, 0.05, 0.1, 1.0, 1.0])
        assert [each.count for each in found.histogram] == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]
        assert found.histogram[0].low == 0.0
        assert found.histogram[-1].high == 1.0

    def test_equal_values_share_one_bin(self):
        assert distributed([5.0, 5.0, 5.0]).histogram == (Bin(5.0, 5.0, 3),)

    @given(st.lists(FINITE, min_size=1))
    def test_every_value_is_counted_once(self, values):
        found = distributed(values)
        assert sum(each.count for each in found.values) + found.other == len(values)
        assert sum(each.count for each in found.histogram) == len(values)
        for each in found.histogram[:-1]:
            assert each.count == sum(each.low <= value < each.high for value in values)

    @pytest.mark.parametrize(
        "row", vectors.rows("numbers.jsonl", function="aggregate.distribution"), ids=vectors.name_of
    )
    def test_another_system_counts_the_same_though_it_sorts_by_text(self, row):
        theirs = {float(each["score"]): (each["count"], each["percentage"]) for each in row["expected"]}
        found = distributed(list(map(float, row["input"]["scores"])))
        assert {each.value: (each.count, each.share) for each in found.values} == theirs


def variance(values: list[float]) -> float | None:
    spread = described(values).std
    return None if spread is None else spread**2


def t_interval(values: list[float]) -> Interval | None:
    found = described(values)
    if found.mean is None or found.stderr is None:
        return None
    return statistics.t_interval(found.mean, found.stderr, found.n)


FUNCTIONS = {
    "metric.mean": lambda values: described(values).mean,
    "metric.std": lambda values: described(values).std,
    "metric.var": variance,
    "metric.stderr": lambda values: described(values).stderr,
    "metric.ci": t_interval,
    "metric.ci_wilson": lambda values: statistics.wilson(sum(values), len(values)),
}


def expected_of(row) -> float | Interval | None:
    count = len(row["input"]["values"])
    if (row["function"], count) in differences.NUMBERS:
        return differences.NUMBERS[row["function"], count][0]
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


@pytest.mark.parametrize("row", vectors.rows("numbers.jsonl", function="aggregate.basic"), ids=vectors.name_of)
def test_sums_and_means_of_another_system_are_ours_too(row):
    scores = list(map(float, row["input"]["scores"]))
    found = described(scores)
    if scores:  # on purpose: of nothing there is no number instead of 0
        assert found.mean == pytest.approx(row["expected"]["average"], abs=1e-9)
        assert found.sum == pytest.approx(row["expected"]["sum"], abs=1e-9)
    else:
        assert found.mean is found.sum is None


@pytest.mark.parametrize("row", vectors.rows("aggregation_cases.jsonl", case="AG-07"), ids=vectors.name_of)
def test_case_ag_07_errors_and_intervals_at_the_edges(row):
    scores = list(map(float, row.get("scores", ())))
    passed, count = row.get("passes", sum(scores)), row.get("n", len(scores))
    if "stderr" in row:
        assert described(scores).stderr == pytest.approx(row["stderr"], abs=1e-12)
    if "mean" in row:
        assert described(scores).mean == pytest.approx(row["mean"], abs=1e-12)
    if "wilson95" in row:
        interval = statistics.wilson(passed, count)
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx(row["wilson95"], abs=1e-12)
