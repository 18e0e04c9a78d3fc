"""The values of an item's epochs become one."""

from __future__ import annotations

import json
import re
from array import array
from itertools import permutations
from statistics import multimode
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import Direction, ScoreDeclaration
from evalbus_server.aggregate import reduce
from evalbus_server.aggregate.reduce import Reduced, Reducer, parse_reducer, passes_of, reduce_items
from evalbus_server.aggregate.steps import at_once
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.numbers import Column
from evalbus_server.model.run import ScoreKey
from evalbus_server.model.trial import trial_id_of
from tests import differences
from tests.unit.server.aggregate import vectors

ALL = ("mean", "median", "mode", "max", "min", "all", "any", "majority", "at_least(2)", "pass_at(2)", "pass_hat(2)")
VALUES = st.floats(0, 1, allow_nan=False).map(abs) | st.sampled_from([0.0, 0.5, 1.0])


def reduced(text: str, *values: float | None, threshold: float | None = None) -> Reduced:
    key = ScoreKey("score", 0, ScoreDeclaration(), threshold)
    in_order = [value for value in values if value is not None]
    return parse_reducer(text, epochs=10_000).reduce(in_order, passes_of(key))


def by_item(pairs: list[tuple[int, float]], reducer: Reducer) -> tuple[list[float], int, str]:
    column = Column(array("d", [value for _, value in pairs]), array("q", [trial for trial, _ in pairs]))
    values, short, reason = at_once(reduce_items(column, reducer, passes_of(None)))
    return values.tolist(), short, reason


class TestWhatTheyGive:
    @pytest.mark.parametrize(
        ("text", "value"),
        [("mean", 0.5), ("median", 0.4), ("mode", 0.2), ("max", 1.0), ("min", 0.2), ("majority", 0.0), ("any", 1.0)],
    )
    def test_each_reducer_of_the_same_values(self, text, value):
        assert reduced(text, 0.4, 0.2, 1.0, 0.4, 0.5).value != reduced(text).value
        assert reduced(text, 0.4, 0.2, 1.0, 0.2, 0.7).value == pytest.approx(value, abs=1e-12)

    def test_a_tie_of_modes_goes_to_the_lowest_epoch(self):
        assert reduced("mode", 0.9, 0.1, 0.1, 0.9).value == 0.9
        assert reduced("mode", 0.1, 0.9, 0.9, 0.1).value == 0.1

    def test_majority_is_strict(self):
        assert reduced("majority", 1, 1, 0, 0).value == 0.0
        assert reduced("majority", 1, 1, 0).value == 1.0

    def test_the_threshold_says_what_a_pass_is(self):
        assert reduced("at_least(2)", 0.6, 0.5, 0.4, threshold=0.5).value == 1.0
        assert reduced("at_least(2)", 0.6, 0.5, 0.4).value == 0.0

    def test_a_threshold_of_zero_is_a_threshold(self):
        assert reduced("all", 0.0, 0.0, threshold=0.0).value == 1.0
        assert reduced("all", 0.0, 0.0).value == 0.0

    def test_where_lower_is_better_a_pass_is_at_the_threshold_or_below(self):
        key = ScoreKey("steps", 0, ScoreDeclaration(maximum=None, direction=Direction.LOWER_IS_BETTER), 3.0)
        assert Reducer("any").reduce([9.0, 3.0], passes_of(key)).value == 1.0
        assert Reducer("any").reduce([9.0, 3.5], passes_of(key)).value == 0.0

    @pytest.mark.parametrize(("scored", "passed", "k"), [(5, 3, 2), (4, 2, 3), (10, 1, 4), (3, 3, 3), (3, 0, 1)])
    def test_pass_at_and_pass_hat_are_what_drawing_k_trials_gives(self, scored, passed, k):
        values = [1.0] * passed + [0.0] * (scored - passed)
        draws = list(permutations(values, k))
        assert reduced(f"pass_at({k})", *values).value == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-12)
        assert reduced(f"pass_hat({k})", *values).value == pytest.approx(sum(map(all, draws)) / len(draws), abs=1e-12)

    def test_ten_thousand_epochs_are_counted_exactly(self):
        values = [1.0] * 9_999 + [0.0]
        assert reduced("pass_hat(5000)", *values).value == 0.5
        assert reduced("pass_at(5000)", *values).value == 1.0

    @pytest.mark.parametrize("text", ["at_least(3)", "pass_at(3)", "pass_hat(3)"])
    def test_fewer_than_k_scored_trials_give_none_and_the_reason(self, text):
        assert reduced(text, 0, 0, None, None, None) == (None, "2 of 3 needed trials scored")

    @pytest.mark.parametrize("text", ALL)
    def test_no_scored_trial_gives_none_and_the_reason(self, text):
        value, reason = reduced(text, None, None)
        assert value is None
        assert reason

    @pytest.mark.parametrize("text", ALL)
    def test_full_marks_in_every_epoch_are_full_marks(self, text):
        """The same answers, the same numbers (AG-16)."""
        assert reduced(text, 1, 1, 1, 1).value == 1.0

    @given(values=st.lists(VALUES, min_size=2, max_size=8), text=st.sampled_from(ALL), random=st.randoms())
    def test_only_a_tie_of_modes_depends_on_the_order_of_epochs(self, values, text, random):
        reducer = parse_reducer(text, epochs=8)
        expected = reducer.reduce(values, passes_of(None))
        random.shuffle(values)
        tie = text == "mode" and len(multimode(values)) > 1
        assert tie or reducer.reduce(values, passes_of(None)) == expected

    @given(values=st.lists(VALUES, min_size=2, max_size=8), text=st.sampled_from(ALL))
    def test_every_reducer_stays_within_the_range(self, values, text):
        value = reduced(text, *values).value
        assert value is not None
        assert 0.0 <= value <= 1.0
        if not parse_reducer(text, 8).counts:
            assert min(values) <= value <= max(values)


class TestByItem:
    def test_each_item_gets_one_value_in_dataset_order(self):
        pairs = [
            (trial_id_of(7, 1), 0.0),
            (trial_id_of(2, 1), 1.0),
            (trial_id_of(7, 2), 1.0),
            (trial_id_of(2, 2), 0.5),
        ]
        assert by_item(pairs, Reducer("mean")) == ([0.75, 0.5], 0, "")

    def test_with_one_epoch_the_values_stay_as_they_are(self):
        column = Column(array("d", [0.5, 0.25]))
        found = at_once(reduce_items(column, Reducer("max"), passes_of(None)))
        assert found == (column.values, 0, "")
        assert found.values is column.values

    def test_with_one_epoch_a_counting_reducer_still_counts(self):
        found = at_once(reduce_items(Column(array("d", [0.5, 1.0])), Reducer("all"), passes_of(None)))
        assert found.values.tolist() == [0.0, 1.0]

    def test_items_with_too_few_scored_trials_are_left_out_and_counted(self):
        pairs = [(trial_id_of(0, 1), 1.0), (trial_id_of(1, 1), 1.0), (trial_id_of(1, 2), 1.0)]
        assert by_item(pairs, Reducer("pass_at", 2)) == ([1.0], 1, "1 of 2 needed trials scored")

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), VALUES), unique_by=lambda row: row[:2]))
    def test_items_are_reduced_one_by_one_however_many_there_are(self, rows):
        items: dict[int, list[float]] = {}
        for position, _, value in sorted(rows):
            items.setdefault(position, []).append(value)
        expected = [Reducer("mode").reduce(values, passes_of(None)).value for _, values in sorted(items.items())]
        pairs = sorted((trial_id_of(position, epoch), value) for position, epoch, value in rows)
        with mock.patch.multiple(reduce, STEP=3, _ITEMS=2):
            assert by_item(pairs, Reducer("mode"))[0] == expected


class TestParsing:
    @pytest.mark.parametrize("text", ALL)
    def test_it_reads_what_it_writes(self, text):
        assert str(parse_reducer(text, epochs=2)) == text

    @pytest.mark.parametrize(
        ("text", "epochs", "says"),
        [
            ("pass_at(3)", 2, "needs 3 epochs, but there are 2"),
            ("pass_at", 2, "pass_at(1)"),
            ("pass_at(0)", 2, "at least 1"),
            ("mean(2)", 2, "takes no number"),
            ("pass_att(2)", 2, "did you mean pass_at?"),
            ("medain", 2, "did you mean median?"),
            ("", 2, "no reducer"),
        ],
    )
    def test_what_is_no_reducer_is_refused_with_a_hint(self, text, epochs, says):
        with pytest.raises(Invalid, match=re.escape(says)) as refused:
            parse_reducer(text, epochs)
        assert refused.value.reason is Reason.EXPERIMENT_INVALID
        assert refused.value.field == "epochs.reducer"


THEIR_NAMES = {"pass_k": "pass_hat"}


def ours(function: str) -> str:
    """Our way to write one of their reducers."""
    name = function.removeprefix("reducer.")
    match = re.fullmatch(r"(.+)_(\d)", name)
    return f"{THEIR_NAMES.get(match[1], match[1])}({match[2]})" if match else name


REDUCER_ROWS = [
    row for row in vectors.rows("numbers.jsonl") if row["function"].startswith("reducer.") and vectors.is_plain(row)
]


@pytest.mark.parametrize("row", REDUCER_ROWS, ids=vectors.name_of)
def test_the_numbers_of_another_system_are_ours_too(row):
    values = [vectors.number(value) for value in row["input"]["values"]]
    theirs = vectors.number(row["expected"])
    key = (row["function"].removeprefix("reducer."), json.dumps(row["input"]["values"]))
    expected = differences.REDUCERS[key][0] if key in differences.REDUCERS else theirs
    assert reduced(ours(row["function"]), *values).value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("row", vectors.rows("numbers.jsonl", function="pass_k"), ids=vectors.name_of)
def test_pass_at_and_pass_hat_are_the_true_ones(row):
    given = row["input"]
    values = [1.0] * given["c"] + [0.0] * (given["n"] - given["c"])
    true_hat, true_at = map(float, re.findall(r"pass[\^@]k=([\d.]+)", row["note"]))
    assert reduced(f"pass_hat({given['k']})", *values).value == pytest.approx(true_hat, abs=1e-9)
    assert reduced(f"pass_at({given['k']})", *values).value == pytest.approx(true_at, abs=1e-9)


def test_case_ag_05_too_few_scored_attempts_never_pass():
    [row] = vectors.rows("aggregation_cases.jsonl", case="AG-05")
    values = [None if value == "error" else float(value) for value in row["epochs"]]
    assert reduced(f"pass_at({row['k']})", *values).value is row["pass_at_k"] is None


@pytest.mark.parametrize("row", vectors.rows("aggregation_cases.jsonl", case="AG-13"), ids=vectors.name_of)
def test_case_ag_13_the_order_of_epochs_does_not_matter(row):
    assert reduced("max", *map(vectors.number, row["epochs"])).value == row["max"]


def test_case_ag_18_the_reducer_decides_on_a_judge_that_wavers():
    [row] = vectors.rows("aggregation_cases.jsonl", case="AG-18")
    assert reduced("mean", *row["runs"]).value == pytest.approx(row["mean"], abs=1e-12)
    for text, verdict in row["verdict"].items():
        value = reduced(text, *row["runs"], threshold=row["threshold"]).value
        assert value is not None
        limit = row["threshold"] if text == "mean" else 1.0
        assert (value >= limit) == (verdict == "PASS")
