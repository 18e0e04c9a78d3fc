"""Runs that wait for their turn: they hold no plugins, get them back, and are what they were; and how many there may be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, PluginInfo
from evalbus import scorer as scorer_plugin
from evalbus import target as target_plugin
from evalbus_server.errors import Reason, Unfit
from evalbus_server.model.run import RunState, Verdict
from evalbus_server.plugin.inprocess import InProcessConversation, InProcessPlugin
from evalbus_server.runner.crew import Means, Wanted
from evalbus_server.runner.runs import Runs
from evalbus_server.scorer.builtin import BUILTINS
from tests.unit.server.runner.test_runs import Desk, desk, numbered


class Presence:
    """Knows which plugins are there, as one that starts a process for each would."""

    def __init__(self) -> None:
        self.there: list[str] = []
        self.most = 0
        self.reached = 0
        self.gate: asyncio.Event | None = None
        """Who is reached waits for it."""
        self.version = ""
        """Who is reached from now on says that it has this one."""

    def make(self, wanted: Wanted) -> InProcessPlugin:
        """A plugin that is seen coming and going."""
        presence = self

        class Seen(InProcessPlugin):
            async def reach(self) -> PluginInfo:
                name = self.info.name
                presence.there.append(name)
                presence.most = max(presence.most, len(presence.there))
                presence.reached += 1
                if presence.gate is not None:
                    await presence.gate.wait()
                if presence.version:
                    self.info = replace(self.info, version=presence.version)
                return self.info

            async def close(self) -> None:
                if self.info.name in presence.there:
                    presence.there.remove(self.info.name)
                await super().close()

            async def converse(self, opening: Any) -> InProcessConversation:
                await asyncio.sleep(0)
                return await super().converse(opening)

        assert wanted.definition is not None
        return Seen(wanted.definition, total=wanted.items)


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalbus_server.runner.floor.AT_ONCE", 1)


@pytest.fixture
def presence() -> Iterator[Presence]:
    yield Presence()


def manned(made: Desk, presence: Presence, most_open: int | None = None) -> Desk:
    made.runs = Runs(made.store, Means(presence.make, BUILTINS), made.bell, most_open=most_open)
    return made


def plugins(gate: asyncio.Event) -> dict[str, Any]:
    @target_plugin("slow")
    async def slow(item: Item) -> str:
        await gate.wait()
        assert item.expected is not None
        return item.expected.text

    @scorer_plugin("fine")
    def fine(item: Item, output: Any) -> float:
        return 1.0

    return {"slow": slow, "fine": fine}


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_queued_run_holds_no_plugins_and_has_them_back_for_its_turn(tmp_path: Path, presence: Presence) -> None:
    async with desk(tmp_path, numbered(3)) as made:
        manned(made, presence)
        gate = asyncio.Event()
        given = plugins(gate)
        runs = [await made.runs.start(made.experiment(given), given=given) for _ in range(4)]
        await until(lambda: made.store.run(runs[0].id).state is RunState.RUNNING)

        assert presence.there == ["slow", "fine"]
        assert [made.store.run(run.id).state for run in runs[1:]] == [RunState.QUEUED] * 3

        gate.set()
        ended = [await made.runs.wait(run.id) for run in runs]
        assert [run.state for run in ended] == [RunState.COMPLETED] * 4
        assert [run.counts.passed for run in ended] == [3] * 4
        assert {(run.digest, run.plugins, run.score_keys) for run in ended} == {
            (runs[0].digest, runs[0].plugins, runs[0].score_keys)
        }
        assert presence.most < 8  # not those of all runs
        assert presence.there == []


async def test_limits_that_change_while_a_run_waits_are_those_it_runs_with(tmp_path: Path, presence: Presence) -> None:
    gates, at_once, most = [asyncio.Event(), asyncio.Event()], 0, 0

    @target_plugin("counting")
    async def counting(item: Item) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        return "answer"

    async with desk(tmp_path, numbered(12)) as made:
        manned(made, presence)
        first = plugins(gates[0])
        await made.runs.start(made.experiment(first), given=first)
        waiting = await made.runs.start(
            made.experiment({"counting": counting}, limits={"concurrency": 9}), given={"counting": counting}
        )
        await until(lambda: "counting" not in presence.there)
        made.runs.change_limits(waiting.id, {"limits.concurrency": 2})
        gates[0].set()

        assert (await made.runs.wait(waiting.id)).counts.passed == 12
        assert most == 2


@pytest.mark.parametrize("end", ["cancel", "pause"])
async def test_a_queued_run_that_is_ended_asks_nobody(tmp_path: Path, presence: Presence, end: str) -> None:
    async with desk(tmp_path, numbered(3)) as made:
        manned(made, presence)
        gate = asyncio.Event()
        given = plugins(gate)
        first = await made.runs.start(made.experiment(given), given=given)
        waiting = await made.runs.start(made.experiment(given), given=given)
        reached = presence.reached

        getattr(made.runs, end)(waiting.id)
        ended = await made.runs.wait(waiting.id)

        assert ended.state is {"cancel": RunState.CANCELLED, "pause": RunState.PAUSED}[end]
        assert presence.reached == reached
        gate.set()
        assert (await made.runs.wait(first.id)).state is RunState.COMPLETED
        resumed = await made.runs.resume(waiting.id, given=given)
        assert (await made.runs.wait(resumed.id)).counts.passed == 3


async def test_a_run_is_cancelled_while_it_waits_for_its_plugins_to_come_back(
    tmp_path: Path, presence: Presence
) -> None:
    async with desk(tmp_path, numbered(3)) as made:
        manned(made, presence)
        gate = asyncio.Event()
        given = plugins(gate)
        _, waiting = [await made.runs.start(made.experiment(given), given=given) for _ in range(2)]
        presence.gate = asyncio.Event()  # nobody answers any more
        gate.set()
        await until(lambda: presence.reached == 6)

        made.runs.cancel(waiting.id)

        async with asyncio.timeout(30):
            assert (await made.runs.wait(waiting.id)).state is RunState.CANCELLED
        assert presence.there == []


async def test_a_plugin_that_changes_while_its_run_waits_ends_it_and_can_be_accepted(
    tmp_path: Path, presence: Presence
) -> None:
    async with desk(tmp_path, numbered(3)) as made:
        manned(made, presence)
        gate = asyncio.Event()
        given = plugins(gate)
        _, waiting = [await made.runs.start(made.experiment(given), given=given) for _ in range(2)]
        presence.version = "9.9.9"
        gate.set()

        ended = await made.runs.wait(waiting.id)
        assert (ended.state, ended.verdict, ended.counts.done) == (RunState.ABORTED, Verdict.INCONCLUSIVE, 0)
        assert ended.reason.startswith("PLUGIN_CHANGED: ") and "--accept-changed" in ended.reason
        resumed = await made.runs.resume(waiting.id, given=given, accept_changed=True)
        assert (await made.runs.wait(resumed.id)).counts.passed == 3
        assert presence.there == []


async def test_planning_leaves_nobody_behind(tmp_path: Path, presence: Presence) -> None:
    async with desk(tmp_path, numbered(3)) as made:
        manned(made, presence, most_open=1)
        gate = asyncio.Event()
        given = plugins(gate)
        await made.runs.start(made.experiment(given), given=given)

        plans = await asyncio.gather(*(made.runs.plan(made.experiment(given), given=given) for _ in range(40)))

        assert [plan.trials for plan in plans] == [3] * 40  # a plan takes no place, so it is not refused
        assert presence.there == ["slow", "fine"]
        assert presence.most <= 2 + 2 * 16
        gate.set()


async def test_resume_and_retry_take_a_place_and_leave_a_refused_run_as_it_is(
    tmp_path: Path, presence: Presence
) -> None:
    async with desk(tmp_path, [*numbered(2), Item("bad", "no expected answer")]) as made:
        manned(made, presence, most_open=1)
        gate = asyncio.Event()
        given = plugins(gate)
        paused = await made.runs.start(made.experiment(given), given=given)
        made.runs.pause(paused.id)
        gate.set()
        await made.runs.wait(paused.id)
        done = await made.runs.start(made.experiment(given), given=given)
        assert (await made.runs.wait(done.id)).counts.errored == 1
        gate.clear()
        await made.runs.start(made.experiment(given), given=given)
        before = made.rows("SELECT * FROM event")

        for again in (
            made.runs.resume(paused.id, given=given),
            made.runs.retry(done.id, given=given),
            made.runs.rescore(done.id, made.experiment({"fine": given["fine"]}), given=given),
            made.runs.start(made.experiment(given), given=given),
        ):
            with pytest.raises(Unfit, match=r"RUNNING: 1, the most.*limits\.runs") as refused:
                await again
            assert refused.value.reason is Reason.TOO_MANY_RUNS
        assert len(made.store.runs()) == 3
        assert [row for row in made.rows("SELECT * FROM event") if row in before] == before
        gate.set()
