"""Scoring the outputs of a finished run anew: in a run of its own, without the target, and nothing counted twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, Output, Score, TrialFailed, Usage
from evalbus import scorer as scorer_plugin
from evalbus_server.errors import Conflict, Invalid, Reason, Unfit
from evalbus_server.model.run import Outcome, Run, RunState, Verdict
from evalbus_server.scorer.builtin import BUILTINS
from tests.unit.server.runner.test_runs import Desk, desk, numbered, target_of

asked: Counter[str] = Counter()


async def answer(item: Item) -> Output:
    asked[item.id] += 1
    if item.id == "i3":
        raise TrialFailed.invalid("out of order")
    return Output(f"answer {item.id[1:]}", usage=Usage(10, 1, calls=1))


judge = scorer_plugin("judge")(lambda item, output: Score.scored(0.25, usage=Usage(2, 0, calls=1)))
PLUGINS: dict[str, Any] = {**target_of(answer), "exact_match": BUILTINS["exact_match"]}


async def rescored(d: Desk, source: Run, **more: Any) -> Run:
    plugins = {"judge": judge, "exact_match": BUILTINS["exact_match"]}
    experiment = d.experiment(plugins, name="again", **more)
    run = await d.runs.rescore(source.id, experiment, given=plugins)
    return await d.runs.wait(run.id)


@pytest.fixture(autouse=True)
def nobody_asked() -> None:
    asked.clear()


async def test_other_scorers_over_stored_outputs(tmp_path: Path):
    """The new run has its own scores and verdict, and the outputs of the first one (RC-19)."""
    async with desk(tmp_path, numbered(600)) as d:
        source = await d.run(PLUGINS, epochs=2)
        calls = asked.copy()

        run = await rescored(d, source)

        assert asked == calls
        assert (run.state, run.source, run.name) == (RunState.COMPLETED, source.id, "again")
        assert (run.counts.planned, run.counts.passed, run.counts.errored) == (1200, 1198, 2)
        assert [key.key for key in run.score_keys] == ["judge", "exact_match"]
        assert d.rows("SELECT count(*) FROM output") == [(1198,)]
        results = d.store.results(run, limit=5)
        assert [result.outcome for result in results[:2]] == [Outcome.PASSED] * 2
        assert results[0].output is not None and results[0].output.text == "answer 0"
        assert {key: score.score.value for key, score in results[0].scores.items()} == {0: 0.25, 1: 1.0}
        assert d.store.results(source, limit=5)[0].scores.keys() == {0}
        assert d.store.counts(run) == run.counts


async def test_what_the_target_used_up_is_counted_where_it_was_asked(tmp_path: Path):
    async with desk(tmp_path, numbered(10)) as d:
        source = await d.run(PLUGINS)
        run = await rescored(d, source)
        first, second = await d.runs.summary(source.id), await d.runs.summary(run.id)

        assert first.usage == Usage(90, 9, calls=9)
        assert second.usage == Usage(18, 0, calls=9)
        assert (first.attempts > 0, second.attempts) == (True, 0)
        assert (first.latency is None, second.latency) == (False, None)
        assert [result.latency for result in d.store.results(run)] == [None] * 10


async def test_where_the_target_had_failed_its_failure_is_taken_over(tmp_path: Path):
    """It counts in every number as there; and there is nobody to ask again."""
    async with desk(tmp_path, numbered(5)) as d:
        source = await d.run(PLUGINS)
        run = await rescored(d, source)

        [failed] = d.store.results(run, outcomes=[Outcome.ERRORED])
        assert (failed.item.id, failed.output, failed.attempts) == ("i3", None, 0)
        assert failed.failure is not None and failed.failure.message == "out of order"
        assert run.verdict is Verdict.INCONCLUSIVE
        summary = await d.runs.summary(run.id)
        assert [score.errored for score in summary.scores] == [1, 1]
        with pytest.raises(Unfit, match="nothing to ask again") as caught:
            await d.runs.retry(run.id, given={"judge": judge})
        assert caught.value.reason is Reason.NOTHING_TO_RUN
        assert d.rows("SELECT count(*) FROM retry") == [(0,)]


async def test_a_rescored_run_is_rescored_retried_and_resumed_like_any(tmp_path: Path):
    hold = asyncio.Event()
    broken = {"i1"}

    async def careful(item: Item, output: Output) -> float:
        if item.id in broken:
            raise TrialFailed.invalid("no")
        if item.id == "i7":
            await hold.wait()
        return 1.0

    plugins = {"careful": scorer_plugin("careful")(careful)}
    async with desk(tmp_path, numbered(20)) as d:
        first = await d.run(PLUGINS)
        calls = asked.copy()
        second = await rescored(d, first)
        third = await d.runs.rescore(second.id, d.experiment(plugins), given=plugins)
        while d.store.run(third.id).counts.done < 19:
            await asyncio.sleep(0.01)
        await d.runs.stop(third.id, grace=0)
        assert d.store.run(third.id).state is RunState.INTERRUPTED
        with pytest.raises(Unfit, match="only a COMPLETED run") as caught:
            await d.runs.rescore(third.id, d.experiment(plugins), given=plugins)
        assert caught.value.reason is Reason.RUN_INCOMPLETE

        hold.set()
        await d.runs.resume(third.id, given=plugins)
        ended = await d.runs.wait(third.id)
        assert (ended.counts.passed, ended.counts.errored, ended.source) == (18, 2, second.id)
        broken.clear()
        await d.runs.retry(third.id, given=plugins)
        ended = await d.runs.wait(third.id)
        assert (ended.counts.passed, ended.counts.errored) == (19, 1)
        assert asked == calls


async def test_an_experiment_without_scorers_scores_nothing(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        source = await d.run(PLUGINS)
        with pytest.raises(Invalid, match="there must be one"):
            await d.runs.rescore(source.id, d.experiment({}, scorers=[]))
        with pytest.raises(Invalid, match="exact_match"):
            await rescored(d, source, scorers=[{"use": "exact_mach"}])
        assert d.rows("SELECT count(*) FROM run") == [(1,)]


async def test_one_request_id_rescores_once(tmp_path: Path):
    """The same run is found again, also once its source cannot be rescored; another use of the id is refused."""
    async with desk(tmp_path, numbered(5)) as d:
        first, other = await d.run(PLUGINS), await d.run(PLUGINS)
        experiment = d.experiment(PLUGINS)

        both = await asyncio.gather(
            *(d.runs.rescore(first.id, experiment, request_id="again", given=PLUGINS) for _ in range(2))
        )
        await d.runs.wait(both[0].id)

        assert both[0].id == both[1].id
        assert (await d.runs.rescore(first.id, experiment, request_id="again", given=PLUGINS)).id == both[0].id
        for source, changed in ((other, experiment), (first, d.experiment(PLUGINS, tags=["more"]))):
            with pytest.raises(Conflict) as caught:
                await d.runs.rescore(source.id, changed, request_id="again", given=PLUGINS)
            assert caught.value.reason is Reason.REQUEST_ID_REUSED
        with pytest.raises(Conflict):
            await d.runs.start(experiment, request_id="again", given=PLUGINS)
        assert d.rows("SELECT count(*) FROM run") == [(3,)]
