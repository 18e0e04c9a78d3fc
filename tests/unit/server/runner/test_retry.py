"""Retrying what is ERRORED in a run that is over: only that is asked, and old results stand until new ones come."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, Money, Output, Score, TrialFailed, Usage
from evalbus import scorer as scorer_plugin
from evalbus_server.errors import Reason, Unfit, Unreachable
from evalbus_server.model.event import TrialsEnded
from evalbus_server.model.run import Outcome, Run, RunState, Verdict
from evalbus_server.runner.line import Line
from tests.unit.server.runner.test_runs import Desk, desk, numbered, target_of


class World:
    """A target and two scorers that note what they are asked, and break as they are told."""

    def __init__(self) -> None:
        self.asked: dict[str, Counter[str]] = {"t": Counter(), "one": Counter(), "two": Counter()}
        self.broken: dict[str, set[str]] = {"t": set(), "one": set(), "two": set()}
        self.strange: set[str] = set()
        """Items for which scorer one gives a value out of its range."""
        self.holding: dict[str, asyncio.Event] = {}

    async def _asked(self, who: str, item: Item) -> None:
        self.asked[who][item.id] += 1
        if who in self.holding:
            await self.holding[who].wait()
        if item.id in self.broken[who]:
            raise TrialFailed.invalid(f"{who} is out of order")

    async def target(self, item: Item) -> Output:
        await self._asked("t", item)
        return Output(item.id, usage=Usage(10, 1, calls=1, cost=Money(5)))

    async def one(self, item: Item, output: Output) -> Score:
        await self._asked("one", item)
        return Score.scored(7.0 if item.id in self.strange else 1.0, usage=Usage(3, 0, calls=1))

    async def two(self, item: Item, output: Output) -> Score:
        await self._asked("two", item)
        return Score.scored(0.5)

    @property
    def plugins(self) -> dict[str, Any]:
        return {
            **target_of(self.target),
            "one": scorer_plugin("one")(self.one),
            "two": scorer_plugin("two")(self.two),
        }

    def repaired(self) -> World:
        """All work, and what was asked is forgotten."""
        self.broken = {"t": set(), "one": set(), "two": set()}
        self.strange = set()
        self.asked = {"t": Counter(), "one": Counter(), "two": Counter()}
        return self


async def retried(d: Desk, run: Run, world: World) -> Run:
    await d.runs.retry(run.id, given=world.plugins)
    return await d.runs.wait(run.id)


def assert_whole(d: Desk, run: Run, trials: int) -> None:
    assert d.rows("SELECT count(*) FROM result") == [(trials,)]
    assert d.rows("SELECT count(*), count(DISTINCT trial) FROM output") == [(trials, trials)]
    assert d.rows("SELECT key, count(*) FROM score GROUP BY key") == [(0, trials), (1, trials)]
    assert d.rows("SELECT count(*) FROM retry") == [(0,)]
    assert d.store.counts(run) == run.counts


async def test_only_what_errored_is_asked_again_and_takes_its_place(tmp_path: Path):
    """The target where it failed, else the scorers that failed; the verdict is made anew (RC-15)."""
    world = World()
    world.broken |= {"t": {"i1", "i2"}, "one": {"i3"}, "two": {"i3", "i4"}}
    async with desk(tmp_path, numbered(10)) as d:
        run = await d.run(world.plugins)
        assert (run.counts.errored, run.verdict) == (4, Verdict.INCONCLUSIVE)

        ended = await retried(d, run, world.repaired())

        assert (ended.state, ended.verdict, ended.counts.passed) == (RunState.COMPLETED, Verdict.PASS, 10)
        assert world.asked["t"] == Counter(["i1", "i2"])
        assert world.asked["one"] == Counter(["i1", "i2", "i3"])
        assert world.asked["two"] == Counter(["i1", "i2", "i3", "i4"])
        assert_whole(d, ended, 10)
        assert ended.session == 2


async def test_what_stood_there_stays_among_the_attempts_and_usage_is_summed(tmp_path: Path):
    """Also an answer that broke its word, which was no failed attempt; attempts at the target are counted on."""
    world = World()
    world.broken["t"] = {"i1"}
    world.strange = {"i2"}
    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run(world.plugins)
        ended = await retried(d, run, world.repaired())

        kept = d.rows("SELECT trial, role, attempt, failure FROM attempt ORDER BY trial")
        assert [row[:3] for row in kept] == [(1, -1, 1001), (2, 0, 1999)]
        assert "t is out of order" in kept[0][3] and "7.0" in kept[1][3]
        results = d.store.results(ended)
        assert [result.attempts for result in results] == [1, 2, 1]
        used = [result.usage for result in results]
        assert [(usage.input_tokens, usage.calls) for usage in used if usage] == [(13, 2), (13, 2), (16, 3)]
        assert results[2].scores[0].score.value == 1.0


async def test_a_score_that_nobody_is_asked_for_again_is_no_attempt_of_the_target(tmp_path: Path):
    """Its item was purged before the retry: the score stays ERRORED, and the target was asked once all the same."""
    world = World()
    world.strange = {"i2"}
    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run(world.plugins)
        d.store.purge_items("d", ["i2"])
        ended = await retried(d, run, world.repaired())

        results = d.store.results(ended)
        assert [result.failure and result.failure.reason for result in results] == [None, None, "ITEM_PURGED"]
        assert [result.attempts for result in results] == [1, 1, 1]
        assert d.rows("SELECT trial, role, attempt FROM attempt") == []
        assert d.rows("SELECT status FROM score WHERE trial = 2 AND key = 0") == [(3,)]
        assert world.asked["t"] + world.asked["one"] + world.asked["two"] == Counter()


async def test_old_results_stand_until_the_new_ones_come_and_counts_add_up(tmp_path: Path):
    """O5 in every event: nothing is pending while it is asked again."""
    world = World()
    world.broken["one"] = {f"i{n}" for n in range(40)}
    async with desk(tmp_path, numbered(50)) as d:
        run = await d.run(world.plugins)
        world.repaired().holding["one"] = asyncio.Event()
        await d.runs.retry(run.id, given=world.plugins)
        while not world.asked["one"]:
            await asyncio.sleep(0.01)
        going = d.runs.get(run.id)
        assert (going.state, going.counts.errored, going.counts.pending) == (RunState.RUNNING, 40, 0)
        assert len(d.store.results(going, outcomes=[Outcome.ERRORED])) == 40
        world.holding["one"].set()
        ended = await d.runs.wait(run.id)

        facts = [event.fact for event in d.events(ended)[run.last_sequence :]]
        assert {fact.counts.pending for fact in facts} == {0}
        assert {sum((fact.counts.passed, fact.counts.errored)) for fact in facts} == {50}
        told = [trial for fact in facts if isinstance(fact, TrialsEnded) for trial, _ in fact.trials]
        assert sorted(told) == list(range(40))
        assert ended.counts.passed == 50


async def test_what_errs_again_is_errored_again_and_asked_once(tmp_path: Path):
    """With its latest failure; and it can be retried once more."""
    world = World()
    world.broken |= {"t": {"i1"}, "two": {"i2"}}
    async with desk(tmp_path, numbered(4)) as d:
        run = await d.run(world.plugins)
        for _ in range(2):
            world.asked = {who: Counter() for who in world.asked}
            again = await retried(d, run, world)
            assert (again.state, again.counts.errored, again.counts.passed) == (RunState.COMPLETED, 2, 2)
            assert {who: asked.total() for who, asked in world.asked.items()} == {"t": 1, "one": 0, "two": 1}
        assert d.rows("SELECT trial, role, attempt FROM attempt ORDER BY trial, attempt") == [
            *((1, -1, 1000 * session + 1) for session in (1, 2, 3)),
            *((2, 1, 1000 * session + 1) for session in (1, 2, 3)),
        ]
        assert [result.attempts for result in d.store.results(again, item_glob="i1")] == [3]
        ended = await retried(d, run, world.repaired())
        assert ended.counts.passed == 4
        assert_whole(d, ended, 4)


@pytest.mark.parametrize("held", ["t", "one", "two"])
async def test_a_retry_that_was_stopped_in_the_middle_goes_on_when_resumed(tmp_path: Path, held: str):
    """Nothing that it has replaced is asked a second time."""
    world = World()
    world.broken |= {"t": {"i1", "i2", "i3"}, "one": {"i4", "i5", "i6"}, "two": {"i6", "i7"}}
    async with desk(tmp_path, numbered(12)) as d:
        run = await d.run(world.plugins)
        assert run.counts.errored == 7
        world.repaired().holding[held] = asyncio.Event()
        await d.runs.retry(run.id, given=world.plugins)
        while not world.asked[held]:
            await asyncio.sleep(0.01)
        for _ in range(50):  # the others come as far as they can, which is a matter of turns and not of time
            await asyncio.sleep(0.005)
        await d.runs.stop(run.id, grace=0)
        halted = d.store.run(run.id)
        assert halted.state is RunState.INTERRUPTED
        assert halted.counts.pending == 0
        before = {who: Counter(asked) for who, asked in world.asked.items() if who != held}

        del world.holding[held]
        await d.runs.resume(run.id, given=world.plugins)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.passed) == (RunState.COMPLETED, 12)
        assert_whole(d, ended, 12)
        for who, asked in before.items():
            assert all(world.asked[who][item] == 1 for item in asked), who


async def test_a_retry_is_marked_in_one_step_and_survives_a_death_before_its_first_call(tmp_path: Path):
    """What a process leaves behind that dies right after it was asked."""
    world = World()
    world.broken["t"] = {"i1"}
    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run(world.plugins)
        assert d.store.queue_retry(run.id, "RETRIED: on request") == 1
        assert d.store.interrupt_orphans() == [run.id]

        await d.runs.resume(run.id, given=world.repaired().plugins)
        ended = await d.runs.wait(run.id)

        assert ended.counts.passed == 3
        assert world.asked["t"] == Counter(["i1"])


async def test_a_result_without_scorers_is_retried_too(tmp_path: Path):
    world = World()
    world.broken["t"] = {"i0", "i2"}
    plugins = target_of(world.target)
    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run(plugins)
        world.repaired()
        await d.runs.retry(run.id, given=plugins)
        ended = await d.runs.wait(run.id)
        assert (ended.counts.passed, world.asked["t"]) == (3, Counter(["i0", "i2"]))


async def test_what_cannot_be_retried_is_refused(tmp_path: Path):
    """A run at work, one without errors; a refused one stays as it is."""
    world = World()
    async with desk(tmp_path, numbered(3)) as d:
        world.holding["t"] = asyncio.Event()
        run = await d.runs.start(d.experiment(world.plugins), given=world.plugins)
        with pytest.raises(Unfit, match="only a run that is over") as caught:
            await d.runs.retry(run.id, given=world.plugins)
        assert caught.value.reason is Reason.RUN_AT_WORK
        world.holding["t"].set()
        ended = await d.runs.wait(run.id)

        with pytest.raises(Unfit, match="nothing to ask again") as caught:
            await d.runs.retry(run.id, given=world.plugins)
        assert caught.value.reason is Reason.NOTHING_TO_RUN
        assert d.store.run(run.id) == ended


async def test_scores_that_were_stored_without_a_result_are_judged_when_the_run_is_resumed(tmp_path: Path):
    """Somebody died between the two: nobody is asked again."""
    world = World()
    async with desk(tmp_path, numbered(5)) as d:
        run = await d.run(world.plugins)
        with d.store._connection.transaction():
            d.store._connection.execute("DELETE FROM result WHERE position IN (1, 3)")
            d.store._connection.execute("UPDATE progress SET passed = 3")
        d.store.change_state(run.id, RunState.INTERRUPTED)
        d.store._standings.clear()

        await d.runs.resume(run.id, given=world.repaired().plugins)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.passed) == (RunState.COMPLETED, 5)
        assert not any(asked.total() for asked in world.asked.values())


async def test_a_budget_counts_what_was_used_up_once(tmp_path: Path):
    """Not again for a trial of which only a scorer is asked: 10 times 11 tokens of the target, and 3 of scorer one."""
    world = World()
    world.broken["two"] = {f"i{n}" for n in range(10)}
    async with desk(tmp_path, numbered(10)) as d:
        run = await d.run(world.plugins, limits={"tokens": 141})
        assert (run.state, run.counts.errored) == (RunState.COMPLETED, 10)

        ended = await retried(d, run, world.repaired())

        assert (ended.state, ended.counts.passed) == (RunState.COMPLETED, 10)
        usage = (await d.runs.summary(run.id)).usage
        assert usage.input_tokens + usage.output_tokens == 140


def stored_tokens(d: Desk) -> int:
    """Input tokens of all that is stored: attempts that failed, outputs, and scores."""
    told = [d.rows(f"SELECT coalesce(sum(input_tokens), 0) FROM {table}")[0][0] for table in ("attempt", "output")]
    return sum(told) + d.rows("SELECT coalesce(sum(detail ->> '$.usage.input_tokens'), 0) FROM score")[0][0]


def stored_attempts(d: Desk) -> int:
    """Attempts at the target that are stored, whether they failed or not."""
    return sum(d.rows("SELECT count(*) FROM output")[0] + d.rows("SELECT count(*) FROM attempt WHERE role = -1")[0])


@pytest.mark.parametrize("paused_before", [False, True])
async def test_a_cancelled_retry_leaves_the_run_completed_as_it_was_and_can_be_made_again(
    tmp_path: Path, paused_before: bool
):
    """What has come stays, what has not keeps its old result, and no new output stands beside an old failure."""
    world = World()
    world.broken |= {"t": {"i1", "i2"}, "one": {"i3"}, "two": {"i4"}}
    async with desk(tmp_path, numbered(10)) as d:
        run = await d.run(world.plugins)
        hold = asyncio.Event()
        world.repaired().holding = {"two": hold}

        await d.runs.retry(run.id, given=world.plugins)
        while world.asked["two"].total() < 3 or d.store.run(run.id).counts.errored > 3:
            await asyncio.sleep(0.01)
        if paused_before:
            d.runs.pause(run.id)
            d.runs._floor.working[run.id].line.cancel()  # type: ignore[union-attr]
            assert (await d.runs.wait(run.id)).state is RunState.PAUSED
        d.runs.cancel(run.id)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.verdict) == (RunState.COMPLETED, Verdict.INCONCLUSIVE)
        assert ended.reason == "CANCELLED: the retry of the run; what it has not replaced stands"
        assert (ended.counts.passed, ended.counts.errored) == (7, 3)
        assert d.store.counts(ended) == ended.counts
        assert d.rows("SELECT count(*) FROM retry") == [(0,)]
        assert {row[0] for row in d.rows("SELECT trial FROM output")} == {0, *range(3, 10)}
        assert not d.rows("SELECT 1 FROM score WHERE trial IN (1, 2)")
        summary = await d.runs.summary(run.id)
        assert summary.run == ended
        assert (summary.usage.input_tokens, summary.attempts) == (stored_tokens(d), stored_attempts(d))
        assert d.rows("SELECT attempts FROM result WHERE position IN (1, 2)") == [(2,), (2,)]

        hold.set()
        world.repaired()
        again = await retried(d, run, world)
        assert (again.state, again.counts.passed, again.reason) == (RunState.COMPLETED, 10, "")
        assert world.asked["t"] == Counter(["i1", "i2"])
        assert_whole(d, again, 10)


async def test_a_retry_that_reaches_a_limit_leaves_the_run_completed_with_what_it_has_replaced(tmp_path: Path):
    """What is left stands, and can be retried again."""
    world = World()
    world.broken["t"] |= {"i1", "i2", "i3"}
    async with desk(tmp_path, numbered(10)) as d:
        run = await d.run(world.plugins, limits={"concurrency": 1, "max_errors": 5})
        world.repaired().broken["t"] |= {"i2", "i3"}
        d.runs.change_limits(run.id, {"limits.max_errors": 0})

        ended = await retried(d, run, world)

        assert (ended.state, ended.verdict) == (RunState.COMPLETED, Verdict.INCONCLUSIVE)
        assert ended.reason.startswith("MAX_ERRORS: ") and ended.reason.endswith("what it has not replaced stands")
        assert (ended.counts.passed, ended.counts.errored, ended.partial) == (8, 2, False)
        assert d.store.counts(ended) == ended.counts
        assert d.rows("SELECT count(*) FROM retry") == [(0,)]

        again = await retried(d, run, world.repaired())
        assert (again.state, again.counts.passed, again.reason) == (RunState.COMPLETED, 10, "")
        assert set(world.asked["t"]) <= {"i2", "i3"}
        assert_whole(d, again, 10)


async def test_a_retry_whose_plugin_is_lost_for_good_leaves_the_run_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    world = World()
    world.broken["t"].add("i1")

    async def lost(line: Line) -> None:
        raise Unreachable(Reason.PLUGIN_UNREACHABLE, "plugin 't': it is gone")

    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run(world.plugins)
        with monkeypatch.context() as patch:
            patch.setattr(Line, "carry", lost)
            ended = await retried(d, run, world.repaired())

        assert (ended.state, ended.counts.errored) == (RunState.COMPLETED, 1)
        assert ended.reason.startswith("PLUGIN_UNREACHABLE: plugin 't': it is gone; the retry")
        assert (await retried(d, run, world)).counts.passed == 3
