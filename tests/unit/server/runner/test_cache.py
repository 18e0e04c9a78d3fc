"""The response cache: what a target has answered before to just the same is not asked again, and says so."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, Money, Output, Score, TrialFailed, Usage
from evalbus import scorer as scorer_plugin
from evalbus import target as target_plugin
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.run import Run, RunState
from evalbus_server.scorer.builtin import BUILTINS
from tests.unit.server.runner.test_runs import Desk, desk, numbered

EXACT = {"exact_match": BUILTINS["exact_match"]}


@dataclasses.dataclass
class Settings:
    model: str = "small"


class World:
    """A target that counts what it is asked, and never says the same twice."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.broken: set[str] = set()
        self.hold: asyncio.Event | None = None

    async def answer(self, item: Item) -> Output:
        self.asked[item.id] += 1
        if self.hold is not None and self.asked.total() > 30:
            await self.hold.wait()
        if item.id in self.broken:
            raise TrialFailed.invalid("out of order")
        usage = Usage(10, 1, calls=1, cost=Money(5))
        return Output(f"{item.id} call {self.asked.total()}", usage=usage, metadata={"n": self.asked.total()})

    def plugins(self, **options: Any) -> dict[str, Any]:
        return {"t": target_plugin("t", **{"digest": "one", "version": "1.0.0", **options})(self.answer), **EXACT}


def texts(d: Desk, run: Run) -> list[str]:
    return [each.output.text if each.output else "" for each in d.store.results(run, limit=10_000)]


def cached(d: Desk, run: Run) -> list[bool]:
    return [each.cached for each in d.store.results(run, limit=10_000)]


async def test_it_is_off_unless_it_is_asked_for(tmp_path: Path):
    world = World()
    async with desk(tmp_path, numbered(5)) as d:
        runs = [await d.run(world.plugins()) for _ in range(2)]

        assert world.asked.total() == 10
        assert d.store.cached_count() == 0
        assert not any(cached(d, runs[1]))


async def test_the_second_run_asks_nobody_and_spends_nothing(tmp_path: Path):
    """Five epochs are five answers, not one (RC-18); what was remembered is marked, and counted."""
    world = World()
    async with desk(tmp_path, numbered(100)) as d:
        first = await d.run(world.plugins(), cache=True, epochs=5)
        second = await d.run(world.plugins(), cache=True, epochs=5)

        assert world.asked.total() == len(set(texts(d, first))) == 500
        assert texts(d, second) == texts(d, first)
        assert [each.output.metadata_json for each in d.store.results(second, limit=2) if each.output] == [
            each.output.metadata_json for each in d.store.results(first, limit=2) if each.output
        ]
        assert not any(cached(d, first)) and all(cached(d, second))
        spent, saved = await d.runs.summary(first.id), await d.runs.summary(second.id)
        assert (spent.cached, spent.attempts, spent.usage.input_tokens) == (0, 500, 5000)
        assert (saved.cached, saved.attempts, saved.usage) == (500, 0, Usage())
        assert saved.priced_share is None and saved.latency is None
        assert (second.state, second.counts) == (RunState.COMPLETED, first.counts)
        assert d.store.cached_count() == 500


@pytest.mark.parametrize("what", ["digest", "version", "settings", "bounds", "item", "epochs"])
async def test_something_else_is_asked_anew(tmp_path: Path, what: str):
    """Another build of the target, other settings, other content of an item; an epoch more asks for that epoch alone."""
    world = World()

    async def answer(item: Item, settings: Settings) -> Output:
        return await world.answer(item)

    def plugins(**options: Any) -> dict[str, Any]:
        target = target_plugin("t", **{"digest": "one", "version": "1.0.0", **options})(answer)
        return {"t": target, **EXACT}

    async with desk(tmp_path, numbered(4)) as d:
        await d.run(plugins(), cache=True)
        changes: dict[str, dict[str, Any]] = {
            "settings": {"target": {"use": "t", "settings": {"model": "large"}}},
            "bounds": {"limits": {"trial": {"steps": 3}}},
            "epochs": {"epochs": 2},
        }
        changed = changes.get(what, {})
        if what == "item":
            d.store.publish("d", [[Item("i0", "question 0", "another answer"), *numbered(4)[1:]]])
        options = {"digest": {"digest": "two"}, "version": {"version": "1.0.1"}}.get(what, {})
        run = await d.run(plugins(**options), cache=True, **changed)

        remembered = {"item": 3, "epochs": 4}.get(what, 0)
        assert (await d.runs.summary(run.id)).cached == remembered
        assert world.asked.total() == 4 + run.counts.planned - remembered


async def test_failures_are_not_remembered_and_a_retry_asks_again(tmp_path: Path):
    world = World()
    world.broken = {"i1"}
    async with desk(tmp_path, numbered(3)) as d:
        await d.run(world.plugins(), cache=True)
        again = await d.run(world.plugins(), cache=True)
        assert (world.asked, again.counts.errored) == (Counter({"i1": 2, "i0": 1, "i2": 1}), 1)
        world.broken = set()
        await d.runs.retry(again.id, given=world.plugins())
        await d.runs.wait(again.id)
        third = await d.run(world.plugins(), cache=True)

        assert (world.asked["i1"], cached(d, third)) == (3, [True] * 3)
        assert [each.attempts for each in d.store.results(third)] == [0, 0, 0]


async def test_a_stopped_run_finds_after_a_restart_what_it_and_others_remembered(tmp_path: Path):
    """Everything is in the file: another process goes on with it."""
    world = World()
    world.hold = asyncio.Event()
    async with desk(tmp_path, numbered(200)) as d:
        run = await d.runs.start(
            d.experiment(world.plugins(), cache=True, limits={"concurrency": 10}), given=world.plugins()
        )
        while world.asked.total() < 31:
            await asyncio.sleep(0.01)
        await d.runs.stop(run.id, grace=0)
        stored = d.rows("SELECT count(*) FROM output")[0][0]
        assert stored == d.store.cached_count() >= 20
    world.hold.set()
    async with desk(tmp_path, numbered(200)) as d:
        other = await d.run(world.plugins(), cache=True)
        assert (await d.runs.summary(other.id)).cached == stored
        calls = world.asked.total()
        await d.runs.resume(run.id, given=world.plugins())
        ended = await d.runs.wait(run.id)

        assert world.asked.total() == calls
        assert (ended.state, (await d.runs.summary(run.id)).cached) == (RunState.COMPLETED, 200 - stored)


async def test_what_is_purged_is_not_remembered(tmp_path: Path):
    """Neither what was answered before, nor what is on its way; the answers to other items stay."""
    world = World()
    async with desk(tmp_path, numbered(3)) as d:
        await d.run(world.plugins(), cache=True)
        d.store.purge_items("d", ["i1"])
        assert d.store.cached_count() == 2
        d.store.publish("d", [numbered(3)])
        run = await d.run(world.plugins(), cache=True)

        assert world.asked == Counter({"i0": 1, "i1": 2, "i2": 1})
        assert cached(d, run) == [True, False, True]
        assert d.store.cached_count() == 3  # what was published anew is another item


async def test_answers_go_with_the_run_that_gave_them_last(tmp_path: Path):
    world = World()
    async with desk(tmp_path, numbered(3)) as d:
        first = await d.run(world.plugins(), cache=True)
        second = await d.run(world.plugins(), cache=True)
        await d.runs.delete(first.id)
        third = await d.run(world.plugins(), cache=True)
        assert (texts(d, third), world.asked.total()) == (texts(d, second), 3)
        for run in (second, third):
            await d.runs.delete(run.id)
        assert d.store.cached_count() == 0

        await d.run(world.plugins(), cache=True)
        assert world.asked.total() == 6


async def test_the_oldest_answers_are_forgotten_where_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    world = World()
    async with desk(tmp_path, numbered(6)) as d:
        await d.run(world.plugins(), cache=True, dataset={"name": "d", "items": ["i[012]"]})
        await d.run(world.plugins(), cache=True, dataset={"name": "d", "items": ["i[345]"]})
        monkeypatch.setattr("evalbus_server.runner.cache.MOST_CACHED", 4)
        run = await d.run(world.plugins(), cache=True)

        assert cached(d, run) == [False, False, True, True, True, True]
        assert sum(d.store.forget_cached()) == d.store.cached_count() + 6
        assert d.store.cached_count() == 0


async def test_a_target_without_a_digest_is_refused(tmp_path: Path):
    async with desk(tmp_path, numbered(1)) as d:
        with pytest.raises(Invalid, match="'t' says no digest") as caught:
            await d.run(World().plugins(digest=""), cache=True)
        assert (caught.value.reason, caught.value.field) == (Reason.EXPERIMENT_INVALID, "cache")


async def test_a_rescored_run_shows_which_outputs_were_remembered(tmp_path: Path):
    world = World()
    long = {"long": scorer_plugin("long")(lambda item, output: Score.scored(1.0))}
    async with desk(tmp_path, numbered(3)) as d:
        await d.run(world.plugins(), cache=True, dataset={"name": "d", "items": ["i1"]})
        source = await d.run(world.plugins(), cache=True)
        experiment = d.experiment({**world.plugins(), **long}, cache=True)
        run = await d.runs.wait((await d.runs.rescore(source.id, experiment, given={**EXACT, **long})).id)

        assert cached(d, run) == cached(d, source) == [False, True, False]
        assert (run.state, world.asked.total()) == (RunState.COMPLETED, 3)


async def test_remembered_outputs_are_judged_by_each_items_own_scorers(tmp_path: Path):
    items = [Item("a", "?", "x", scorers=()), Item("b", "?", "x", scorers=("exact_match",))]
    world = World()
    async with desk(tmp_path, items) as d:
        for _ in range(2):
            run = await d.run(world.plugins(), cache=True, scorers=None)

        assert world.asked.total() == 2
        assert [(each.outcome.name, len(each.scores)) for each in d.store.results(run)] == [
            ("PASSED", 0),
            ("PASSED", 1),
        ]
        assert (await d.runs.summary(run.id)).cached == 2
