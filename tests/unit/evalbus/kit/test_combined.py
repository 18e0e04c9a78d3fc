"""Scorers that are made of others."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any, cast

import pytest

from evalbus import (
    Item,
    Need,
    Output,
    PluginInvalid,
    Score,
    ScoreDeclaration,
    ScorerBench,
    ScorerInfo,
    ScoreStatus,
    ScoreTask,
    SettingsInvalid,
    TrialFailed,
    scorer,
)
from evalbus.kit import all_of, any_of, cascade, in_sample, most_of, negate, part, sampled, threshold, weighted_blend
from evalbus.worker import Worker
from tests.unit.evalbus.kit.making import LOWER, counting, saying

HOW = ["inline", "threads", "async"]
PLAIN: Any = len


@dataclass
class Wanted:
    word: str


async def judged(made, **given):
    return await ScorerBench(made, **given).score("asked", "said")


@pytest.mark.parametrize("how", HOW)
async def test_a_blend_is_the_weighted_mean_with_its_components_beside(how):
    score = await judged(
        weighted_blend("b", part(saying("x", 0.9, how=how), weight=7), part(saying("y", 0.5), weight=3))
    )

    assert score.value == pytest.approx(0.78, abs=1e-12)
    assert score.metadata["components"] == {
        "x": {"status": "SCORED", "value": 0.9, "weight": 7.0, "explanation": "x says so"},
        "y": {"status": "SCORED", "value": 0.5, "weight": 3.0, "explanation": "y says so"},
    }
    assert [step.name for step in score.steps] == ["x", "y"]
    assert score.usage is not None
    assert score.usage.calls == 2
    assert score.explanation == "0.7 · x 0.9 + 0.3 · y 0.5"


async def test_case_sc_09_a_part_that_does_not_apply_leaves_the_denominator():
    made = weighted_blend("b", part(saying("x", 1.0), weight=1), part(saying("y", "skip"), weight=9))
    assert (await judged(made)).value == 1.0

    nobody = await judged(weighted_blend("b", saying("x", "skip"), saying("y", "skip")))
    assert nobody.status is ScoreStatus.SKIPPED
    assert "x does not apply" in nobody.explanation


async def test_a_weight_of_0_shows_a_part_without_counting_it():
    score = await judged(weighted_blend("b", saying("x", 0.25), part(saying("y", 1.0), weight=0)))
    assert score.value == 0.25
    assert score.metadata["components"]["y"]["value"] == 1.0


@pytest.mark.parametrize("how", HOW)
async def test_a_part_that_fails_fails_the_whole_as_it_failed_and_what_was_used_is_told(how):
    score = await judged(weighted_blend("b", saying("x", 1.0), saying("y", "fail", how=how)))
    assert score.failure is not None
    assert (score.failure.category.name, score.failure.message) == ("UNAVAILABLE", "y: y is away")


async def test_blending_never_leaves_the_range_of_its_parts():
    made = weighted_blend("b", *(part(saying(f"s{n}", 0.7), weight=0.1 * (n + 1)) for n in range(7)))
    assert (await judged(made)).value == 0.7


@pytest.mark.parametrize(
    ("make", "values", "value"),
    [
        (all_of, [1, 1], 1),
        (all_of, [1, 0.99], 0),
        (all_of, [1, "skip"], 1),
        (all_of, [0, "fail"], 0),
        (all_of, [1, "fail"], "ERRORED"),
        (all_of, ["skip", "skip"], "SKIPPED"),
        (any_of, [0, 1], 1),
        (any_of, [0, 0], 0),
        (any_of, [1, "fail"], 1),
        (any_of, [0, "fail"], "ERRORED"),
        (any_of, [0, "skip"], 0),
        (most_of, [1, 1, 0], 1),
        (most_of, [1, 0], 0),
        (most_of, [1, "skip"], 1),
        (most_of, [1, 1, "fail"], 1),
        (most_of, [1, 0, "fail"], "ERRORED"),
        (most_of, [0, 0, "fail"], 0),
        (most_of, [0, "fail"], 0),
        (most_of, [1, "fail"], "ERRORED"),
        (most_of, [1, 1, 1, "fail", "fail"], 1),
        (most_of, [1, 1, "skip", "fail", "fail"], "ERRORED"),
        (most_of, ["skip", "fail"], "ERRORED"),
        (most_of, ["fail"], "ERRORED"),
        (most_of, ["skip"], "SKIPPED"),
    ],
)
async def test_passing_is_put_together(make, values, value):
    score = await judged(make("m", *(saying(f"s{place}", each) for place, each in enumerate(values))))
    assert (score.value if isinstance(value, int) else score.status.name) == value


async def test_a_part_passes_its_own_threshold_in_its_own_direction():
    slow = saying("slow", 3.0, declared=LOWER)
    assert (await judged(all_of("m", part(slow, threshold=3)))).value == 1
    assert (await judged(all_of("m", part(slow, threshold=2.9)))).value == 0
    with pytest.raises(PluginInvalid, match="slow a lower value is better: give it a threshold"):
        all_of("m", slow)


@pytest.mark.parametrize(
    ("options", "value", "asked"),
    [
        ({}, 1.0, ["cheap"]),
        ({}, 0.9, ["cheap", "dear"]),
        ({"accept": 0.8}, 0.9, ["cheap"]),
        ({"reject": 0.2}, 0.1, ["cheap"]),
        ({"reject": 0.2}, 1.0, ["cheap", "dear"]),
        ({"accept": 0.8, "reject": 0.2}, 0.5, ["cheap", "dear"]),
    ],
)
async def test_a_cascade_stops_where_it_is_decided(options, value, asked):
    called: list[str] = []
    made = cascade("c", part(counting("cheap", called, value), **options), counting("dear", called, 0.6))
    score = await judged(made)

    assert called == asked
    assert score.value == (value if asked == ["cheap"] else 0.6)
    assert score.metadata["decided_by"] == asked[-1]
    assert list(score.metadata["components"]) == asked


async def test_a_cascade_passes_over_what_does_not_apply_and_stops_at_what_fails():
    assert (await judged(cascade("c", saying("x", "skip"), saying("y", 0.4)))).value == 0.4
    assert (await judged(cascade("c", saying("x", 0.4), saying("y", "skip")))).value == 0.4
    assert (await judged(cascade("c", saying("x", "skip"), saying("y", "skip")))).status is ScoreStatus.SKIPPED
    assert (await judged(cascade("c", saying("x", "fail"), saying("y", 1)))).status is ScoreStatus.ERRORED


async def test_negating_turns_a_value_around_and_the_direction_if_it_was_the_lower():
    made = negate(saying("late", 3.0, declared=LOWER))
    assert made.name == "not_late"
    assert (await judged(made)).value == 7.0
    assert isinstance(made.info.kind, ScorerInfo)
    (declared,) = made.info.kind.scores
    assert (declared.minimum, declared.maximum, declared.direction.name) == (0, 10, "HIGHER_IS_BETTER")
    assert (await judged(negate(saying("x", "skip")))).status is ScoreStatus.SKIPPED
    assert (await judged(negate(saying("x", "fail")))).status is ScoreStatus.ERRORED
    with pytest.raises(PluginInvalid, match="range"):
        negate(saying("x", 1, declared=ScoreDeclaration("", 0, None)))


async def test_a_threshold_makes_a_yes_or_no_of_a_value():
    assert (await judged(threshold(saying("x", 0.8), 0.8))).value == 1
    score = await judged(threshold(saying("x", 0.8), 0.81))
    assert (score.value, score.explanation) == (0, "0.8 misses 0.81: x says so")
    assert (await judged(threshold(saying("late", 3.0, declared=LOWER), 2))).value == 0


async def test_combinations_are_parts_of_others():
    inner = weighted_blend("inner", saying("x", 0.5), saying("y", 1.0, how="async"))
    score = await judged(all_of("outer", part(inner, threshold=0.7), negate(saying("z", 0.0, how="threads"))))
    assert score.value == 1
    assert [step.name for step in score.steps] == ["inner: x", "inner: y", "inner", "not_z: z", "not_z"]


async def test_independent_parts_are_asked_at_the_same_time():
    both = asyncio.Barrier(2)

    def meeting(name):
        @scorer(name)
        async def meet(output: Output) -> float:
            async with asyncio.timeout(30):
                await both.wait()  # one after the other they would wait for ever
            return 1.0

        return meet

    assert (await judged(all_of("m", meeting("x"), meeting("y")))).value == 1


async def test_a_sync_part_of_an_async_whole_runs_in_a_thread_that_ends_with_the_conversation():
    seen: list[threading.Thread] = []

    @scorer("slow")
    def slow(output: Output) -> float:
        seen.append(threading.current_thread())
        return 1.0

    assert (await judged(all_of("m", slow, saying("y", 1, how="async")))).value == 1
    (thread,) = seen
    assert thread is not threading.main_thread()
    assert thread.daemon
    await asyncio.to_thread(thread.join, 30)
    assert not thread.is_alive()


# --- settings -----------------------------------------------------------------------------------------------------


@scorer("shown", version="1.0.0")
def shown(task: ScoreTask, settings: dict) -> Score:
    """Shows the settings that it got."""
    return Score.scored(1.0, metadata=settings)


async def test_vector_params_merge_order_what_the_run_says_goes_before_the_entry_before_the_definition():
    """`x` and `y` as in the vector. There, the definition's `output` takes the place of what is judged; here settings
    are settings, and never what is judged."""

    @scorer("defined", version="1.0.0")
    def defined(task: ScoreTask, settings: dict) -> Score:
        return Score.scored(1.0, task.output.text, label=f"{settings['x']} {settings['y']}")

    made = weighted_blend(
        "b", part(defined, settings=lambda task: {**{"x": "def", "output": "o"}, "x": "entry", "y": "entry"})
    )
    score = await ScorerBench(made, {"defined": {"x": "build"}}).score("i", "OUT")
    assert score.metadata["components"]["defined"]["label"] == "build entry"
    assert score.metadata["components"]["defined"]["explanation"] == "OUT"


async def test_settings_may_be_made_of_the_task_and_are_checked_when_they_are():
    @scorer("long", version="1.0.0", setup=lambda settings: settings["at"])
    def long(output: Output, settings: dict, state: int) -> float:
        return float(len(output.text) >= state)

    made = threshold(part(long, settings=lambda task: {"at": task.item.metadata["at"]}), 1)
    bench = ScorerBench(made)
    tasks = [ScoreTask(n, 1, Item(f"i{n}", "", metadata={"at": n}), Output("four")) for n in (1, 4, 5, 1)]
    assert [score.value for (score,) in await bench.score_many(tasks)] == [1, 1, 0, 1]


async def test_settings_that_do_not_fit_are_refused_with_their_place():
    @scorer("words", version="1.0.0")
    def words(output: Output, settings: Wanted) -> float:
        return float(settings.word in output.text)

    made = weighted_blend("b", words, saying("y", 1))
    assert (await ScorerBench(made, {"words": {"word": "s"}}).score("", "yes")).value == 1
    for given, field in [
        ({}, "settings.words.word"),
        ({"words": {"word": 1}}, "settings.words.word"),
        ({"other": {}}, "settings.other"),
        ({"words": 1}, "settings.words"),
    ]:
        with pytest.raises(SettingsInvalid) as refused:
            await ScorerBench(made, given).open()
        assert refused.value.field == field
    alone = negate(words)
    assert (await ScorerBench(alone, {"word": "s"}).score("", "yes")).value == 0
    assert '"words"' in made.info.settings_schema


async def test_a_part_may_have_inputs_of_its_own():
    @scorer("same", inputs=["left", "right"])
    def same(task: ScoreTask) -> bool:
        return task.inputs["left"] == task.inputs["right"]

    made = any_of("m", part(same, inputs=lambda task: {"left": task.output.text, "right": "said"}))
    assert (await judged(made)).value == 1
    assert isinstance(made.info.kind, ScorerInfo)
    assert made.info.kind.inputs == ("left", "right")


async def test_a_part_that_lacks_what_it_needs_does_not_apply():
    @scorer("strict", needs=[Need.EXPECTED, Need.TOOL_CALLS])
    def strict(item: Item, output: Output) -> float:
        raise AssertionError("must not be asked")

    score = await judged(weighted_blend("b", strict, saying("y", 0.5)))
    assert score.value == 0.5
    assert score.metadata["components"]["strict"]["explanation"] == "the item has no expected answer"


async def test_one_of_several_scores_is_chosen():
    @scorer("two", scores=[ScoreDeclaration("a"), ScoreDeclaration("b")])
    def two(output: Output) -> list[Score]:
        return [Score.scored(0.2, name="a"), Score.scored(0.8, name="b")]

    assert (await judged(threshold(part(two, score="b"), 0.5))).value == 1
    with pytest.raises(PluginInvalid, match="choose one with score=, of a, b"):
        negate(two)
    with pytest.raises(PluginInvalid, match="no score 'c'"):
        negate(part(two, score="c"))


@pytest.mark.parametrize("how", HOW)
async def test_a_part_that_breaks_its_promise_or_crashes_errors_the_whole(how):
    score = await judged(weighted_blend("b", saying("x", 7.0, how=how)))
    assert score.failure is not None
    assert score.failure.reason == "CONTRACT_BROKEN"
    assert "7.0, outside of its declared range 0.0 to 1.0" in score.failure.message

    @scorer("crash", mode="inline")
    def crash(output: Output) -> float:
        raise SystemExit

    assert (await judged(weighted_blend("b", crash, saying("y", 1, how=how)))).status is ScoreStatus.ERRORED


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: weighted_blend("b"), "no parts"),
        (lambda: weighted_blend("b", saying("x", 1), saying("x", 1)), "two parts are called 'x'"),
        (lambda: weighted_blend("b", part(saying("x", 1), weight=0)), "all weights are 0"),
        (lambda: part(saying("x", 1), weight=-1), "weight is 0 or more, not -1"),
        (lambda: part(saying("x", 1), threshold=float("nan")), "threshold is a finite number"),
        (lambda: part(PLAIN), "a part is a function decorated with @scorer"),
        (lambda: part(saying("x", 1), name="a.b"), "no dot"),
        (lambda: weighted_blend("b", saying("x", 1), saying("y", 1, declared=LOWER)), "negate it first"),
        (lambda: cascade("c", saying("x", 1, declared=LOWER), saying("y", 1, declared=LOWER)), "accept or reject"),
        (lambda: sampled(saying("x", 1), 0), "above 0"),
        (lambda: sampled(saying("x", 1), cast(Any, "half")), "above 0 and at most 1, not 'half'"),
        (
            lambda: weighted_blend(cast(Any, saying("x", 1)), saying("y", 1)),
            'the name comes first, as in weighted_blend\\("quality"',
        ),
        (lambda: sampled(PLAIN, 0.5), "a scorer is a function"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(make, said):
    with pytest.raises(PluginInvalid, match=said):
        make()


def test_a_combination_is_told_from_another_and_is_no_function():
    made = weighted_blend("b", saying("x", 1), saying("y", 1))
    other = weighted_blend("b", part(saying("x", 1), weight=2), saying("y", 1))
    assert made.info.digest != other.info.digest
    assert made.info.digest == weighted_blend("b", saying("x", 1), saying("y", 1)).info.digest
    with pytest.raises(TypeError, match="ScorerBench"):
        made("item", "output")


# --- samples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
async def test_a_sample_is_the_one_that_the_server_takes(how):
    tasks = [ScoreTask(n, 1, Item(f"i{n}", ""), Output(""), epoch=1 + n % 2) for n in range(60)]
    scores = await ScorerBench(sampled(saying("x", 1.0, how=how), 0.4)).score_many(tasks)
    taken = [score.status is ScoreStatus.SCORED for (score,) in scores]
    assert taken == [in_sample(task.item.id, task.epoch, 0.4) for task in tasks]
    assert 0 < sum(taken) < 60


async def test_a_sampled_combination_ends_its_threads_too():
    made = sampled(all_of("m", saying("x", 1, how="threads"), saying("y", 1, how="async")), 1.0)
    assert (await judged(made)).value == 1
    assert made.holds_threads


# --- trouble ------------------------------------------------------------------------------------------------------


async def test_a_cancelled_task_is_answered_at_once_whatever_its_parts_do():
    @scorer("never")
    async def never(output: Output) -> float:
        await asyncio.sleep(3600)
        return 1.0

    score = await ScorerBench(all_of("m", never, saying("y", 1))).score("", "", cancel_after=0.01)
    assert score.failure is not None
    assert score.failure.category.name == "CANCELLED"


async def test_what_a_failed_whole_had_used_is_told():
    made = weighted_blend("b", saying("x", 1.0), saying("y", "fail"))
    opened = await ScorerBench(made).open()
    answers: list = []
    worker = Worker(made, opened, answers.extend, lambda news: None)
    worker.submit([ScoreTask(1, 1, Item("i", ""), Output(""))])
    await worker.drain()
    await worker.close()
    assert answers[0].usage.calls == 1


def test_failures_of_a_part_keep_what_the_server_goes_by():
    limited = TrialFailed.rate_limited(retry_after=3.0)

    @scorer("busy", mode="inline")
    def busy(output: Output) -> float:
        raise limited

    score = asyncio.run(judged(all_of("m", busy)))
    assert score.failure is not None
    assert (score.failure.category.name, score.failure.retry_after) == ("RATE_LIMITED", 3.0)
