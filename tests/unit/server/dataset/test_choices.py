"""Choices in another order: what an item expects is the same choice as before."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evalbus import Item, ScorerBench
from evalbus_server.dataset.choices import ChoiceShuffler
from evalbus_server.scorer.builtin import BUILTINS

CHOICES = tuple(f"choice {n}" for n in range(30))


def letter(place: int) -> str:
    return chr(ord("A") + place) if place < 26 else str(place - 25)


@given(st.integers(0, 2**62), st.integers(0, 29))
def test_a_letter_means_the_same_choice_afterwards(seed: int, place: int):
    item = Item("i", "x", letter(place), choices=CHOICES)
    found = ChoiceShuffler(seed).shuffled(item)

    assert sorted(found.choices) == sorted(CHOICES)
    assert found.expected is not None
    assert found.choices.index(CHOICES[place]) == [letter(n) for n in range(30)].index(found.expected.text)
    assert ChoiceShuffler(seed).shuffled(item) == found


def test_lists_of_letters_follow_and_texts_of_choices_stay():
    def expected(given: Any) -> object:
        found = ChoiceShuffler(7).shuffled(Item("i", "x", given, choices=("a", "b", "c", "d"))).expected
        return None if found is None else found.data

    assert expected("C") == "D"
    assert expected("A, C") == "C, D"
    assert expected(["A", ["B", "c"], 5]) == ["C", ["B", "c"], 5]
    assert expected("c") == "c"
    assert expected("nothing of it") == "nothing of it"
    assert expected({"a": 1}) == {"a": 1}
    assert expected(None) is None
    assert ChoiceShuffler(7).shuffled(Item("i", "x", "A")) == Item("i", "x", "A")


async def test_the_scorer_agrees():
    for seed in range(20):
        item = ChoiceShuffler(seed).shuffled(Item("i", "x", "B", choices=("red", "green", "blue")))
        score = await ScorerBench(BUILTINS["multiple_choice"]).score(item, "green")
        assert score.value == 1.0
