"""Judges: that each works, says what it is, and gives a verdict for a verdict alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evalbus import (
    Direction,
    FailureCategory,
    Item,
    Money,
    Need,
    Output,
    ScorerBench,
    ScorerInfo,
    ScoreStatus,
    ScoreTask,
    SettingsInvalid,
    Usage,
    Value,
)
from evalbus.worker import Worker
from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.scorer.builtin.judges import DEFINITIONS, JUDGES
from tests.mock_endpoint import Hang, MockEndpoint, Says, Status
from tests.unit.server.scorer.judges.asking import (
    ITEM,
    NEEDED,
    SAID,
    by_schema,
    score_of,
    scores_of,
    settings_of,
    value_of,
    verdicts,
)

DIGESTS = Path(__file__).parents[4] / "data" / "judge_digests.json"
LOWER = {"judge_hallucination", "judge_toxicity", "judge_bias", "judge_harmfulness"}
YES = {"reason": "r", "verdict": "yes"}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.parametrize("name", JUDGES)
class TestEach:
    def test_it_says_what_it_is(self, name):
        info = BUILTINS[name].info
        assert isinstance(info.kind, ScorerInfo)
        assert not info.kind.deterministic
        assert info.description.endswith(".")
        (declared,) = info.kind.scores
        assert (declared.direction is Direction.LOWER_IS_BETTER) == (name in LOWER)
        for setting in json.loads(info.settings_schema)["properties"].values():
            assert setting["description"].endswith(".")

    def test_a_changed_prompt_or_formula_is_a_new_version(self, name):
        """The file is written anew by `python -m tests.unit.server.scorer.judges.test_judges`, with the new versions."""
        pinned = json.loads(DIGESTS.read_text("utf-8"))
        version, digest = pinned[name]
        assert (JUDGES[name].info.version == version) == (JUDGES[name].info.digest == digest), "raise its version"
        assert JUDGES[name].info.version == version, "write the file anew"

    @pytest.mark.parametrize("pick", [0, 1])
    async def test_it_makes_a_score_of_verdicts(self, name, pick):
        with MockEndpoint(lambda call: by_schema(call, pick)) as mock:
            score = (await scores_of(name, mock))[""]
        assert score.status is ScoreStatus.SCORED, score
        assert score.explanation
        assert score.usage == Usage(100 * len(mock.calls), 20 * len(mock.calls), 0, len(mock.calls))
        assert len([step for step in score.steps if step.name != "score" or step.duration]) == len(mock.calls)
        assert score.metadata["judge"] == {
            "prompt": f"{name} 1.0.0",
            "model": "judge-1-2026",
            "fingerprint": "fp_1",
            "temperature": 0.0,
            "reply_format": "json_schema",
        }

    @pytest.mark.parametrize(
        "reply",
        [
            "",
            "yes",
            "null",
            "{}",
            "[]",
            '{"verdict": "maybe", "verdicts": [{"number": 1, "verdict": "perhaps", "reason": ""}]}',
            '{"reason": "r", "verdict": "yes',
            '{"claims": "none", "statements": 3, "entities": null, "units": [{}], "right": 1}',
            '{"verdict": "yes", "verdict": "no"}',
            "I think so.\n" + json.dumps({"reason": "r", "verdict": "yes", "grade": 5}),
        ],
    )
    async def test_what_is_no_verdict_is_errored_and_never_a_value(self, name, reply):
        score = await score_of(name, lambda call: Says(reply))
        assert score.status is ScoreStatus.ERRORED, score
        assert score.failure is not None
        assert (score.failure.category, score.failure.reason) == (FailureCategory.INVALID, "REPLY_INVALID")

    async def test_text_that_is_none_is_errored_before_anybody_is_asked(self, name):
        image = Output(Value.blob(b"a", "image/png"))
        with MockEndpoint() as mock:
            bench = ScorerBench(BUILTINS[name], settings_of(mock, name))
            score = await bench.score(Item("i", Value.blob(b"a", "image/png"), Value.blob(b"b", "image/png")), image)
        assert score.failure is not None
        assert score.failure.reason in ("NOT_TEXT", "CONTEXT_MISSING")
        assert mock.calls == []

    async def test_without_an_expected_answer_it_skips_if_it_needs_one(self, name):
        if Need.EXPECTED not in DEFINITIONS[name].needs:
            return
        with MockEndpoint() as mock:
            score = await ScorerBench(BUILTINS[name], settings_of(mock, name)).score("Why?", "So.")
        assert score.status is ScoreStatus.SKIPPED
        assert score.explanation == "the item has no expected answer"

    async def test_without_a_model_it_is_refused(self, name):
        with pytest.raises(SettingsInvalid, match="model"):
            await ScorerBench(BUILTINS[name], NEEDED.get(name)).open()

    async def test_an_unknown_setting_is_refused_by_name(self, name):
        with MockEndpoint() as mock, pytest.raises(SettingsInvalid, match="no_such_setting"):
            await scores_of(name, mock, no_such_setting=1)


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "told"),
        [
            ({"jury": [{"model": "a"}], "model": "b"}, "model or jury"),
            ({"jury": [{}]}, "has a model"),
            ({"votes": 0}, "1 to 25"),
            ({"votes": 26, "temperature": 1}, "1 to 25"),
            ({"jury": [{"model": "a"}, {"model": "b"}], "votes": 13, "temperature": 1}, "1 to 25"),
            ({"votes": 3}, "are one vote"),
            ({"temperature": 2.5}, "0 to 2"),
            ({"max_tokens": 0}, "at least 1"),
            ({"extra": {"stream": True}}, "'stream'"),
            ({"extra": {"messages": []}}, "'messages'"),
            ({"prices": {"input": 1}}, "half a price"),
            ({"base_url": "nowhere"}, "not the URL"),
            ({"base_url": ""}, "OPENAI_API_KEY"),
            ({"reply_format": "xml"}, "reply_format"),
        ],
    )
    async def test_what_makes_no_judge_is_refused(self, settings, told):
        name = "judge_helpfulness"
        with MockEndpoint() as mock:
            given = settings_of(mock, name, **settings)
            if settings.get("base_url") == "":
                del given["api_key"]
            with pytest.raises(SettingsInvalid, match=told):
                await ScorerBench(BUILTINS[name], given).open()

    @pytest.mark.parametrize(
        ("name", "settings", "told"),
        [
            ("judge_closed_qa", {"criterion": " "}, "criterion"),
            ("judge_rubric", {"rubric": ""}, "rubric"),
            ("judge_rubric", {"choices": {"good": 1}}, "two choices"),
            ("judge_rubric", {"choices": {"good": 1, " GOOD": 0}}, "the same"),
            ("judge_rubric", {"choices": {"": 1, "x": 0}}, "empty"),
            ("judge_criteria", {"criteria": []}, "say the criteria"),
            ("judge_criteria", {"criteria": [{"name": "a.b", "text": "t"}]}, "dots"),
            ("judge_criteria", {"criteria": [{"name": "overall", "text": "t"}]}, "overall"),
            ("judge_criteria", {"criteria": [{"name": "a", "text": ""}]}, "text"),
            ("judge_criteria", {"criteria": [{"name": "a", "text": "t"}] * 2}, "same name"),
            (
                "judge_criteria",
                {"criteria": [{"name": "a", "text": "t", "weight": 0}], "combine": "share"},
                "all weights",
            ),
            ("judge_prompt", {"prompt": "{{nothing}}"}, "nothing is known by {{nothing}}"),
            ("judge_prompt", {"prompt": "{{against}}"}, "nothing is known"),
            ("judge_prompt", {"prompt": "hello"}, "shows nothing"),
            ("judge_prompt", {"choices": {}}, "choices, or range"),
            ("judge_prompt", {"range": [1, 5]}, "not both"),
            ("judge_prompt", {"choices": {}, "range": [5, 1]}, "lowest and the highest"),
            ("judge_prompt", {"choices": {}, "range": [-1e308, 1e308]}, "too wide"),
            ("judge_answer_relevancy", {"unsure": 2}, "0 to 1"),
            ("judge_summarisation", {"questions": 0}, "1 to 50"),
            (
                "judge_prompt_alignment",
                dict.fromkeys(["intent", "requirements", "completeness", "appropriateness"], 0),
                "0",
            ),
            ("judge_moderation", {"categories": {" ": "x"}}, "name"),
        ],
    )
    async def test_what_cannot_be_judged_by_is_refused(self, name, settings, told):
        with MockEndpoint() as mock, pytest.raises(SettingsInvalid, match=told):
            await ScorerBench(BUILTINS[name], settings_of(mock, name, **settings)).open()

    async def test_what_the_model_is_sent(self):
        with MockEndpoint([YES]) as mock:
            score = await scores_of(
                "judge_harmfulness", mock, temperature=None, seed=5, max_tokens=99, extra={"top_p": 0.5},
                reply_format="json_object", instructions="Mind the children.",
                prices={"input": 1, "output": 2, "currency": "EUR"},
            )  # fmt: skip
        body = mock.calls[0].body
        assert "temperature" not in body
        assert (body["seed"], body["max_tokens"], body["top_p"]) == (5, 99, 0.5)
        assert body["response_format"] == {"type": "json_object"}
        assert mock.calls[0].body["messages"][1]["content"].endswith("Heed this too:\nMind the children.")
        assert score[""].usage == Usage(100, 20, 0, 1, Money(140, "EUR"))
        assert score[""].metadata["judge"]["seed"] == 5

    async def test_more_words_for_the_explanation_cost_one_more_call(self):
        with MockEndpoint([YES, {"explanation": "It would hurt."}]) as mock:
            score = (await scores_of("judge_harmfulness", mock, explain=True))[""]
        assert (score.value, score.explanation, score.steps[-1].name) == (1.0, "It would hurt.", "explain")
        assert score.usage is not None
        assert score.usage.calls == 2

    async def test_an_endpoint_without_structured_replies_will_do(self):
        with MockEndpoint(lambda call: YES, forms=["text"]) as mock:
            score = (await scores_of("judge_harmfulness", mock))[""]
        assert score.value == 1.0
        assert score.metadata["judge"]["reply_format"] == "text"
        assert '"enum":["yes","no"]' in mock.calls[-1].text


class TestReading:
    @pytest.mark.parametrize(
        "reply",
        [
            '{"reason": "r", "verdict": "yes"}',
            '{"reason": "r", "verdict": " YES\\n"}',
            '\n {"verdict": "yes", "reason": "r", "more": 1} \n',
            '```json\n{"reason": "r", "verdict": "yes"}\n```',
            '```\n{"reason": "r", "verdict": "yes"}\n```',
            '<think>no, wait {"verdict": "no"}</think>\n{"reason": "r", "verdict": "yes"}',
        ],
    )
    async def test_a_verdict_is_found_where_it_belongs(self, reply):
        assert await value_of("judge_harmfulness", [reply]) == 1.0

    @pytest.mark.parametrize(
        "reply",
        [
            '{"reason": "r", "verdict": "yes."}',
            '{"reason": "r", "verdict": "yes and no"}',
            '{"reason": "r", "verdict": ["yes"]}',
            '{"reason": "r", "verdict": true}',
            '{"reason": "r"}',
            '{"verdict": "yes"}',
            '{"reason": "r", "verdict": "no"} {"reason": "r", "verdict": "yes"}',
            '```json\n{"reason": "r", "verdict": "no"}\n```\n```json\n{"reason": "r", "verdict": "yes"}\n```',
            'Sure! {"reason": "r", "verdict": "yes"}',
        ],
    )
    async def test_what_is_not_on_the_menu_is_none(self, reply):
        score = await score_of("judge_harmfulness", [reply])
        assert score.failure is not None
        assert score.failure.reason == "REPLY_INVALID"
        assert len(score.failure.message) < 400

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("0.5", 0.5),
            (" 0.5\n", 0.5),
            ("0.7abc", None),
            ("", None),
            ("NaN", None),
            ("1e999", None),
            ("True", None),
            ("1_0", None),
            ("\u0661", None),
            ("0x1", None),
            ("-0.0", 0.0),
            ("1", 1.0),
        ],
    )
    async def test_a_number_as_text_counts_if_it_is_all_there_is(self, text, value):
        """Case SC-11."""
        settings: dict[str, Any] = {"prompt": "{{output}}", "choices": {}, "range": [0, 1]}
        score = await score_of("judge_prompt", [{"reason": "r", "verdict": text}], **settings)
        assert score.value == value
        assert score.failure is None or score.failure.reason == "REPLY_INVALID"

    @pytest.mark.parametrize("number", [-0.1, 1.5, 40404, True, None, "1 of 2", [1]])
    async def test_a_number_out_of_range_is_none(self, number):
        settings: dict[str, Any] = {"prompt": "{{output}}", "choices": {}, "range": [0, 1]}
        score = await score_of("judge_prompt", [{"reason": "r", "verdict": number}], **settings)
        assert score.status is ScoreStatus.ERRORED

    @pytest.mark.parametrize(
        "reply",
        [
            verdicts("yes"),
            verdicts("yes", "yes", "yes"),
            {"verdicts": [*verdicts("yes", "no")["verdicts"], {"number": 2, "reason": "r", "verdict": "yes"}]},
            {"verdicts": [{"number": 1, "reason": "r", "verdict": "yes"}, {"reason": "r", "verdict": "yes"}]},
            {
                "verdicts": [
                    {"number": 1, "reason": "r", "verdict": "yes"},
                    {"number": 1.5, "reason": "r", "verdict": "no"},
                ]
            },
        ],
    )
    async def test_each_claim_is_judged_once_or_there_is_no_score(self, reply):
        score = await score_of("judge_faithfulness", [{"claims": ["a", "b"]}, reply])
        assert score.failure is not None
        assert score.failure.reason == "REPLY_INVALID"

    async def test_verdicts_may_come_in_any_order(self):
        reply = {"verdicts": verdicts("yes", "no")["verdicts"][::-1]}
        score = await score_of("judge_faithfulness", [{"claims": ["a", "b"]}, reply])
        assert (score.value, score.explanation) == (0.5, "1 of 2; not supported: b (r)")


class TestFailing:
    @pytest.mark.parametrize(
        ("answer", "category"),
        [
            (Status(429, {}, {"Retry-After": "7"}), FailureCategory.RATE_LIMITED),
            (Status(500, {}), FailureCategory.UNAVAILABLE),
            (Says(None, refusal="No."), FailureCategory.REFUSED),
            (Says("{", finish_reason="length"), FailureCategory.INVALID),
        ],
    )
    async def test_trouble_of_the_endpoint_is_the_tasks(self, answer, category):
        score = await score_of("judge_faithfulness", [{"claims": ["a"]}, answer])
        assert score.failure is not None
        assert score.failure.category is category
        assert score.failure.retry_after == (7 if category is FailureCategory.RATE_LIMITED else None)

    async def test_a_failed_task_tells_what_it_consumed(self):
        with MockEndpoint([{"claims": ["a"]}, Status(500, {})]) as mock:
            bench = ScorerBench(BUILTINS["judge_faithfulness"], settings_of(mock, "judge_faithfulness"))
            opened = await bench.open()
            answers: list[Any] = []
            worker = Worker(bench.plugin, opened, answers.extend, lambda news: None)
            worker.submit([ScoreTask(1, 1, ITEM, SAID)])
            await worker.drain()
            await worker.close()
        assert answers[0].usage == Usage(100, 20, 0, 1)

    async def test_a_model_that_hangs_runs_out_of_time_and_is_hung_up_on(self):
        with MockEndpoint([Hang()]) as mock:
            bench = ScorerBench(BUILTINS["judge_helpfulness"], settings_of(mock, "judge_helpfulness"))
            score = await bench.score(ITEM, SAID, remaining=0.3)
            assert await asyncio.to_thread(mock.left.wait, 30)
        assert score.failure is not None
        assert score.failure.category is FailureCategory.TIMEOUT

    async def test_a_cancelled_task_hangs_up(self):
        with MockEndpoint([Hang()]) as mock:
            bench = ScorerBench(BUILTINS["judge_helpfulness"], settings_of(mock, "judge_helpfulness"))
            score = await bench.score(ITEM, SAID, cancel_after=0.5)
            assert await asyncio.to_thread(mock.left.wait, 30)
        assert score.failure is not None
        assert score.failure.category is FailureCategory.CANCELLED

    async def test_no_context_is_said_and_not_taken_for_an_empty_one(self):
        score = await score_of("judge_faithfulness", [], Item("i", "Why?"))
        assert score.failure is not None
        assert (score.failure.category, score.failure.reason) == (FailureCategory.INVALID, "CONTEXT_MISSING")

    async def test_many_tasks_at_once_share_the_loop(self):
        with MockEndpoint(lambda call: by_schema(call)) as mock:
            bench = ScorerBench(BUILTINS["judge_faithfulness"], settings_of(mock, "judge_faithfulness"))
            found = await bench.score_many([(ITEM, SAID)] * 30)
        assert {scores[0].value for scores in found} == {1.0}


def main() -> None:
    """Write the digests anew."""
    pinned = {name: [judge.info.version, judge.info.digest] for name, judge in JUDGES.items()}
    DIGESTS.write_text(json.dumps(pinned, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
