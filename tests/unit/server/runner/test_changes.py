"""Limits of a run that change while it is at work, or before it goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, Money, Output, Usage
from evalbus import scorer as scorer_plugin
from evalbus_server.errors import Invalid, NotFound, Reason
from evalbus_server.model.event import LimitsChanged
from evalbus_server.model.run import RunState
from evalbus_server.runner.changes import in_force
from tests.unit.server.runner.test_runs import desk, numbered, target_of


class Busy:
    """A target and a scorer that know how many are at work in them, and go on when they are let."""

    def __init__(self) -> None:
        self.at_work = {"t": 0, "judge": 0}
        self.let = {"t": asyncio.Event(), "judge": asyncio.Event()}

    async def _work(self, who: str) -> None:
        self.at_work[who] += 1
        await self.let[who].wait()
        self.at_work[who] -= 1

    async def target(self, item: Item) -> Output:
        await self._work("t")
        return Output("x", usage=Usage(5, 5, cost=Money(100)))

    async def judge(self, item: Item, output: Output) -> float:
        await self._work("judge")
        return 1.0

    async def until(self, who: str, number: int) -> None:
        async with asyncio.timeout(60):
            while self.at_work[who] != number:
                await asyncio.sleep(0.01)

    @property
    def plugins(self) -> dict[str, Any]:
        return {**target_of(self.target), "judge": scorer_plugin("judge")(self.judge)}


async def test_concurrency_of_target_and_scorers_changes_while_they_work(tmp_path: Path):
    """Up at once, down as trials end; the change is an event, and nothing is lost by it."""
    busy = Busy()
    async with desk(tmp_path, numbered(200)) as d:
        experiment = d.experiment(busy.plugins, limits={"concurrency": 2}, scorers=[{"use": "judge", "concurrency": 3}])
        run = await d.runs.start(experiment, given=busy.plugins)
        await busy.until("t", 2)

        changed = d.runs.change_limits(run.id, {"limits.concurrency": 12, "scorers.judge.concurrency": 5})
        await busy.until("t", 12)
        busy.let["t"].set()
        await busy.until("judge", 5)
        busy.let["judge"].set()
        ended = await d.runs.wait(run.id)

        assert changed.state is RunState.RUNNING
        assert (ended.state, ended.counts.passed) == (RunState.COMPLETED, 200)
        events = d.events(run)
        [told] = [event.fact for event in events if isinstance(event.fact, LimitsChanged)]
        assert told.settings == (("limits.concurrency", "12"), ("scorers.judge.concurrency", "5"))
        assert told.counts.planned == 200
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert in_force(ended).limits.concurrency == 12
        assert (ended.experiment_json, ended.digest) == (run.experiment_json, run.digest)


async def test_a_run_that_spent_its_budget_goes_on_with_more(tmp_path: Path):
    """What was set stays in force over sessions."""
    busy = Busy()
    for let in busy.let.values():
        let.set()
    async with desk(tmp_path, numbered(60)) as d:
        run = await d.run(busy.plugins, limits={"tokens": 100, "concurrency": 1})
        assert run.reason.startswith("BUDGET")

        d.runs.change_limits(run.id, {"limits.tokens": 1_000_000})
        d.runs.change_limits(run.id, {"limits.timeout": "30s"})
        await d.runs.resume(run.id, given=busy.plugins)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.passed) == (RunState.COMPLETED, 60)
        assert (in_force(ended).limits.tokens, in_force(ended).limits.timeout) == (1_000_000, 30.0)
        assert [event.sequence for event in d.events(run)] == list(range(1, ended.last_sequence + 1))


async def test_a_budget_that_is_spent_already_ends_the_run_at_once(tmp_path: Path):
    busy = Busy()
    busy.let["judge"].set()
    async with desk(tmp_path, numbered(60)) as d:
        run = await d.runs.start(d.experiment(busy.plugins, limits={"concurrency": 4}), given=busy.plugins)
        await busy.until("t", 4)
        busy.let["t"].set()
        while d.runs.get(run.id).counts.done < 4:
            await asyncio.sleep(0.001)
        busy.let["t"].clear()
        d.runs.change_limits(run.id, {"limits.tokens": 10})
        busy.let["t"].set()
        ended = await asyncio.wait_for(d.runs.wait(run.id), 60)

        assert ended.counts.pending == 0 or (ended.state, ended.reason[:6]) == (RunState.ABORTED, "BUDGET")


async def test_a_deadline_may_come_nearer_and_be_put_off(tmp_path: Path):
    busy = Busy()
    busy.let["judge"].set()
    async with desk(tmp_path, numbered(60)) as d:
        run = await d.runs.start(
            d.experiment(busy.plugins, limits={"deadline": "1h", "concurrency": 1}), given=busy.plugins
        )
        await busy.until("t", 1)
        d.runs.change_limits(run.id, {"limits.deadline": "1ms"})
        ended = await asyncio.wait_for(d.runs.wait(run.id), 60)
        assert (ended.state, ended.reason) == (RunState.ABORTED, "DEADLINE: the run's deadline of 1ms has passed")

        busy.let["t"].set()
        d.runs.change_limits(run.id, {"limits.deadline": "1h"})
        await d.runs.resume(run.id, given=busy.plugins)
        ended = await asyncio.wait_for(d.runs.wait(run.id), 60)
        assert (ended.state, ended.counts.passed) == (RunState.COMPLETED, 60)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"limits.concurrency": 0}, "concurrency"),
        ({"limits.retries": "many"}, "retries"),
        ({"epochs.count": 2}, "this cannot change in a run"),
        ({"limits.silence": "1h"}, "this cannot change in a run"),
        ({"limits.concurency": 2}, "this cannot change in a run; did you mean limits.concurrency?"),
        ({"scorers.judge.threshold": 0.5}, "this cannot change in a run"),
        ({"scorers.jugde.concurrency": 5}, "jugde"),
        ({"limits.timeout": "30s", "target.command": ["sh"]}, "target.command"),
    ],
)
async def test_what_does_not_fit_is_refused_and_nothing_changes(tmp_path: Path, settings: dict[str, Any], says: str):
    busy = Busy()
    for let in busy.let.values():
        let.set()
    async with desk(tmp_path, numbered(2)) as d:
        run = await d.run(busy.plugins)
        with pytest.raises(Invalid, match=says) as caught:
            d.runs.change_limits(run.id, settings)
        assert caught.value.reason is Reason.EXPERIMENT_INVALID
        assert "--set" not in str(caught.value)
        assert d.store.run(run.id) == run


async def test_limits_of_no_run(tmp_path: Path):
    async with desk(tmp_path, numbered(2)) as d:
        with pytest.raises(NotFound):
            d.runs.change_limits("r9999999", {"limits.concurrency": 2})


async def test_a_run_whose_deadline_has_passed_gets_it_anew_when_it_goes_on(tmp_path: Path):
    quick = False

    async def answer(item: Item) -> str:
        if not quick and item.id != "i0":
            await asyncio.sleep(3600)
        return "x"

    plugins = target_of(answer)
    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run(plugins, limits={"deadline": "1s"})
        assert run.state is RunState.ABORTED and run.reason.startswith("DEADLINE: ")
        quick = True
        for _ in range(20):  # a second may be too short on a busy machine, but not again and again
            await d.runs.resume(run.id, given=plugins)
            done = await d.runs.wait(run.id)
            if done.state is RunState.COMPLETED:
                break

        assert (done.state, done.counts.passed) == (RunState.COMPLETED, 3)
