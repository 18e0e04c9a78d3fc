"""Asking a builtin, as a run would."""

from __future__ import annotations

from typing import Any

from evalbus import Failure, Item, Output, Score, ScorerBench, ScoreStatus, Value
from evalbus_server.scorer.builtin import ASKING, BUILTINS

ABSENT = object()
CALCULATED = [name for name in BUILTINS if name not in ASKING]
"""Those that ask no model."""


async def score_of(name: str, output: Any, expected: Any = ABSENT, *, inputs: Any = None, **settings: Any) -> Score:
    """The score of a builtin; None stands for JSON null."""
    item = Item("i1", "", None if expected is ABSENT else Value.of(expected))
    said = output if isinstance(output, Output) else Output(Value.of(output))
    return await ScorerBench(BUILTINS[name], settings).score(item, said, inputs=inputs)


async def value_of(name: str, output: Any, expected: Any = ABSENT, **more: Any) -> float | None:
    score = await score_of(name, output, expected, **more)
    assert score.status is ScoreStatus.SCORED, score
    return score.value


def failure_of(score: Score) -> Failure:
    assert score.status is ScoreStatus.ERRORED
    assert score.failure is not None
    return score.failure
