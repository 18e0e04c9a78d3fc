"""Scorers of what a target did: tool calls, steps, time, cost and tokens."""

from __future__ import annotations

from typing import Any

import pytest

from evalbus import Message, Money, Output, Score, ScoreStatus, SettingsInvalid, Span, Timing, ToolCall, Usage, Value
from tests.unit.server.scorer.asking import failure_of, score_of, value_of


def did(*calls: Any, **more: Any) -> Output:
    """An output with tool calls, by name, or name and arguments."""
    made = [call if isinstance(call, ToolCall) else ToolCall(call) for call in calls]
    return Output("done", tool_calls=made, **more)


class TestLimits:
    @pytest.mark.parametrize(
        ("name", "output", "settings", "value"),
        [
            ("latency_limit", Output("", timing=Timing(1.0, 0.2)), {"seconds": 1}, 1),
            ("latency_limit", Output("", timing=Timing(2.0, 0.2)), {"seconds": 1}, 0),
            ("latency_limit", Output("", timing=Timing(2.0, 0.2)), {"seconds": 1, "outside": "closeness"}, 0.5),
            ("latency_limit", Output("", timing=Timing(2.0, 0.2)), {"seconds": 0.2, "of": "first_token"}, 1),
            ("latency_limit", Output("", timing=Timing(2.0)), {"seconds": 0}, 0),
            ("cost_limit", Output("", usage=Usage(cost=Money(100_000))), {"amount": 0.1}, 1),
            ("cost_limit", Output("", usage=Usage(cost=Money(100_001))), {"amount": 0.1}, 0),
            ("cost_limit", Output("", usage=Usage(cost=Money(0))), {"amount": 0}, 1),
            ("token_limit", Output("", usage=Usage(60, 40)), {"tokens": 100}, 1),
            ("token_limit", Output("", usage=Usage(60, 41)), {"tokens": 100}, 0),
            ("token_limit", Output("", usage=Usage(60, 41)), {"tokens": 60, "of": "input"}, 1),
            (
                "token_limit",
                Output("", usage=Usage(60, 40)),
                {"tokens": 20, "of": "output", "outside": "closeness"},
                0.5,
            ),
        ],
    )
    async def test_what_is_allowed(self, name, output, settings, value):
        assert await value_of(name, output, **settings) == value

    @pytest.mark.parametrize(
        ("name", "output", "settings"),
        [
            ("latency_limit", Output(""), {"seconds": 1}),
            ("latency_limit", Output("", timing=Timing(1.0)), {"seconds": 1, "of": "first_token"}),
            ("cost_limit", Output("", usage=Usage(10)), {"amount": 1}),
            ("cost_limit", Output("", usage=Usage(cost=Money(1, "EUR"))), {"amount": 1}),
            ("token_limit", Output(""), {"tokens": 1}),
        ],
    )
    async def test_what_nobody_knows_is_skipped_and_not_zero(self, name, output, settings):
        assert (await score_of(name, output, **settings)).status is ScoreStatus.SKIPPED

    async def test_a_limit_is_needed_and_is_a_number(self):
        for name, settings in (("latency_limit", {}), ("cost_limit", {"amount": -1}), ("token_limit", {"tokens": -1})):
            with pytest.raises(SettingsInvalid):
                await score_of(name, "", **settings)


class TestToolCalls:
    @pytest.mark.parametrize(
        ("name", "calls", "settings", "value"),
        [
            ("tool_called", ["a", "b"], {"tool": "b"}, 1),
            ("tool_called", ["a"], {"tool": "b"}, 0),
            ("tool_called", ["a", "a"], {"tool": "a", "at_most": 1}, 0),
            ("tool_called", ["a"], {"tool": "a", "at_least": 2}, 0),
            ("tool_not_called", ["a"], {"tools": ["b", "c"]}, 1),
            ("tool_not_called", ["a", "c"], {"tools": ["b", "c"]}, 0),
            ("tool_call_limit", ["a", "b"], {"at_most": 1}, 0),
            ("tool_call_limit", ["a", "b"], {"at_most": 1, "tool": "a"}, 1),
            ("tool_call_limit", [], {"at_most": 0}, 1),
            ("no_tool_errors", ["a", ToolCall("b", error="timeout")], {}, 0),
            ("no_tool_errors", [ToolCall("b", result="")], {"require_result": True}, 1),
            ("tool_order", ["x", "a", "x", "b"], {"tools": ["a", "b"]}, 1),
            ("tool_order", ["b", "a"], {"tools": ["a", "b"]}, 0),
            ("tool_order", ["a"], {"tools": ["a", "a"]}, 0),
        ],
    )
    async def test_which_calls_were_made(self, name, calls, settings, value):
        assert await value_of(name, did(*calls), **settings) == value

    async def test_calls_may_stand_in_the_messages(self):
        said = Output(messages=[Message("assistant", "", tool_calls=[ToolCall("a")]), Message("assistant", "done")])
        assert await value_of("tool_called", said, tool="a") == 1.0

    async def test_they_say_what_was_called(self):
        assert (await score_of("tool_called", did("a", "b"), tool="c")).explanation == (
            "'c' was called 0 times; called: a, b"
        )
        assert (await score_of("tool_order", did(), tools=["c"])).explanation == "no tool was called"
        assert len((await score_of("tool_order", did(*["x" * 900] * 50), tools=["c"])).explanation) <= 500

    @pytest.mark.parametrize(
        ("calls", "expected", "settings", "value"),
        [
            (["a", "x", "b"], [["a", "b"]], {}, 1),
            (["a", "x", "b"], [["a", "b"]], {"strict": True}, 0),
            (["a", "b"], [["a", "b"]], {"strict": True}, 1),
            (["b"], ["a", "b"], {}, 1),
            (["b"], "b", {"strict": True}, 1),
            (["b"], {"steps": ["b"]}, {}, 1),
            (["b"], {"name": "b", "arguments": {}}, {}, 1),
        ],
    )
    async def test_expected_calls_may_stand_in_the_item(self, calls, expected, settings, value):
        assert await value_of("tool_call_accuracy", did(*calls), expected, **settings) == value

    async def test_where_nobody_expects_anything_they_skip(self):
        for name in ("tool_call_accuracy", "tool_arguments", "trajectory"):
            assert (await score_of(name, did("a"))).status is ScoreStatus.SKIPPED

    async def test_an_expected_answer_that_is_no_call_is_the_items_fault(self):
        for name in ("tool_call_accuracy", "tool_arguments", "trajectory"):
            assert failure_of(await score_of(name, did("a"), 7)).reason == "EXPECTED_INVALID"
            assert failure_of(await score_of(name, did("a"), {"nam": "a"})).reason == "EXPECTED_INVALID"


def called(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


def wanted(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize("name", ["tool_not_called", "tool_order", "tool_call_accuracy"])
async def test_naming_no_tool_is_refused_since_every_output_would_do(name):
    with pytest.raises(SettingsInvalid, match=r"settings\.tools: name at least one tool"):
        await score_of(name, did("a"), tools=[])


class TestToolArguments:
    @pytest.mark.parametrize(
        ("calls", "expected", "settings", "value"),
        [
            ([called("s", a=1, b=[1, 2])], [wanted("s", b=[1, 2], a=1)], {}, 1),
            ([called("s", a=1)], [wanted("s", a=1.0)], {}, 1),
            ([called("s", a=1)], [wanted("s", a=True)], {}, 0),
            ([called("s", a=1)], [wanted("s", a="1")], {}, 0),
            ([called("s", a=1, b=2)], [wanted("s", a=1)], {}, 0),
            ([called("s", a=1, b=2)], [wanted("s", a=1)], {"compare": "holds"}, 1),
            ([called("s", a={"x": 1, "y": 2})], [wanted("s", a={"x": 1})], {"compare": "holds"}, 1),
            ([called("s", a=1), called("s", a=2)], [wanted("s", a=2), wanted("s", a=1)], {}, 1),
            ([called("s", a=1)], [wanted("s", a=1), wanted("s", a=1)], {}, 0.5),
            ([called("s", a=1)], ["s"], {}, 1),
            ([called("s", a=1), called("s", a=2)], ["s", wanted("s", a=1)], {}, 1),
            ([ToolCall("s")], [wanted("s")], {}, 1),
        ],
    )
    async def test_which_calls_were_made_so(self, calls, expected, settings, value):
        assert await value_of("tool_arguments", did(*calls), calls=expected, **settings) == value
        assert await value_of("tool_arguments", did(*calls), [expected], **settings) == value

    async def test_it_says_which_are_missing(self):
        score = await score_of("tool_arguments", did(called("s", a=1)), calls=[wanted("s", a=1), wanted("t")])
        assert (score.value, score.explanation) == (0.5, "not called so: t")

    async def test_bad_calls_are_refused_and_named(self):
        with pytest.raises(SettingsInvalid, match=r"settings\.calls\[1\]: 'args' is unknown"):
            await score_of("tool_arguments", did(), calls=["a", {"name": "b", "args": {}}])


class TestTrajectory:
    @pytest.mark.parametrize(
        ("taken", "steps", "settings", "value"),
        [
            ("abc", "ac", {}, 1),
            ("bca", "abc", {}, 1 / 3),
            ("ab", "abc", {}, 2 / 3),
            ("abcx", "abc", {"order": "strict"}, 0.75),
            ("xabc", "abc", {"order": "strict"}, 0),
            ("cab", "abc", {"order": "unordered"}, 1),
            ("aab", "aaab", {"order": "unordered"}, 0.75),
            ("aabb", "ab", {"repeats": "penalized"}, 0.8),
            ("aab", "aab", {"repeats": "penalized"}, 1),
            ("", "", {}, 1),
            ("a", "", {}, 1),
            ("a", "", {"order": "strict"}, 0),
            ("", "a", {}, 0),
        ],
    )
    async def test_which_steps_were_taken(self, taken, steps, settings, value):
        found = await value_of("trajectory", did(*taken), steps=list(steps), **settings)
        assert found == pytest.approx(value, abs=1e-12)

    async def test_the_items_steps_come_before_those_of_the_settings(self):
        assert await value_of("trajectory", did("a"), {"steps": ["a"]}, steps=["b"]) == 1.0
        assert await value_of("trajectory", did("a"), "x", inputs={"expected": [["a"]]}, steps=["b"]) == 1.0

    async def test_an_expected_answer_that_is_said_and_not_done_does_not_replace_the_steps(self):
        assert await value_of("trajectory", did("b"), "Paris", steps=["b"]) == 1.0
        assert await value_of("trajectory", did("a"), ["b", "a"]) == 1.0

    async def test_spans_are_steps_within_steps(self):
        spans = [
            Span("2", "search", parent_id="1", started_at=2.0),
            Span("1", "agent", started_at=1.0),
            Span("3", "answer", started_at=3.0),
            Span("4", "loop", parent_id="5"),
            Span("5", "loop", parent_id="4"),
        ]
        steps: list[Any] = [{"name": "agent", "steps": ["search"]}, "answer"]
        assert await value_of("trajectory", Output("", spans=spans), steps=steps, read="spans") == 1.0
        steps[0]["steps"] = ["search", "read"]
        score = await score_of("trajectory", Output("", spans=spans), steps=steps, read="spans")
        assert score.value == pytest.approx(0.7 + 0.3 * 0.5)
        assert score.explanation == "missing: read"

    async def test_very_many_steps_are_errored(self):
        failure = failure_of(await score_of("trajectory", did(*["a"] * 10_001), steps=["a"]))
        assert failure.reason == "TOO_MANY_STEPS"


class TestEfficiency:
    async def test_what_the_output_does_not_tell_is_left_out(self):
        assert await value_of("trajectory_efficiency", did("a"), max_tokens=1) == 1.0
        score = await score_of("trajectory_efficiency", did("a"), max_tokens=1, max_seconds=1, redundancy=False)
        assert score.status is ScoreStatus.SKIPPED

    async def test_the_time_of_the_output_comes_before_that_of_its_calls(self):
        calls = [ToolCall("a", duration=3.0)]
        assert await value_of("trajectory_efficiency", did(*calls), max_seconds=2, redundancy=False) == 0.5
        said = did(*calls, timing=Timing(2.0))
        assert await value_of("trajectory_efficiency", said, max_seconds=2, redundancy=False) == 1.0

    async def test_a_budget_of_nothing_is_missed_by_anything(self):
        assert await value_of("trajectory_efficiency", did("a"), max_steps=0, redundancy=False) == 0.0
        assert await value_of("trajectory_efficiency", did(), max_steps=0, redundancy=False) == 1.0

    async def test_arguments_tell_calls_apart(self):
        assert await value_of("trajectory_efficiency", did(called("s", a=1), called("s", a=2))) == 1.0
        assert await value_of("trajectory_efficiency", did(*[called("s", a=1)] * 9)) == 0.0

    async def test_nothing_to_judge_is_refused(self):
        with pytest.raises(SettingsInvalid):
            await score_of("trajectory_efficiency", did(), redundancy=False)


class TestWhatMustNotBe:
    async def test_a_run_of_calls_is_one_after_the_other(self):
        settings = {"sequences": [["a", "b"]]}
        assert await value_of("trajectory_blacklist", did("x", "a", "b"), **settings) == 0.0
        assert await value_of("trajectory_blacklist", did("a", "x", "b"), **settings) == 1.0

    async def test_an_empty_blacklist_is_refused(self):
        refused: tuple[dict[str, Any], ...] = ({}, {"sequences": [[]]})
        for settings in refused:
            with pytest.raises(SettingsInvalid):
                await score_of("trajectory_blacklist", did(), **settings)

    async def test_trying_again_without_end_costs(self):
        broken = ToolCall("a", error="no")
        assert await value_of("tool_failures", did(*[broken] * 3)) == 1.0
        assert await value_of("tool_failures", did(*[broken] * 5)) == pytest.approx(0.6)
        assert await value_of("tool_failures", did(broken, "a"), max_retries=0) == pytest.approx(0.8)
        assert await value_of("tool_failures", did(*[broken] * 50)) == 0.0
        score: Score = await score_of("tool_failures", did(*[broken] * 3))
        assert score.explanation == "a tried again 2 times"
        assert await value_of("tool_failures", did(ToolCall("a", result=Value("")), "a", "a", "a")) == 1.0
