"""Choices of items put in another order: models like some places better than others."""

from __future__ import annotations

import random
from collections.abc import Sequence

from evalbus import Item, Value
from evalbus_server.dataset.parts import remade


class ChoiceShuffler:
    """Shuffles the choices of one item after the other; the same seed gives the same orders."""

    def __init__(self, seed: int) -> None:
        """Begin; the orders are those of `random.Random(seed).shuffle`."""
        self._random = random.Random(seed)

    def shuffled(self, item: Item) -> Item:
        """The item with its choices in another order; letters that its expected answer names are those of the new one.

        An expected answer that is the text of a choice stays.
        """
        if not item.choices:
            return item
        places = list(range(len(item.choices)))
        self._random.shuffle(places)
        letters = {_letter(old): _letter(new) for new, old in enumerate(places)}
        expected = item.expected
        if expected is not None and not (expected.kind == "text" and expected.text in item.choices):
            expected = _followed(expected, letters, item.choices)
        return remade(item, choices=tuple(item.choices[place] for place in places), expected=expected)


def _letter(place: int) -> str:
    """How a choice is called by its place: A to Z, then 1, 2, …"""
    return chr(ord("A") + place) if place < 26 else str(place - 25)


def _followed(expected: Value, letters: dict[str, str], choices: Sequence[str]) -> Value:
    """The expected answer with new letters, where it is one, some with commas between, or a list of such."""
    if expected.kind == "text":
        named = [part.strip() for part in expected.text.split(",")]
        return Value(", ".join(letters[name] for name in named)) if all(name in letters for name in named) else expected
    data = expected.data if expected.kind == "json" else None
    if not isinstance(data, list):
        return expected
    return Value.of(_in_list(data, letters, choices))


def _in_list(data: list[object], letters: dict[str, str], choices: Sequence[str]) -> list[object]:
    made: list[object] = []
    for each in data:
        if isinstance(each, list):
            made.append(_in_list(each, letters, choices))
        elif isinstance(each, str) and each not in choices:
            made.append(letters.get(each, each))
        else:
            made.append(each)
    return made
