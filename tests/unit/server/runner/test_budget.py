"""The budget of a run: what is in flight bounds how far it is overrun, and what fits comes to its end."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evalbus import Failure, FailureCategory, FailureOrigin, Item, Money, Output, Score, TrialFailed, Usage
from evalbus import scorer as scorer_plugin
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import RunState
from evalbus_server.model.spent import Spent
from evalbus_server.model.trial import AttemptRecord, Changes, OutputRecord, trial_id_of
from evalbus_server.runner.budget import Budget
from tests.unit.server.runner.test_runs import desk, numbered, target_of


def limits(**more: Any) -> Any:
    made = {"name": "x", "dataset": {"name": "d"}, "target": {"use": "t"}, "limits": more}
    return Experiment.model_validate(made).limits


class Spender:
    """A target and a judge that know what they have been let take."""

    def __init__(self, amounts: list[int], judge: int = 0, unpriced: frozenset[int] = frozenset()) -> None:
        self.amounts, self.fee, self.unpriced = amounts, judge, unpriced
        self.asked = self.spent = self.working = self.most = 0

    async def target(self, item: Item) -> Output:
        number, self.asked = self.asked, self.asked + 1
        self.working += 1
        self.most = max(self.most, self.working)
        await asyncio.sleep(0.002)
        self.working -= 1
        amount = self.amounts[number % len(self.amounts)]
        self.spent += amount
        cost = None if number in self.unpriced else Money(amount * 1000)
        return Output("x", usage=Usage(amount, 0, cost=cost))

    async def judge(self, item: Item, output: Output) -> Score:
        self.spent += self.fee
        return Score.scored(1.0, usage=Usage(self.fee, cost=Money(self.fee * 1000)) if self.fee else None)

    @property
    def plugins(self) -> dict[str, Any]:
        return {**target_of(self.target), "judge": scorer_plugin("judge")(self.judge)}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 2000), st.integers(1, 20), st.integers(0, 9)
)
def test_nothing_is_sent_past_the_budget_and_what_fits_is_sent(
    takes: list[int], budget: int, concurrency: int, seed: int
):
    """Played through with any amounts, in any order of answers."""

    async def play() -> None:
        ended: list[str] = []
        whole = Budget(limits(tokens=budget))
        whole.abort = lambda constant, _: ended.append(constant)
        purse = whole.purse("the target")
        purse.join(lambda: None)
        todo, spent = list(takes), 0
        flying: list[int] = []
        rng = random.Random(seed)
        while (todo or flying) and not ended:
            while todo and (room := purse.room(min(concurrency - len(flying), len(todo)))) > 0:
                assert spent <= budget
                flying += [todo.pop() for _ in range(room)]
                purse.hold(len(flying))
            if not flying:
                await asyncio.sleep(0)
                break
            taken = flying.pop(rng.randrange(len(flying)))
            spent += taken
            purse.hold(len(flying))
            purse.spend(Usage(taken))
            purse.settled(1)

        assert bool(ended) or not todo
        if sum(takes) <= budget:
            assert not ended or (spent == budget and todo)  # only what takes nothing can be left then
        assert spent <= budget + concurrency * max(takes)

    asyncio.run(play())


async def test_even_calls_overrun_a_budget_by_less_than_one(tmp_path: Path):
    """Reserved before they are sent: forty at a time would else take up to forty times too much."""
    spender = Spender([10], judge=3)
    async with desk(tmp_path, numbered(300)) as d:
        more = {"scorers": [{"use": "judge", "concurrency": 40}]}
        run = await d.run(spender.plugins, limits={"tokens": 1000, "concurrency": 40}, **more)

        assert (run.state, run.reason[:7]) == (RunState.ABORTED, "BUDGET:")
        assert 950 <= spender.spent <= 1013
        assert spender.most > 5  # learned after the first, and not asked one by one
        assert run.counts.planned == 300 and run.counts.pending == 300 - run.counts.passed  # O5


async def test_a_budget_that_is_just_enough_is_enough(tmp_path: Path):
    """Uneven calls: what is left at the end is used up one by one, and nothing is given up for a guess."""
    amounts = [random.Random(7).randrange(1, 100) for _ in range(60)]
    spender = Spender(amounts)
    async with desk(tmp_path, numbered(60)) as d:
        run = await d.run(spender.plugins, limits={"tokens": sum(amounts), "concurrency": 16})

        assert (run.state, run.counts.passed) == (RunState.COMPLETED, 60)


async def test_the_reason_says_how_many_outputs_are_left_without_scores(tmp_path: Path):
    """The target is far ahead when the judge, in its first answer, tells that it took more than there is."""
    spender, takes = Spender([10]), 500

    async def judge(item: Item, output: Output) -> Score:
        nonlocal takes
        while spender.asked < 12:
            await asyncio.sleep(0.001)
        usage, takes = Usage(takes), 0
        return Score.scored(1.0, usage=usage)

    plugins = {**target_of(spender.target), "judge": scorer_plugin("judge")(judge)}
    async with desk(tmp_path, numbered(60)) as d:
        run = await d.run(plugins, limits={"tokens": 400, "concurrency": 4})

        stored = d.rows("SELECT count(*) FROM output")[0][0]
        assert run.state is RunState.ABORTED and stored > 4
        assert re.fullmatch(
            rf"BUDGET: \d+ tokens are used; the limit is 400; {stored - run.counts.done} outputs are stored and not scored",
            run.reason,
        )
        d.runs.change_limits(run.id, {"limits.tokens": 10_000})
        again = await d.runs.wait((await d.runs.resume(run.id, given=plugins)).id)
        assert (again.state, again.reason, again.counts.passed) == (RunState.COMPLETED, "", 60)


async def test_who_tells_of_no_usage_is_held_up_by_no_guess(tmp_path: Path):
    async def silent(item: Item) -> Output:
        return Output("x")

    async with desk(tmp_path, numbered(50)) as d:
        run = await d.run(target_of(silent), limits={"tokens": 1, "cost": 0.000001})

        assert (run.state, run.counts.passed) == (RunState.COMPLETED, 50)


async def test_usage_without_a_price_is_not_free(tmp_path: Path):
    """Nobody can tell when a budget in money is reached: the run ends, and says what to do."""
    spender = Spender([10], unpriced=frozenset(range(100)))
    async with desk(tmp_path, numbered(100)) as d:
        run = await d.run(spender.plugins, limits={"cost": 5.0, "concurrency": 8})

        assert run.state is RunState.ABORTED
        assert run.reason.startswith("BUDGET: the target tells of usage without a cost in USD")
        assert "limits.tokens" in run.reason
        assert spender.asked == 1


async def test_a_call_without_a_price_counts_as_the_dearest_that_had_one(tmp_path: Path):
    """Ten thousandths each, every second of them untold: as many are asked as if all were told."""
    spender = Spender([10], unpriced=frozenset(range(1, 200, 2)))
    async with desk(tmp_path, numbered(200)) as d:
        run = await d.run(spender.plugins, limits={"cost": 0.5, "concurrency": 4})

        assert run.reason.startswith("BUDGET: 0.5")
        assert 48 <= spender.asked <= 54


async def test_failed_attempts_count_when_they_fail(tmp_path: Path):
    """Also while the trial is tried again."""
    asked = 0

    async def failing(item: Item, ctx: Any) -> Output:
        nonlocal asked
        asked += 1
        ctx.progress(usage=Usage(100))
        raise TrialFailed("no", FailureCategory.UNAVAILABLE)

    failing.__annotations__ = {"item": "Item", "ctx": "Context", "return": "Output"}
    async with desk(tmp_path, numbered(100)) as d:
        run = await d.run(target_of(failing), limits={"tokens": 450, "concurrency": 1, "retries": 3})

        assert run.reason.startswith("BUDGET")
        assert asked <= 6


async def test_a_resumed_run_counts_what_failed_attempts_took_where_nothing_else_is_stored(tmp_path: Path):
    asked = 0

    async def failing(item: Item, ctx: Any) -> Output:
        nonlocal asked
        asked += 1
        ctx.progress(usage=Usage(100))
        raise TrialFailed("no", FailureCategory.INVALID)

    failing.__annotations__ = {"item": "Item", "ctx": "Context", "return": "Output"}
    async with desk(tmp_path, numbered(100)) as d:
        plugins = target_of(failing)
        run = await d.run(plugins, limits={"tokens": 450, "concurrency": 1, "retries": 0})
        before = asked

        await d.runs.resume(run.id, given=plugins)
        again = await d.runs.wait(run.id)

        assert again.reason == run.reason and run.reason.startswith("BUDGET")
        assert asked == before


async def test_a_resumed_run_counts_what_has_no_result_yet(tmp_path: Path):
    """An output that waits for its score, and a score that waits for others, are paid for."""
    async with desk(tmp_path, numbered(4)) as d:
        spender = Spender([10], judge=3)
        more = {"scorers": [{"use": "judge"}, {"use": "exact_match"}]}
        run = await d.run(spender.plugins, limits={"tokens": 20}, **more)
        assert run.state is RunState.ABORTED and d.store.output_count(run) < 4
        base = await d.store.spent(run, "USD")
        free = trial_id_of(3, 1)
        failure = Failure(FailureCategory.TIMEOUT, "t", "T", FailureOrigin.SERVER)
        failed = AttemptRecord(free, -1, 9001, failure, Usage(5, cost=Money(7)), 1.0, 0.0)
        output = OutputRecord(free, Output("x", usage=Usage(100)), 9002, 2, 0.1)

        d.store.commit(run.id, Changes([], [], [failed], []))
        alone = await d.store.spent(run, "USD")
        d.store.commit(run.id, Changes([output], [], [], []))
        both = await d.store.spent(run, "USD")

        assert (alone.tokens - base.tokens, alone.micros - base.micros) == (5, 7)
        assert (both.tokens - base.tokens, both.micros - base.micros) == (105, 7)


def test_the_price_of_what_was_spent_is_added_by_currency():
    """A cost in another currency is no price."""
    spent = Spent().plus([Usage(1, 2, cost=Money(5)), Usage(3, cost=Money(9, "EUR")), Usage(4), Usage()], "USD")

    assert spent == Spent(tokens=10, micros=5, unpriced=2, dearest=5)
