"""What other systems make of a judge's replies, recorded from them, is what ours makes; or it is listed here why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, Output, ScoreStatus, ToolCall
from tests import differences
from tests.differences import ERRORED, SKIPPED
from tests.mock_endpoint import MockEndpoint, Says
from tests.unit.server.scorer.judges.asking import scores_of

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[4] / "data" / "vectors" / "judges.jsonl").read_text("utf-8").splitlines()
]


@dataclass
class Asked:
    """A recorded case in our words."""

    name: str
    replies: list[Any]
    settings: dict[str, Any] = field(default_factory=dict)
    item: Item = field(default_factory=lambda: Item("i", "q", "e", metadata={"context": ["c"]}))
    output: Output = field(default_factory=lambda: Output("o"))
    scale: float = 1.0


def listed(words: list[str], member: str = "verdict") -> dict[str, Any]:
    rows = [{"number": n, "reason": "r", member: word} for n, word in enumerate(words, 1)]
    return {"verdicts": rows}


def texts(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def passages(count: int) -> Item:
    return Item("i", "q", "e", metadata={"context": texts(count)})


def taken_apart(name: str, made: str, key: str, word: str) -> Callable[[Mapping[str, Any]], Asked]:
    """Two stages: texts, and a verdict on each."""

    def asked(given: Mapping[str, Any]) -> Asked:
        words = [row[word] for row in given["judge"]["analyze"][key]]
        scale = given["options"].get("scale", 1) or 1
        settings = {"unsure": given["options"].get("uncertaintyWeight", 0.3)} if "relevancy" in name else {}
        return Asked(name, [{made: texts(len(words))}, listed(words)], settings, scale=scale)

    return asked


def precision(given: Mapping[str, Any]) -> Asked:
    words = [row["verdict"] for row in given["judge"]["analyze"]["verdicts"]]
    scale = given["options"].get("scale", 1)
    return Asked("judge_context_precision", [listed(words)], item=passages(len(words)), scale=scale)


def recall(given: Mapping[str, Any]) -> Asked:
    judge = given["judge"]
    item = Item("i", "q", given["groundTruth"] or None, metadata={"context": ["c"]})
    words = [row["verdict"] for row in judge["analyze"]["verdicts"]]
    return Asked("judge_context_recall", [{"claims": judge["preprocess"]["claims"]}, listed(words)], item=item)


def relevance(given: Mapping[str, Any]) -> Asked:
    found = given["judge"]["analyze"]
    rows = [
        {"number": n, "reason": "r", "relevance": row["relevanceLevel"], "used": "yes" if row["wasUsed"] else "no"}
        for n, row in enumerate(found["evaluations"], 1)
    ]
    reply = {"verdicts": rows, "missing": found["missingContext"]}
    return Asked("judge_context_relevancy", [reply], item=passages(len(rows)))


def relevancy_of_voltagent(given: Mapping[str, Any]) -> Asked:
    levels = [row["relevanceLevel"] for row in given["judgeReplies"][0]["evaluations"]]
    rows = [{"number": n, "reason": "r", "relevance": level, "used": "yes"} for n, level in enumerate(levels, 1)]
    settings = {"share_weight": 0.3, "missing_penalty": 0, "unused_penalty": 0}
    return Asked("judge_context_relevancy", [{"verdicts": rows, "missing": []}], settings, passages(len(rows)))


def recall_of_voltagent(given: Mapping[str, Any]) -> Asked:
    first, *rest = given["judgeReplies"]
    partial = given["options"].get("partialCredit", False)
    words = ["yes" if row["verdict"] else "partly" if partial else "no" for row in rest]
    settings = {"partly": 0.5} if partial else {}
    return Asked("judge_context_recall", [{"claims": first["statements"]}, listed(words)], settings)


def correctness(given: Mapping[str, Any]) -> Asked:
    found = given["judgeReplies"][0]
    reply = {"right": found["TP"], "wrong": found["FP"], "missing": found["FN"]}
    return Asked("judge_answer_correctness", [reply])


def factuality(given: Mapping[str, Any]) -> Asked:
    word = {"A": "subset", "B": "superset", "C": "same", "D": "conflict"}[given["judgeReplies"][0]["choice"]]
    return Asked("judge_factuality", [{"reason": "r", "verdict": word}])


def moderation(given: Mapping[str, Any]) -> Asked:
    found = given["judgeReplies"][0]
    known = isinstance(found["flagged"], bool)
    reply = {"reason": "r", "categories": {"hate": "yes" if found["flagged"] else "no"}} if known else found
    return Asked("judge_moderation", [reply], {"categories": {"hate": "hatred"}})


def relevancy_by_questions(given: Mapping[str, Any]) -> Asked:
    found = given["judgeReplies"][0]
    return Asked("judge_answer_relevancy", [{"statements": ["s"]}, listed(["no" if found["noncommittal"] else "yes"])])


def similarity(given: Mapping[str, Any]) -> Asked:
    found = given["judge"]["analyze"]
    reply = {
        "units": [{"unit": "u", "match": row["matchType"]} for row in found["matches"]],
        "extra": found["extraInOutput"],
        "contradictions": ["c" for _ in found["contradictions"]],
    }
    bonus = given["options"].get("exactMatchBonus", 0.2)
    item = Item("i", "q", given["groundTruth"])
    return Asked("judge_similarity", [reply], {"exact_bonus": bonus}, item)


def noise(given: Mapping[str, Any]) -> Asked:
    found = given["judge"]["analyze"]
    names = ("relevance", "accuracy", "completeness", "focus", "invention")
    levels = [row["impactLevel"] for row in found["dimensions"]]
    # Theirs may leave dimensions out, ours not: the first ones, repeated to five, have the same mean or nearly so.
    impacts = {name: levels[place % len(levels)] for place, name in enumerate(names)}
    reply = {
        "reasoning": "r",
        "impacts": impacts,
        "issues": found["majorIssues"],
        "robustness": found["robustnessScore"],
    }
    return Asked("judge_noise_sensitivity", [reply])


def alignment(given: Mapping[str, Any]) -> Asked:
    found = given["judge"]["analyze"]
    reply = {
        "reason": "r",
        "intent": found["intentAlignment"]["score"],
        "requirements": found["requirementsFulfillment"]["overallScore"],
        "completeness": found["completeness"]["score"],
        "appropriateness": found["responseAppropriateness"]["score"],
    }
    system = {"intent": 0.35, "requirements": 0.35, "completeness": 0.15, "appropriateness": 0.15}
    return Asked("judge_prompt_alignment", [reply], system if given["options"]["evaluationMode"] == "system" else {})


def rubric(given: Mapping[str, Any]) -> Asked:
    rows = given["judge"]["analyze"]["criteria"]
    criteria = [{"name": f"c{n}", "text": "t", "required": row["required"]} for n, row in enumerate(rows)]
    words = ["yes" if row["satisfied"] else "no" for row in rows]
    return Asked("judge_criteria", [listed(words)], {"criteria": criteria}, scale=given["options"].get("scale", 1))


def goal(given: Mapping[str, Any]) -> Asked:
    word = "yes" if given["judge"]["analyze"]["satisfied"] else "no"
    return Asked("judge_goal", [{"reason": "r", "verdict": word}], scale=given["options"].get("scale", 1))


def summary(given: Mapping[str, Any]) -> Asked:
    before, after = given["judge"]["preprocess"], given["judge"]["analyze"]
    aligned = ["yes" if row["supported"] else "no" for row in before["alignment"]]
    covered = ["yes" if row["answered"] else "no" for row in after["coverage"]]
    questions = before["questions"][:10]
    covered += ["no"] * (len(questions) - len(covered))  # theirs counts a question without a verdict as not answered
    replies = [{"claims": texts(len(aligned))}, listed(aligned), {"questions": questions}, listed(covered)]
    return Asked("judge_summarisation", replies)


def tool_calls(given: Mapping[str, Any]) -> Asked:
    found = given["judge"]["analyze"]
    words = ["yes" if row["wasAppropriate"] else "no" for row in found["evaluations"]]
    output = Output("o", tool_calls=[ToolCall("t") for _ in words])
    reply = {**listed(words), "missing": found["missingTools"]}
    return Asked("judge_tool_calls", [reply], {"missing": "ignored"}, output=output)


def trajectory(given: Mapping[str, Any]) -> Asked:
    found = given["judge"]["analyze"]
    said = {True: "yes", False: "no"}
    rows = [
        {"number": n, "reason": "r", "necessary": said[row["wasNecessary"]], "in_order": said[row["wasInOrder"]]}
        for n, row in enumerate(found["stepEvaluations"], 1)
    ]
    output = Output("o", tool_calls=[ToolCall("t") for _ in rows])
    return Asked("judge_trajectory", [{"verdicts": rows, "missing": found["missingSteps"]}], output=output)


def as_number(given: Mapping[str, Any]) -> Asked:
    """Coze: a judge says `score` and `reason`, as JSON or anyhow."""
    try:
        found = json.loads(given["content"])
        reply: Any = {name: found[old] for name, old in (("reason", "reason"), ("verdict", "score")) if old in found}
    except ValueError:
        reply = Says(given["content"])
    return Asked("judge_prompt", [reply], {"prompt": "{{output}}", "choices": {}, "range": [0, 1]})


def graded(given: Mapping[str, Any]) -> Asked:
    """EvalKit: GRADE: C or I, found by a pattern. Our judges reply in JSON."""
    return Asked("judge_rubric", [Says(given["output"])], {"choices": {"C": 1, "I": 0}})


READ: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Asked]] = {
    ("mastra", "faithfulness"): taken_apart("judge_faithfulness", "claims", "verdicts", "verdict"),
    ("mastra", "hallucination"): taken_apart("judge_hallucination", "claims", "verdicts", "verdict"),
    ("mastra", "toxicity"): taken_apart("judge_toxicity", "statements", "verdicts", "verdict"),
    ("mastra", "bias"): taken_apart("judge_bias", "statements", "results", "result"),
    ("mastra", "answer-relevancy"): taken_apart("judge_answer_relevancy", "statements", "results", "result"),
    ("mastra", "answer-similarity"): similarity,
    ("mastra", "context-precision"): precision,
    ("mastra", "context-recall"): recall,
    ("mastra", "context-relevance"): relevance,
    ("mastra", "noise-sensitivity"): noise,
    ("mastra", "prompt-alignment"): alignment,
    ("mastra", "rubric"): rubric,
    ("mastra", "multi-turn-judge"): goal,
    ("mastra", "summarization"): summary,
    ("mastra", "llm-tool-call-accuracy"): tool_calls,
    ("mastra", "llm-trajectory-accuracy"): trajectory,
    ("voltagent", "answerRelevancy"): relevancy_by_questions,
    ("voltagent", "answerCorrectness"): correctness,
    ("voltagent", "contextRecall"): recall_of_voltagent,
    ("voltagent", "contextRelevancy"): relevancy_of_voltagent,
    ("voltagent", "factuality"): factuality,
    ("voltagent", "moderation"): moderation,
    ("coze-loop", "judge_parse.regex_fallback"): as_number,
    ("coze-loop", "judge_parse.content"): as_number,
    ("evalkit", "modelGraded.default_parse"): graded,
}

NUMBERED: list[tuple[str, int, dict[str, Any]]] = []
for row in ROWS:
    key = f"{row['system']} {row['scorer']}"
    NUMBERED.append((key, sum(other == key for other, _, _ in NUMBERED), row))


@pytest.mark.parametrize(("key", "number", "row"), NUMBERED, ids=lambda part: str(part)[:60])
async def test_the_value_is_theirs_or_it_is_said_why_not(key, number, row):
    asked = READ[row["system"], row["scorer"]](row["input"])
    expected = row["expected"]
    if isinstance(expected, dict) and "score" in expected:
        expected = expected["score"]
    if isinstance(expected, dict):
        expected = ERRORED  # it raises there
    purpose = differences.JUDGES.get((key, number))
    wanted = expected if purpose is None else purpose[0]

    found = await found_by(asked)

    if purpose is not None:
        assert found != pytest.approx(expected, abs=1e-9), "it does not differ: leave it out of the table"
    assert found == (wanted if isinstance(wanted, str) else pytest.approx(wanted, abs=1e-9))


async def found_by(asked: Asked) -> float | str:
    if asked.name == "judge_criteria" and not asked.settings["criteria"]:
        return ERRORED
    with MockEndpoint(asked.replies) as mock:
        (score,) = (await scores_of(asked.name, mock, asked.item, asked.output, **asked.settings)).values()
    if score.status is ScoreStatus.SCORED:
        assert score.value is not None
        return score.value * asked.scale
    return SKIPPED if score.status is ScoreStatus.SKIPPED else ERRORED


def test_nothing_is_listed_that_was_not_recorded():
    assert set(differences.JUDGES) <= {(key, number) for key, number, _ in NUMBERED}
