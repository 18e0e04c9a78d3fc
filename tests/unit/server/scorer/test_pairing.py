"""Which steps fit those that are expected: as many as can, in a time that their number allows."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import Output, ToolCall
from evalbus_server.scorer.builtin._calls import COMPARE, Step
from evalbus_server.scorer.builtin._pairing import TooManyPairs, in_any_order, in_order
from tests.unit.server.scorer.asking import failure_of, score_of, value_of

PLENTY = 1_000
LEAVES: st.SearchStrategy[Any] = st.sampled_from([0, 1, True, 1.0, "1", None, [], {}, [1], [True]])
ARGUMENTS: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from("ab"), LEAVES | st.dictionaries(st.just("c"), LEAVES), max_size=2
)
STEPS = st.lists(st.builds(Step, st.sampled_from("st"), st.none() | ARGUMENTS), max_size=5)
TAKEN = st.lists(st.builds(Step, st.sampled_from("st"), ARGUMENTS), max_size=5)


def fits(step: Step, wanted: Step, compare: str) -> bool:
    alike = COMPARE[compare]
    return step.name == wanted.name and (wanted.arguments is None or alike(step.arguments, wanted.arguments))


def most(taken: list[Step], wanted: list[Step], compare: str) -> int:
    """How many can find a step, by trying all ways."""
    places: list[int | None] = [*range(len(taken)), *[None] * len(wanted)]
    return max(
        sum(place is not None and fits(taken[place], step, compare) for place, step in zip(given, wanted, strict=True))
        for given in itertools.permutations(places, len(wanted))
    )


@given(st.lists(st.builds(Step, st.just("s"), ARGUMENTS), max_size=4), STEPS.map(lambda steps: steps[:3]))
@pytest.mark.parametrize("compare", ["same", "holds"])
def test_as_many_find_a_step_as_can_and_none_is_used_twice(compare, taken, wanted):
    found = in_any_order(taken, wanted, compare, PLENTY)
    for match, step in zip(found, wanted, strict=True):
        assert match is None or fits(match, step, compare)
    used = [id(match) for match in found if match is not None]
    assert len(used) == len(set(used)) == most(taken, wanted, compare)


@given(TAKEN, STEPS)
@pytest.mark.parametrize("compare", ["same", "holds"])
def test_in_order_each_is_the_first_that_fits_after_the_one_before(compare, taken, wanted):
    expected, start = [], 0
    for step in wanted:
        place = next((at for at in range(start, len(taken)) if fits(taken[at], step, compare)), None)
        expected.append(None if place is None else taken[place])
        start = start if place is None else place + 1
    found = in_order(taken, wanted, compare, PLENTY)
    assert [None if each is None else id(each) for each in found] == [
        None if each is None else id(each) for each in expected
    ]


def calls(*arguments: Any) -> Output:
    return Output("done", tool_calls=[ToolCall("s", each) for each in arguments])


def steps(*arguments: Any) -> list[Any]:
    return [{"name": "s", "arguments": each} for each in arguments]


async def test_a_step_that_asks_for_little_leaves_the_call_that_holds_more_to_another():
    output, expected = calls({"q": 1, "n": 2}, {"q": 1}), steps({"q": 1}, {"q": 1, "n": 2})
    assert await value_of("tool_arguments", output, calls=expected, compare="holds") == 1.0
    assert await value_of("trajectory", output, steps=expected, compare="holds", order="unordered") == 1.0
    chain = calls({"a": 1, "b": 1}, {"b": 1, "c": 1}, {"c": 1, "d": 1})
    assert await value_of("tool_arguments", chain, calls=steps({"b": 1}, {"c": 1}, {"a": 1}), compare="holds") == 1.0


async def test_the_same_arguments_are_looked_up_so_that_thousands_of_calls_are_harmless():
    many = range(9_000)
    output, expected = calls(*({"n": n} for n in many)), steps(*({"n": n + 4_500} for n in reversed(many)))
    assert await value_of("tool_arguments", output, calls=expected) == 0.5
    assert await value_of("trajectory", output, steps=expected, order="unordered") == 0.5


async def test_arguments_that_make_too_many_pairs_are_errored_and_not_compared_for_minutes():
    output, expected = calls(*({"n": n} for n in range(5_000))), steps(*({"n": -n} for n in range(1, 5_000)))
    for name, settings in (
        ("tool_arguments", {"calls": expected}),
        ("trajectory", {"steps": expected, "order": "unordered"}),
        ("trajectory", {"steps": expected, "order": "relaxed"}),
    ):
        failure = failure_of(await score_of(name, output, compare="holds", **settings))
        assert failure.reason == "TOO_MANY_STEPS"
        assert "pairs" in failure.message


def test_work_is_counted_by_the_pair():
    taken, wanted = [Step("s", {"n": n}) for n in range(10)], [Step("s", {"n": -1})] * 10
    for pair in (in_any_order, in_order):
        assert pair(taken, wanted, "holds", 100) == [None] * 10
        with pytest.raises(TooManyPairs):
            pair(taken, wanted, "holds", 99)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (0, False),
        ("1", 1),
        ([], {}),
        ([1], 1),
        (None, {}),
        ([["a", True]], [["a", 1]]),
        ({"a": 1}, ["a", 1]),
    ],
)
async def test_arguments_that_say_something_else_are_others(left, right):
    for said, asked in ((left, right), (right, left)):
        assert await value_of("tool_arguments", calls({"a": said}), calls=steps({"a": asked})) == 0.0, json.dumps(said)
