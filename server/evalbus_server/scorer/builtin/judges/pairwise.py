"""The judge that compares two outputs, asked in both orders, so that the place of an output decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalbus_server.scorer.builtin.judges.definition import Definition, Facts, Found, Stage
from evalbus_server.scorer.builtin.judges.settings import JudgeSettings, said
from evalbus_server.scorer.builtin.judges.shapes import Choice, Record, Text

_MENU = ("first", "second", "tie")
_REPLY = Record({"reason": Text("What speaks for each, before the verdict."), "verdict": Choice(_MENU)})
_VALUES: Mapping[str, float] = {"better": 1.0, "tie": 0.5, "worse": 0.0}
_FORWARD: Mapping[str, str] = {"first": "better", "second": "worse", "tie": "tie"}
_BACKWARD: Mapping[str, str] = {"first": "worse", "second": "better", "tie": "tie"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseSettings(JudgeSettings):
    """By what outputs are compared."""

    rubric: str = said("What makes one answer better than another; help, correctness and clarity if not said.")


_USUAL = "which one helps more whoever asked: by being right, complete and to the point, and by being clear. Length is no merit."


def _question(first: str, second: str) -> str:
    return f"""\
Here is what was asked, the reference answer if there is one, and two answers.

{{{{input}}}}

{{{{expected}}}}

The first answer:

{{{{{first}}}}}

The second answer:

{{{{{second}}}}}

Which one is better? Go by this:

{{{{rubric}}}}

"first", "second", or "tie" if neither is better. The order in which they stand, and how their tags are named, mean
nothing."""


def _compared(facts: Facts) -> Found:
    forward, backward = facts.replies["analyze"], facts.replies["analyze swapped"]
    there, back = _FORWARD[forward["verdict"]], _BACKWARD[backward["verdict"]]
    if there == back:
        return Found(_VALUES[there], forward["reason"], there, metadata={"agreed": True})
    told = f"it depends on the order: {there} as the first, {back} as the second"
    return Found(_VALUES["tie"], told, "tie", metadata={"agreed": False})


def _given(settings: Any) -> Mapping[str, str]:
    return {"rubric": settings.rubric or _USUAL}


PAIRWISE = Definition(
    "judge_pairwise",
    """1 if the output is better than the one it is compared with, 0 if it is worse, 0.5 for a tie.

    The other output is that of the run named by `against`, for the same item and epoch, or one that is mapped to `against`.
    A model is asked twice, with the outputs in either order; if its verdict changes with the order, that is a tie, and
    `agreed` in the metadata is false. The label is better, worse or tie.""",
    (
        Stage("analyze", _question("output", "against"), _REPLY),
        Stage("analyze swapped", _question("against", "output"), _REPLY),
    ),
    _compared,
    settings=PairwiseSettings,
    given=_given,
    vote="majority",
    inputs=("input", "output", "expected", "against"),
)

DEFINITIONS = (PAIRWISE,)
