"""The worker's promises: each trial answered exactly once, and none harming another."""

from __future__ import annotations

import asyncio
import collections
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from evalbus import (
    Context,
    Failure,
    FailureCategory,
    Item,
    Output,
    Score,
    ScoreTask,
    Trial,
    TrialFailed,
    Usage,
    scorer,
    target,
)
from evalbus._plugin import Answer, Open, ProgressKind, ScoreAnswer, TrialProgress
from evalbus.worker import Worker

Start = Callable[..., Any]


class Desk:
    """A worker, and what it has handed out."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.batches: list[int] = []
        self.news: list[TrialProgress] = []
        self.worker: Worker

    def deliver(self, answers: list[Any]) -> None:
        assert answers, "nothing to deliver"
        self.answers += answers
        self.batches.append(len(answers))

    def submit(self, *inputs: str, first: int = 0, **more: Any) -> None:
        self.worker.submit([trial(first + n, text, **more) for n, text in enumerate(inputs)])

    async def results(self) -> dict[int, Any]:
        """Everything that was submitted, answered once."""
        await asyncio.wait_for(self.worker.drain(), 60)
        count = collections.Counter((answer.trial_id, answer.attempt) for answer in self.answers)
        assert set(count.values()) <= {1}, "answered twice"
        return {answer.trial_id: answer.result for answer in self.answers}

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.answers) < count:
                await asyncio.sleep(0.005)

    def wait_for(self, condition: Callable[[list[TrialProgress]], bool]) -> None:
        """Block a thread of the plugin until the news are so."""
        until = time.monotonic() + 60
        while not condition(self.news) and time.monotonic() < until:
            time.sleep(0.005)


def trial(number: int, text: str = "?", **more: Any) -> Trial:
    return Trial(number, 1, Item(f"q{number}", text), **more)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    desks: list[Desk] = []

    async def begin(plugin: Any, **opening: Any) -> Desk:
        desk = Desk()
        desk.worker = Worker(
            plugin, await plugin.open(Open(**opening)), desk.deliver, lambda news: desk.news.extend(news)
        )
        desks.append(desk)
        return desk

    yield begin
    for desk in desks:
        await desk.worker.close()


def variants(work: Callable[[str, Context], Any], asynchronously: Callable[[str, Context], Any]) -> Iterable[Any]:
    """The same target in each way that a function can be run."""

    @target("threads")
    def threads(item: Item, ctx: Context) -> Any:
        return work(item.input.text, ctx)

    @target("inline", mode="inline")
    def inline(item: Item, ctx: Context) -> Any:
        return work(item.input.text, ctx)

    @target("tasks")
    async def tasks(item: Item, ctx: Context) -> Any:
        return await asynchronously(item.input.text, ctx)

    return [pytest.param(plugin, id=plugin.name) for plugin in (threads, inline, tasks)]


def work(text: str, ctx: Context) -> Any:
    match text:
        case "raise":
            raise ValueError("no")
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "cancel":
            raise asyncio.CancelledError
        case "fail":
            ctx.progress(usage=Usage(calls=4))
            raise TrialFailed.refused("will not")
        case "none":
            return None
        case "spend":
            ctx.progress(usage=Usage(calls=4))
    return text


async def work_async(text: str, ctx: Context) -> Any:
    await asyncio.sleep(random.random() / 100)
    return work(text, ctx)


any_way = pytest.mark.parametrize("plugin", variants(work, work_async))


# --- whatever way it runs ---------------------------------------------------------------------------------------


@any_way
async def test_every_trial_is_answered_once_with_its_own_result(start: Start, plugin: Any) -> None:
    desk = await start(plugin)
    for first in range(0, 1000, 100):
        desk.submit(*(f"trial {first + n}" for n in range(100)), first=first)

    assert await desk.results() == {n: Output(f"trial {n}") for n in range(1000)}
    assert desk.worker.unanswered == 0


@any_way
async def test_a_trial_that_breaks_harms_no_other(start: Start, plugin: Any) -> None:
    desk = await start(plugin)
    desk.submit("a", "raise", "exit", "b", "interrupt", "cancel", "fail", "none", "c")

    results = await desk.results()
    assert [results[n] for n in (0, 3, 8)] == [Output("a"), Output("b"), Output("c")]
    reasons = [(results[n].category, results[n].reason) for n in (1, 2, 4, 5, 6, 7)]
    internal = FailureCategory.INTERNAL
    assert reasons == [
        (internal, "VALUE_ERROR"),
        (internal, "SYSTEM_EXIT"),
        (internal, "KEYBOARD_INTERRUPT"),
        (internal, "CANCELLED_ERROR"),
        (FailureCategory.REFUSED, ""),
        (internal, "RESULT_INVALID"),
    ]
    assert "returned None" in results[7].message


@any_way
async def test_what_a_failed_trial_consumed_stands_beside_its_failure(start: Start, plugin: Any) -> None:
    desk = await start(plugin)
    desk.submit("fail", "spend")
    await desk.results()

    usage = {answer.trial_id: answer.usage for answer in desk.answers}
    assert usage == {0: Usage(calls=4), 1: None}  # with an output, the output would have it


@any_way
async def test_a_trial_that_is_held_is_not_taken_twice(start: Start, plugin: Any) -> None:
    desk = await start(plugin)
    desk.worker.submit([trial(1, "a"), trial(1, "b")])
    desk.worker.submit([trial(1, "c")])

    assert await desk.results() == {1: Output("a")}


@any_way
async def test_another_attempt_is_another_trial(start: Start, plugin: Any) -> None:
    desk = await start(plugin)
    desk.worker.submit([trial(1, "a"), Trial(1, 2, Item("q", "b"))])
    await desk.results()

    assert {answer.attempt: answer.result for answer in desk.answers} == {1: Output("a"), 2: Output("b")}


@any_way
async def test_cancels_of_unknown_and_answered_trials_are_ignored(start: Start, plugin: Any) -> None:
    desk = await start(plugin)
    desk.submit("a")
    await desk.results()
    desk.worker.cancel([(0, 1), (0, 2), (77, 1)])

    assert await desk.results() == {0: Output("a")}


@any_way
async def test_cancels_that_cross_answers_leave_one_answer_each(start: Start, plugin: Any) -> None:
    desk = await start(plugin)
    for first in range(0, 2000, 50):
        desk.submit(*["x"] * 50, first=first)
        desk.worker.cancel([(number, 1) for number in random.sample(range(first + 50), 20)])
        await asyncio.sleep(random.choice([0, 0, 0.002]))

    results = await desk.results()
    assert len(results) == 2000
    kinds = {result if isinstance(result, Output) else result.category for result in results.values()}
    assert kinds <= {Output("x"), FailureCategory.CANCELLED}


@any_way
async def test_after_closing_nothing_is_delivered(start: Start, plugin: Any) -> None:
    desk = await start(plugin)
    desk.submit(*["x"] * 50)
    await desk.worker.close()
    desk.submit("late")
    delivered = len(desk.answers)
    await asyncio.sleep(0.05)

    assert len(desk.answers) == delivered
    await desk.worker.drain()
    await desk.worker.close()


@any_way
async def test_draining_nothing_is_done_at_once(start: Start, plugin: Any) -> None:
    desk = await start(plugin)
    await asyncio.wait_for(desk.worker.drain(), 60)


async def test_a_scorer_is_answered_with_scores(start: Start) -> None:
    @scorer("s")
    async def s(item: Item, output: Output) -> float:
        return float(output.text)

    desk = await start(s)
    desk.worker.submit([ScoreTask(1, 1, Item("q"), Output("0.5")), ScoreTask(2, 1, Item("q"), Output("x"))])

    results = await desk.results()
    assert isinstance(desk.answers[0], ScoreAnswer)
    assert results[1] == (Score.scored(0.5),)
    assert results[2].reason == "VALUE_ERROR"


# --- async functions --------------------------------------------------------------------------------------------


async def test_async_trials_run_at_the_same_time_and_answer_in_their_own_order(start: Start) -> None:
    """Case PL-13: two hundred at once, each after the one behind it, the first one last."""
    turns = [asyncio.Event() for _ in range(200)]
    together = 0

    @target("reversed")
    async def reverse(item: Item) -> str:
        nonlocal together
        together += 1
        if together == 200:
            turns[199].set()
        place = int(item.input.text)
        await turns[place].wait()
        turns[place - 1].set()
        return item.id

    desk = await start(reverse)
    desk.submit(*map(str, range(200)))

    assert await desk.results() == {n: Output(f"q{n}") for n in range(200)}
    assert [answer.trial_id for answer in desk.answers] == [*range(199, -1, -1)]


async def test_what_is_ready_at_the_same_time_travels_together(start: Start) -> None:
    @target("quick")
    async def quick(item: Item) -> str:
        return ""

    desk = await start(quick)
    desk.submit(*["x"] * 500)
    await desk.results()

    assert len(desk.batches) < 10


async def test_the_time_is_up(start: Start) -> None:
    ended = []

    @target("slow")
    async def slow(item: Item, ctx: Context) -> str:
        try:
            await asyncio.sleep(float(item.input.text))
        except asyncio.CancelledError:
            ended.append((item.id, ctx.cancelled, ctx.time_remaining()))
            raise
        return "done"

    desk = await start(slow)
    before = time.monotonic()
    desk.submit("3000", remaining=1.0)
    desk.submit("0.01", remaining=1000.0, first=1)

    results = await desk.results()
    assert results[1] == Output("done")
    assert (results[0].category, results[0].message) == (FailureCategory.TIMEOUT, "not done within 1 s")
    assert ended == [("q0", True, 0.0)]
    assert 0.9 < time.monotonic() - before < 60


async def test_a_result_that_comes_after_the_time_is_not_an_answer(start: Start) -> None:
    @target("late")
    async def late(item: Item) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "too late"
        return ""

    desk = await start(late)
    desk.submit("x", remaining=0.05)

    assert (await desk.results())[0].category is FailureCategory.TIMEOUT


async def test_a_cancelled_trial_may_still_answer(start: Start) -> None:
    @target("finishes")
    async def finishes(item: Item) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "half an answer"
        return ""

    desk = await start(finishes)
    desk.submit("x")
    await asyncio.sleep(0.02)
    desk.worker.cancel([(0, 1)])

    assert await desk.results() == {0: Output("half an answer")}


async def test_a_cancelled_trial_that_ends_with_another_error_is_cancelled(start: Start) -> None:
    @target("wraps")
    async def wraps(item: Item) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            raise RuntimeError("aborted") from None
        return ""

    desk = await start(wraps)
    desk.submit("x")
    await asyncio.sleep(0.02)
    desk.worker.cancel([(0, 1)])

    assert (await desk.results())[0] == Failure(FailureCategory.CANCELLED, "cancelled before it was done")


async def test_a_trial_cancelled_before_its_first_step_is_answered(start: Start) -> None:
    @target("never")
    async def never(item: Item) -> str:
        raise AssertionError("it must not begin")

    desk = await start(never)
    desk.submit("x")
    desk.worker.cancel([(0, 1)])

    assert (await desk.results())[0].category is FailureCategory.CANCELLED


async def test_a_coroutine_that_will_not_end_is_answered_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalbus.worker.GRACE", 0.2)
    released = asyncio.Event()

    @target("stubborn")
    async def stubborn(item: Item) -> str:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    desk = await start(stubborn)
    desk.submit("x", "y", remaining=0.05)

    results = await desk.results()
    assert [result.category for result in results.values()] == [FailureCategory.TIMEOUT] * 2
    released.set()
    await asyncio.sleep(0.02)
    assert len(desk.answers) == 2


async def test_closing_cancels_what_runs(start: Start) -> None:
    ended = []

    @target("slow")
    async def slow(item: Item) -> str:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(item.id)
        return ""

    desk = await start(slow)
    desk.submit("x", "y")
    await asyncio.sleep(0.02)
    await desk.worker.close()

    assert sorted(ended) == ["q0", "q1"]


# --- sync functions in threads ----------------------------------------------------------------------------------


def sleeper(threads: int = 32) -> Any:
    @target("sleeper", threads=threads)
    def sleep(item: Item, ctx: Context) -> str:
        until = time.monotonic() + float(item.input.text)
        while time.monotonic() < until and not ctx.cancelled:
            time.sleep(0.005)
        return f"{ctx.cancelled}"

    return sleep


async def test_functions_that_block_soon_run_side_by_side(start: Start) -> None:
    together: set[int] = set()
    most = 0

    @target("blocking")
    def blocking(item: Item) -> str:
        nonlocal most
        together.add(threading.get_ident())
        most = max(most, len(together))
        time.sleep(0.1)
        together.discard(threading.get_ident())
        return ""

    desk = await start(blocking)
    desk.submit(*["x"] * 200)
    await desk.results()

    assert most > 4


async def test_no_more_threads_than_allowed(start: Start) -> None:
    seen = set()

    @target("few", threads=3)
    def few(item: Item) -> str:
        seen.add(threading.get_ident())
        time.sleep(0.02)
        return ""

    desk = await start(few)
    desk.submit(*["x"] * 60)
    await desk.results()

    assert 1 < len(seen) <= 3


async def test_functions_that_return_at_once_need_one_thread(start: Start) -> None:
    """A machine that stands still looks like a function that waits, so one good try of several will do."""
    seen: set[int] = set()

    @target("cheap")
    def cheap(item: Item) -> str:
        seen.add(threading.get_ident())
        return ""

    async def tried() -> bool:
        seen.clear()
        desk = await start(cheap)
        desk.submit(*["x"] * 2000)
        await desk.results()
        return len(seen) <= 2 and len(desk.batches) < 1000

    for _ in range(20):
        if await tried():
            return
    raise AssertionError(f"{len(seen)} threads, again and again")


async def test_one_slow_trial_does_not_hold_up_the_others(start: Start) -> None:
    desk = await start(sleeper())
    desk.submit("30", *["0"] * 50)
    await desk.until(50)

    assert {answer.trial_id for answer in desk.answers} == set(range(1, 51))


async def test_trials_that_wait_for_a_thread_are_cancelled_at_once(start: Start) -> None:
    desk = await start(sleeper(threads=1))
    desk.submit("30", "30", "0")
    async with asyncio.timeout(60):
        while not desk.news:  # that the first has begun
            await asyncio.sleep(0.005)
    desk.worker.cancel([(1, 1)])
    await desk.until(1)

    assert desk.answers[0] == Answer(1, 1, Failure(FailureCategory.CANCELLED, "cancelled before it was done"))
    desk.worker.cancel([(0, 1)])
    assert await desk.results() == {0: Output("True"), 1: desk.answers[0].result, 2: Output("False")}


async def test_a_thread_sees_that_its_time_is_up(start: Start) -> None:
    desk = await start(sleeper())
    desk.submit("30", remaining=0.1)

    results = await desk.results()
    assert results[0].category is FailureCategory.TIMEOUT


async def test_the_clock_of_a_waiting_trial_starts_when_it_begins(start: Start) -> None:
    ends: list[float] = []
    deadlines: list[float] = []

    @target("one-by-one", threads=1)
    def one_by_one(item: Item, ctx: Context) -> str:
        remaining = ctx.time_remaining() or 0.0
        deadlines.append(time.monotonic() + remaining)  # that, or a little later
        time.sleep(0.3)
        ends.append(time.monotonic())
        return ""

    desk = await start(one_by_one)
    desk.submit("first", "second", remaining=1000.0)
    await desk.results()

    assert deadlines[1] >= ends[0] + 1000.0


async def test_closing_does_not_wait_for_a_thread(start: Start) -> None:
    go = threading.Event()

    @target("blocked")
    def blocked(item: Item) -> str:
        go.wait(200)
        return ""

    desk = await start(blocked)
    desk.submit("x", "y")
    await asyncio.sleep(0.05)
    before = time.monotonic()
    await desk.worker.close()
    go.set()

    assert time.monotonic() - before < 60
    assert desk.answers == []


async def test_the_loop_stays_alive_while_threads_compute(start: Start) -> None:
    @target("busy")
    def busy(item: Item) -> str:
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            pass
        return ""

    desk = await start(busy)
    desk.submit(*["x"] * 30)
    turns = 0
    while desk.worker.unanswered:
        await asyncio.sleep(0.001)
        turns += 1

    assert turns > 1  # on the loop it would have been done before the first


async def test_idle_threads_end_with_the_worker(start: Start) -> None:
    before = set(threading.enumerate())
    desk = await start(sleeper())
    desk.submit(*["0.01"] * 40)
    await desk.results()
    await desk.worker.close()

    async with asyncio.timeout(60):
        while any(thread.name == "evalbus-plugin" for thread in set(threading.enumerate()) - before):
            await asyncio.sleep(0.01)


# --- inline functions -------------------------------------------------------------------------------------------


async def test_inline_functions_let_the_loop_breathe_and_can_be_cancelled(start: Start) -> None:
    @target("inline", mode="inline")
    def inline(item: Item) -> str:
        time.sleep(0.001)
        return ""

    desk = await start(inline)
    desk.submit(*["x"] * 300)
    await asyncio.sleep(0.02)
    desk.worker.cancel([(number, 1) for number in range(300)])

    results = await desk.results()
    done = [number for number, result in results.items() if isinstance(result, Output)]
    assert 0 < len(done) < 300
    assert done == list(range(len(done)))


# --- news -------------------------------------------------------------------------------------------------------


async def test_short_trials_are_not_news(start: Start) -> None:
    @target("quick")
    async def quick(item: Item) -> str:
        return ""

    desk = await start(quick, silence=1.0)
    desk.submit(*["x"] * 100)
    await desk.results()
    await asyncio.sleep(0.12)

    assert desk.news == []


@pytest.mark.parametrize("threads", [False, True])
async def test_long_trials_are_started_once_and_then_beat(start: Start, threads: bool) -> None:
    """As long as they run, and no quicker than they have to."""
    desk: Desk

    @target("slow")
    async def slow(item: Item) -> str:
        while len(desk.news) < 5:
            await asyncio.sleep(0.005)
        return ""

    @target("slow-in-a-thread")
    def slow_in_a_thread(item: Item) -> str:
        desk.wait_for(lambda news: len(news) >= 5)
        return ""

    desk = await start(slow_in_a_thread if threads else slow, silence=0.4)
    before = time.monotonic()
    desk.submit("x")
    await desk.results()

    kinds = [news.kind for news in desk.news]
    assert kinds == [ProgressKind.STARTED] + [ProgressKind.HEARTBEAT] * 4
    assert time.monotonic() - before >= 4 * 0.4 / 4


async def test_without_a_silence_limit_there_are_no_heartbeats(start: Start) -> None:
    desk: Desk

    @target("slow")
    def slow(item: Item) -> str:
        desk.wait_for(bool)
        time.sleep(0.3)
        return ""

    desk = await start(slow)
    desk.submit("x")
    await desk.results()

    assert desk.news == [TrialProgress(0, 1, ProgressKind.STARTED)]


async def test_what_a_function_tells_is_merged_and_sent(start: Start) -> None:
    desk: Desk

    @target("talkative")
    def talkative(item: Item, ctx: Context) -> str:
        for steps in range(1000):
            ctx.progress(steps=steps)
        ctx.progress(messages=2, note="half way")
        desk.wait_for(lambda news: bool(news) and news[-1].note == "half way")
        ctx.progress(usage=Usage(calls=1))
        desk.wait_for(lambda news: news[-1].usage is not None)
        return ""

    desk = await start(talkative)
    desk.submit("x")
    await desk.results()

    assert desk.news[0].kind is ProgressKind.STARTED
    assert desk.news[-1] == TrialProgress(0, 1, ProgressKind.HEARTBEAT, 999, 2, Usage(calls=1), "half way")
    assert len(desk.news) < 100


async def test_trials_that_wait_for_a_thread_have_not_started(start: Start) -> None:
    desk: Desk
    told: set[int] = set()

    @target("one-by-one", threads=1)
    def one_by_one(item: Item) -> str:
        if item.id == "q0":
            desk.wait_for(lambda news: len(news) >= 3)
            told.update(news.trial_id for news in desk.news)
        return ""

    desk = await start(one_by_one, silence=0.1)
    desk.submit("x", "x")
    await desk.results()

    assert told == {0}


# --- context ----------------------------------------------------------------------------------------------------


async def test_the_context_knows_its_trial(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    @target("curious")
    async def curious(item: Item, ctx: Context) -> str:
        seen.append((ctx.trial_id, ctx.attempt, ctx.epoch, ctx.limits.steps, dict(ctx.inputs), ctx.cancelled))
        seen.append((ctx.run_id, ctx.tags, ctx.settings, ctx.purpose.name))
        seen.append(ctx.time_remaining())
        ctx.log("hello")
        return ""

    desk = await start(curious, run_id="run", tags=("a",))
    with caplog.at_level("INFO", "evalbus.plugin"):
        desk.submit("x")
        await desk.results()

    assert seen == [(0, 1, 1, None, {}, False), ("run", ("a",), None, "OFFLINE"), None]
    assert caplog.messages == ["trial 0/1: hello"]
