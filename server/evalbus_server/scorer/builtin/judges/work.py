"""Judges of how a target went about it: its tool calls, one by one and as a way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evalbus_server.scorer.builtin.judges.common import REASON, VERDICT, YES_NO, clamped, explained
from evalbus_server.scorer.builtin.judges.definition import Definition, Facts, Found, Stage
from evalbus_server.scorer.builtin.judges.settings import JudgeSettings, said
from evalbus_server.scorer.builtin.judges.shapes import Many, Record, Text

_TOOLS = "The tools that there were, if it is known:\n\n{{tools}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallsSettings(JudgeSettings):
    """What counts."""

    missing: Literal["counted", "ignored"] = said(
        "Whether calls that were needed and not made count like wrong ones, or only if no call was made.", "counted"
    )


def _tool_calls(facts: Facts) -> Found:
    verdicts = [each["verdict"] for each in facts.verdicts("analyze")]
    missing = facts.replies["analyze"]["missing"]
    if not verdicts and not missing:
        return Found(1.0, "no call was needed, and none was made")
    right = verdicts.count("yes")
    counted = len(missing) if facts.settings.missing == "counted" or not verdicts else 0
    wrong = [place for place, verdict in enumerate(verdicts) if verdict == "no"]
    told = explained(facts, "analyze", "calls", wrong, "not appropriate")
    lacking = f"; missing: {'; '.join(missing)}" if missing else ""
    return Found(right / (len(verdicts) + counted), f"{right} of {len(verdicts)} calls are appropriate{told}{lacking}")


TOOL_CALLS = Definition(
    "judge_tool_calls",
    """The share of the tool calls that were appropriate, of those made and those missing.

    A model says of each call whether the tool and its arguments fit what was asked, and which calls are missing. Value:
    appropriate / (made + missing); with `missing: ignored`, appropriate / made, as in Mastra. Where no call was needed and
    none was made, it is 1.""",
    (
        Stage(
            "analyze",
            "Here is what was asked, and the tool calls that were made for it, in their order.\n\n"
            "{{input}}\n\n{{calls}}\n\n" + _TOOLS + "\n\n"
            """\
For each call: was it appropriate? "yes" if the tool suits what was asked and its arguments are those that follow from it;
"no" if it is the wrong tool, was not needed, or has arguments that are wrong or made up. A call that only corrects one that
failed is appropriate. Then list what is missing: each call that was needed and not made, by the name of its tool.""",
            each=VERDICT,
            over="calls",
            also={"missing": Many(Text(), "Each call that was needed and not made.")},
        ),
    ),
    _tool_calls,
    settings=ToolCallsSettings,
    inputs=("input", "tools"),
)

_NEEDED, _ORDERED, _MISSING = 2 / 3, 1 / 3, 0.1


def _trajectory(facts: Facts) -> Found:
    verdicts, reply = facts.verdicts("analyze"), facts.replies["analyze"]
    missing = reply["missing"]
    if not verdicts:
        told = f"; missing: {'; '.join(missing)}" if missing else ""
        return Found(0.0 if missing else 1.0, f"no step was taken{told}")
    needed = sum(each["necessary"] == "yes" for each in verdicts) / len(verdicts)
    ordered = sum(each["in_order"] == "yes" for each in verdicts) / len(verdicts)
    bad = [n for n, each in enumerate(verdicts) if each["necessary"] == "no" or each["in_order"] == "no"]
    told = explained(facts, "analyze", "calls", bad, "not needed, or out of order")
    told += f"; missing: {'; '.join(missing)}" if missing else ""
    value = clamped(_NEEDED * needed + _ORDERED * ordered - _MISSING * len(missing))
    return Found(value, f"{needed:.0%} needed, {ordered:.0%} in order{told}")


TRAJECTORY = Definition(
    "judge_trajectory",
    """Whether the target took the steps that were needed, in an order that makes sense.

    A model says of each tool call whether it was necessary and in order, and which steps are missing. If there is an
    expected answer, it is taken as the way to go. Value: two thirds of the share that was necessary and one third of the
    share that was in order, less 0.1 for each step that is missing. Mastra weighs in the same proportion, but a way without
    a fault gets 0.9 there.""",
    (
        Stage(
            "analyze",
            "Here is what was asked, the steps that were taken, in their order, and the steps that were expected, if anybody "
            "said so.\n\n{{input}}\n\n{{calls}}\n\n{{expected}}\n\n" + _TOOLS + "\n\n"
            """\
For each step: was it necessary ("no" if the task can do without it, or if it only repeats one that had worked), and was it in
order ("no" if it came before something that it depends on, or so late that work was done for nothing)? Other ways than the
expected one are as good if they lead there. Then list the steps that are missing.""",
            each=Record({"reason": REASON, "necessary": YES_NO, "in_order": YES_NO}),
            over="calls",
            also={"missing": Many(Text(), "Each step that was needed and not taken.")},
        ),
    ),
    _trajectory,
    inputs=("input", "expected", "tools"),
)

DEFINITIONS = (TOOL_CALLS, TRAJECTORY)
