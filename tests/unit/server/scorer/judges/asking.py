"""Asking a judge whose model says what a test has it say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evalbus import Item, Output, Score, ScorerBench, ScoreStatus
from evalbus_server.scorer.builtin import BUILTINS
from tests.mock_endpoint import KEY, Call, MockEndpoint, Script

ITEM = Item(
    "i1",
    "When did Ada Lovelace die, and where?",
    "In London, in 1852.",
    metadata={"context": ["Ada Lovelace died in London.", "It was in 1852."]},
)
SAID = Output("She died in London in 1852.")
NEEDED: Mapping[str, Mapping[str, Any]] = {
    "judge_closed_qa": {"criterion": "it names a year"},
    "judge_rubric": {"rubric": "Right is good."},
    "judge_criteria": {
        "criteria": [{"name": "year", "text": "It names the year."}, {"name": "polite", "text": "It is."}]
    },
    "judge_prompt": {"prompt": "Is this good? {{output}}", "choices": {"good": 1, "bad": 0}},
}
"""Settings without which a judge does not know what to judge."""
INPUTS = {"judge_pairwise": {"against": "She died in Paris."}}


def settings_of(mock: MockEndpoint, name: str, **more: Any) -> dict[str, Any]:
    """Settings that reach the mock."""
    model = {} if "jury" in more else {"model": "judge-1"}
    return {**model, "base_url": mock.base_url, "api_key": KEY, **NEEDED.get(name, {}), **more}


async def scores_of(
    name: str,
    mock: MockEndpoint,
    item: Item = ITEM,
    output: Output = SAID,
    *,
    inputs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Score]:
    """All scores of a judge, by name."""
    bench = ScorerBench(BUILTINS[name], settings_of(mock, name, **settings))
    return await bench.scores(item, output, inputs=INPUTS.get(name) if inputs is None else inputs)


async def score_of(name: str, replies: Script, item: Item = ITEM, output: Output = SAID, **more: Any) -> Score:
    """The only score of a judge, given the model's replies."""
    with MockEndpoint(replies) as mock:
        (score,) = (await scores_of(name, mock, item, output, **more)).values()
    return score


async def value_of(name: str, replies: Script, item: Item = ITEM, output: Output = SAID, **more: Any) -> float | None:
    """The value of the only score."""
    score = await score_of(name, replies, item, output, **more)
    assert score.status is ScoreStatus.SCORED, score
    return score.value


def verdicts(*words: str, **more: Any) -> dict[str, Any]:
    """A reply with a verdict on each entry."""
    return {"verdicts": [{"number": n, "reason": "r", "verdict": word} for n, word in enumerate(words, 1)], **more}


def by_schema(call: Call, pick: int = 0) -> Any:
    """A reply that keeps to the schema which the call asks for; *pick* says which word of each menu."""
    return _made(call.body["response_format"]["json_schema"]["schema"], pick)


def _made(schema: Mapping[str, Any], pick: int) -> Any:
    if "enum" in schema:
        return schema["enum"][pick % len(schema["enum"])]
    if schema["type"] == "object":
        return {name: _made(part, pick) for name, part in schema["properties"].items()}
    if schema["type"] == "array":
        inside = schema["items"]
        count = int(_range(inside["properties"]["number"])[1]) if "number" in inside.get("properties", {}) else 2
        rows = [_made(inside, pick) for _ in range(count)]
        return [{**row, "number": n} if "number" in row else row for n, row in enumerate(rows, 1)]
    if schema["type"] in ("number", "integer"):
        return _range(schema)[pick % 2]
    return "words"


def _range(schema: Mapping[str, Any]) -> Sequence[float]:
    found = re.search(r"From (\S+) to (\S+)\.$", schema["description"])
    assert found
    return float(found[1]), float(found[2])
