"""Work on many values in short steps, between which the event loop can do something else."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""A function that gives way with a plain `yield` before the loop has waited for some milliseconds."""

STEP = 8_192
"""So many values are looked at in a step: about a millisecond. Where a single call of C goes over all values of a
run, that is a step too: 100,000 are added up exactly in 2 ms."""


class Work(Generic[T]):
    """Steps to be gone through; afterwards there is the result."""

    def __init__(self, steps: Steps[T]) -> None:
        """Take the steps; none is done yet."""
        self._steps = steps
        self.result: T

    def __iter__(self) -> Iterator[None]:
        """Do the next step, and the next."""
        self.result = yield from self._steps


def at_once(steps: Steps[T]) -> T:
    """The result of all steps, for callers whom nobody waits for."""
    work = Work(steps)
    for _ in work:
        pass
    return work.result
