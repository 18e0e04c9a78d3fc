"""Runs that do not keep their outputs or scores: complete while they work, and gone from the disk when they end."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalbus import FailureCategory, Item, Message, Money, Output, Score, ToolCall, TrialFailed, Usage, Value
from evalbus import scorer as scorer_plugin
from evalbus import target as target_plugin
from evalbus_server.app import read_summary
from evalbus_server.errors import Invalid, Reason, Unfit
from evalbus_server.model.event import Event, TrialsEnded
from evalbus_server.model.run import Run, RunState
from evalbus_server.runner import session
from evalbus_server.store import open_reader
from tests.unit.server.runner.test_runs import Desk, desk, numbered

SECRET = "blue-heron"
"""In every word that a target or a scorer says."""
COST = Usage(10, 2, calls=1, cost=Money(5))


class World:
    """A target and a scorer that say the secret wherever words can stand, and fail where they are told."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.scored: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()
        self.held: set[str] = set()
        """Items that the scorer holds until the gate opens."""

    async def target(self, item: Item) -> Output:
        self.asked[item.id] += 1
        if item.id == "i3":
            raise TrialFailed.invalid(f"no {SECRET}")
        said = f"{SECRET} {item.id}"
        return Output(
            said,
            answer=Value(said),
            messages=(Message("assistant", (Value(said),)),),
            tool_calls=(ToolCall("look", f'{{"for": "{SECRET}"}}', result=Value(said)),),
            metadata=f'{{"why": "{SECRET}"}}',
            usage=COST,
        )

    async def scorer(self, item: Item, output: Output) -> Score:
        self.scored[item.id] += 1
        if item.id in self.held:
            await self.gate.wait()
        if item.id == "i5":
            raise TrialFailed.invalid(f"cannot judge {output.text}")
        if item.id == "i6":
            return Score.skipped(f"not for {output.text}")
        return Score.scored(int(item.id[1:]) % 4 / 4, f"since {output.text}", label=SECRET, answer=output.text)

    @property
    def plugins(self) -> dict[str, Any]:
        return {"t": target_plugin("t")(self.target), "s": scorer_plugin("s")(self.scorer)}


def said(d: Desk) -> list[str]:
    """The files of a database in which the secret stands."""
    files = [path for path in d.path.parent.iterdir() if path.name.startswith(d.path.name) and path.is_file()]
    return [path.name for path in files if SECRET.encode() in path.read_bytes()]


async def start(d: Desk, world: World, **keep: bool) -> Run:
    experiment = d.experiment(world.plugins, keep=keep, limits={"concurrency": 8, "retries": 0})
    return await d.runs.start(experiment, given=world.plugins)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("keep", [{"outputs": False}, {"outputs": False, "scores": False}])
async def test_no_word_of_the_outputs_is_left_on_the_disk_and_every_number_is(tmp_path: Path, keep: dict[str, bool]):
    """Contents, messages, tool calls, metadata, explanations, labels, failures; in the file and in its log."""
    async with desk(tmp_path, numbered(300)) as d:
        whole = await d.runs.wait((await start(d, World())).id)
        assert said(d)
        numbers = await d.runs.summary(whole.id)
        await d.runs.delete(whole.id)
        await until(d.store.cut_log)
        assert not said(d)

        run = await d.runs.wait((await start(d, World(), **keep)).id)

        assert (run.state, run.counts) == (RunState.COMPLETED, whole.counts)
        assert not said(d)
        summary = await d.runs.summary(run.id)
        assert replace(summary, run=numbers.run, wall_time=0.0, work_time=0.0, latency=None) == replace(
            numbers, wall_time=0.0, work_time=0.0, latency=None
        )
        with open_reader(d.path) as reader:
            assert read_summary(reader, run) == summary
        results = {result.item.id: result for result in d.store.results(run, limit=1000)}
        assert results["i1"].output is not None and results["i1"].output.text == "[not kept]"
        failed = results["i3"].failure
        assert failed is not None
        assert (failed.message, failed.details_json, failed.category) == ("[not kept]", "", FailureCategory.INVALID)
        if keep.get("scores", True):
            score = results["i1"].scores[0].score
            assert (score.value, score.explanation, score.label, score.answer) == (0.25, "[not kept]", "", None)
        assert d.rows("SELECT count(*) FROM score") == [(299 if keep.get("scores", True) else 0,)]


async def test_without_its_scores_a_run_has_its_summary_and_its_outputs(tmp_path: Path):
    async with desk(tmp_path, numbered(40)) as d:
        run = await d.runs.wait((await start(d, World(), scores=False)).id)

        assert d.rows("SELECT count(*) FROM score") == [(0,)]
        assert d.rows("SELECT count(*) FROM result WHERE weighted IS NOT NULL") == [(0,)]
        summary = await d.runs.summary(run.id)
        assert (summary.scores[0].n, summary.scores[0].errored, summary.scores[0].skipped) == (37, 2, 1)
        assert summary.scores[0].mean is not None
        assert summary.run == run
        results = d.store.results(run, limit=1000)
        assert results[1].output is not None and results[1].output.text == f"{SECRET} i1"
        assert b"since " not in d.path.read_bytes()


async def test_a_slow_follower_gets_every_result_whole_before_it_is_gone(tmp_path: Path):
    """Who only counts events holds nothing up; who reads results does, until it has them or has gone."""
    async with desk(tmp_path, numbered(300)) as d:
        world = World()
        run = await start(d, world, outputs=False, scores=False)
        seen: dict[str, str] = {}

        async def read() -> None:
            async for entry in d.runs.watch(run.id, 0, results=True):
                if isinstance(entry, Event) and isinstance(entry.fact, TrialsEnded):
                    await asyncio.sleep(0.02)
                    for result in d.store.results_of(run, [trial for trial, _ in entry.fact.trials]):
                        if result.output is not None:
                            seen[result.item.id] = result.output.text
                            assert len(result.scores) == 1

        gone = aiter(d.runs.watch(run.id, 0, results=True))
        await anext(gone)
        await gone.aclose()  # type: ignore[attr-defined]
        d.runs.watch(run.id, 0, results=True)  # never begun
        await asyncio.gather(read(), d.runs.wait(run.id))

        assert seen == {f"i{n}": f"{SECRET} i{n}" for n in range(300) if n != 3}
        assert not said(d)


async def test_an_interrupted_run_keeps_what_it_goes_on_with_and_nothing_else(tmp_path: Path):
    """What is judged is emptied; what is not is scored without asking the target again, then emptied too."""
    async with desk(tmp_path, numbered(20)) as d:
        world = World()
        world.held = {"i8", "i9"}
        world.gate.clear()
        run = await start(d, world, outputs=False)
        await until(lambda: d.store.run(run.id).counts.done == 18 and len(world.scored) >= 19)
        await d.runs.stop(run.id, grace=0.0)
        contents = dict(d.rows("SELECT trial, content FROM output"))
        assert contents[1] == "[not kept]"
        assert (contents[8], contents[9]) == (f"{SECRET} i8", f"{SECRET} i9")
        assert not d.rows(f"SELECT 1 FROM score WHERE explanation LIKE '%{SECRET}%'")

        world.gate.set()
        await d.runs.resume(run.id, given=world.plugins)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.pending) == (RunState.COMPLETED, 0)
        assert max(world.asked.values()) == 1
        assert not said(d)


@pytest.mark.parametrize("paused", [False, True])
async def test_a_cancelled_run_keeps_no_output_at_all_and_asks_again_when_resumed(tmp_path: Path, paused: bool):
    """What the outputs had cost still counts."""
    async with desk(tmp_path, numbered(20)) as d:
        world = World()
        world.held = {"i8", "i9"}
        world.gate.clear()
        run = await start(d, world, outputs=False)
        await until(lambda: d.store.run(run.id).counts.done == 18 and len(world.scored) >= 19)
        if paused:
            d.runs.pause(run.id)
            d.runs._floor.working[run.id].line.cancel()  # type: ignore[union-attr]
            await d.runs.wait(run.id)
            assert d.store.run(run.id).state is RunState.PAUSED
            assert said(d)
        d.runs.cancel(run.id)
        cancelled = await d.runs.wait(run.id)
        assert (cancelled.state, cancelled.counts.pending) == (RunState.CANCELLED, 2)
        await until(lambda: not said(d))  # the log is cut a little later if somebody is at it just now

        world.gate.set()
        await d.runs.resume(run.id, given=world.plugins)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.pending) == (RunState.COMPLETED, 0)
        assert {item for item, times in world.asked.items() if times == 2} == {"i8", "i9"}
        assert (await d.runs.summary(run.id)).usage == Usage(
            21 * 10, 21 * 2, calls=21, cost=Money(21 * 5)
        )  # 19 answers that stand, 2 that were taken back
        assert not said(d)


async def test_what_is_not_kept_cannot_be_used_again(tmp_path: Path):
    async with desk(tmp_path, numbered(8)) as d:
        world = World()
        no_outputs = await d.runs.wait((await start(d, world, outputs=False)).id)
        no_scores = await d.runs.wait((await start(d, world, scores=False)).id)

        with pytest.raises(Unfit, match="does not keep its outputs") as caught:
            await d.runs.rescore(no_outputs.id, d.experiment(world.plugins), given=world.plugins)
        assert caught.value.reason is Reason.NOT_KEPT
        with pytest.raises(Unfit, match="does not keep its scores"):
            await d.runs.retry(no_scores.id, given=world.plugins)
        criteria = [{"metric": "mean", "scorer": "s", "baseline": no_scores.id, "max_drop": 0.1}]
        with pytest.raises(Invalid, match="does not keep the scores to compare with"):
            await d.run(world.plugins, criteria=criteria)
        rescored = await d.runs.rescore(no_scores.id, d.experiment(world.plugins), given=world.plugins)
        assert (await d.runs.wait(rescored.id)).state is RunState.COMPLETED


async def test_of_a_run_without_outputs_only_the_target_is_asked_again(tmp_path: Path):
    """A scorer cannot be: there is nothing left to judge."""
    async with desk(tmp_path, numbered(8)) as d:
        world = World()
        run = await d.runs.wait((await start(d, world, outputs=False)).id)
        asked = Counter(world.asked)

        await d.runs.retry(run.id, given=world.plugins)
        retried = await d.runs.wait(run.id)

        assert retried.counts == run.counts
        assert world.asked - asked == Counter({"i3": 1})
        assert not said(d)


async def test_a_rescored_run_that_keeps_nothing_leaves_the_outputs_of_its_source(tmp_path: Path):
    async with desk(tmp_path, numbered(8)) as d:
        world = World()
        source = await d.runs.wait((await start(d, world)).id)
        experiment = d.experiment(world.plugins, keep={"outputs": False, "scores": False})

        run = await d.runs.rescore(source.id, experiment, given=world.plugins)
        ended = await d.runs.wait(run.id)

        assert ended.state is RunState.COMPLETED
        assert [result.scores for result in d.store.results(ended)] == [{}] * 8
        first = d.store.results(source)[1]
        assert first.output is not None and first.output.text == f"{SECRET} i1"
        assert first.scores[0].score.explanation == f"since {SECRET} i1"


async def test_a_fault_while_the_last_numbers_are_made_leaves_a_run_that_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is not left RUNNING, and not COMPLETED with words that it was not to keep."""
    world = World()

    async def broken(*_: Any) -> None:
        raise ValueError("a fault of ours")

    async with desk(tmp_path, numbered(3)) as d:
        with monkeypatch.context() as patch:
            patch.setattr(session, "summarise", broken)
            ended = await d.runs.wait((await start(d, world, outputs=False, scores=False)).id)
        assert (ended.state, ended.reason.partition(":")[0]) == (RunState.ABORTED, "INTERNAL")

        await d.runs.resume(ended.id, given=world.plugins)
        again = await d.runs.wait(ended.id)

        assert again.state is RunState.COMPLETED
        assert world.asked.total() == 3
        assert not said(d)


async def test_a_run_that_has_all_but_its_end_is_not_ended_by_a_cancel_with_what_it_is_not_to_keep(tmp_path: Path):
    """Its process died between the last result and the end: whoever goes on with it makes that, and nothing is asked."""
    items = [Item(f"i{n}", "question", f"{SECRET} {n}", output=Output(f"{SECRET} {n}")) for n in range(3)]
    async with desk(tmp_path, items) as d:
        experiment = d.experiment({}, scorers=[{"use": "exact_match"}], keep={"outputs": False, "scores": False})
        run = await d.runs.start(experiment)
        holds = d.runs.watch(run.id, 0, results=True)  # so the end waits for somebody who takes nothing
        await until(lambda: d.rows("SELECT count(*) FROM result") == [(3,)])
        task = d.runs._floor.working[run.id].task
        assert task is not None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del holds
        d.store.interrupt_orphans()

        going_on = asyncio.create_task(d.runs.resume_stopped(d.runs.take_up_stopped()))
        cancelled = d.runs.cancel(run.id)
        await going_on
        ended = await d.runs.wait(run.id)

        assert (cancelled.state, cancelled.counts.pending) == (RunState.INTERRUPTED, 0)
        assert (ended.state, ended.reason, ended.counts.passed) == (RunState.COMPLETED, "", 3)
        assert d.rows("SELECT count(*) FROM score") == [(0,)]
        assert d.store.kept_summary(ended) is not None
        assert d.rows("SELECT DISTINCT content FROM output") == [("[not kept]",)]


async def test_what_scorers_took_for_outputs_that_were_taken_back_still_counts(tmp_path: Path):
    """They are asked again with the target."""

    async def quick(item: Item, output: Output) -> Score:
        return Score.scored(1.0, usage=Usage(7, calls=1))

    async with desk(tmp_path, numbered(3)) as d:
        world = World()
        world.held = {"i0", "i1", "i2"}
        world.gate.clear()
        plugins = {**world.plugins, "quick": scorer_plugin("quick")(quick)}
        run = await d.runs.start(d.experiment(plugins, keep={"outputs": False}), given=plugins)
        await until(lambda: d.rows("SELECT count(*) FROM score") == [(3,)] and len(world.scored) == 3)
        d.runs.cancel(run.id)
        assert (await d.runs.wait(run.id)).state is RunState.CANCELLED
        assert d.rows("SELECT count(*) FROM output") == d.rows("SELECT count(*) FROM score") == [(0,)]
        assert d.rows(
            "SELECT DISTINCT role, attempt, failure ->> '$.reason', input_tokens FROM attempt ORDER BY role"
        ) == [
            (-1, 1001, "NOT_KEPT", 10),
            (1, 1999, "NOT_KEPT", 7),
        ]

        world.gate.set()
        await d.runs.resume(run.id, given=plugins)
        assert (await d.runs.wait(run.id)).state is RunState.COMPLETED
        usage = (await d.runs.summary(run.id)).usage
        assert (usage.input_tokens, usage.calls) == (2 * 3 * (10 + 7), 2 * 3 * 2)


async def test_an_output_that_the_dataset_brings_is_taken_back_without_counting_as_an_attempt(tmp_path: Path):
    items = [Item(f"i{n}", "question", output=Output(f"{SECRET} {n}")) for n in range(3)]
    async with desk(tmp_path, items) as d:
        world = World()
        world.held = {"i0", "i1", "i2"}
        world.gate.clear()
        plugins = {"s": scorer_plugin("s")(world.scorer)}
        run = await d.runs.start(d.experiment(plugins, keep={"outputs": False}), given=plugins)
        await until(lambda: len(world.scored) == 3)
        d.runs.cancel(run.id)

        assert (await d.runs.wait(run.id)).state is RunState.CANCELLED
        assert d.rows("SELECT count(*) FROM output") == d.rows("SELECT count(*) FROM attempt") == [(0,)]
