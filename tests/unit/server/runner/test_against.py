"""Scorers that compare the outputs of a run with those of another one: by item and epoch, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, Output, Score, ScoreStatus, ScoreTask, Trial, TrialFailed
from evalbus import scorer as scorer_plugin
from evalbus_server.errors import Invalid
from evalbus_server.model.run import Outcome, Run, RunState
from evalbus_server.model.trial import epoch_of
from evalbus_server.scorer.builtin import BUILTINS
from tests.mock_endpoint import Call, MockEndpoint
from tests.unit.server.runner.test_runs import Desk, desk, numbered, target_of


async def first(trial: Trial) -> Output:
    if trial.item.id == "i2":
        raise TrialFailed.invalid("out of order")
    return Output(f"first {trial.item.id} {trial.epoch}")


async def second(item: Item) -> str:
    return f"second {item.id}"


@scorer_plugin("pair", inputs=("against",))
def pair(task: ScoreTask) -> Score:
    """1 if there was something to compare with."""
    return Score.scored(float(task.against is not None), "nothing" if task.against is None else task.against.text)


alone = scorer_plugin("alone")(lambda output: 1.0)
PLUGINS: dict[str, Any] = {"pair": pair, "alone": alone}


async def compared(d: Desk, other: str, use: str = "pair", **more: Any) -> Run:
    plugins = {**target_of(second), **PLUGINS}
    return await d.run(plugins, scorers=[{"use": use, "against": other}], **more)


async def scores_of(d: Desk, run: Run) -> dict[tuple[str, int], Score]:
    return {(each.item.id, epoch_of(each.trial_id)): each.scores[0].score for each in d.store.results(run, limit=5_000)}


async def test_each_trial_is_compared_with_that_of_the_same_item_and_epoch(tmp_path: Path):
    async with desk(tmp_path, numbered(600)) as d:
        other = await d.run(target_of(first), epochs=2)
        scores = await scores_of(d, await compared(d, other.id, epochs=3))

        assert len(scores) == 1_800
        for (item, epoch), score in scores.items():
            if item == "i2" or epoch == 3:
                assert score.status is ScoreStatus.SKIPPED
                assert score.explanation == f"run {other.id} has no output of this item in epoch {epoch}"
            else:
                assert (score.value, score.explanation) == (1.0, f"first {item} {epoch}")


async def test_items_are_found_by_their_ids_in_another_version_of_the_dataset(tmp_path: Path):
    async with desk(tmp_path, numbered(10)) as d:
        other = await d.run(target_of(first))
        items = [Item("new", "?"), *reversed(numbered(10))]
        items[-1] = Item("i0", "another question", "answer 0")
        d.store.publish("d", [items])
        scores = await scores_of(d, await compared(d, other.id))

    assert scores["i7", 1].explanation == "first i7 1"
    assert scores["i0", 1].explanation == f"run {other.id} asked something else under this id"
    assert scores["new", 1].status is ScoreStatus.SKIPPED


async def test_an_answer_that_was_changed_afterwards_is_the_same_question(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        other = await d.run(target_of(first))
        d.store.publish("d", [[Item("i0", "question 0", "a better answer")]])
        assert (await scores_of(d, await compared(d, other.id)))["i0", 1].value == 1.0


async def test_a_rescored_run_stands_for_the_outputs_that_it_took_over(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        source = await d.run(target_of(first))
        again = await d.runs.rescore(source.id, d.experiment(PLUGINS, scorers=[{"use": "alone"}]), given=PLUGINS)
        await d.runs.wait(again.id)
        assert (await scores_of(d, await compared(d, again.id)))["i1", 1].explanation == "first i1 1"


async def test_outputs_that_are_stored_are_compared_too(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        other = await d.run(target_of(first))
        source = await d.run(target_of(second))
        experiment = d.experiment(PLUGINS, scorers=[{"use": "pair", "against": other.id}])
        run = await d.runs.rescore(source.id, experiment, given=PLUGINS)
        await d.runs.wait(run.id)
        assert (await scores_of(d, run))["i1", 1].explanation == "first i1 1"


@pytest.mark.parametrize("broken", ["none", "running", "unkept", "alone", "both"])
async def test_what_cannot_be_compared_with_is_refused_before_the_run(tmp_path: Path, broken: str):
    async with desk(tmp_path, numbered(3)) as d:
        kept = {"keep": {"outputs": False}} if broken == "unkept" else {}
        other = await d.run(target_of(first), **kept)
        if broken == "running":
            d.store.change_state(other.id, RunState.ABORTED)
        name = "no-such-run" if broken == "none" else other.id
        use = "alone" if broken == "alone" else "pair"
        told = {
            "none": "no run",
            "running": "not COMPLETED",
            "unkept": "does not keep its outputs",
            "alone": "compares no outputs",
            "both": "leave one out",
        }
        plugins = {**target_of(second), **PLUGINS}
        scorer = {"use": use, "against": name, **({"map": {"against": "item.input"}} if broken == "both" else {})}
        with pytest.raises(Invalid, match=told[broken]) as caught:
            await d.run(plugins, scorers=[scorer])
        assert caught.value.field.startswith("scorers[0]")


async def test_a_run_that_is_deleted_meanwhile_has_nothing_to_compare_with(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        other = await d.run(target_of(first))

        async def answer(item: Item) -> str:
            if item.id == "i0":
                await d.runs.delete(other.id)
            return "x"

        run = await d.run({**target_of(answer), **PLUGINS}, scorers=[{"use": "pair", "against": other.id}])
        assert (await scores_of(d, run))["i0", 1].explanation == f"run {other.id} is there no longer"


def prefers(word: str) -> Any:
    """A model that takes the answer with a word in it, wherever it stands."""

    def script(call: Call) -> Any:
        first_part = call.text.split("The second answer:")[0]
        return {"reason": f"it says {word}", "verdict": "first" if word in first_part else "second"}

    return script


async def judged(d: Desk, mock: MockEndpoint, other: Run, **more: Any) -> Run:
    plugins = {**target_of(second), "judge_pairwise": BUILTINS["judge_pairwise"]}
    settings = {"model": "m", "base_url": mock.base_url, "api_key": "k"}
    return await d.run(plugins, scorers=[{"use": "judge_pairwise", "against": other.id, "settings": settings}], **more)


async def test_a_judge_asks_in_both_orders(tmp_path: Path):
    async with desk(tmp_path, numbered(2)) as d:
        other = await d.run(target_of(first))
        with MockEndpoint(prefers("second i")) as mock:
            run = await judged(d, mock, other)
        scores = await scores_of(d, run)

    assert [(score.value, score.label) for score in scores.values()] == [(1.0, "better"), (1.0, "better")]
    assert scores["i0", 1].metadata["agreed"] is True
    assert [step.name for step in scores["i0", 1].steps] == ["analyze", "analyze swapped", "score"]
    assert len(mock.calls) == 4


async def test_a_verdict_that_goes_by_the_place_is_a_tie(tmp_path: Path):
    async with desk(tmp_path, numbered(1)) as d:
        other = await d.run(target_of(first))
        with MockEndpoint(lambda call: {"reason": "r", "verdict": "first"}) as mock:
            run = await judged(d, mock, other)
        (score,) = (await scores_of(d, run)).values()

    assert (score.value, score.label, score.metadata["agreed"]) == (0.5, "tie", False)
    assert "depends on the order" in score.explanation


async def test_without_anything_to_compare_with_a_judge_says_what_to_do(tmp_path: Path):
    async with desk(tmp_path, numbered(1)) as d:
        with MockEndpoint() as mock:
            settings = {"model": "m", "base_url": mock.base_url}
            plugins = {**target_of(second), "judge_pairwise": BUILTINS["judge_pairwise"]}
            run = await d.run(plugins, scorers=[{"use": "judge_pairwise", "settings": settings}])
        (score,) = (await scores_of(d, run)).values()

    assert score.failure is not None
    assert score.failure.reason == "AGAINST_MISSING"
    assert "`against: RUN`" in score.failure.message
    assert run.counts.errored == 1


async def test_a_failed_comparison_is_an_errored_trial(tmp_path: Path):
    async with desk(tmp_path, numbered(1)) as d:
        other = await d.run(target_of(first))
        with MockEndpoint(lambda call: "neither") as mock:
            run = await judged(d, mock, other)
        assert [each.outcome for each in d.store.results(run)] == [Outcome.ERRORED]


async def test_what_was_purged_in_the_other_run_is_not_compared(tmp_path: Path):
    """Told by the item, not by the text: another output says just what stands in its place."""

    async def says(item: Item) -> str:
        return "[purged]" if item.id == "i0" else f"first {item.id}"

    async with desk(tmp_path, numbered(2)) as d:
        other = await d.run(target_of(says))
        d.store.purge_items("d", ["i1"])
        d.store.publish("d", [numbered(2)])
        scores = await scores_of(d, await compared(d, other.id))

        assert (scores["i0", 1].value, scores["i0", 1].explanation) == (1.0, "[purged]")
        assert scores["i1", 1].status is ScoreStatus.SKIPPED
        assert scores["i1", 1].explanation == f"this item of run {other.id} was purged"
