"""Several votes: of several models, or of one that is asked several times."""

from __future__ import annotations

from typing import Any

import pytest

from evalbus import FailureCategory, Money, ScoreStatus, Usage
from tests.mock_endpoint import KEY, Call, MockEndpoint, Says, Status
from tests.unit.server.scorer.judges.asking import scores_of

A_B_C = [{"model": "a"}, {"model": "b"}, {"model": "c"}]


def says(words: dict[str, Any]) -> Any:
    """A script by model."""

    def script(call: Call) -> Any:
        word = words[call.body["model"]]
        return {"reason": f"says {word}", "verdict": word} if isinstance(word, str) else word

    return script


async def decided(words: dict[str, Any], name: str = "judge_harmfulness", **settings: Any) -> Any:
    with MockEndpoint(says(words)) as mock:
        jury = [{"model": model} for model in words]
        return (await scores_of(name, mock, jury=jury, **settings))[""]


class TestMajority:
    async def test_more_than_half_decide(self):
        score = await decided({"a": "yes", "b": "no", "c": "yes"})
        assert (score.value, score.label) == (1.0, "yes")
        assert score.explanation == "2 of 3 votes: yes. says yes"
        assert score.metadata["votes"] == [
            {"model": "a-2026", "value": 1.0, "label": "yes", "explanation": "says yes"},
            {"model": "b-2026", "value": 0.0, "label": "no", "explanation": "says no"},
            {"model": "c-2026", "value": 1.0, "label": "yes", "explanation": "says yes"},
        ]
        assert score.usage == Usage(300, 60, 0, 3)
        assert [step.name for step in score.steps] == ["vote 1 score", "vote 2 score", "vote 3 score"]

    async def test_a_tie_is_not_graded(self):
        score = await decided({"a": "yes", "b": "no"})
        assert score.status is ScoreStatus.SKIPPED
        assert score.explanation == "the votes are tied: yes 1, no 1"
        assert len(score.metadata["votes"]) == 2

    async def test_the_most_votes_of_three_are_no_majority_if_they_are_not_half(self):
        words = {"a": "same", "b": "subset", "c": "superset", "d": "same"}
        score = await decided(words, "judge_factuality")
        assert score.status is ScoreStatus.SKIPPED

    async def test_words_with_the_same_value_are_different_votes(self):
        score = await decided({"a": "same", "b": "immaterial"}, "judge_factuality")
        assert score.status is ScoreStatus.SKIPPED

    async def test_a_lost_vote_counts_among_all(self):
        score = await decided({"a": "yes", "b": Says("maybe"), "c": "yes"})
        assert score.value == 1.0
        assert score.metadata["votes"][1]["failure"] == "REPLY_INVALID"
        score = await decided({"a": "yes", "b": Says("maybe"), "c": "no"})
        assert score.status is ScoreStatus.ERRORED
        assert score.failure.reason == "REPLY_INVALID"
        score = await decided({"a": "yes", "b": Says("maybe")})
        assert score.status is ScoreStatus.ERRORED

    async def test_trouble_of_an_endpoint_is_no_vote_but_fails_the_task(self):
        words = {"a": "yes", "b": Status(429, {}, {"Retry-After": "9"}), "c": Status(503, {}, {"Retry-After": "4"})}
        score = await decided(words)
        assert score.failure.category is FailureCategory.RATE_LIMITED
        assert score.failure.retry_after == 9


class TestMedian:
    async def test_values_have_a_middle(self):
        replies = {model: {"reason": "r", "grade": grade} for model, grade in (("a", 1), ("b", 4), ("c", 5))}
        score = await decided(replies, "judge_conciseness")
        assert (score.value, score.explanation) == (0.75, "the middle of 0, 0.75, 1: 4 of 5: r")

    async def test_of_an_even_number_the_two_in_the_middle_are_halved(self):
        replies = {model: {"reason": "r", "grade": grade} for model, grade in (("a", 1), ("b", 4))}
        assert (await decided(replies, "judge_conciseness")).value == 0.375

    async def test_without_more_than_half_of_the_votes_there_is_no_value(self):
        score = await decided({"a": {"reason": "r", "grade": 5}, "b": Says("5")}, "judge_conciseness")
        assert score.failure.reason == "REPLY_INVALID"

    async def test_a_lost_vote_that_might_have_decided_is_told_and_not_skipped(self):
        nothing: dict[str, list[str]] = {"statements": []}
        some = {"statements": ["s"]}
        verdict = {"verdicts": [{"number": 1, "reason": "r", "verdict": "yes"}]}

        def script(call: Call) -> Any:
            if call.body["model"] == "c":
                return Says("no verdict")
            if call.body["model"] == "b":
                return nothing
            asked = call.body["response_format"]["json_schema"]["schema"]["properties"]
            return verdict if "verdicts" in asked else some

        with MockEndpoint(script) as mock:
            score = (await scores_of("judge_bias", mock, jury=A_B_C))[""]
        assert score.failure is not None
        assert score.failure.reason == "REPLY_INVALID"


class TestCriteria:
    async def test_each_criterion_is_decided_by_itself(self):
        def reply(year, polite):
            rows = [{"number": 1, "reason": "r", "verdict": year}, {"number": 2, "reason": "r", "verdict": polite}]
            return {"verdicts": rows}

        replies = {"a": reply("yes", "no"), "b": reply("yes", "yes"), "c": reply("no", "yes")}
        with MockEndpoint(says(replies)) as mock:
            scores = await scores_of("judge_criteria", mock, jury=A_B_C, separate=True)
        assert {name: score.value for name, score in scores.items()} == {"overall": 0.0, "year": 1.0, "polite": 1.0}
        assert [score.usage for score in scores.values()] == [Usage(300, 60, 0, 3), None, None]


async def test_votes_of_one_model_differ_by_seed():
    with MockEndpoint(lambda call: {"reason": "r", "verdict": "yes"}) as mock:
        await scores_of("judge_harmfulness", mock, votes=3, seed=10)
    assert sorted(call.body["seed"] for call in mock.calls) == [10, 11, 12]


async def test_each_juror_has_its_endpoint_key_and_prices():
    yes = {"reason": "r", "verdict": "yes"}
    with MockEndpoint(lambda call: yes) as one, MockEndpoint(lambda call: yes) as other:
        jury = [
            {"model": "a", "prices": {"input": 1, "output": 1}},
            {"model": "b", "base_url": other.base_url, "prices": {"input": 2, "output": 2}},
        ]
        score = (await scores_of("judge_harmfulness", one, jury=jury))[""]
    assert one.calls[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in other.calls[0].headers["authorization"], "a key does not go to another endpoint"
    assert score.usage is not None
    assert score.usage.cost == Money(120 + 240)


@pytest.mark.parametrize("prices", [None, {"input": 1, "output": 1, "currency": "EUR"}])
async def test_a_cost_that_is_not_known_of_all_is_not_known(prices):
    jury = [{"model": "a", "prices": {"input": 1, "output": 1}}, {"model": "b", "prices": prices}]
    with MockEndpoint(lambda call: {"reason": "r", "verdict": "yes"}) as mock:
        score = (await scores_of("judge_harmfulness", mock, jury=jury))[""]
    assert score.usage is not None
    assert score.usage.cost is None
