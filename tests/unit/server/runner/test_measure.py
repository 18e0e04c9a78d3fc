"""Numbers over all trials of a run: made once at its end, stored, shown by every summary, and judged by criteria."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from evalbus import (
    Item,
    MetricValue,
    Output,
    Score,
    ScoreDeclaration,
    Scorer,
    TrialFailed,
    metric,
    scorer,
    target,
)
from evalbus_server.app import read_summary
from evalbus_server.errors import Invalid
from evalbus_server.model.run import RunState, Verdict
from evalbus_server.model.summary import ScoreSummary
from evalbus_server.runner import measure
from evalbus_server.scorer.builtin import BUILTINS
from tests.unit.server.runner.test_runs import Desk, desk, until

LABELS = ["yes", "no", "maybe"]


def questions(count: int) -> list[Item]:
    """Of which every fifth is answered wrongly."""
    return [
        Item(f"i{n}", f"{LABELS[(n + (n % 5 == 0)) % 3]}", LABELS[n % 3], metadata={"human": n % 7})
        for n in range(count)
    ]


@target("echo", mode="inline")
def echo(item: Item) -> str:
    return item.input.text


@metric("total", minimum=0)
def total(rows) -> float:
    return math.fsum(row.value for row in rows)


@metric("items", minimum=0, maximum=1_000_000)
def items(rows) -> MetricValue:
    named = [(row.item_id, row.epoch) for row in rows]
    assert named == sorted(named, key=lambda each: (int(each[0][1:]), each[1]))
    assert all(row.answer is not None and row.expected is not None for row in rows)
    return MetricValue(len({item for item, _ in named}), f"{len(rows)} rows")


def rating(*metrics: Any, **options: Any) -> Scorer[..., Any]:
    @scorer("rating", version="1.0.0", mode="inline", metrics=metrics, **options)
    def rate(item: Item, output: Output) -> Score:
        number = int(item.id[1:])
        if number % 11 == 10:
            return Score.skipped("not this one")
        if number % 11 == 9:
            raise TrialFailed.invalid("nor this one")
        return Score.scored(number % 7 / 7)

    return rate


async def summary_of(d: Desk, run: Any) -> dict[str, ScoreSummary]:
    """The scores as the summary has them: live, and the same when the file is read by somebody else."""
    live = await d.runs.summary(run.id)
    assert read_summary(d.store, d.store.run(run.id)).scores == live.scores
    return {score.key: score for score in live.scores}


def numbers(score: ScoreSummary) -> dict[str, float | None]:
    return {each.name: each.value for each in score.metrics}


def scorers(*metrics: Any, use: str = "exact_match", **more: Any) -> dict[str, Any]:
    return {"scorers": [{"use": use, "metrics": list(metrics), **more}]}


async def test_builtin_metrics_are_made_of_all_trials(tmp_path: Path):
    async with desk(tmp_path, questions(150)) as d:
        run = await d.run(
            {"echo": echo},
            **scorers("accuracy", {"use": "f1", "settings": {"positive": "yes"}, "name": "f1_yes"}, "cohen_kappa"),
            epochs=2,
        )
        score = (await summary_of(d, run))["exact_match"]

    assert run.state is RunState.COMPLETED
    assert [each.name for each in score.metrics] == ["accuracy", "f1_yes", "cohen_kappa"]
    assert numbers(score)["accuracy"] == pytest.approx(0.8)
    assert score.metrics[0].explanation == "240 of 300 trials"
    assert numbers(score)["cohen_kappa"] == pytest.approx(0.7, abs=0.01)


async def test_a_scorers_own_metric_sees_each_score_with_a_value_in_order(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(measure, "PAGE", 7)
    judge = rating(items, total)
    async with desk(tmp_path, questions(110)) as d:
        run = await d.run({"echo": echo, "rating": judge}, **scorers("items", "total", use="rating"), epochs=2)
        score = (await summary_of(d, run))["rating"]

    valued = [n for n in range(110) if n % 11 < 9]
    assert run.counts.errored == 20
    assert numbers(score) == {"items": len(valued), "total": math.fsum([n % 7 / 7 for n in valued] * 2)}
    assert score.metrics[0].explanation == f"{2 * len(valued)} rows"


async def test_criteria_name_them(tmp_path: Path):
    criteria = [
        {"metric": "accuracy", "scorer": "exact_match", "min": 0.8},
        {"metric": "accuracy", "min": 0.9, "severity": "warn"},
    ]
    async with desk(tmp_path, questions(50)) as d:
        run = await d.run({"echo": echo}, **scorers("accuracy"), criteria=criteria)
        summary = await d.runs.summary(run.id)
        missed = await d.run({"echo": echo}, **scorers("accuracy"), criteria=[{"metric": "accuracy", "min": 0.81}])
        worse = await d.run(
            {"echo": echo},
            **scorers("accuracy"),
            criteria=[{"metric": "accuracy", "baseline": run.id, "max_drop": 0.0}],
        )

    assert run.verdict is Verdict.PASS
    assert [(each.value, each.outcome) for each in summary.criteria] == [(0.8, Verdict.PASS), (0.8, Verdict.FAIL)]
    assert missed.verdict is Verdict.FAIL
    assert worse.verdict is Verdict.PASS


async def test_a_number_without_a_value_decides_nothing(tmp_path: Path):
    async with desk(tmp_path, questions(10)) as d:
        use = {"use": "pearson", "map": {"expected": "item.metadata.nobody"}}
        run = await d.run({"echo": echo}, **scorers(use), criteria=[{"metric": "pearson", "min": 0.5}])
        summary = await d.runs.summary(run.id)
        score = (await summary_of(d, run))["exact_match"]

    assert run.state is RunState.COMPLETED
    assert run.verdict is Verdict.INCONCLUSIVE
    assert numbers(score) == {"pearson": None}
    assert "the mapped input 'expected' has no value for item 'i0': there is no item.metadata.nobody" in (
        summary.criteria[0].explanation
    )


@metric("broken")
def broken(rows):
    raise RuntimeError("no such luck")


@metric("beyond", minimum=0, maximum=1)
def beyond(rows):
    return 7.0


@metric("slow")
async def slow(rows):
    await asyncio.sleep(3600)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (broken, "RUNTIME_ERROR: RuntimeError: no such luck"),
        (beyond, "7.0 is not finite, or outside of its declared range 0 to 1"),
        (slow, "not done within 2 s"),
    ],
    ids=["broken", "beyond", "slow"],
)
async def test_a_metric_that_fails_has_no_value_and_costs_the_run_nothing(tmp_path: Path, made, said):
    limits = {"timeout": "2s", "trial_timeout": "2s"} if made is slow else {}
    async with desk(tmp_path, questions(9)) as d:
        name = made.declaration.name
        run = await d.run(
            {"echo": echo, "rating": rating(made, total)}, **scorers(name, "accuracy", use="rating"), limits=limits
        )
        score = (await summary_of(d, run))["rating"]

    assert (run.state, run.counts.passed) == (RunState.COMPLETED, 9)
    assert score.metrics[0].value is None
    assert said in score.metrics[0].explanation
    assert score.metrics[1].value is not None


async def test_whoever_ends_the_run_does_not_wait_for_a_metric(tmp_path: Path):
    begun = asyncio.Event()

    @metric("endless")
    async def endless(rows):
        begun.set()
        await asyncio.sleep(3600)

    plugins = {"echo": echo, "rating": rating(endless)}
    async with desk(tmp_path, questions(9)) as d:
        run = await d.runs.start(d.experiment(plugins, **scorers("endless", use="rating")), given=plugins)
        async with asyncio.timeout(60):
            await begun.wait()
            d.runs.cancel(run.id)
            ended = await d.runs.wait(run.id)
        score = (await summary_of(d, run))["rating"]

    assert ended.state is RunState.COMPLETED  # there was nothing left to cancel
    assert score.metrics[0].explanation == "the run was stopped while it was made"


async def test_a_run_that_is_resumed_has_the_numbers_of_one_that_was_not(tmp_path: Path):
    metrics = ("accuracy", "matthews", {"use": "spearman", "map": {"expected": "item.metadata.human"}})
    asked = 0
    gate = asyncio.Event()

    @target("gated")
    async def gated(item: Item) -> str:
        nonlocal asked
        asked += 1
        if asked > 40:
            await gate.wait()
        return item.input.text

    async with desk(tmp_path, questions(90)) as d:
        whole = await d.run({"echo": echo}, **scorers(*metrics))
        experiment = d.experiment({"gated": gated}, **scorers(*metrics))
        run = await d.runs.start(experiment, given={"gated": gated})
        async with asyncio.timeout(60):
            while asked <= 40:
                await asyncio.sleep(0.01)
            await d.runs.stop(run.id, grace=0)
        halted = (await summary_of(d, run))["exact_match"]
        gate.set()
        await d.runs.resume(run.id, given={"gated": gated})
        ended = await d.runs.wait(run.id)
        again = await d.runs.rescore(whole.id, d.experiment({}, **scorers(*metrics)))
        again = await d.runs.wait(again.id)
        found = [(await summary_of(d, each))["exact_match"].metrics for each in (whole, run, again)]

    assert halted.metrics == ()
    assert ended.state is RunState.COMPLETED
    assert found[0] == found[1] == found[2]
    assert all(each.value is not None for each in found[0])


async def test_a_retried_run_has_its_numbers_made_anew(tmp_path: Path):
    good = False

    @scorer("moody", metrics=[total])
    def moody(item: Item, output: Output) -> float:
        if item.id == "i3" and not good:
            raise TrialFailed.invalid("not now")
        return 1.0

    plugins: dict[str, Any] = {"echo": echo, "moody": moody}
    async with desk(tmp_path, questions(5)) as d:
        run = await d.run(plugins, **scorers("total", use="moody"))
        before = numbers((await summary_of(d, run))["moody"])
        good = True
        await d.runs.retry(run.id, given=plugins)
        await d.runs.wait(run.id)
        after = numbers((await summary_of(d, run))["moody"])

    assert (before, after) == ({"total": 4}, {"total": 5})


async def test_a_run_that_keeps_no_words_keeps_its_numbers_and_none_of_what_was_said_about_them(tmp_path: Path):
    @metric("quoting", minimum=0)
    def quoting(rows) -> MetricValue:
        return MetricValue(len(rows), f"such as {rows[0].answer.text}")

    plugins = {"echo": echo, "rating": rating(quoting)}
    async with desk(tmp_path, questions(9)) as d:
        run = await d.run(plugins, **scorers("quoting", "accuracy", use="rating"), keep={"outputs": False})
        score = (await summary_of(d, run))["rating"]

    assert numbers(score) == {"quoting": 9, "accuracy": pytest.approx(7 / 9)}
    assert [each.explanation for each in score.metrics] == ["", "7 of 9 trials"]


async def test_a_run_that_keeps_no_words_and_was_interrupted_has_no_number(tmp_path: Path):
    """What is left of the words would make a wrong one."""
    gate = asyncio.Event()

    @target("gated")
    async def gated(item: Item) -> str:
        if item.id == "i8":
            await gate.wait()
        return item.input.text

    async with desk(tmp_path, questions(9)) as d:
        experiment = d.experiment({"gated": gated}, **scorers("accuracy"), keep={"outputs": False})
        run = await d.runs.start(experiment, given={"gated": gated})
        async with asyncio.timeout(60):
            while d.runs.get(run.id).counts.done < 8:
                await asyncio.sleep(0.01)
            await d.runs.stop(run.id, grace=0)
        gate.set()
        await d.runs.resume(run.id, given={"gated": gated})
        await d.runs.wait(run.id)
        score = (await summary_of(d, run))["exact_match"]

    assert numbers(score) == {"accuracy": None}
    assert "not kept" in score.metrics[0].explanation


async def test_values_that_cannot_be_put_together_have_no_number(tmp_path: Path):
    @scorer("huge", scores=[ScoreDeclaration("", None, None)], mode="inline")
    def huge(item: Item, output: Output) -> float:
        return 1e308 if item.id == "i0" else -1e308

    use = {"use": "pearson", "map": {"expected": "item.metadata.human"}}
    async with desk(tmp_path, questions(4)) as d:
        run = await d.run({"echo": echo, "huge": huge}, **scorers(use, use="huge"))
        (made,) = (await summary_of(d, run))["huge"].metrics

    assert (made.value, made.explanation) == (None, "the values are too large to be put together")


async def test_several_scores_have_a_number_each(tmp_path: Path):
    declared = [ScoreDeclaration("a", maximum=None), ScoreDeclaration("b", maximum=None)]

    @scorer("two", scores=declared, metrics=[total], mode="inline")
    def two(output: Output) -> list[Score]:
        return [Score.scored(1, name="a"), Score.scored(2, name="b")]

    plugins: dict[str, Any] = {"echo": echo, "two": two}
    async with desk(tmp_path, questions(4)) as d:
        run = await d.run(plugins, **scorers("total", use="two"))
        found = await summary_of(d, run)
        experiment = d.experiment(plugins, **scorers("total", use="two"), criteria=[{"metric": "total", "min": 1}])
        with pytest.raises(Invalid, match=r"criteria\[0\].scorer: several scores have total; name one of two.a, two.b"):
            await d.runs.plan(experiment, given=plugins)

    assert {key: numbers(score) for key, score in found.items()} == {"two.a": {"total": 4}, "two.b": {"total": 8}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"metrics": ["f2x"]}, r"scorers\[0\].metrics\[0\]: there is no metric 'f2x'"),
        (
            {"metrics": [{"use": "f1", "settings": {"average": "mean"}}]},
            r"metrics\[0\].settings.average: expected one of",
        ),
    ],
)
async def test_what_does_not_fit_is_refused_before_the_run(tmp_path: Path, more, said):
    async with desk(tmp_path, questions(4)) as d:
        experiment = d.experiment({"echo": echo}, scorers=[{"use": "exact_match", **more}])
        with pytest.raises(Invalid, match=said):
            await d.runs.plan(experiment, given={"echo": echo})


async def test_a_run_without_metrics_reads_nothing_at_its_end(tmp_path: Path, monkeypatch):
    def never(*_: Any) -> None:
        raise AssertionError("must not be asked")

    async with desk(tmp_path, questions(30)) as d:
        monkeypatch.setattr(d.store, "set_metrics", never)
        monkeypatch.setattr(d.store, "results", never)
        run = await d.run({"echo": echo, "exact_match": BUILTINS["exact_match"]})
        assert (run.state, run.counts.done) == (RunState.COMPLETED, 30)


async def test_deleting_a_run_leaves_no_number_behind(tmp_path: Path):
    async with desk(tmp_path, questions(4)) as d:
        run = await d.run({"echo": echo}, **scorers("accuracy"))
        assert d.rows("SELECT count(*) FROM metric") == [(1,)]
        await d.runs.delete(run.id)
        assert d.rows("SELECT count(*) FROM metric") == [(0,)]


@pytest.mark.parametrize("how", ["limit", "cancel", "cancel paused"])
async def test_a_retry_that_ends_early_leaves_the_run_its_numbers_or_says_why_not(tmp_path: Path, how: str):
    broken, gate = True, asyncio.Event()

    async def answer(item: Item) -> str:
        if item.id == "i1" and not broken and how != "limit":
            await gate.wait()
        if item.id == "i1":
            raise TrialFailed.invalid("no")
        return "x"

    @scorer("s", metrics=[total])
    def one(item: Item, output: Output) -> float:
        return 1.0

    async with desk(tmp_path, questions(4)) as d:
        plugins: dict[str, Any] = {"t": target("t")(answer), "s": one}
        run = await d.run(plugins, scorers=[{"use": "s", "metrics": ["total"]}])
        before = (await d.runs.summary(run.id)).scores[0].metrics
        assert before[0].value == 3.0
        broken = False
        if how == "limit":
            d.runs.change_limits(run.id, {"limits.max_errors": 0})
        await d.runs.retry(run.id, given=plugins)
        if how != "limit":
            await until(lambda: (going := d.runs.progress(run.id)) is not None and going.in_flight == 1)
            if how == "cancel paused":
                d.runs.pause(run.id)
                d.runs._floor.working[run.id].line.cancel()  # type: ignore[union-attr]
                assert (await d.runs.wait(run.id)).state is RunState.PAUSED
            d.runs.cancel(run.id)
        ended = await d.runs.wait(run.id)
        after = (await d.runs.summary(run.id)).scores[0].metrics

    assert ended.state is RunState.COMPLETED
    if how == "cancel paused":  # nobody is there to make them
        assert (after[0].name, after[0].value) == ("total", None)
        assert after[0].explanation == "it was not made since the run went on"
    else:
        assert after == before


async def test_no_metric_is_shown_what_was_purged(tmp_path: Path):
    """Though the trial was judged before."""
    seen: list[str] = []

    @metric("seen", minimum=0)
    def all_of(rows) -> float:
        seen.extend(row.answer.text for row in rows)
        return float(len(seen))

    judged = asyncio.Event()
    on = asyncio.Event()

    @target("slow")
    async def slow(item: Item) -> str:
        if item.id == "i5":
            judged.set()
            await on.wait()
        return item.input.text

    async with desk(tmp_path, questions(6)) as d:
        plugins = {"slow": slow, "rating": rating(all_of)}
        asked = d.experiment(plugins, **scorers("seen", use="rating"), epochs=2, limits={"concurrency": 1})
        run = await d.runs.start(asked, given=plugins)
        await asyncio.wait_for(judged.wait(), 60)
        await until(lambda: d.rows("SELECT count(*) FROM result") == [(5,)])
        d.store.purge_items("d", ["i1"])
        on.set()
        run = await d.runs.wait(run.id)

        assert (run.counts.passed, run.counts.errored) == (11, 1)  # its first epoch was judged before
        assert len(seen) == 10
        assert "[purged]" not in seen
