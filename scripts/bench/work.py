"""The work that every contestant does: short items, a target that is right for nine of ten, two scorers."""

from __future__ import annotations

from collections.abc import Iterator

from evalbus import Item

TARGET = "bench-target"
EXACT = "bench-exact"
LEVENSHTEIN = "bench-levenshtein"


def items(count: int) -> Iterator[list[Item]]:
    """Items of about 80 characters, in batches of 256."""
    batch: list[Item] = []
    for number in range(count):
        question = f"Question {number:07d}: which of the many parcels in hall {number % 97:02d} was weighed last?"
        batch.append(Item(f"i{number:07d}", question, f"parcel {number * 7919 % 1_000_003:07d}"))
        if len(batch) == 256:
            yield batch
            batch = []
    if batch:
        yield batch


def answer(position: int, expected: str) -> str:
    """Right for nine of ten."""
    return expected if position % 10 else f"{expected[:-2]}??"
