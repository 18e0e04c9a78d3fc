"""What other systems say of whole runs, as recorded from them, beside what ours says of the same run.

Each row is held here by its words. Where we differ, the row says why.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evalbus import Item, Output, Score
from evalbus import scorer as scorer_plugin
from evalbus_server.errors import Invalid, Reason, Unfit
from evalbus_server.model.bounds import Limits
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Run, RunState, Verdict
from evalbus_server.runner.limits import Watchdog
from tests.unit.server.runner.test_runs import desk, numbered, target_of, until

# --- limits of errors: they end a run at the limit, ours once it is passed --------------------------------------------


class ErrorLimit(NamedTuple):
    """A row: so many errors in so many answers under a limit, and whether their run fails."""

    errors: int
    total: int
    theirs: object
    fails: bool
    ours: object
    """The same limit in our words."""
    differs: str = ""


ERROR_LIMITS = [
    ErrorLimit(1, 10, None, True, 0),
    ErrorLimit(9, 10, False, False, None),
    ErrorLimit(1, 10, 0.1, True, "10%", "as many as the limit allows are allowed"),
    ErrorLimit(1, 10, 0.2, False, "20%"),
    ErrorLimit(2, 10, 0.2, True, "20%", "as many as the limit allows are allowed"),
    ErrorLimit(3, 10, 0.2, True, "20%"),  # one of ours: passed is passed
    ErrorLimit(1, 10, 1, True, 0),
    ErrorLimit(1, 10, 2, False, 1),
    ErrorLimit(0, 10, 0.0, True, "0%", "nothing has failed"),
    ErrorLimit(1, 0, 0.5, True, "50%", "there is no error without an answer"),
]


@pytest.mark.parametrize("row", ERROR_LIMITS, ids=str)
def test_a_limit_of_errors_ends_a_run_once_it_is_passed(row: ErrorLimit) -> None:
    """Ten times as many of each, since a share says nothing before the twentieth answer; a count is as it is."""
    ended: list[str] = []
    limits = Limits.model_validate({} if row.ours is None else {"max_errors": row.ours})
    scale = 10 if isinstance(row.ours, str) else 1
    watchdog = Watchdog(limits, lambda constant, sentence: ended.append(constant))

    watchdog.target_answered(row.total * scale, row.errors * scale if row.total else 0)

    assert bool(ended) is (not row.fails if row.differs else row.fails)


def test_a_limit_that_is_neither_a_count_nor_a_share_is_refused() -> None:
    """Theirs takes 2.5 for a count."""
    with pytest.raises(Exception, match="max_errors"):
        Limits.model_validate({"max_errors": 2.5})


# --- runs as a whole ------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A run and what ours says of it: state, verdict, (passed, failed, errored, skipped, pending)."""

    name: str
    scorers: dict[str, Callable[..., Any]]
    state: RunState
    verdict: Verdict
    counts: tuple[int, int, int, int, int]
    means: dict[str, float | None]
    more: dict[str, Any] = {}  # noqa: RUF012  # never changed
    breaks: frozenset[str] = frozenset()
    differs: str = ""


def one(item: Item, output: Output) -> float:
    return 1.0


def zero(item: Item, output: Output) -> float:
    return 0.0


def broken(item: Item, output: Output) -> float:
    raise ValueError("broken")


def empty(item: Item, output: Output) -> Score | None:
    return None


def no_number(item: Item, output: Output) -> float:
    return math.nan


ALL = frozenset({"i0", "i1", "i2"})
DONE = RunState.COMPLETED
CASES = [
    Case("3 items, no scorers", {}, DONE, Verdict.PASS, (3, 0, 0, 0, 0), {}),
    Case(
        "a mean that nothing makes", {}, DONE, Verdict.INCONCLUSIVE, (3, 0, 0, 0, 0), {},
        {"criteria": [{"metric": "mean", "min": 0}]}, differs="theirs misses the criterion; a number is missing, nothing failed",
    ),
    Case("the target breaks on one item", {"s": one}, DONE, Verdict.INCONCLUSIVE, (2, 0, 1, 0, 0), {"s": 1.0}, breaks=frozenset({"i1"})),
    Case(
        "a scorer below its threshold beside one that breaks", {"f": zero, "e": broken}, DONE, Verdict.INCONCLUSIVE, (0, 0, 3, 0, 0),
        {"f": 0.0, "e": None}, {"scorers": [{"use": "f", "threshold": 1}, {"use": "e"}]},
    ),
    Case(
        "a scorer that returns nothing", {"n": empty}, DONE, Verdict.INCONCLUSIVE, (0, 0, 3, 0, 0), {"n": None},
        {"scorers": [{"use": "n", "threshold": 0.5}]}, differs="theirs passes; a declared score that is missing is ERRORED (O1)",
    ),
    Case(
        "a scorer that returns NaN", {"n": no_number}, DONE, Verdict.INCONCLUSIVE, (0, 0, 3, 0, 0), {"n": None},
        {"scorers": [{"use": "n", "threshold": 0.5}]}, differs="theirs fails the items and makes the mean NaN; NaN is never stored (O3)",
    ),
    Case("every item breaks", {"s": one}, DONE, Verdict.INCONCLUSIVE, (0, 0, 3, 0, 0), {"s": None}, breaks=ALL, differs="theirs is a failed run; ours did all it could, and says that nothing is known"),
    Case("a threshold that the scorer misses", {"m": zero}, DONE, Verdict.FAIL, (0, 3, 0, 0, 0), {"m": 0.0}, {"scorers": [{"use": "m", "threshold": 0.5}]}, differs="theirs loses the threshold, and passes"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_run_ends_as_the_rules_say(tmp_path: Path, case: Case) -> None:
    def answer(item: Item) -> str:
        if item.id in case.breaks:
            raise ValueError("bad")
        return item.input.text

    plugins = {**target_of(answer), **{name: scorer_plugin(name)(each) for name, each in case.scorers.items()}}
    async with desk(tmp_path, numbered(3)) as d:
        run: Run = await d.run(plugins, limits={"retries": 0}, **case.more)
        summary = await d.runs.summary(run.id)

    counts = run.counts
    assert (run.state, run.verdict) == (case.state, case.verdict)
    assert (counts.passed, counts.failed, counts.errored, counts.skipped, counts.pending) == case.counts
    assert {score.key: score.mean for score in summary.scores} == case.means
    judged = counts.passed + counts.failed + counts.errored
    assert summary.pass_rate == pytest.approx(counts.passed / judged)


async def test_a_run_over_nothing_is_refused(tmp_path: Path) -> None:
    """One of them calls it a success, the other refuses it as we do (G4)."""
    async with desk(tmp_path, numbered(3)) as d:
        with pytest.raises(Unfit) as caught:
            await d.run(target_of(lambda item: "x"), dataset={"name": "d", "items": ["none"]})
    assert caught.value.reason is Reason.NOTHING_TO_RUN


async def test_a_run_that_is_cancelled_at_its_start_leaves_all_trials_pending(tmp_path: Path) -> None:
    """Theirs is a failed run with three skipped items."""
    plugins = target_of(lambda item: "x")
    async with desk(tmp_path, numbered(3)) as d:
        run = await d.runs.start(d.experiment(plugins), given=plugins)
        d.runs.cancel(run.id)
        ended = await d.runs.wait(run.id)
    assert (ended.state, ended.verdict, ended.counts.pending) == (RunState.CANCELLED, Verdict.INCONCLUSIVE, 3)


async def test_an_item_that_takes_too_long_is_errored(tmp_path: Path) -> None:
    """Theirs lets a task in its own process take all the time it wants."""

    async def asleep(item: Item) -> str:
        await asyncio.sleep(3600)
        return "x"

    async with desk(tmp_path, numbered(3)) as d:
        run = await d.run(target_of(asleep), limits={"timeout": "20ms", "retries": 0})
    assert (run.state, run.counts.errored) == (RunState.COMPLETED, 3)


@pytest.mark.parametrize("limit", [-1, "2", "abc", 2.5])
def test_a_limit_of_items_that_is_no_count_is_refused(limit: object) -> None:
    """One of them takes these for no limit, for 2, for no limit, and for 2."""
    with pytest.raises(Invalid, match=r"dataset\.limit"):
        Experiment.parse({"name": "e", "dataset": {"name": "d", "limit": limit}})


# --- the base of a share of errors (RC-11) --------------------------------------------------------------------------


async def test_a_share_of_errors_is_one_of_this_session(tmp_path: Path) -> None:
    """60 good answers of an earlier session do not hide that the next 20 all fail; that is also what the reason says."""
    fail = False

    async def answer(item: Item) -> str:
        if fail:
            raise ValueError("bad")
        if int(item.id[1:]) >= 60:
            await asyncio.sleep(3600)
        return "x"

    plugins = target_of(answer)
    async with desk(tmp_path, numbered(100)) as d:
        limits = {"max_errors": "15%", "concurrency": 1, "retries": 0}
        run = await d.runs.start(d.experiment(plugins, limits=limits), given=plugins)
        async with asyncio.timeout(60):
            while d.store.run(run.id).counts.done < 60:
                await asyncio.sleep(0.01)
        await d.runs.stop(run.id, grace=0.0)
        fail = True
        await d.runs.resume(run.id, given=plugins)
        ended = await d.runs.wait(run.id)

    assert (ended.state, ended.counts.passed) == (RunState.ABORTED, 60)
    assert ended.reason.startswith("MAX_ERRORS: 20 errors of target in 20 answers of this session")


# --- errors, retries and resuming, as whole runs of inspect_ai have them ----------------------------------------------


class Failing:
    """A target that fails on one of four items as often as it is told, and counts its calls."""

    def __init__(self, item: str, times: int) -> None:
        self.item, self.times = item, times
        self.calls: Counter[str] = Counter()

    def answer(self, item: Item) -> str:
        self.calls[item.id] += 1
        if item.id == self.item and self.calls[item.id] <= self.times:
            raise ValueError("boom")
        return item.input.text


@pytest.mark.parametrize(
    ("limits", "state", "errored", "calls"),
    [
        ({"retries": 0}, DONE, 1, 1),  # fail_on_error: false
        ({"retries": 0, "max_errors": 2}, DONE, 1, 1),  # fail_on_error: 2
        ({"retries": 0, "max_errors": 0, "concurrency": 1}, RunState.ABORTED, 1, 1),  # their default
        ({"retries": 0, "max_errors": "25%"}, DONE, 1, 1),  # theirs fails: ours says nothing before 20 answers
        (
            {"retries": 1},
            DONE,
            1,
            2,
        ),  # theirs fails: an error that stays is a result of ours, unless max_errors says so
        ({"retries": 2}, DONE, 0, 3),
    ],
)
async def test_an_error_is_tried_again_and_what_stays_is_errored(
    tmp_path: Path, limits: dict[str, Any], state: RunState, errored: int, calls: int
) -> None:
    """e2e.sample_error, where an item fails twice. Their score_on_error has no like: who fails is not judged (O1)."""
    failing = Failing("i1", 2)
    async with desk(tmp_path, numbered(4)) as d:
        run = await d.run({**target_of(failing.answer), "s": scorer_plugin("s")(one)}, limits=limits)
        attempts = d.rows("SELECT attempts FROM result WHERE position = 1")

    assert (run.state, run.counts.errored, failing.calls["i1"]) == (state, errored, calls)
    assert attempts == [(calls,)]
    assert all(count == 1 for id, count in failing.calls.items() if id != "i1")


async def test_only_what_failed_is_asked_again(tmp_path: Path) -> None:
    """e2e.eval_retry and e2e.eval_set, in the same run instead of in a new one; a second time there is nothing to do."""
    failing = Failing("i2", 1)
    plugins = target_of(failing.answer)
    async with desk(tmp_path, numbered(4)) as d:
        run = await d.run(plugins, limits={"retries": 0})
        assert (run.state, run.counts.errored) == (DONE, 1)
        await d.runs.retry(run.id, given=plugins)
        again = await d.runs.wait(run.id)
        with pytest.raises(Unfit) as caught:
            await d.runs.retry(run.id, given=plugins)

    assert (again.state, again.counts.passed) == (DONE, 4)
    assert failing.calls == Counter({"i0": 1, "i1": 1, "i2": 2, "i3": 1})
    assert caught.value.reason is Reason.NOTHING_TO_RUN


async def test_more_epochs_are_a_run_of_their_own_that_need_not_ask_for_the_first(tmp_path: Path) -> None:
    """e2e.eval_set.more_epochs adds epochs to what is there; ours never changes a run, but remembers its answers."""
    failing = Failing("", 0)
    plugins = target_of(failing.answer, version="1.0.0")
    async with desk(tmp_path, numbered(4)) as d:
        await d.run(plugins, cache=True)
        run = await d.run(plugins, cache=True, epochs=2)

    assert (run.state, run.counts.passed) == (DONE, 8)
    assert set(failing.calls.values()) == {2}


async def test_a_run_with_trials_left_over_is_not_done(tmp_path: Path) -> None:
    """expt_status_from_items: all done is a success and left-overs are none; one that failed for good fails theirs."""
    gate = asyncio.Event()

    async def answer(item: Item) -> str:
        if item.id == "i1":
            await gate.wait()
        return "x"

    plugins = target_of(answer)
    async with desk(tmp_path, numbered(2)) as d:
        run = await d.runs.start(d.experiment(plugins), given=plugins)
        await until(lambda: d.store.run(run.id).counts.done == 1)
        await d.runs.stop(run.id, grace=0)
        left = d.store.run(run.id)
        gate.set()
        await d.runs.resume(run.id, given=plugins)
        done = await d.runs.wait(run.id)

    assert (left.state, left.verdict, left.counts.pending) == (RunState.INTERRUPTED, Verdict.INCONCLUSIVE, 1)
    assert (done.state, done.verdict, done.counts.pending) == (DONE, Verdict.PASS, 0)
