"""The scorers of other libraries, each real, in runs from the command line; only the models behind them are played."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.docs.pages import PAGES
from tests.interop.test_catalogue import settings_of_page
from tests.mock_endpoint import Call, MockEndpoint, Says, Status

pytestmark = pytest.mark.timeout(400)

SLOW_DOWN = Status(429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, {"retry-after": "0.1"})
NO_KEY = Status(401, {"error": {"message": "who are you?", "code": "invalid_api_key"}})


def ask(endpoint: MockEndpoint, **more: Any) -> dict[str, Any]:
    """The settings of a scorer that asks the endpoint."""
    return {"model": "gpt-4o", "base_url": endpoint.base_url, **more}


class TestAutoevals:
    def test_those_that_calculate(self, bench):
        said = bench("judges").judge(
            [
                {"use": "autoevals.Levenshtein"},
                {"use": "autoevals.NumericDiff", "map": {"output": "item.metadata.n", "expected": "item.metadata.m"}},
                {"use": "autoevals.JSONDiff", "map": {"output": "item.metadata.a", "expected": "item.metadata.b"}},
                {
                    "use": "autoevals.ListContains",
                    "settings": {"pairwise_scorer": "ExactMatch"},
                    "map": {"output": "item.metadata.list", "expected": "item.metadata.lists"},
                },
            ],
            {"output": "Parys", "expected": ["Rome", "Paris"], "n": "5", "m": 6}
            | {"a": {"x": 1, "y": "b"}, "b": {"x": 1, "y": "b"}, "list": ["a", "b"], "lists": [["a", "c"]]},
        )
        assert said.value("Levenshtein") == pytest.approx(0.8)
        assert said.value("NumericDiff") == pytest.approx(1 - 1 / 11)
        assert said.value("JSONDiff") == 1.0
        assert said.value("ListContains") == pytest.approx(0.5)

    def test_those_that_ask_a_model(self, bench):
        def judge(call: Call) -> Any:
            if "TOO MANY" in call.text:
                return SLOW_DOWN if sum("TOO MANY" in each.text for each in endpoint.calls) == 1 else {"choice": "B"}
            if "OFF THE MENU" in call.text:
                return {"choice": "maybe", "reasons": "who knows"}
            return {"choice": "Y" if "short enough" in call.text else "B", "reasons": "because"}

        with MockEndpoint(judge) as endpoint:
            said = bench("judges").judge(
                [
                    {"use": "autoevals.Factuality", "settings": ask(endpoint), "threshold": 0.5},
                    {
                        "use": "autoevals.ClosedQA",
                        "settings": ask(endpoint),
                        "map": {"criteria": "item.metadata.rule"},
                    },
                ],
                {"output": "a fine answer", "expected": "x", "rule": "short enough"},
                {"output": "TOO MANY", "expected": "x", "rule": "short enough"},
                {"output": "OFF THE MENU", "expected": "x", "rule": "short enough"},
                {"output": "no rule", "rule": "short enough"},
            )
        score = said.score("Factuality")
        assert (score["value"], score["label"], score["explanation"]) == (0.6, "B", "because")
        assert said.value("ClosedQA") == 1.0
        assert said.value("Factuality", "i1") == 0.6  # asked again after the rate limit, although retries is 0
        assert said.score("Factuality", "i2")["status"] == "ERRORED"
        assert said.score("Factuality", "i3")["status"] == "SKIPPED"
        usage = said.ended.document["usage"]
        assert usage["calls"] == len(endpoint.calls) - 1  # all but the one that was refused
        assert usage["input_tokens"] == 100 * usage["calls"]

    def test_an_endpoint_that_refuses_is_no_zero(self, bench):
        with MockEndpoint(lambda call: NO_KEY) as endpoint:
            said = bench("judges").judge(
                [{"use": "autoevals.Factuality", "settings": ask(endpoint)}], {"output": "a", "expected": "b"}
            )
        assert len(endpoint.calls) == 1
        assert endpoint.calls[0].headers["authorization"] == "Bearer none"
        failure = said.score("Factuality")["failure"]
        assert (failure["category"], failure["reason"]) == ("REFUSED", "ENDPOINT_UNAUTHENTICATED")

    def test_embeddings(self, bench):
        with MockEndpoint() as endpoint:
            said = bench("judges").judge(
                [{"use": "autoevals.EmbeddingSimilarity", "settings": ask(endpoint, expected_min=0.0)}],
                {"output": "a cup of tea", "expected": "a cup of milk"},
            )
        assert said.value("EmbeddingSimilarity") == pytest.approx(0.75)


class TestDeepEval:
    def test_those_that_calculate(self, bench):
        said = bench("judges").judge(
            [
                {"use": "deepeval.ExactMatchMetric", "threshold": 1.0},
                {"use": "deepeval.PatternMatchMetric", "settings": {"pattern": "P.*"}},
            ],
            {"output": "Paris", "expected": ["Rome", "Paris"]},
            {"output": "Bern", "expected": "Paris"},
            {"output": "Bern"},
        )
        assert [said.value("ExactMatchMetric", item) for item in ("i0", "i1")] == [1.0, 0.0]
        assert said.score("ExactMatchMetric", "i2")["status"] == "SKIPPED"
        assert [said.value("PatternMatchMetric", item) for item in ("i0", "i1")] == [1.0, 0.0]

    def test_those_that_ask_a_model(self, bench):
        def judge(call: Call) -> Any:
            schema = call.body.get("response_format", {}).get("json_schema", {}).get("name", "")
            if "Verdicts" in schema:
                return {"verdicts": [{"verdict": "yes", "reason": "fits"}, {"verdict": "no", "reason": "off topic"}]}
            return {
                **{"statements": ["one", "two"], "claims": ["one", "two"], "truths": ["one"]},
                **{"steps": ["Look whether it is polite."], "score": 8, "reason": "half of it"},
            }

        with MockEndpoint(judge) as endpoint:
            said = bench("judges").judge(
                [
                    {"use": "deepeval.AnswerRelevancyMetric", "settings": ask(endpoint)},
                    {"use": "deepeval.FaithfulnessMetric", "settings": ask(endpoint)},
                    {"use": "deepeval.GEval", "settings": ask(endpoint, name="Polite", criteria="Is it polite?")},
                ],
                {"output": "It is. And tea is green.", "contexts": ["It is so."]},
                {"output": "It is."},
            )
        score = said.score("AnswerRelevancyMetric")
        assert (score["value"], score["explanation"]) == (0.5, "half of it")
        assert said.value("FaithfulnessMetric") == 0.5
        assert said.score("FaithfulnessMetric", "i1")["failure"]["reason"] == "INPUT_MISSING"
        assert [said.value("GEval", item) for item in ("i0", "i1")] == pytest.approx([0.8, 0.8])
        steps = [c for c in endpoint.calls if c.body.get("response_format", {}).get("json_schema", {}).get("name") == "Steps"]  # fmt: skip
        assert len(steps) == 1  # of the first output; the second is judged by the same
        assert said.ended.document["usage"]["input_tokens"] > 0

    def test_a_rate_limit_reaches_the_server(self, bench):
        replies: Any = iter(
            [SLOW_DOWN, *[{"statements": ["a"]}, {"verdicts": [{"verdict": "yes"}]}, {"reason": "fine"}]]
        )
        with MockEndpoint(lambda call: next(replies)) as endpoint:
            said = bench("judges").judge(
                [{"use": "deepeval.AnswerRelevancyMetric", "settings": ask(endpoint)}], {"output": "Paris"}
            )
        assert said.value("AnswerRelevancyMetric") == 1.0
        assert len(endpoint.calls) == 4  # one refused, and not tried again by DeepEval


class TestRagas:
    def test_those_that_calculate(self, bench):
        said = bench("ragas").judge(
            [{"use": "ragas.ExactMatch"}, {"use": "ragas.RougeScore"}, {"use": "ragas.BleuScore"}],
            {"output": "the cat sat on the mat", "expected": ["the dog", "the cat sat on the mat"]},
            {"output": "the cat sat", "expected": "the cat sat on the mat"},
        )
        assert [said.value("ExactMatch", item) for item in ("i0", "i1")] == [1.0, 0.0]
        assert [said.value("RougeScore", item) for item in ("i0", "i1")] == pytest.approx([1.0, 2 / 3])
        assert said.value("BleuScore") == pytest.approx(1.0)

    def test_those_that_ask_a_model(self, bench):
        def judge(call: Call) -> Any:
            asked = call.text.rpartition("perform the same with the following input")[2]
            if '"context"' in asked:
                return {
                    "statements": [
                        {"statement": "one", "reason": "it says so", "verdict": 1},
                        {"statement": "two", "reason": "it does not", "verdict": 0},
                    ]
                }
            return {"statements": [] if "NOTHING" in asked else ["one", "two"]}

        with MockEndpoint(judge) as endpoint:
            embedding = {"base_url": endpoint.base_url, "embedding_model": "e"}
            said = bench("ragas").judge(
                [
                    {"use": "ragas.Faithfulness", "settings": ask(endpoint)},
                    {"use": "ragas.SemanticSimilarity", "settings": embedding},
                ],
                {"output": "a cup of tea", "expected": "a cup of milk", "contexts": ["one"]},
                {"output": "NOTHING", "expected": "NOTHING", "contexts": ["one"]},
            )
        assert said.value("Faithfulness") == 0.5
        assert said.value("SemanticSimilarity") == pytest.approx(0.75)
        failure = said.score("Faithfulness", "i1")["failure"]
        assert (failure["reason"], failure["message"]) == ("NO_VALUE", "the scorer gave nan, not a number")
        assert said.ended.document["usage"]["calls"] == len(endpoint.calls)

    def test_without_a_model_it_is_refused_before_the_run(self, bench):
        said = bench("ragas").judge([{"use": "ragas.Faithfulness"}], {"output": "a"})
        assert said.ended.code == 2
        assert json.loads(said.ended.err)["error"]["message"].endswith(
            "settings.model: missing; Ragas has no model of its own"
        )

    def test_an_answer_that_does_not_fit_is_asked_for_once(self, bench):
        with MockEndpoint(lambda call: Says("no JSON at all")) as endpoint:
            said = bench("ragas").judge(
                [{"use": "ragas.Faithfulness", "settings": ask(endpoint)}], {"output": "a", "contexts": ["b"]}
            )
        assert said.score("Faithfulness")["failure"]["reason"] == "ANSWER_INVALID"
        assert len(endpoint.calls) == 1


class TestInspect:
    def test_those_that_calculate(self, bench):
        said = bench("inspect").judge(
            [
                {"use": "inspect_ai.includes", "threshold": 1.0},
                {"use": "inspect_ai.match", "settings": {"location": "begin"}},
                {"use": "inspect_ai.choice"},
                {"use": "inspect_ai.perplexity"},
            ],
            {"output": "ANSWER: B", "expected": ["A", "B"], "choices": ["Rome", "Paris"]},
            {"output": "Rome", "expected": "B", "choices": ["Rome", "Paris"]},
            {"output": "Rome"},
        )
        assert [said.value("includes", item) for item in ("i0", "i1")] == [1.0, 0.0]
        assert said.score("includes")["label"] == "C"
        assert [said.value("match", item) for item in ("i0", "i1")] == [1.0, 0.0]  # it begins with an A
        assert said.value("choice", "i1") == 0.0
        assert {said.score(key, "i2")["status"] for key in ("includes", "match", "choice")} == {"SKIPPED"}
        assert said.score("perplexity")["failure"]["reason"] == "NO_VALUE"  # NaN, since there are no probabilities

    def test_those_that_ask_a_model(self, bench):
        def judge(call: Call) -> Any:
            return "no idea" if "HARD" in call.text else "It fits.\nGRADE: C" if "Paris" in call.text else "GRADE: I"

        with MockEndpoint(judge) as endpoint:
            said = bench("inspect").judge(
                [{"use": "inspect_ai.model_graded_fact", "settings": ask(endpoint)}],
                {"output": "It is Paris.", "expected": "the capital"},
                {"output": "It is Rome.", "expected": "the capital"},
                {"output": "HARD", "expected": "the capital"},
            )
        assert [said.value("model_graded_fact", item) for item in ("i0", "i1")] == [1.0, 0.0]
        assert said.score("model_graded_fact", "i2")["failure"]["reason"] == "NO_VALUE"
        assert said.ended.document["usage"]["input_tokens"] == 300


GRADERS = """
from inspect_ai.scorer import Score, mean, scorer


@scorer(metrics={"tone": [mean()], "facts": [mean()]})
def told():
    async def score(state, target):
        return Score(value={"tone": "C", "facts": 0.25})

    return score


@scorer(metrics=[mean()])
def untold():
    return told()


@scorer(metrics=[mean()])
def listed():
    async def score(state, target):
        return Score(value=[1, 0.5])

    return score
"""


def test_scorers_of_inspect_ai_that_give_several_values(bench):
    made = bench("inspect")
    made.desk.write("graders.py", GRADERS)
    said = made.judge(
        [
            {"use": "inspect_ai.graders:told", "threshold": {"tone": 1}},
            {"use": "inspect_ai.graders:untold", "settings": {"scores": ["facts", "tone"]}},
            {"use": "inspect_ai.graders:listed", "settings": {"scores": ["1", "0"]}},
            {"name": "nobody", "use": "inspect_ai.graders:untold"},
        ],
        {"output": "Please.", "expected": "x"},
        {"output": "Please."},
    )
    assert (said.value("told.tone"), said.value("told.facts")) == (1.0, 0.25)
    assert (said.value("untold.facts"), said.value("listed.1")) == (0.25, 0.5)
    assert said.score("told.tone")["passed"] is True and said.score("told.tone")["label"] == "C"
    assert said.score("told.facts", "i1")["status"] == "SKIPPED"
    failure = said.score("nobody")["failure"]
    assert failure["reason"] == "NO_VALUE" and 'settings: {scores: ["tone", "facts"]}' in failure["message"]


@pytest.mark.parametrize("library", ["judges", "ragas", "inspect"])
def test_the_page_shows_what_can_be_used(bench, library):
    found = settings_of_page(PAGES["docs/scorers/bring-your-own.md"], library)
    assert found
    program = (
        "import json, sys; from evalbus.adapters import find\n"
        "for use, settings in json.loads(sys.argv[1]):\n    find(use)._settings.read(json.dumps(settings))\nprint(1)"
    )
    assert bench(library).ask(program, json.dumps(found)) == 1
