"""Runs that come to items whose content was purged: nobody is asked about what stands in its place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evalbus import FailureCategory, Item, Output, Score, TrialFailed, Usage
from evalbus import scorer as scorer_plugin
from evalbus_server.model.run import Outcome, RunState
from tests.unit.server.runner.test_runs import Desk, desk, numbered, target_of, until


class World:
    """A target and a scorer that note what they were shown, and wait at a gate."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.scored: list[str] = []
        self.fails: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.judge = asyncio.Event()
        self.judge.set()

    async def target(self, item: Item) -> str:
        self.seen.append(item.input.text)
        if item.id != "i0":
            await self.gate.wait()
        if item.id in self.fails:
            raise TrialFailed.invalid("no")
        return f"about {item.input.text}"

    async def score(self, item: Item, output: Output) -> float:
        self.scored.append(output.text)
        await self.judge.wait()
        return 1.0

    @property
    def plugins(self) -> dict[str, Any]:
        return {**target_of(self.target), "s": scorer_plugin("s")(self.score)}


def outcomes(d: Desk) -> list[tuple[int, Outcome, bool]]:
    """By position: of the newest run, and whether it is said that the item was purged."""
    rows = d.rows("SELECT position, outcome, failure FROM result WHERE run = (SELECT max(n) FROM run) ORDER BY 1")
    return [(position, Outcome(outcome), "ITEM_PURGED" in (text or "")) for position, outcome, text in rows]


GONE = (1, Outcome.ERRORED, True)


async def test_a_new_run_asks_nobody_about_a_purged_item(tmp_path: Path):
    world = World()
    async with desk(tmp_path, numbered(3)) as d:
        d.store.purge_items("d", ["i1"])
        run = await d.run(world.plugins, epochs=2, cache=False)

        assert (run.state, run.counts.passed, run.counts.errored) == (RunState.COMPLETED, 4, 2)
        assert not any("purged" in text for text in world.seen + world.scored)
        assert outcomes(d)[2:4] == [GONE, GONE]


async def test_a_resumed_run_asks_nobody_about_an_item_that_was_purged_meanwhile(tmp_path: Path):
    world = World()
    world.gate.clear()
    async with desk(tmp_path, numbered(4)) as d:
        run = await d.runs.start(d.experiment(world.plugins, limits={"concurrency": 1}), given=world.plugins)
        await until(lambda: len(world.seen) == 2)
        await d.runs.stop(run.id, grace=0)
        d.store.purge_items("d", ["i1"])
        world.gate.set()
        await d.runs.resume(run.id, given=world.plugins)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.passed, ended.counts.errored) == (RunState.COMPLETED, 3, 1)
        assert outcomes(d)[1] == GONE
        assert not any("purged" in text for text in world.seen + world.scored)


async def test_an_output_that_was_purged_before_it_was_judged_is_not_judged(tmp_path: Path):
    """Neither in the run that was stopped in between, nor by a retry, nor by scorers that come later."""
    world = World()
    world.judge.clear()
    async with desk(tmp_path, numbered(3)) as d:
        plugins = {**world.plugins, "other": scorer_plugin("other")(world.score)}
        run = await d.runs.start(d.experiment(plugins), given=plugins)
        await until(lambda: len(world.scored) == 6)
        await d.runs.stop(run.id, grace=0)
        d.store.purge_items("d", ["i1"])
        world.judge.set()
        world.scored.clear()
        await d.runs.resume(run.id, given=plugins)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.passed, ended.counts.errored) == (RunState.COMPLETED, 2, 1)
        assert outcomes(d)[1] == GONE

        await d.runs.retry(run.id, given=plugins)
        again = await d.runs.wait(run.id)
        assert (again.state, again.counts.errored, d.store.counts(again)) == (RunState.COMPLETED, 1, again.counts)

        anew = await d.runs.rescore(run.id, d.experiment(plugins), given=plugins)
        anew = await d.runs.wait(anew.id)
        assert (anew.state, anew.counts.passed, anew.counts.errored) == (RunState.COMPLETED, 2, 1)
        assert outcomes(d)[1] == GONE
        assert not any("purged" in text for text in world.seen + world.scored)


async def test_a_trial_that_waits_in_memory_is_not_asked_once_its_item_is_purged(tmp_path: Path):
    """What was sent already is answered, and its output is judged by nobody."""
    world = World()
    world.gate.clear()
    async with desk(tmp_path, numbered(6)) as d:
        plugins = world.plugins
        run = await d.runs.start(d.experiment(plugins, limits={"concurrency": 2}), given=plugins)
        await until(lambda: world.seen == ["question 0", "question 1", "question 2"])
        d.store.purge_items("d", ["i1", "i4"])
        world.gate.set()
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.passed, ended.counts.errored) == (RunState.COMPLETED, 4, 2)
        assert [row for row in outcomes(d) if row[2]] == [GONE, (4, Outcome.ERRORED, True)]
        assert sorted(world.seen) == [f"question {n}" for n in (0, 1, 2, 3, 5)]
        assert sorted(world.scored) == [f"about question {n}" for n in (0, 2, 3, 5)]
        assert d.rows("SELECT trial, content FROM output WHERE trial IN (1, 4)") == [(1, "[purged]")]


async def test_a_trial_that_waits_for_its_next_attempt_is_not_asked_again_once_its_item_is_purged(tmp_path: Path):
    """The attempts that failed before are kept."""
    asked: list[str] = []
    judged: list[str] = []

    async def target(item: Item) -> str:
        asked.append(item.id)
        if item.id == "i1":
            raise TrialFailed("not now", FailureCategory.UNAVAILABLE, retry_after=0.5)
        return "fine"

    async def judge(item: Item, output: Output) -> float:
        judged.append(item.id)
        if item.id == "i2":
            raise TrialFailed("not now", FailureCategory.UNAVAILABLE, retry_after=0.5)
        return 1.0

    async with desk(tmp_path, numbered(3)) as d:
        plugins = {**target_of(target), "s": scorer_plugin("s")(judge)}
        run = await d.runs.start(d.experiment(plugins, limits={"retries": 100}), given=plugins)
        await until(lambda: "i1" in asked and "i2" in judged)
        d.store.purge_items("d", ["i1", "i2"])
        asked_before, judged_before = len(asked), len(judged)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.passed, ended.counts.errored) == (RunState.COMPLETED, 1, 2)
        assert outcomes(d)[1:] == [GONE, (2, Outcome.ERRORED, True)]
        assert [item for item in asked[asked_before:] if item != "i0"] == []
        assert [item for item in judged[judged_before:] if item != "i0"] == []
        assert d.rows("SELECT attempts FROM result WHERE position > 0") == [(asked.count("i1"),), (1,)]
        attempts = d.rows("SELECT role, count(*) FROM attempt GROUP BY role ORDER BY role")
        assert attempts == [(-1, asked.count("i1")), (0, judged.count("i2"))]


async def test_a_retry_that_finds_an_item_purged_again_counts_no_attempt(tmp_path: Path):
    """Nobody was asked, so there was none, however often the retry is begun."""
    world = World()
    async with desk(tmp_path, numbered(3)) as d:
        d.store.purge_items("d", ["i1"])
        run = await d.run(world.plugins)
        for _ in range(2):
            await d.runs.retry(run.id, given=world.plugins)
            await d.runs.wait(run.id)

        assert outcomes(d)[1] == GONE
        assert d.rows("SELECT attempts FROM result") == [(1,), (0,), (1,)]
        assert d.rows("SELECT count(*) FROM attempt") == [(0,)]


async def test_a_retry_of_a_score_whose_item_is_purged_leaves_nothing_to_be_retried(tmp_path: Path):
    async def judge(item: Item, output: Output) -> float:
        raise TrialFailed.invalid("no")

    async with desk(tmp_path, numbered(2)) as d:
        plugins = {**World().plugins, "s": scorer_plugin("s")(judge)}
        run = await d.run(plugins)
        d.store.purge_items("d", ["i1"])
        await d.runs.retry(run.id, given=plugins)
        ended = await d.runs.wait(run.id)

        assert (ended.state, outcomes(d)[1]) == (RunState.COMPLETED, GONE)
        assert d.rows("SELECT count(*) FROM retry") == [(0,)]


@pytest.mark.parametrize("held", [False, True])
async def test_a_scorer_is_not_asked_about_what_waits_for_it_once_its_item_is_purged(tmp_path: Path, held: bool):
    """A trial that another scorer judges just then ends when that one has answered, with what that took."""
    world = World()
    world.judge.clear()
    other = asyncio.Event()
    seen: list[str] = []

    async def quick(item: Item, output: Output) -> Score:
        seen.append(item.id)
        if held and item.id == "i1":
            await other.wait()
        return Score.scored(1.0, usage=Usage(input_tokens=11))

    async with desk(tmp_path, numbered(3)) as d:
        plugins = {**world.plugins, "quick": scorer_plugin("quick")(quick)}
        uses = [{"use": "s", "concurrency": 1}, {"use": "quick", "concurrency": 3}]
        experiment = d.experiment(plugins, scorers=uses, limits={"concurrency": 1})
        run = await d.runs.start(experiment, given=plugins)
        await until(lambda: len(world.scored) == 1 and len(seen) == 3)
        await until(lambda: d.rows("SELECT count(*) FROM score") == [(2 if held else 3,)])
        d.store.purge_items("d", ["i1"])
        world.judge.set()
        if held:
            await until(lambda: d.rows("SELECT count(*) FROM result") == [(2,)])
            other.set()
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.passed, ended.counts.errored) == (RunState.COMPLETED, 2, 1)
        assert outcomes(d)[1] == GONE
        assert sorted(world.scored) == ["about question 0", "about question 2"]
        assert d.rows("SELECT DISTINCT input_tokens FROM result") == [(11,)]
