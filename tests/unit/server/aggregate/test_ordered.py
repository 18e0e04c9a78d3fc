"""Many values in ascending order."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus_server.aggregate import ordered
from evalbus_server.aggregate.ordered import Ordered, in_order
from evalbus_server.aggregate.steps import Work, at_once

FEW = st.sampled_from([0.0, 0.25, 1.0])
VALUES = st.lists(st.one_of(FEW, st.floats(-1e9, 1e9).map(lambda value: value + 0.0)))


def ordered_in_parts(values: list[float], step: int = 4) -> Ordered:
    with mock.patch.object(ordered, "STEP", step):
        return at_once(in_order(array("d", values)))


@given(VALUES)
def test_the_value_at_each_rank_is_that_of_the_sorted_list(values):
    found = ordered_in_parts(values)
    assert [found[rank] for rank in range(len(found))] == sorted(values)


@given(VALUES, st.floats(-1e9, 1e9) | FEW)
def test_values_on_either_side_of_one_are_counted(values, value):
    found = ordered_in_parts(values)
    assert found.count_below(value) == bisect_left(sorted(values), value)
    assert found.count_upto(value) == bisect_right(sorted(values), value)


@given(VALUES)
def test_pieces_hold_each_value_once_and_share_none(values):
    pieces = list(ordered_in_parts(values).pieces())
    assert sorted(value for piece in pieces for value in (*piece.below, *[piece.mark] * piece.times)) == sorted(values)
    assert all(value < piece.mark for piece in pieces for value in piece.below)
    assert all(before.mark < min(piece.below, default=piece.mark) for before, piece in pairwise(pieces))


@given(VALUES.filter(bool))
def test_the_ends_are_the_smallest_and_the_largest(values):
    found = ordered_in_parts(values)
    assert (found.low, found.high) == (min(values), max(values))


@pytest.mark.parametrize("count", [1_000, 50_000])
def test_pieces_are_small_however_many_values_there_are(count):
    values = [float(number * 7919 % count) for number in range(count)]
    sizes = [len(piece.below) for piece in ordered_in_parts(values, step=500).pieces()]
    assert max(sizes) < 500


def test_a_frequent_value_is_counted_and_not_put_together():
    values = [1.0, 1.0, 1.0, 1.0, 0.5] * 2_000
    pieces = list(ordered_in_parts(values, step=500).pieces())
    assert [piece for piece in pieces if piece.mark == 1.0] == [([], 1.0, 8_000)]
    assert sum(len(piece.below) for piece in pieces) == 0


def test_a_step_sorts_one_part():
    values = array("d", range(1000))
    with mock.patch.object(ordered, "STEP", 10):
        steps = sum(1 for _ in Work(in_order(values)))
    assert steps > 100
