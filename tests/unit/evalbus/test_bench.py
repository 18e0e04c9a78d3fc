"""The bench: a plugin without a socket, and as strict as a server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from evalbus import (
    Context,
    ContractBroken,
    Failure,
    FailureCategory,
    Item,
    Output,
    Score,
    ScoreDeclaration,
    ScorerBench,
    ScoreStatus,
    ScoreTask,
    SettingsInvalid,
    TargetBench,
    Trial,
    Value,
    scorer,
    target,
)


@dataclass(frozen=True)
class Manners:
    greeting: str = "hello"


@target("greeter")
async def greeter(item: Item, settings: Manners) -> str:
    return f"{settings.greeting} {item.input}"


@scorer("exact-match", version="1.0.0")
def exact_match(item: Item, output: Output) -> Score:
    if item.expected is None:
        return Score.skipped("the item has no expected answer")
    return Score.scored(output.text.strip() == item.expected.text.strip())


async def test_a_target_is_asked_by_item_text_json_or_trial() -> None:
    bench = TargetBench(greeter)

    assert await bench.answer(Item("q", "you")) == Output("hello you")
    assert await bench.answer("you") == Output("hello you")
    assert await bench.answer({"a": 1}) == Output('hello {"a":1}')
    assert await bench.answer(Trial(7, 3, Item("q", "you"))) == Output("hello you")


async def test_many_items_are_answered_in_their_order() -> None:
    @target("shuffled")
    async def shuffled(item: Item) -> str:
        await asyncio.sleep(0.01 * (3 - int(item.input.text)))
        return item.input.text

    assert await TargetBench(shuffled).answer_many(["0", "1", "2"]) == [Output("0"), Output("1"), Output("2")]


@pytest.mark.parametrize("settings", [{"greeting": "hi"}, Manners("hi")])
async def test_settings_are_a_mapping_or_an_object(settings: object) -> None:
    assert await TargetBench(greeter, settings).answer("you") == Output("hi you")


async def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingsInvalid, match="did you mean 'greeting'"):
        await TargetBench(greeter, {"greting": "hi"}).answer("you")


async def test_set_up_runs_once() -> None:
    opened: list[int] = []

    @target("t", setup=lambda: opened.append(1))
    def t(item: Item) -> str:
        return ""

    bench = TargetBench(t)
    await bench.answer("a")
    await bench.answer("b")
    assert opened == [1]


async def test_a_failure_is_returned() -> None:
    @target("broken")
    def broken(item: Item) -> str:
        raise ValueError("no")

    failure = await TargetBench(broken).answer("x")
    assert isinstance(failure, Failure)
    assert failure.message == "ValueError: no"


async def test_time_and_cancellation_can_be_tried() -> None:
    @target("slow")
    async def slow(item: Item, ctx: Context) -> Any:
        ctx.progress(steps=1)
        while item.input.text != "told" or not bench.news:
            await asyncio.sleep(0.01)

    bench = TargetBench(slow)
    await bench.answer("told")
    late = await bench.answer("x", remaining=0.2)
    cancelled = await bench.answer("x", cancel_after=0.05)

    assert isinstance(late, Failure)
    assert late.category is FailureCategory.TIMEOUT
    assert isinstance(cancelled, Failure)
    assert cancelled.category is FailureCategory.CANCELLED
    assert bench.news[0].steps == 1


async def test_what_would_not_travel_is_noticed() -> None:
    @target("odd")
    def odd(item: Item) -> Output:
        return Output("\ud800") if item.input.text == "a" else Output("x", metadata="not JSON")

    failure = await TargetBench(odd).answer("a")
    assert isinstance(failure, Failure)
    assert failure.reason == "NOT_UNICODE"
    with pytest.raises(ContractBroken, match="metadata of the output"):
        await TargetBench(odd).answer("b")


async def test_a_scorer_is_asked_for_its_score() -> None:
    bench = ScorerBench(exact_match)

    assert await bench.score(Item("q1", "2+2?", "4"), Output(" 4")) == Score.scored(1.0)
    assert await bench.score(Item("q1", "2+2?", "4"), "5") == Score.scored(0.0)
    assert (await bench.score("2+2?", "4")).status is ScoreStatus.SKIPPED


async def test_inputs_reach_a_scorer() -> None:
    @scorer("s", inputs=["context"])
    def s(output: Output, ctx: Context) -> bool:
        return ctx.inputs == {"context": Value("c"), "n": Value("1", "json")}

    assert (await ScorerBench(s).score("q", "a", inputs={"context": "c", "n": 1})).value == 1.0


async def test_a_task_that_fails_errors_every_declared_score() -> None:
    @scorer("s", scores=[ScoreDeclaration("a"), ScoreDeclaration("b")])
    def s(output: Output) -> Score:
        raise ValueError("no")

    scores = await ScorerBench(s).scores("q", "a")
    assert {name: score.status for name, score in scores.items()} == dict.fromkeys("ab", ScoreStatus.ERRORED)
    assert scores["a"].failure is not None
    assert scores["a"].failure.message == "ValueError: no"


async def test_several_scores_come_by_name() -> None:
    @scorer("s", scores=[ScoreDeclaration("a"), ScoreDeclaration("b", maximum=None)])
    def s(output: Output) -> list[Score]:
        return [Score.scored(9, name="b"), Score.skipped("no", name="a")]

    bench = ScorerBench(s)
    assert (await bench.scores("q", "x"))["b"].value == 9.0
    with pytest.raises(ValueError, match="use `scores`"):
        await bench.score("q", "x")


async def test_many_outputs_are_scored_in_their_order() -> None:
    tasks: list[Any] = [ScoreTask(5, 1, Item("q", "?", "a"), Output("a")), (Item("q", "?", "a"), "b")]

    assert await ScorerBench(exact_match).score_many(tasks) == [(Score.scored(1),), (Score.scored(0),)]


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (1.5, r"the score is 1\.5, outside of its declared range 0\.0 to 1\.0"),
        (-0.1, "outside of its declared range"),
        (float("nan"), "the score is nan, which is not a finite number"),
        (float("inf"), "not a finite number"),
        (Score.scored(1, name="other"), r"declares the scores \[''\], and gave \['other'\]"),
        ([Score.scored(1), Score.scored(1)], r"gave \['', ''\]"),
    ],
)
async def test_a_score_that_a_server_would_refuse_is_refused(returned: object, text: str) -> None:
    @scorer("s")
    def s(output: Output) -> Any:
        return returned

    with pytest.raises(ContractBroken, match=text):
        await ScorerBench(s).score("q", "a")
