"""Runs that come to items whose content was purged: nobody is asked about what stands in its place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from evalbus import Item, Output, TrialFailed
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
