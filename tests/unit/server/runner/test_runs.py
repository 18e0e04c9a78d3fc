"""Runs over a real store with plugins in this process: what is asked, what is stored, how it ends."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from evalbus import Failure, FailureCategory, Item, Money, Output, Score, ScoreDeclaration, TrialFailed, Usage
from evalbus import scorer as scorer_plugin
from evalbus import target as target_plugin
from evalbus.kit import in_sample
from evalbus_server.app import read_summary
from evalbus_server.errors import Conflict, Invalid, NotFound, Reason, Unfit
from evalbus_server.model.event import Event, StateChanged, TrialsEnded
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Outcome, Run, RunState, Verdict
from evalbus_server.plugin.inprocess import InProcessPlugin
from evalbus_server.runner.crew import Means
from evalbus_server.runner.runs import Runs
from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.store import Store, open_store
from evalbus_server.watch.bell import Bell


class Desk:
    """A store with a dataset, and runs over it."""

    def __init__(self, path: Path, items: Iterable[Item]) -> None:
        self.path = path
        self.store: Store = open_store(path)
        self.store.publish("d", [list(items)])
        means = Means(lambda wanted: InProcessPlugin(wanted.definition, total=wanted.items), BUILTINS)  # type: ignore[arg-type]
        self.bell = Bell()
        self.runs = Runs(self.store, means, self.bell)

    def experiment(self, plugins: dict[str, Any], **more: Any) -> Experiment:
        target = next((name for name, plugin in plugins.items() if plugin.kind == "target"), None)
        scorers = [{"use": name} for name, plugin in plugins.items() if plugin.kind == "scorer"]
        document = {
            "name": "e",
            "dataset": {"name": "d"},
            "target": None if target is None else {"use": target},
            "scorers": scorers,
            **more,
        }
        return Experiment.parse(
            {key: value for key, value in document.items() if key != "scorers" or value is not None}
        )

    async def run(self, plugins: dict[str, Any], **more: Any) -> Run:
        run = await self.runs.start(self.experiment(plugins, **more), given=plugins)
        return await self.runs.wait(run.id)

    def rows(self, statement: str) -> list[Any]:
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def events(self, run: Run) -> list[Event]:
        return self.store.events(run.id, after=0, limit=10_000)


def numbered(count: int) -> list[Item]:
    return [Item(f"i{n}", f"question {n}", f"answer {n}") for n in range(count)]


@asynccontextmanager
async def desk(tmp_path: Path, items: Iterable[Item]) -> AsyncIterator[Desk]:
    made = Desk(tmp_path / "evalbus.db", items)
    try:
        yield made
    finally:
        await made.runs.close(grace=0)
        made.store.close()


@target_plugin("echo", mode="inline")
def echo(item: Item) -> str:
    assert item.expected is not None
    return item.expected.text


def target_of(function: Any, **options: Any) -> dict[str, Any]:
    return {"t": target_plugin("t", **options)(function)}


async def test_a_run_asks_every_item_and_passes(tmp_path: Path):
    """The main job: every trial has one output, its scores and one result; the run is COMPLETED with a verdict."""
    async with desk(tmp_path, numbered(600)) as d:
        run = await d.run({"echo": echo, "exact_match": BUILTINS["exact_match"]}, limits={"concurrency": 300})

        assert (run.state, run.verdict) == (RunState.COMPLETED, Verdict.PASS)
        assert (run.counts.passed, run.counts.pending, run.partial) == (600, 0, False)
        assert d.rows("SELECT count(*), count(DISTINCT trial) FROM output") == [(600, 600)]
        assert d.rows("SELECT count(*), min(value) FROM score") == [(600, 1.0)]


async def test_an_output_is_stored_before_any_scorer_is_asked(tmp_path: Path):
    """O7, seen by a scorer that looks into the database from outside."""
    async with desk(tmp_path, numbered(50)) as d:

        def look(item: Item, output: Output) -> bool:
            position = int(item.id[1:])
            return bool(d.rows(f"SELECT 1 FROM output WHERE trial = {position}"))

        run = await d.run({"echo": echo, "look": scorer_plugin("look", threads=4)(look)})

        assert run.counts.passed == 50
        assert d.rows("SELECT DISTINCT value FROM score") == [(1.0,)]


async def test_epochs_are_asked_one_after_the_other(tmp_path: Path):
    """Each (item, epoch) is one trial, and different answers stay apart (RC-18)."""
    calls: list[str] = []

    async def count(item: Item) -> str:
        calls.append(item.id)
        return f"call {len(calls)}"

    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run(target_of(count), epochs=5)

        assert run.counts.passed == 15
        assert sorted(calls) == sorted(["i0", "i1", "i2"] * 5)
        assert len({row[0] for row in d.rows("SELECT content FROM output")}) == 15
        assert d.rows("SELECT count(*) FROM result GROUP BY epoch") == [(3,)] * 5


async def test_a_failed_target_is_errored_and_no_scorer_is_asked(tmp_path: Path):
    """Its attempts are kept with their failures (O1)."""
    asked = 0

    def break_some(item: Item) -> str:
        if item.id == "i1":
            raise TrialFailed.refused("I will not")
        if item.id == "i2":
            raise ValueError("broken")
        return "fine"

    def judge(item: Item, output: Output) -> float:
        nonlocal asked
        asked += 1
        return 1.0

    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run(
            {**target_of(break_some), "judge": scorer_plugin("judge")(judge)},
            limits={"retries": 1},
        )

        assert (run.counts.passed, run.counts.errored, asked) == (1, 2, 1)
        assert run.verdict is Verdict.INCONCLUSIVE
        assert d.rows("SELECT trial, count(*) FROM attempt GROUP BY trial") == [(1, 1), (2, 2)]
        results = d.store.results(run, outcomes=[Outcome.ERRORED], item_glob="")
        assert [(result.item.id, result.failure.reason, result.attempts) for result in results if result.failure] == [
            ("i1", "REFUSED", 1),
            ("i2", "VALUE_ERROR", 2),
        ]


async def test_a_failed_scorer_is_tried_again_without_the_target(tmp_path: Path):
    """RC-14: target calls stay at one for each item."""
    calls = {"target": 0, "scorer": 0}

    def answer(item: Item) -> str:
        calls["target"] += 1
        return "x"

    def flaky(item: Item, output: Output) -> float:
        calls["scorer"] += 1
        if calls["scorer"] % 2:
            raise ConnectionError("gone")
        return 1.0

    async with desk(tmp_path, numbered(1)) as d:
        run = await d.run({**target_of(answer), "flaky": scorer_plugin("flaky")(flaky)})

        assert run.counts.passed == 1
        assert calls == {"target": 1, "scorer": 2}
        assert d.rows("SELECT role, attempt FROM attempt") == [(0, 1001)]


async def test_values_off_the_range_are_errored_and_never_stored(tmp_path: Path):
    """NaN, infinity and 40404 are states with the value in the failure (O3, SC-12, ST-08)."""
    values = [float("nan"), float("inf"), -0.1, 1.5, 40404.0, -0.0]

    def odd(item: Item, output: Output) -> float:
        return values[int(item.id[1:])]

    async with desk(tmp_path, numbered(6)) as d:
        run = await d.run({"echo": echo, "odd": scorer_plugin("odd")(odd)})

        assert (run.counts.errored, run.counts.passed) == (5, 1)
        assert d.rows("SELECT count(*) FROM score WHERE status = 1 AND (value IS NULL OR abs(value) > 1e308)") == [(0,)]
        assert d.rows("SELECT value FROM score WHERE status = 1") == [(0.0,)]


async def test_a_slow_scorer_holds_up_nobody_and_catches_up_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """When its window is full, outputs leave the memory and come back from the store, each once."""
    monkeypatch.setattr("evalbus_server.runner.session.window_for", lambda concurrency: 64)
    seen: list[str] = []
    stored_when_slow_began: list[int] = []  # by each of the first few, which are asked together

    async def slow(item: Item, output: Output) -> float:
        if not stored_when_slow_began:
            while d.rows("SELECT count(*) FROM output")[0][0] < 1000:
                await asyncio.sleep(0.02)
            stored_when_slow_began.append(d.rows("SELECT count(*) FROM output")[0][0])
        seen.append(item.id)
        return 1.0

    async with desk(tmp_path, numbered(1000)) as d:
        run = await d.run(
            {"echo": echo, "slow": scorer_plugin("slow")(slow), "exact_match": BUILTINS["exact_match"]},
            limits={"concurrency": 200},
        )

        assert run.counts.passed == 1000
        assert set(stored_when_slow_began) == {1000}
        assert sorted(seen) == sorted(item.id for item in numbered(1000))
        assert d.rows("SELECT key, count(*) FROM score GROUP BY key") == [(0, 1000), (1, 1000)]


async def test_answers_of_concurrent_trials_stay_with_their_items(tmp_path: Path):
    """Every item has its own number and reason (PL-13)."""

    async def number(item: Item, output: Output) -> Score:
        await asyncio.sleep((hash(item.id) % 7) / 500)
        return Score.scored(int(item.id[1:]) / 200, f"because of {item.id}")

    async with desk(tmp_path, numbered(200)) as d:
        run = await d.run({"echo": echo, "number": scorer_plugin("number")(number)}, limits={"concurrency": 50})
        results = d.store.results(run, outcomes=(), item_glob="", limit=1000)

        assert len(results) == 200
        for result in results:
            stored = result.scores[0].score
            assert stored.value == int(result.item.id[1:]) / 200
            assert result.item.id in stored.explanation


async def test_thresholds_decide_between_passed_and_failed(tmp_path: Path):
    """Also an explicit 0 (SC-13), and nothing passes or fails without one."""
    half = scorer_plugin("half")(lambda item, output: int(item.id[1:]) / 2)
    async with desk(tmp_path, numbered(3)) as d:
        for threshold, expected in ((0, (3, 0)), (0.5, (2, 1)), (None, (3, 0))):
            use = {"use": "half"} if threshold is None else {"use": "half", "threshold": threshold}

            run = await d.run({"echo": echo, "half": half}, scorers=[use])

            assert (run.counts.passed, run.counts.failed) == expected


async def test_mapped_inputs_reach_the_scorer_and_a_missing_one_is_an_error(tmp_path: Path):
    """Never an empty text (part 8)."""
    items = [Item("a", "q", {"intent": "buy"}), Item("b", "q", {"other": 1})]

    def both(item: Item) -> dict[str, str]:
        return {"intent": "buy"}

    async with desk(tmp_path, items) as d:
        run = await d.run(
            {**target_of(both), "exact_match": BUILTINS["exact_match"]},
            scorers=[
                {"use": "exact_match", "map": {"output": "output.content.intent", "expected": "item.expected.intent"}}
            ],
        )
        first, second = d.store.results(run, outcomes=(), item_glob="")

        assert first.scores[0].score.value == 1.0
        assert second.outcome is Outcome.ERRORED
        assert second.scores[0].score.failure is not None
        assert second.scores[0].score.failure.reason == "INPUT_MISSING"


async def test_without_a_target_the_outputs_of_the_dataset_are_scored(tmp_path: Path):
    """An item that brings none is ERRORED."""
    items = [Item("a", "q", "x", output=Output("x")), Item("b", "q", "x", output=Output("y")), Item("c", "q", "x")]
    async with desk(tmp_path, items) as d:
        run = await d.run({}, scorers=[{"use": "exact_match", "threshold": 1}])

        assert (run.counts.passed, run.counts.failed, run.counts.errored) == (1, 1, 1)


async def test_only_selected_items_are_asked(tmp_path: Path):
    """Globs on the raw id, then the limit; nothing selected is refused (G4)."""
    asked: list[str] = []

    def note(item: Item) -> str:
        asked.append(item.id)
        return "x"

    items = [Item(name, "q") for name in ("a1", "b1", "a2", "a3", "c", "a4")]
    async with desk(tmp_path, items) as d:
        run = await d.run(target_of(note), dataset={"name": "d", "items": ["a*", "c"], "limit": 3})
        assert (sorted(asked), run.counts.planned) == (["a1", "a2", "a3"], 3)

        with pytest.raises(Unfit, match="nothing to run") as caught:
            await d.run(target_of(note), dataset={"name": "d", "items": ["z*"]})
        assert caught.value.reason is Reason.NOTHING_TO_RUN


async def test_sampling_takes_the_same_share_in_every_run(tmp_path: Path):
    """Skipped ones are shown as SKIPPED with the reason, and take no part."""
    async with desk(tmp_path, numbered(400)) as d:
        chosen = []
        for _ in range(2):
            run = await d.run(
                {"echo": echo, "exact_match": BUILTINS["exact_match"]},
                scorers=[{"use": "exact_match", "sampling": 0.25}],
            )
            number = d.rows(f"SELECT n FROM run WHERE id = '{run.id}'")[0][0]
            chosen.append(d.rows(f"SELECT trial FROM score WHERE run = {number} AND status = 1"))

        assert chosen[0] == chosen[1]
        assert 60 < len(chosen[0]) < 140
        assert run.counts.skipped == 400 - len(chosen[0])


@pytest.mark.parametrize(
    ("said", "taken"), [("always", 20), (1, 20), (None, 20), ("never", 0), (0, 0), (0.0, 0)], ids=repr
)
async def test_all_or_none_may_be_sampled(tmp_path: Path, said: object, taken: int):
    """0 is a word like any other share, and never replaced by the default (SC-13)."""
    sampling = {} if said is None else {"sampling": said}
    plugins = {"echo": echo, "exact_match": BUILTINS["exact_match"], "levenshtein": BUILTINS["levenshtein"]}
    async with desk(tmp_path, numbered(10)) as d:
        more = {"scorers": [{"use": "exact_match", **sampling}, {"use": "levenshtein"}], "epochs": 2}
        plan = await d.runs.plan(d.experiment(plugins, **more), given=plugins)
        run = await d.run(plugins, **more)
        score = (await d.runs.summary(run.id)).scores[0]

        assert (score.n_trials, score.skipped, run.counts.passed, plan.scorer_calls) == (
            taken,
            20 - taken,
            20,
            taken + 20,
        )
        explanations = {each.scores[0].score.explanation for each in d.store.results(run)}
        assert taken or explanations == {"not sampled: this scorer takes none"}


def test_a_smaller_sample_lies_within_a_larger_one():
    """By item and epoch alone, and about as large as was said (RL-06)."""
    keys = [(f"item-{n}", epoch) for n in range(5_000) for epoch in (1, 2)]
    none, five, ten, again, all_ = ({key for key in keys if in_sample(*key, share)} for share in (0, 0.05, 0.1, 0.1, 1))

    assert not none and len(all_) == 10_000
    assert five < ten == again
    assert abs(len(ten) - 1000) < 90
    assert {id for id, epoch in ten if epoch == 1} != {id for id, epoch in ten if epoch == 2}


async def test_too_many_errors_abort_the_run_and_keep_what_is_stored(tmp_path: Path):
    """By count, and by share from the twentieth answer on."""

    def fail(item: Item) -> str:
        raise TrialFailed.invalid("no")

    async with desk(tmp_path, numbered(500)) as d:
        by_count = await d.run(target_of(fail), limits={"max_errors": 3, "concurrency": 1})
        by_share = await d.run(target_of(fail), limits={"max_errors": "50%", "concurrency": 1})

        assert (by_count.state, by_share.state) == (RunState.ABORTED, RunState.ABORTED)
        assert by_count.reason.startswith("MAX_ERRORS: 4 errors of target")
        assert by_count.verdict is Verdict.INCONCLUSIVE
        assert 3 < by_count.counts.errored < 500
        assert 20 <= by_share.counts.errored < 500
        assert by_share.partial


@pytest.mark.parametrize("limits", [{"tokens": 100}, {"cost": 0.001}])
async def test_a_spent_budget_aborts_the_run(tmp_path: Path, limits: dict[str, Any]):
    """With reason BUDGET, and never by leaving trials out in silence (O5)."""

    def costly(item: Item) -> Output:
        return Output("x", usage=Usage(5, 5, cost=Money(100)))

    async with desk(tmp_path, numbered(500)) as d:
        run = await d.run(target_of(costly), limits={**limits, "concurrency": 1})

        assert run.state is RunState.ABORTED
        assert run.reason.startswith("BUDGET")
        assert run.counts.pending > 0
        assert run.counts.planned == run.counts.done + run.counts.pending


async def test_the_deadline_of_a_run_ends_it(tmp_path: Path):
    """ABORTED, resumable, with the numbers of what was done."""

    async def slow(item: Item) -> str:
        await asyncio.sleep(0.05)
        return "x"

    async with desk(tmp_path, numbered(500)) as d:
        begun = time.monotonic()
        run = await d.run(target_of(slow), limits={"deadline": "1s", "concurrency": 2})

        assert run.reason.startswith("DEADLINE")
        assert time.monotonic() - begun >= 1.0
        assert run.counts.passed < 100
        assert run.counts.passed + run.counts.pending == 500


class Gate:
    """A target that answers nothing before its gate is open."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = asyncio.Event()

    async def answer(self, item: Item) -> str:
        self.asked += 1
        await self.open.wait()
        return "x"


async def test_a_cancelled_run_keeps_what_is_stored_and_leaves_nothing_behind(tmp_path: Path):
    """State CANCELLED, partial numbers, no PASS; tasks back to the start level (RC-03, RC-06)."""
    active = 0

    async def slow(item: Item) -> str:
        nonlocal active
        if int(item.id[1:]) < 6:
            return "x"
        active += 1
        try:
            await asyncio.sleep(30)
        finally:
            active -= 1
        return "x"

    async with desk(tmp_path, numbered(100)) as d:
        tasks = len(asyncio.all_tasks())
        for _ in range(5):
            run = await d.runs.start(d.experiment(target_of(slow), limits={"concurrency": 8}), given=target_of(slow))
            while d.runs.get(run.id).counts.done < 6:
                await asyncio.sleep(0.01)
            d.runs.cancel(run.id)
            ended = await asyncio.wait_for(d.runs.wait(run.id), 60)

            assert ended.state is RunState.CANCELLED
            assert (ended.counts.done, ended.partial, ended.verdict) == (6, True, Verdict.INCONCLUSIVE)
            assert active == 0
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        assert d.runs.cancel(run.id).state is RunState.CANCELLED


async def test_a_stopped_run_lets_trials_in_flight_finish(tmp_path: Path):
    """INTERRUPTED, with the outputs of what was in flight."""
    gate = Gate()
    plugins = target_of(gate.answer)
    async with desk(tmp_path, numbered(100)) as d:
        run = await d.runs.start(d.experiment(plugins, limits={"concurrency": 4}), given=plugins)
        await until(lambda: gate.asked == 4)
        stopping = asyncio.create_task(d.runs.stop(run.id))
        await asyncio.sleep(0)
        gate.open.set()
        await stopping
        ended = d.store.run(run.id)

        assert ended.state is RunState.INTERRUPTED
        assert ended.counts.passed == 4


async def test_events_tell_every_trial_once_and_counts_add_up_at_every_moment(tmp_path: Path):
    """O5 on the log itself."""
    async with desk(tmp_path, numbered(700)) as d:
        run = await d.run({"echo": echo, "exact_match": BUILTINS["exact_match"]}, limits={"concurrency": 300})
        events = d.events(run)

        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        facts = [event.fact for event in events]
        told = [trial for fact in facts if isinstance(fact, TrialsEnded) for trial, _ in fact.trials]
        assert sorted(told) == list(range(700))
        for fact in facts:
            counts = fact.counts
            assert counts.planned == counts.passed + counts.failed + counts.errored + counts.skipped + counts.pending
        states = [fact.state for fact in facts if isinstance(fact, StateChanged)]
        assert states == [RunState.QUEUED, RunState.RUNNING, RunState.COMPLETED]
        assert run.last_sequence == events[-1].sequence


async def test_a_request_id_makes_one_run(tmp_path: Path):
    """The same experiment gives the same run, another one is refused, also when both come at once."""
    async with desk(tmp_path, numbered(3)) as d:
        experiment = d.experiment({"echo": echo})
        first, second = await asyncio.gather(
            *(d.runs.start(experiment, request_id="once", given={"echo": echo}) for _ in range(2))
        )
        assert first.id == second.id
        await d.runs.wait(first.id)
        assert (await d.runs.start(experiment, request_id="once", given={"echo": echo})).id == first.id

        with pytest.raises(Conflict) as caught:
            await d.runs.start(d.experiment({"echo": echo}, epochs=2), request_id="once", given={"echo": echo})
        assert caught.value.reason is Reason.REQUEST_ID_REUSED


async def test_what_cannot_run_is_refused_before_the_first_trial(tmp_path: Path):
    """Unknown builtins, scorers in criteria, thresholds, inputs, datasets; nothing is stored then (G4)."""
    plugins = {"echo": echo}
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"scorers": [{"use": "exact_mach"}]}, Invalid, "did you mean exact_match"),
        ({"scorers": [{"use": "exact_match", "settings": {"ignore_cas": True}}]}, Invalid, "ignore_cas"),
        ({"scorers": [{"use": "exact_match"}, {"use": "exact_match"}]}, Invalid, "both 'exact_match' with the same"),
        ({"scorers": [{"use": "exact_match", "threshold": {"other": 1}}]}, Invalid, "declares no score 'other'"),
        ({"scorers": [{"use": "exact_match", "map": {"outputs": "output.content"}}]}, Invalid, "takes no input"),
        ({"criteria": [{"metric": "mean", "scorer": "exact", "min": 1}]}, Invalid, "exact"),
        ({"criteria": [{"metric": "mean", "baseline": "r123456", "max_drop": 0.1}]}, Invalid, "baseline"),
        ({"dataset": {"name": "nowhere"}}, NotFound, "nowhere"),
        ({"target": {"use": "ecko"}}, Invalid, "there is no builtin target 'ecko'; did you mean echo?"),
    ]
    async with desk(tmp_path, numbered(3)) as d:
        for more, kind, says in refused:
            with pytest.raises(kind, match=says):
                await d.run(plugins, **more)
        assert d.rows("SELECT count(*) FROM run") == [(0,)]


async def test_a_target_that_no_name_leads_to_is_reached_by_command_or_address(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        with pytest.raises(Invalid) as caught:
            await d.run({}, target={"use": "gpt"})
    assert str(caught.value) == (
        "target.use: there is no builtin target 'gpt'; say how the target is reached: command, such as "
        "[python, target.py], or address"
    )


async def test_two_uses_of_one_scorer_are_named_by_what_differs(tmp_path: Path):
    """Two columns with stable names that show it (AG-14)."""
    async with desk(tmp_path, numbered(2)) as d:
        run = await d.run(
            {"echo": echo},
            scorers=[
                {"use": "levenshtein", "threshold": 0.5},
                {"use": "levenshtein", "threshold": 0.9},
                {"use": "includes"},
                {"use": "includes", "settings": {"ignore_case": False}},
            ],
        )

        assert [key.key for key in run.score_keys] == [
            "levenshtein[threshold=0.5]",
            "levenshtein[threshold=0.9]",
            "includes[ignore_case=true]",
            "includes[ignore_case=false]",
        ]


async def test_several_scores_of_a_scorer_have_keys_of_their_own(tmp_path: Path):
    """`scorer.score`; a double name is an error of the item, as is a missing one (O1, AG-14)."""
    declared = [ScoreDeclaration("a"), ScoreDeclaration("b")]

    def both(item: Item, output: Output) -> list[Score]:
        names = {"i0": ("a", "b"), "i1": ("a", "a"), "i2": ("a",)}[item.id]
        return [Score.scored(1.0, name=name) for name in names]

    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run({"echo": echo, "both": scorer_plugin("both", scores=declared)(both)})
        results = d.store.results(run, outcomes=(), item_glob="")

        assert [key.key for key in run.score_keys] == ["both.a", "both.b"]
        assert [result.outcome for result in results] == [Outcome.PASSED, Outcome.ERRORED, Outcome.ERRORED]
        assert results[2].scores[0].score.value == 1.0


async def test_the_plan_stores_nothing(tmp_path: Path):
    """validate_only: what would be done, by whom, with which score keys."""
    async with desk(tmp_path, numbered(5)) as d:
        plugins = {"echo": echo, "exact_match": BUILTINS["exact_match"]}
        plan = await d.runs.plan(d.experiment(plugins, epochs=2), given=plugins)

        assert (plan.items, plan.trials, [info.name for info in plan.plugins]) == (5, 10, ["echo", "exact_match"])
        assert [key.key for key in plan.keys] == ["exact_match"]
        assert d.rows("SELECT count(*) FROM run") == [(0,)]


async def test_a_write_that_fails_ends_the_run_and_asks_nothing_more(tmp_path: Path):
    """ABORTED with the reason, and no new target calls (ST-06, ST-07)."""
    calls = 0

    async def count(item: Item) -> str:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        return "x"

    async with desk(tmp_path, numbered(5000)) as d:
        run = await d.runs.start(d.experiment(target_of(count), limits={"concurrency": 4}), given=target_of(count))
        await asyncio.sleep(0.3)
        d.path.unlink()
        ended = await asyncio.wait_for(d.runs.wait(run.id), 60)
        after = calls
        await asyncio.sleep(0.2)

        assert ended.state is RunState.ABORTED
        assert ended.reason.startswith("DATABASE_LOST")
        assert calls == after


async def test_functions_of_this_process_are_held_to_the_contract(tmp_path: Path):
    """A lone surrogate and an output over the limit are failures of their trials, and never reach the store (PL-03)."""

    def odd(item: Item) -> str:
        return {"i0": "bad \ud800 text", "i1": "x" * 3_000_000, "i2": "fine"}[item.id]

    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run(target_of(odd), limits={"retries": 0})
        results = d.store.results(run, outcomes=(), item_glob="")

        assert [result.outcome for result in results] == [Outcome.ERRORED, Outcome.ERRORED, Outcome.PASSED]
        assert [result.failure.reason for result in results if result.failure] == ["NOT_UNICODE", "MESSAGE_TOO_LARGE"]


async def test_usage_is_summed_over_all_attempts(tmp_path: Path):
    """Of the target, retries included, and of scorers."""
    tries = 0

    def costly(item: Item) -> Output:
        nonlocal tries
        tries += 1
        return Output("x", usage=Usage(10, 1, calls=1))

    judge = scorer_plugin("judge")(lambda item, output: Score.scored(1.0, usage=Usage(5, 2, calls=1)))
    async with desk(tmp_path, numbered(4)) as d:
        run = await d.run({**target_of(costly), "judge": judge})
        summary = await d.runs.summary(run.id)

        assert summary.usage == Usage(60, 12, calls=8)


def test_failures_are_values():
    """A failure made by hand has what the rules need."""
    assert Failure(FailureCategory.BUDGET, "spent").category.name == "BUDGET"


async def test_a_resumed_run_asks_only_what_is_missing(tmp_path: Path):
    """Stopped in the middle: stored outputs are not asked again, unscored ones are scored, each trial ends once (RC-07)."""
    calls: list[str] = []
    hold = asyncio.Event()

    async def answer(item: Item) -> str:
        calls.append(item.id)
        await asyncio.sleep(0.005)
        return item.id

    async def judge(item: Item, output: Output) -> float:
        if not hold.is_set() and int(item.id[1:]) >= 20:
            await asyncio.sleep(30)
        return 1.0

    plugins = {**target_of(answer), "judge": scorer_plugin("judge")(judge)}
    async with desk(tmp_path, numbered(200)) as d:
        experiment = d.experiment(plugins, limits={"concurrency": 4}, epochs=2)
        run = await d.runs.start(experiment, given=plugins)
        while d.store.output_count(run) < 100:
            await asyncio.sleep(0.01)
        await d.runs.stop(run.id, grace=0.05)
        halted = d.store.run(run.id)
        asked_before = len(calls)
        outputs_before = d.store.output_count(run)
        assert halted.state is RunState.INTERRUPTED
        assert 0 < halted.counts.done < outputs_before
        d.store.publish("d", [[Item("i0", "changed")]])  # RC-09: the run keeps its version

        hold.set()
        await d.runs.resume(run.id, given=plugins)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.passed, ended.session) == (RunState.COMPLETED, 400, 2)
        assert len(calls) - asked_before == 400 - outputs_before
        assert d.rows("SELECT count(*), count(DISTINCT trial) FROM output") == [(400, 400)]
        assert d.rows("SELECT count(*) FROM result") == [(400,)]
        assert d.store.counts(ended) == ended.counts


class Meter:
    """Plugins whose every attempt takes one token, and that fail for as long as they are told to."""

    def __init__(self, failing: str, retry_after: float) -> None:
        self.spent = 0
        self.failures = 0
        self.failing = failing
        self._retry_after = retry_after

    def attempt(self, who: str, ctx: Any) -> Usage:
        self.spent += 1
        ctx.progress(usage=Usage(1))
        if who == self.failing:
            self.failures += 1
            raise TrialFailed("not now", FailureCategory.UNAVAILABLE, retry_after=self._retry_after)
        return Usage(1)

    @property
    def plugins(self) -> dict[str, Any]:
        async def answer(item: Item, ctx: Any) -> Output:
            return Output("x", usage=self.attempt("target", ctx))

        async def judge(item: Item, output: Output, ctx: Any) -> Score:
            return Score.scored(1.0, usage=self.attempt("judge", ctx))

        answer.__annotations__ = {"item": "Item", "ctx": "Context", "return": "Output"}
        judge.__annotations__ = {"item": "Item", "output": "Output", "ctx": "Context", "return": "Score"}
        return {**target_of(answer), "judge": scorer_plugin("judge")(judge)}


@pytest.mark.parametrize("failing", ["target", "judge"])
@pytest.mark.parametrize("how", ["pause", "cancel", "stop", "close"])
async def test_what_failed_attempts_took_is_counted_after_a_resume(tmp_path: Path, failing: str, how: str):
    """All wait for a retry when the run is stopped: their attempts are stored, and no number of one comes twice (O6)."""
    meter = Meter(failing, retry_after=200.0)
    async with desk(tmp_path, numbered(30)) as d:
        experiment = d.experiment(meter.plugins, limits={"tokens": 10_000})
        run = await d.runs.start(experiment, given=meter.plugins)
        async with asyncio.timeout(60):
            while meter.failures < 30:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            match how:
                case "pause":
                    d.runs.pause(run.id)
                case "cancel":
                    d.runs.cancel(run.id)
                case "stop":
                    await d.runs.stop(run.id, grace=30.0)
                case "close":
                    await d.runs.close(grace=0.0)
            halted = await d.runs.wait(run.id)
        assert halted.counts.pending == 30
        role = -1 if failing == "target" else 0
        assert d.rows("SELECT role, attempt, input_tokens FROM attempt") == [(role, 1001, 1)] * 30
        assert (await d.store.spent(halted, "USD")).tokens == meter.spent

        meter.failing = ""
        await d.runs.resume(run.id, given=meter.plugins)
        ended = await d.runs.wait(run.id)
        summary = await d.runs.summary(run.id)

        assert (ended.state, ended.counts.passed) == (RunState.COMPLETED, 30)
        assert summary.usage is not None
        assert summary.usage.input_tokens == meter.spent
        assert (await d.store.spent(ended, "USD")).tokens == meter.spent
        results = d.store.results(ended)
        assert {result.attempts for result in results} == {2 if failing == "target" else 1}


async def test_progress_of_a_resumed_run_starts_at_what_is_done(tmp_path: Path):
    """It never falls, and ends at the total (RC-12)."""

    async def answer(item: Item) -> str:
        await asyncio.sleep(0.002)
        return "x"

    plugins = target_of(answer)
    async with desk(tmp_path, numbered(200)) as d:
        run = await d.runs.start(d.experiment(plugins, limits={"concurrency": 2}), given=plugins)
        while d.runs.get(run.id).counts.done < 40:
            await asyncio.sleep(0.005)
        await d.runs.stop(run.id)
        done = d.store.run(run.id).counts.done
        after = d.store.run(run.id).last_sequence
        await d.runs.resume(run.id, given=plugins)

        seen = [event.fact.counts async for event in d.runs.watch(run.id, after) if isinstance(event, Event)]

        dones = [counts.done for counts in seen]
        assert dones[0] == done
        assert dones == sorted(dones)
        assert dones[-1] == 200
        assert all(counts.done + counts.pending == counts.planned == 200 for counts in seen)


async def test_a_paused_run_finishes_what_is_in_flight_and_goes_on_when_resumed(tmp_path: Path):
    """PAUSED has no verdict, and watchers stay with it."""
    gate = Gate()
    plugins = target_of(gate.answer)
    async with desk(tmp_path, numbered(40)) as d:
        run = await d.runs.start(d.experiment(plugins, limits={"concurrency": 4}), given=plugins)
        await until(lambda: gate.asked == 4)
        d.runs.pause(run.id)
        gate.open.set()
        paused = await d.runs.wait(run.id)
        assert (paused.state, paused.verdict, paused.counts.passed) == (RunState.PAUSED, None, 4)
        assert paused.partial
        assert d.runs.pause(run.id).state is RunState.PAUSED

        await d.runs.resume(run.id, given=plugins)
        ended = await d.runs.wait(run.id)

        assert (ended.state, ended.counts.passed) == (RunState.COMPLETED, 40)


@pytest.mark.parametrize("end", ["pause", "stop"])
async def test_a_halted_run_says_how_many_outputs_scorers_were_not_asked_about(tmp_path: Path, end: str):
    """Or it would look as if the target had answered nothing."""
    gate, judged = Gate(), 0

    @scorer_plugin("judge")
    async def judge(item: Item, output: Output) -> float:
        nonlocal judged
        judged += 1
        return 1.0

    plugins = {**target_of(gate.answer), "judge": judge}
    async with desk(tmp_path, numbered(40)) as d:
        run = await d.runs.start(d.experiment(plugins, limits={"concurrency": 4}), given=plugins)
        await until(lambda: gate.asked == 4)
        if end == "pause":
            d.runs.pause(run.id)
        else:
            stopping = asyncio.ensure_future(d.runs.stop(run.id, grace=60.0))
            await until(lambda: d.runs._floor.working[run.id].asked_to_end.is_set())
        gate.open.set()
        halted = await d.runs.wait(run.id)

        assert halted.reason in (
            "PAUSED: on request; 4 outputs are stored and not scored",
            "INTERRUPTED: stopped before it was done; 4 outputs are stored and not scored",
        )
        assert (halted.counts.done, judged) == (0, 0)
        if end == "stop":
            await stopping
        await d.runs.resume(run.id, given=plugins)
        ended = await d.runs.wait(run.id)
        assert (ended.state, ended.reason, ended.counts.passed, gate.asked) == (RunState.COMPLETED, "", 40, 40)


async def test_what_cannot_be_resumed_is_refused(tmp_path: Path):
    """A finished run, one at work, and one whose plugin is another build now."""

    def answer(item: Item) -> str:
        raise TrialFailed.invalid("no")

    first = {"t": target_plugin("t", version="1.0.0")(answer)}
    second = {"t": target_plugin("t", version="2.0.0")(lambda item: "x")}
    async with desk(tmp_path, numbered(10)) as d:
        run = await d.run(first, limits={"max_errors": 2, "concurrency": 1})
        assert run.state is RunState.ABORTED

        with pytest.raises(Unfit, match="another version") as caught:
            await d.runs.resume(run.id, given=second)
        assert caught.value.reason is Reason.PLUGIN_CHANGED

        await d.runs.resume(run.id, given=second, accept_changed=True)
        with pytest.raises(Unfit, match="what can be resumed"):
            await d.runs.resume(run.id, given=second)
        ended = await d.runs.wait(run.id)
        assert (ended.state, ended.counts.errored, ended.counts.passed) == (
            RunState.COMPLETED,
            run.counts.errored,
            10 - run.counts.errored,
        )
        with pytest.raises(Unfit, match="COMPLETED") as caught:
            await d.runs.resume(run.id, given=second)
        assert caught.value.reason is Reason.RUN_NOT_RESUMABLE


@pytest.mark.parametrize(("word", "state"), [("cancel", RunState.CANCELLED), ("pause", RunState.PAUSED)])
async def test_a_run_that_waits_for_its_turn_ends_at_once_when_it_is_asked_to(
    tmp_path: Path, word: str, state: RunState
):
    """Nobody waits for those before it, and its turn is not lost to those behind it."""
    gate = asyncio.Event()

    async def answer(item: Item) -> str:
        await gate.wait()
        return "x"

    plugins = target_of(answer)
    async with desk(tmp_path, numbered(3)) as d:
        d.runs._floor.turns = asyncio.Semaphore(1)
        first, second, third = [await d.runs.start(d.experiment(plugins), given=plugins) for _ in range(3)]
        await until(lambda: d.store.run(first.id).state is RunState.RUNNING)
        assert d.store.run(second.id).state is RunState.QUEUED

        getattr(d.runs, word)(second.id)
        ended = await asyncio.wait_for(d.runs.wait(second.id), 60)

        assert (ended.state, ended.counts.pending) == (state, 3)
        assert d.store.run(first.id).state is RunState.RUNNING
        assert d.store.run(third.id).state is RunState.QUEUED
        gate.set()
        assert (await asyncio.wait_for(d.runs.wait(third.id), 60)).state is RunState.COMPLETED
        await d.runs.resume(second.id, given=plugins)
        assert (await asyncio.wait_for(d.runs.wait(second.id), 60)).state is RunState.COMPLETED
        assert d.runs._floor.turns._value == 1


async def test_a_run_whose_baseline_was_deleted_can_still_be_read(tmp_path: Path):
    """Its criterion has no answer, and says why."""
    async with desk(tmp_path, numbered(3)) as d:
        plugins = {"echo": echo, "exact_match": BUILTINS["exact_match"]}
        baseline = await d.run(plugins)
        criteria = [{"metric": "mean", "scorer": "exact_match", "baseline": baseline.id, "max_drop": 0.1}]
        run = await d.run(plugins, criteria=criteria)
        assert run.verdict is Verdict.PASS

        await d.runs.delete(baseline.id)

        for summary in (await d.runs.summary(run.id), read_summary(d.store, run)):
            assert "is not there" in summary.criteria[0].explanation
            assert summary.criteria[0].outcome is Verdict.INCONCLUSIVE


async def test_progress_goes_on_from_what_is_done_and_reaches_the_end_with_errors(tmp_path: Path):
    """Also what failed in an earlier session needs no answer any more (RC-12)."""
    gate = asyncio.Event()

    async def some(item: Item) -> str:
        number = int(item.id[1:])
        if number >= 10 or again:
            await gate.wait()
        if number < 5:
            raise TrialFailed.invalid("no")
        return "x"

    again = False
    async with desk(tmp_path, numbered(20)) as d:
        plugins = target_of(some)
        run = await d.runs.start(d.experiment(plugins, limits={"concurrency": 4}), given=plugins)
        await until(lambda: d.store.run(run.id).counts.done == 10)
        assert d.runs.progress(run.id).answered == 10
        await d.runs.stop(run.id, grace=0)
        working = d.runs._floor.working

        await d.runs.resume(run.id, given=plugins)
        await until(lambda: d.runs.progress(run.id) is not None)
        line = working[run.id].line
        assert line is not None and line.progress().answered == 10
        gate.set()
        ended = await d.runs.wait(run.id)

        assert (ended.counts.passed, ended.counts.errored, line.progress().answered) == (15, 5, 20)

        again = True
        gate.clear()
        await d.runs.retry(run.id, given=plugins)
        await until(lambda: d.runs.progress(run.id) is not None)
        line = working[run.id].line
        assert line is not None and line.progress().answered == 15
        gate.set()
        await d.runs.wait(run.id)
        assert line.progress().answered == 20


async def test_progress_of_outputs_that_the_dataset_brings_reaches_the_end(tmp_path: Path):
    brought = [Item(f"i{n}", "q", "a", output=Output("a") if n else None) for n in range(10)]
    gate = asyncio.Event()

    async def wait(item: Item, output: Output) -> float:
        await gate.wait()
        return 1.0

    async with desk(tmp_path, brought) as d:
        plugins = {"wait": scorer_plugin("wait")(wait)}
        run = await d.runs.start(d.experiment(plugins), given=plugins)
        await until(lambda: d.runs.progress(run.id) is not None)
        line = d.runs._floor.working[run.id].line
        gate.set()
        await d.runs.wait(run.id)

        assert line is not None and line.progress().answered == 10


async def test_who_cancels_a_run_that_is_being_interrupted_has_cancelled_it(tmp_path: Path):
    """It is not to be found INTERRUPTED, and go on by itself when a server comes back."""

    async def asleep(item: Item) -> str:
        await asyncio.sleep(3600)
        return "x"

    async with desk(tmp_path, numbered(3)) as d:
        plugins = target_of(asleep)
        run = await d.runs.start(d.experiment(plugins), given=plugins)
        await until(lambda: (going := d.runs.progress(run.id)) is not None and going.in_flight == 3)
        stopping = asyncio.create_task(d.runs.stop(run.id, grace=3600.0))
        await asyncio.sleep(0)
        d.runs.cancel(run.id)
        await stopping

        assert d.store.run(run.id).state is RunState.CANCELLED


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)
