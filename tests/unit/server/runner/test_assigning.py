"""Runs that leave it to their items who judges them: an item's own scorers, else the dataset's, never both."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, Output, Score, TrialFailed
from evalbus import scorer as scorer_plugin
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset import InfoChange
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Outcome, Run, RunState, Verdict
from evalbus_server.model.trial import trial_id_of
from evalbus_server.scorer.builtin import BUILTINS
from tests.unit.server.runner.test_runs import Desk, desk, target_of


class World:
    """A target and two scorers that count what they are asked."""

    def __init__(self) -> None:
        self.asked: dict[str, Counter[str]] = {"t": Counter(), "one": Counter(), "two": Counter()}
        self.broken: set[str] = set()
        self.holding = asyncio.Event()
        self.holding.set()
        self.reached = asyncio.Event()

    async def target(self, item: Item) -> Output:
        self.asked["t"][item.id] += 1
        if item.id in self.broken:
            raise TrialFailed.invalid("out of order")
        return Output(item.id)

    async def one(self, item: Item, output: Output) -> Score:
        self.asked["one"][item.id] += 1
        if self.asked["one"].total() >= 20:
            self.reached.set()
            await self.holding.wait()
        return Score.scored(1.0)

    async def two(self, item: Item, output: Output) -> Score:
        self.asked["two"][item.id] += 1
        return Score.scored(0.25)

    @property
    def scorers(self) -> dict[str, Any]:
        return {"one": scorer_plugin("one")(self.one), "two": scorer_plugin("two")(self.two)}

    @property
    def plugins(self) -> dict[str, Any]:
        return {**target_of(self.target), **self.scorers}


DECLARED = {"scorers_from": "items", "scorers": [{"use": "one", "threshold": 1.0}, {"use": "two", "threshold": 0.5}]}


def items_naming(*each: tuple[str, ...] | None) -> list[Item]:
    return [Item(f"i{n}", f"question {n}", f"i{n}", scorers=names) for n, names in enumerate(each)]


def scores_of(d: Desk, run: Run) -> list[list[str]]:
    """The score keys of each result, in dataset order."""
    return [[run.score_keys[key].key for key in sorted(each.scores)] for each in d.store.results(run, limit=10_000)]


async def test_an_items_own_scorers_come_before_those_of_the_dataset(tmp_path: Path):
    """As recorded of Mastra's scorerPrecedence: an unknown name fails its item alone, [] is none, silence the dataset's."""
    async with desk(tmp_path, items_naming(("ghost",), (), None)) as d:
        world = World()
        run = await d.run(world.plugins, scorers_from="items", dataset={"name": "d", "scorers": ["two"]})

        assert scores_of(d, run) == [[], [], ["two"]]
        ghost, none, default = d.store.results(run)
        assert (ghost.outcome, none.outcome, default.outcome) == (Outcome.ERRORED, Outcome.PASSED, Outcome.PASSED)
        assert ghost.failure is not None and ghost.failure.reason == "SCORER_UNKNOWN"
        assert "'i0' names the scorer 'ghost'" in ghost.failure.message
        assert world.asked["t"] == Counter(["i1", "i2"])
        assert run.state is RunState.COMPLETED


async def test_the_runs_scorers_come_before_all_others(tmp_path: Path):
    """Also as an empty list, which is a word: nobody judges. Only silence leaves it to the items."""
    async with desk(tmp_path, items_naming(("two",), (), None, ("ghost",))) as d:
        d.store.change_dataset("d", InfoChange(scorers=("two",)))
        world = World()
        all_by_one = await d.run(world.plugins, scorers=[{"use": "one"}])
        nobody = await d.run(world.plugins, scorers=[])
        left = await d.run(world.plugins, scorers=None)

        assert scores_of(d, all_by_one) == [["one"]] * 4
        assert scores_of(d, nobody) == [[]] * 4 and nobody.counts.passed == 4
        assert scores_of(d, left) == [["two"], [], ["two"], []] and left.counts.errored == 1


async def test_builtins_are_found_by_name_and_declared_scorers_keep_their_words(tmp_path: Path):
    """Thresholds and settings are those of the experiment; what it does not declare has the builtin's defaults."""
    items = items_naming(("one",), ("two", "exact_match"), ("exact_match",), ("one", "two"), None)
    async with desk(tmp_path, items) as d:
        run = await d.run(World().plugins, **DECLARED)

        assert scores_of(d, run) == [["one"], ["two", "exact_match"], ["exact_match"], ["one", "two"], []]
        outcomes = [each.outcome.name for each in d.store.results(run)]
        assert outcomes == ["PASSED", "FAILED", "PASSED", "FAILED", "PASSED"]
        assert [key.key for key in run.score_keys] == ["one", "two", "exact_match"]
        weighted = [each.weighted for each in d.store.results(run)]
        assert weighted == [1.0, 0.625, 1.0, 0.625, None]


async def test_numbers_of_a_score_are_about_the_trials_that_it_was_to_judge(tmp_path: Path):
    """Also where the target failed: that counts against the scorers of the item, and against no other."""
    items = items_naming(("one",), ("one",), ("two",), ("one", "two"), ())
    world = World()
    world.broken = {"i1", "i4"}
    async with desk(tmp_path, items) as d:
        criteria = [
            {"metric": "coverage", "scorer": "two", "min": 1.0},
            {"metric": "mean", "scorer": "one", "min": 1.0},
        ]
        run = await d.run(world.plugins, **DECLARED, criteria=criteria, epochs=2)
        summary = await d.runs.summary(run.id)

        one, two = summary.scores
        assert (one.n, one.n_trials, one.errored, one.coverage) == (2, 4, 2, 4 / 6)
        assert (two.n, two.n_trials, two.errored, two.coverage, two.pass_rate) == (2, 4, 0, 1.0, 0.0)
        assert [each.outcome.name for each in summary.criteria] == ["PASS", "INCONCLUSIVE"]


@pytest.mark.parametrize("names", [("ghost",), ("one", "ghost")])
async def test_a_dataset_that_names_an_unknown_scorer_refuses_the_run(tmp_path: Path, names: tuple[str, ...]):
    async with desk(tmp_path, items_naming(None, ("one",))) as d:
        with pytest.raises(Invalid, match="'ghost'") as caught:
            await d.run(World().plugins, **DECLARED, dataset={"name": "d", "scorers": names})
        assert caught.value.field == "dataset.scorers"
        assert d.store.runs() == []


async def test_scorers_that_nobody_names_refuse_the_run(tmp_path: Path):
    """Else it would be green without anybody having judged."""
    async with desk(tmp_path, items_naming(None, ())) as d:
        with pytest.raises(Invalid, match="nothing is judged") as caught:
            await d.run(World().plugins, **DECLARED)
        assert caught.value.reason is Reason.EXPERIMENT_INVALID


async def test_only_selected_items_say_who_is_needed(tmp_path: Path):
    async with desk(tmp_path, items_naming(("one",), ("levenshtein",), ("exact_match",))) as d:
        world = World()
        by_glob = await d.run(world.plugins, scorers=None, dataset={"name": "d", "items": ["i0", "i2"]})
        by_limit = await d.run(world.plugins, scorers=None, dataset={"name": "d", "limit": 2})

        assert [key.key for key in by_glob.score_keys] == ["exact_match", "one"]
        assert [key.key for key in by_limit.score_keys] == ["levenshtein", "one"]


async def test_a_plan_counts_the_tasks_of_each_item(tmp_path: Path):
    async with desk(tmp_path, items_naming(("one",), ("one", "two"), (), None, ("one", "ghost"))) as d:
        world = World()
        experiment = d.experiment(world.plugins, **DECLARED, dataset={"name": "d", "scorers": ["two"]}, epochs=3)
        stored = await d.runs.plan(experiment, given=world.plugins)
        read = await d.runs.plan(experiment, [each.item for each in d.store.items("d", 1, limit=10)], world.plugins)

        assert stored.scorer_calls == read.scorer_calls == 3 * (1 + 2 + 0 + 1)
        assert stored.keys == read.keys


async def test_a_run_that_was_stopped_asks_each_scorer_for_what_it_is_to_judge(tmp_path: Path):
    """Outputs of the first session are judged from the store; who judges whom is what it was, whatever became of the dataset."""
    names: list[tuple[str, ...] | None] = [("one",), ("two",), (), ("one", "two"), None, ("ghost", "one")]
    items = items_naming(*(names[n % 6] for n in range(300)))
    async with desk(tmp_path, items) as d:
        world = World()
        world.holding.clear()
        more = {**DECLARED, "dataset": {"name": "d"}, "epochs": 2}
        d.store.change_dataset("d", InfoChange(scorers=("two", "exact_match")))
        run = await d.runs.start(d.experiment(world.plugins, **more), given=world.plugins)
        await world.reached.wait()
        await d.runs.stop(run.id, grace=0)
        assert (await d.runs.wait(run.id)).counts.pending > 0
        d.store.change_dataset("d", InfoChange(scorers=("one",)))
        world.holding.set()

        await d.runs.resume(run.id, given=world.plugins)
        ended = await d.runs.wait(run.id)

        wanted = [["one"], ["two"], [], ["one", "two"], ["two", "exact_match"], []]
        assert scores_of(d, ended) == [wanted[n // 2 % 6] for n in range(600)]
        assert (ended.state, ended.counts.errored, ended.counts.passed) == (RunState.COMPLETED, 100, 200)
        assert set(world.asked["t"].values()) == {2} and len(world.asked["t"]) == 250
        assert d.store.counts(ended) == ended.counts


async def test_a_retry_asks_only_the_scorers_of_the_item(tmp_path: Path):
    """An item that names somebody unknown stays ERRORED, and is not asked."""
    world = World()
    world.broken = {"i0", "i2"}
    async with desk(tmp_path, items_naming(("one",), ("two",), ("two",), ("ghost",))) as d:
        run = await d.run(world.plugins, **DECLARED)
        assert run.counts.errored == 3
        world.broken = set()
        world.asked = {name: Counter() for name in world.asked}

        await d.runs.retry(run.id, given=world.plugins)
        ended = await d.runs.wait(run.id)

        assert world.asked == {"t": Counter(["i0", "i2"]), "one": Counter(["i0"]), "two": Counter(["i2"])}
        assert (ended.counts.errored, ended.state) == (1, RunState.COMPLETED)


async def test_stored_outputs_are_scored_anew_by_each_items_own(tmp_path: Path):
    async with desk(tmp_path, items_naming(("one",), (), ("ghost",), ("two", "levenshtein"), None)) as d:
        world = World()
        source = await d.run(world.plugins, scorers=[])
        again = Experiment.parse({"name": "again", "dataset": {"name": "d"}, **DECLARED})
        run = await d.runs.wait((await d.runs.rescore(source.id, again, given=world.scorers)).id)

        assert scores_of(d, run) == [["one"], [], [], ["two", "levenshtein"], []]
        outcomes = [each.outcome.name for each in d.store.results(run)]
        assert outcomes == ["PASSED", "PASSED", "ERRORED", "FAILED", "PASSED"]
        assert (run.state, run.verdict) == (RunState.COMPLETED, Verdict.FAIL)
        assert world.asked["t"].total() == 5


async def test_a_rescore_that_would_score_nothing_is_refused(tmp_path: Path):
    async with desk(tmp_path, items_naming(None, ())) as d:
        world = World()
        source = await d.run(world.plugins, scorers=[])
        silent = Experiment.parse({"name": "again", "dataset": {"name": "d"}})
        with pytest.raises(Invalid, match="nothing is scored"):
            await d.runs.rescore(source.id, silent, given=world.scorers)


async def test_outputs_that_the_dataset_brings_are_judged_by_each_items_own(tmp_path: Path):
    items = [
        Item("a", "?", "x", scorers=("exact_match",), output=Output("x")),
        Item("b", "?", "x", scorers=(), output=Output("y")),
        Item("c", "?", "x", scorers=("ghost",), output=Output("x")),
        Item("d", "?", "x", scorers=("exact_match",)),
    ]
    async with desk(tmp_path, items) as d:
        run = await d.run({}, scorers=None)

        reasons = [None if each.failure is None else each.failure.reason for each in d.store.results(run)]
        assert reasons == [None, None, "SCORER_UNKNOWN", "OUTPUT_MISSING"]
        assert scores_of(d, run) == [["exact_match"], [], [], []]
        assert (await d.runs.summary(run.id)).scores[0].errored == 1  # "d"; nobody was to judge "c" alone


async def test_who_judges_a_purged_item_stays(tmp_path: Path):
    """The numbers of its runs are counted by that."""
    world = World()
    world.broken = {"i0"}
    async with desk(tmp_path, items_naming(("one",), ("two",))) as d:
        run = await d.run(world.plugins, **DECLARED)
        before = await d.runs.summary(run.id)
        d.store.purge_items("d", ["i0"])

        assert (await d.runs.summary(run.id)).scores == before.scores
        assert d.store.item("d", 1, "i0").item.scorers == ("one",)
        assert b"question 0" not in d.path.read_bytes()


async def test_an_ordinary_run_does_not_look_at_what_items_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It costs nothing where it is not used."""
    async with desk(tmp_path, items_naming(("two",), ("ghost",))) as d:
        monkeypatch.setattr(d.store, "own_scorers", lambda *_, **__: pytest.fail("looked"))
        run = await d.run({**World().plugins, "exact_match": BUILTINS["exact_match"]})

        assert (run.assignment, run.counts.passed) == (None, 2)
        assert d.rows("SELECT assignment FROM run") == [(None,)]
        assert [d.rows(f"SELECT count(*) FROM score WHERE trial = {trial_id_of(n, 1)}") for n in (0, 1)] == [[(3,)]] * 2


@pytest.mark.parametrize("stored", [False, True])
async def test_a_plan_tells_of_scorers_that_items_name_and_nobody_knows(tmp_path: Path, stored: bool):
    items = items_naming(("one", "nobody"), ("nobody", "nobody"), ("exact_match",), (), ("someone",), None)
    world = World()
    async with desk(tmp_path, items) as d:
        experiment = d.experiment(world.plugins, **DECLARED)
        plan = await d.runs.plan(experiment, None if stored else iter(items), given=world.plugins)

        assert plan.warnings == (
            "2 items name the scorer 'nobody', which is neither declared here nor a builtin: ERRORED, and not asked",
            "1 item names the scorer 'someone', which is neither declared here nor a builtin: ERRORED, and not asked",
        )
