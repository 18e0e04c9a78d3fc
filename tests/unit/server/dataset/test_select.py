"""Which items are meant: patterns on the id as it is, and a limit."""

from __future__ import annotations

from array import array
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from evalbus_server.dataset.select import Selector, shuffle

IDS = ["1", "2", "3", "10", "01", "abc", "abd", "ABC", "a[1]"]


def taken(patterns=(), limit=None) -> list[str]:
    selector = Selector(patterns, limit)
    return [id for id in IDS if selector.takes(id)]


def test_without_patterns_all_are_taken():
    assert taken() == IDS


def test_patterns_match_the_id_as_it_is():
    assert taken(["ab*"]) == ["abc", "abd"]
    assert taken(["1"]) == ["1"]
    assert taken(["?"]) == ["1", "2", "3"]
    assert taken(["[13]"]) == ["1", "3"]
    assert taken(["[!a]*"]) == ["1", "2", "3", "10", "01", "ABC"]
    assert taken(["a[[]1]"]) == ["a[1]"]


def test_any_of_several_patterns_will_do_and_the_order_is_that_of_the_dataset():
    assert taken(["abd", "1*", "nothing"]) == ["1", "10", "abd"]


def test_all_of_the_tags_have_to_be_there():
    selector = Selector(["a*"], 2, ["x", "y"])
    given = [("a1", ("x",)), ("a2", ("y", "x", "z")), ("b", ("x", "y")), ("a3", ("x", "y")), ("a4", ("x", "y"))]

    assert [id for id, tags in given if selector.takes(id, tags)] == ["a2", "a3"]


@given(st.integers(0, 3_000), st.integers(0, 2**63 - 1))
def test_the_order_of_a_shuffle_is_that_of_python(count: int, seed: int):
    ours = array("I", range(count))
    theirs = list(range(count))
    for _ in shuffle(ours, seed):
        pass
    Random(seed).shuffle(theirs)

    assert ours.tolist() == theirs


def test_the_limit_counts_what_is_taken():
    assert taken(["a*"], 1) == ["abc"]
    assert taken(limit=2) == ["1", "2"]


def test_a_selector_knows_when_it_is_full():
    selector = Selector(limit=1)
    before = selector.full
    assert selector.takes("x")
    assert (before, selector.full, Selector().full) == (False, True, False)


def test_a_hostile_pattern_takes_no_long_time():
    assert not Selector(["*a" * 50 + "b"]).takes("a" * 500)
