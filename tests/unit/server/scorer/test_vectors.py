"""What other systems give for the same output, recorded from them, is what ours gives; or it is listed here why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import pytest

from evalbus import (
    Item,
    Message,
    Output,
    Score,
    ScorerBench,
    ScoreStatus,
    SettingsInvalid,
    Span,
    ToolCall,
    Usage,
    Value,
)
from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.scorer.builtin.multiple_choice import label, place_of
from tests import differences
from tests.differences import ERRORED, REFUSED
from tests.unit.server.scorer.asking import value_of

FOLDER = Path(__file__).parents[3] / "data" / "vectors"


@dataclass
class Asked:
    """A row as a question to a builtin."""

    name: str
    output: Any = ""
    expected: Any = None
    """None: there is none."""
    settings: dict[str, Any] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    inputs: dict[str, Any] | None = None


def compared(
    name: str, output: str = "output", expected: str = "expected", **settings: Any
) -> Callable[[dict[str, Any]], Asked]:
    """A scorer that compares two fields of a row."""

    def asked(given: dict[str, Any]) -> Asked:
        said = Value.of(given[output])
        return Asked(name, Output(said), given.get(expected), settings)

    return asked


def match(given: dict[str, Any]) -> Asked:
    settings = {key: value for key, value in given.items() if key not in ("output", "target")}
    return Asked("match", given["output"], given["target"], settings)


def pattern(given: dict[str, Any]) -> Asked:
    groups = "all" if given.get("match_all") else "any"
    settings = {"pattern": given["pattern"], "groups": groups, "which": "first"}
    return Asked("answer_match", given["output"], given["target"], settings)


def choice(given: dict[str, Any]) -> Asked:
    """There, what is selected is known already; here it is read from the output."""
    letters = ", ".join(ascii_uppercase[place] for place in given["selected"])
    said = f"ANSWER: {letters}" if letters else given["output"]
    return Asked("multiple_choice", said, given["target"], choices=tuple(f"c{n}" for n in range(given["n_choices"])))


def contains_any(given: dict[str, Any]) -> Asked:
    """There, the texts stand in one, with commas between them."""
    return Asked("includes", given["actual_output"], given["reference_output"].split(","), {"ignore_case": False})


def parts(given: dict[str, Any]) -> Asked:
    if "output" in given:
        return Asked("includes", given["output"], given["expected"])
    message = Message("assistant", [Value(part) for part in given["outputParts"]])
    return Asked("includes", Output(messages=[message]), given["expected"])


def matches(given: dict[str, Any]) -> Asked:
    """There, a pattern may stand between slashes, with flags behind them."""
    settings = {"pattern": given["pattern"].strip("/g"), "match": "whole" if given.get("exact") else "anywhere"}
    return Asked("regex", given["output"], settings=settings)


def list_contains(given: dict[str, Any]) -> Asked:
    settings = {"allow_extra": True} if given.get("params", {}).get("allowExtraEntities") else {}
    return Asked("list_contains", given["output"], given["expected"], settings)


def json_diff(given: dict[str, Any]) -> Asked:
    return Asked("json_diff", given["output"], [given["expected"]])


def against_input(name: str) -> Callable[[dict[str, Any]], Asked]:
    """There, an output is compared with the input."""

    def asked(given: dict[str, Any]) -> Asked:
        options = given.get("options") or {}
        settings = {"ignore_case": options["ignoreCase"]} if "ignoreCase" in options else {}
        return Asked(name, given["output"], given["input"], settings)

    return asked


def tone(given: dict[str, Any]) -> Asked:
    reference = (given.get("options") or {}).get("referenceTone")
    return Asked("tone", given["output"], settings={} if reference is None else {"reference": reference})


def calls_of(names: list[Any]) -> tuple[ToolCall, ...]:
    """Calls by name, or name and state."""
    made = []
    for each in names:
        name, state = each if isinstance(each, list) else (each, "result")
        made.append(ToolCall(name, error="it broke" if state == "output-error" else ""))
    return tuple(made)


def tool_accuracy(given: dict[str, Any]) -> Asked:
    config = given["config"]
    names = given.get("toolCalls") or [call["toolName"] for call in given.get("payload", {}).get("toolCalls", ())]
    settings: dict[str, Any] = {"strict": True} if config.get("strictMode") else {}
    if "expectedToolOrder" in config:
        settings["tools"] = config["expectedToolOrder"]
    elif "expectedTool" in config:
        settings["tools"] = [config["expectedTool"]]
    return Asked("tool_call_accuracy", Output("", tool_calls=calls_of(names)), settings=settings)


def tools(name: str, **fields: str) -> Callable[[dict[str, Any]], Asked]:
    """A scorer of tool calls, and which of its settings stands where in a row."""

    def asked(given: dict[str, Any]) -> Asked:
        settings = {ours: given[theirs] for ours, theirs in fields.items() if theirs in given}
        return Asked(name, Output("", tool_calls=calls_of(given["calls"])), settings=settings)

    return asked


def no_tool_errors(given: dict[str, Any]) -> Asked:
    """There, a call that has not ended is an error."""
    output = Output("", tool_calls=calls_of(given["calls"]))
    return Asked("no_tool_errors", output, settings={"require_result": True})


def no_tools(given: dict[str, Any]) -> Asked:
    return Asked("tool_call_limit", Output("", tool_calls=calls_of(given["calls"])), settings={"at_most": 0})


def step_calls(steps: list[Any]) -> tuple[ToolCall, ...]:
    made = []
    for step in steps:
        each = {"name": step} if isinstance(step, str) else step
        error = "" if each.get("success", True) else "it broke"
        made.append(ToolCall(each["name"], each.get("toolArgs"), error=error))
    return tuple(made)


def step_spans(steps: list[dict[str, Any]], parent: str = "") -> list[Span]:
    spans: list[Span] = []
    for number, step in enumerate(steps):
        name = f"{parent}/{number}"
        spans.append(Span(name, step["name"], parent_id=parent, started_at=float(len(spans))))
        spans += step_spans(step.get("children", []), name)
    return spans


def expected_steps(steps: list[Any]) -> list[Any]:
    made = []
    for step in steps:
        each = {"name": step} if isinstance(step, str) else step
        ours: dict[str, Any] = {"name": each["name"]}
        if "toolArgs" in each:
            ours["arguments"] = each["toolArgs"]
        if "children" in each:
            children: Any = each["children"]
            ours["steps"] = expected_steps(children["steps"])
        made.append(ours)
    return made


def trajectories(given: dict[str, Any]) -> Asked:
    options = given["options"]
    settings = {"order": options.get("ordering", "relaxed"), "steps": expected_steps(given["expected"])}
    if options.get("allowRepeatedSteps") is False:
        settings["repeats"] = "penalized"
    return Asked("trajectory", Output("", tool_calls=step_calls(given["actual"])), settings=settings)


def efficiency(given: dict[str, Any]) -> Asked:
    options = given["options"]
    fields = {"max_steps": "maxSteps", "max_tokens": "maxTotalTokens"}
    settings = {ours: options[theirs] for ours, theirs in fields.items() if theirs in options}
    if "maxTotalDurationMs" in options:
        settings["max_seconds"] = options["maxTotalDurationMs"] / 1000
    steps = given["steps"]
    tokens = [step for step in steps if isinstance(step, dict) and "promptTokens" in step]
    usage = Usage(sum(each["promptTokens"] for each in tokens), sum(each["completionTokens"] for each in tokens))
    calls = list(step_calls(steps))
    if "totalDurationMs" in given:
        calls = [ToolCall(calls[0].name, duration=given["totalDurationMs"] / 1000), *calls[1:]]
    return Asked("trajectory_efficiency", Output("", tool_calls=calls, usage=usage), settings=settings)


def blacklist(given: dict[str, Any]) -> Asked:
    options = given["options"]
    settings = {"tools": options.get("blacklistedTools", []), "sequences": options.get("blacklistedSequences", [])}
    return Asked("trajectory_blacklist", Output("", tool_calls=step_calls(given["steps"])), settings=settings)


def failures(given: dict[str, Any]) -> Asked:
    return Asked("tool_failures", Output("", tool_calls=step_calls(given["steps"])))


def whole_trajectory(given: dict[str, Any]) -> Asked:
    """There, one scorer does all, and its options are defaults that an item's own expectation replaces."""
    defaults = given["options"].get("defaults", {})
    if "blacklistedTools" in defaults:
        return blacklist({"options": defaults, "steps": given["steps"]})
    nested = any(isinstance(step, dict) for step in given["steps"])
    output = (
        Output("", spans=step_spans(given["steps"])) if nested else Output("", tool_calls=step_calls(given["steps"]))
    )
    settings: dict[str, Any] = {"read": "spans"} if nested else {}
    if "steps" in defaults:
        settings["steps"] = expected_steps(defaults["steps"])
    own = given.get("expectedTrajectory")
    return Asked("trajectory", output, None if own is None else {"steps": expected_steps(own["steps"])}, settings)


def trajectory_accuracy(given: dict[str, Any]) -> Asked:
    own = given["options"].get("expectedTrajectory")
    settings = {} if own is None else {"steps": expected_steps(own)}
    return Asked("trajectory", Output("", tool_calls=step_calls(given["steps"])), settings=settings)


def similarity(given: dict[str, Any]) -> Asked:
    return Asked("content_similarity", given["output"], given["expected"])


OURS: dict[str, Callable[[dict[str, Any]], Asked]] = {
    "scorer.match": match,
    "scorer.includes": compared("includes", expected="target"),
    "scorer.pattern": pattern,
    "scorer.answer": lambda given: Asked("answer_match", given["output"], given["target"], {"take": given["pattern"]}),
    "scorer.exact": compared("exact_match", expected="target", words=True),
    "scorer.f1": lambda given: Asked(
        "f1", given["output"], given["target"], {"stop_words": given["stop_words"]} if "stop_words" in given else {}
    ),
    "scorer.choice": choice,
    "scorer.math": lambda given: Asked("last_number", given["output"], given["target"], {"percent": "divide"}),
    "match": compared("exact_match", expected="target"),
    "includes": lambda given: Asked("includes", given["output"], given["target"], {"mode": given.get("mode", "all")}),
    "code_template.equal": compared("exact_match", "actual_output", "reference_output"),
    "code_template.contains_any": contains_any,
    "code_template.regex": compared("regex", "actual_output", "reference_output"),
    "code_template.starts_with": compared("starts_with", "actual_output", "reference_output"),
    "code_template.is_valid_json_object": compared("json_valid", "actual_output", "reference_output", type="object"),
    "exactMatch": compared("exact_match"),
    "levenshtein": compared("levenshtein"),
    "numericDiff": compared("numeric_diff"),
    "jsonDiff": json_diff,
    "listContains": list_contains,
    "toolCallAccuracyCode": tool_accuracy,
    "content-similarity": against_input("content_similarity"),
    "keyword-coverage": against_input("keyword_coverage"),
    "completeness": against_input("completeness"),
    "textual-difference": against_input("textual_difference"),
    "tone": tone,
    "code-tool-call-accuracy": tool_accuracy,
    "checks.includes": parts,
    "checks.excludes": compared("excludes", expected="unwanted"),
    "checks.equals": compared("exact_match"),
    "checks.matches": matches,
    "checks.similarity": similarity,
    "checks.calledTool": tools("tool_called", tool="tool", at_least="times"),
    "checks.didNotCall": lambda given: Asked(
        "tool_not_called", Output("", tool_calls=calls_of(given["calls"])), settings={"tools": [given["tool"]]}
    ),
    "checks.toolOrder": tools("tool_order", tools="order"),
    "checks.maxToolCalls": tools("tool_call_limit", at_most="max"),
    "checks.usedNoTools": no_tools,
    "checks.noToolErrors": no_tool_errors,
    "compareTrajectories": trajectories,
    "checkTrajectoryEfficiency": efficiency,
    "checkTrajectoryBlacklist": blacklist,
    "analyzeToolFailures": failures,
    "code-trajectory": whole_trajectory,
    "code-trajectory-accuracy": trajectory_accuracy,
}
"""By their name: the question to ours, with the settings that are their defaults."""

NAMES_OF_CHOICES = ("answer_character", "answer_index")


def recorded(expected: Any) -> float | str:
    """What another system gave."""
    if isinstance(expected, dict) and "python" in expected:  # where two languages disagree, Python
        expected = expected["python"]
    if isinstance(expected, dict):
        if "raises" in expected:
            return ERRORED
        if "throws" in expected:
            return REFUSED
        expected = next(expected[field] for field in ("score", "value", "scores") if field in expected)
    grades = {"C": 1.0, "I": 0.0}
    found = expected[-1] if isinstance(expected, list) else expected  # of several runs the last
    value: Any = grades.get(found, found)
    return float(value)


def rows(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / file).read_text("utf-8").splitlines()]


def theirs(row: dict[str, Any]) -> str:
    return str(row.get("function") or row["scorer"])


def key_of(row: dict[str, Any]) -> tuple[str, str]:
    return theirs(row), json.dumps(row["input"], ensure_ascii=False)


def name_of(row: dict[str, Any]) -> str:
    return f"{theirs(row)} {json.dumps(row.get('input') or [row['output'], row['expected']], ensure_ascii=False)}"


async def said(asked: Asked) -> Score | str:
    """The score, or that the settings are refused."""
    expected = None if asked.expected is None else Value.of(asked.expected)
    item = Item("i1", "", expected, choices=asked.choices)
    output = asked.output if isinstance(asked.output, Output) else Output(Value.of(asked.output))
    try:
        return await ScorerBench(BUILTINS[asked.name], asked.settings).score(item, output, inputs=asked.inputs)
    except SettingsInvalid:
        return REFUSED


VECTORS = rows("builtin_scorers.jsonl")


@pytest.mark.parametrize("row", [row for row in VECTORS if theirs(row) not in NAMES_OF_CHOICES], ids=name_of)
async def test_the_values_of_other_systems_are_ours_too(row):
    value = differences.BUILTINS[key_of(row)][0] if key_of(row) in differences.BUILTINS else recorded(row["expected"])
    asked = OURS[theirs(row)](row["input"])
    score = await said(asked)
    if isinstance(score, str):
        assert score == value
    elif isinstance(value, str):
        assert score.status.name.lower() == value
    else:
        assert score.status is ScoreStatus.SCORED, score
        found = score.value
        if "threshold" in row["input"]:  # here the experiment's
            found = float(found is not None and found >= row["input"]["threshold"])
        assert found == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("row", [row for row in VECTORS if theirs(row) in NAMES_OF_CHOICES], ids=name_of)
def test_choices_are_named_as_elsewhere(row):
    if theirs(row) == "answer_character":
        assert label(row["input"]["index"]) == row["expected"]
    else:
        place = place_of(row["input"]["char"])
        assert place == (None if isinstance(row["expected"], dict) else row["expected"])


def test_no_difference_is_listed_that_is_none():
    given = {key_of(row): row for row in VECTORS}
    for key, (value, _) in differences.BUILTINS.items():
        said = given[key]["expected"]
        try:
            theirs = recorded(said)
        except (TypeError, ValueError):  # no number
            continue
        assert theirs != value, key


@pytest.mark.parametrize("row", rows("scoring_cases.jsonl"), ids=lambda row: f"{row['case']} {name_of(row)}")
async def test_scoring_cases(row):
    found = await value_of(row["scorer"], row["output"], row["expected"], **row["options"])
    assert found == pytest.approx(row["score"], abs=1e-12)
