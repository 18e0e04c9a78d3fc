"""Small scorers to be combined."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from evalbus import Direction, Item, Output, Score, ScoreDeclaration, Scorer, TrialFailed, Usage, scorer


def saying(name: str, value: Any, *, how: str = "inline", declared: ScoreDeclaration | None = None) -> Scorer[..., Any]:
    """A scorer that always says the same: a number, "skip" or "fail"; its function is inline, threaded or async."""
    options: dict[str, Any] = {"version": "1.0.0", "scores": None if declared is None else [declared]}

    def say() -> Score:
        if value == "skip":
            return Score.skipped(f"{name} does not apply")
        if value == "fail":
            raise TrialFailed.unavailable(f"{name} is away")
        return Score.scored(value, f"{name} says so", usage=Usage(calls=1))

    if how == "async":

        @scorer(name, **options)
        async def later(item: Item, output: Output) -> Score:
            await asyncio.sleep(0)
            return say()

        return later

    @scorer(name, mode="inline" if how == "inline" else "auto", **options)
    def at_once(item: Item, output: Output) -> Score:
        return say()

    return at_once


def counting(name: str, called: list[str], value: float) -> Scorer[..., Any]:
    """A scorer that notes that it was asked."""

    @scorer(name, mode="inline")
    def count(output: Output) -> float:
        called.append(name)
        return value

    return count


LOWER = ScoreDeclaration("", 0.0, 10.0, Direction.LOWER_IS_BETTER)
Make = Callable[..., Any]
