"""The exchange: each trial gets one final result, whatever the plugin does."""

import asyncio
import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbus import Failure, FailureCategory, Output, Usage
from evalbus._plugin import ProgressKind, TrialProgress
from evalbus_server.errors import Unreachable
from evalbus_server.plugin.losses import KILLERS_IN_A_ROW, LONGEST_PAUSE
from evalbus_server.plugin.pool import Pool
from evalbus_server.plugin.port import FailedAttempt, Flight, PushBack, Received
from tests.unit.clock import jumping
from tests.unit.server.plugin.fakes import DIE, HANG, FakePlugin, Table, echo, flights

pytestmark = pytest.mark.usefixtures("clock")


def failure(category: FailureCategory, **more) -> Failure:
    return Failure(category, "no", **more)


async def test_every_trial_gets_its_own_answer():
    """Answers come back in any order and are matched by trial and attempt (PL-13)."""
    table = Table(FakePlugin(lambda position, _: (random.uniform(0, 0.02), Output(str(position)))), concurrency=50)

    await table.ask(200)

    assert {position: table.result(position).text for position in range(200)} == {n: str(n) for n in range(200)}
    assert table.doubled == 0
    assert table.exchange.faults == 0


async def test_the_plugin_never_holds_more_than_was_granted():
    """The lower of the experiment's and the plugin's limit counts, and it is used."""
    for concurrency, granted, most in ((8, 0, 8), (50, 3, 3)):
        plugin = FakePlugin(lambda position, _: (0.005, Output("x")), max_in_flight=granted)

        await Table(plugin, concurrency=concurrency).ask(40)

        assert plugin.most_held == most


async def test_what_is_ready_travels_together():
    """A batch is whatever is ready, up to 256 records."""
    plugin = FakePlugin(echo, max_in_flight=10_000)

    await Table(plugin, concurrency=1000).ask(600)

    assert max(plugin.batches) == 256
    assert len(plugin.batches) < 10


@pytest.mark.parametrize(
    ("category", "calls"),
    [
        (FailureCategory.TIMEOUT, 3),
        (FailureCategory.UNAVAILABLE, 3),
        (FailureCategory.INTERNAL, 3),
        (FailureCategory.INVALID, 1),
        (FailureCategory.REFUSED, 1),
        (FailureCategory.CANCELLED, 1),
        (FailureCategory.BUDGET, 1),
    ],
)
async def test_the_category_says_whether_it_is_tried_again(category: FailureCategory, calls: int):
    """The table of the contract, with two retries (RC-14)."""
    plugin = FakePlugin(lambda *_: failure(category))
    table = Table(plugin, retries=2)

    await table.ask(1)

    assert len(plugin.asked) == calls
    assert table.result(0).category is category
    assert [attempt.attempt for attempt in table.done[0].failures or ()] == [1001 + n for n in range(calls)]


async def test_a_failed_attempt_is_told_of_before_the_next_one():
    """So that what it took can be stored meanwhile: who waits for long may be killed (O6)."""
    table = Table(FakePlugin(lambda _, before: Output("x") if before else failure(FailureCategory.UNAVAILABLE)))
    heard: list[list[int]] = []
    table.exchange.tell_of_left(
        lambda flights: heard.append([each.attempt for flight in flights for each in flight.failures or ()])
    )

    await table.ask(1)

    assert heard == [[1001]]
    assert table.result(0) == Output("x")


async def test_retryable_overrides_the_category():
    """A plugin knows best."""
    again = FakePlugin(lambda *_: failure(FailureCategory.INVALID, retryable=True))
    never = FakePlugin(lambda *_: failure(FailureCategory.INTERNAL, retryable=False))

    await Table(again, retries=1).ask(1)
    await Table(never, retries=1).ask(1)

    assert (len(again.asked), len(never.asked)) == (2, 1)


async def test_a_rate_limit_waits_as_long_as_it_says_and_costs_no_retry():
    """Nobody comes back early, repeats are spread, and waiting holds no place (RC-13)."""
    plugin = FakePlugin(
        lambda position, before: (
            failure(FailureCategory.RATE_LIMITED, retry_after=0.4) if position < 5 and before == 0 else Output("x")
        )
    )
    table = Table(plugin, concurrency=5, retries=0)

    await table.ask(20)

    assert len(plugin.asked) == 25
    first: dict[int, float] = {}
    again: dict[int, float] = {}
    for (position, _), when in zip(plugin.asked, plugin.times, strict=True):
        (again if position in first else first)[position] = when
    assert min(again[position] - first[position] for position in again) > 0.39
    assert max(again.values()) - min(again.values()) > 0.01
    assert all(isinstance(table.result(position), Output) for position in range(20))


async def test_a_rate_limit_without_end_ends_with_the_trials_whole_time():
    """It uses no retries, so the trial's whole time bounds it."""
    plugin = FakePlugin(lambda *_: failure(FailureCategory.RATE_LIMITED, retry_after=0.05))
    table = Table(plugin, trial_timeout=0.5, timeout=0.5)

    await table.ask(1)

    assert table.result(0).category is FailureCategory.RATE_LIMITED
    assert 2 <= len(plugin.asked) < 12


async def test_a_late_answer_is_counted_and_dropped():
    """The second attempt counts; the first one's answer comes after its time (RC-02)."""
    plugin = FakePlugin(lambda position, before: (1.0 if before == 0 else 0.05, Output(f"attempt {before}")))
    plugin.info = FakePlugin(echo, capabilities=frozenset()).info  # without cancel, the late answer does come
    table = Table(plugin, timeout=0.5, retries=1)

    await table.ask(3)

    assert [table.result(n).text for n in range(3)] == ["attempt 1"] * 3
    assert table.exchange.faults == 3
    assert table.doubled == 0


async def test_a_timeout_cancels_the_attempt_at_the_plugin():
    """The plugin learns of it, and its CANCELLED answer frees the credit without being a fault."""
    plugin = FakePlugin(lambda position, before: (5.0, Output("late")))
    table = Table(plugin, timeout=0.05, retries=0, concurrency=1)

    await table.ask(3)

    assert [table.result(n).category for n in range(3)] == [FailureCategory.TIMEOUT] * 3
    assert plugin.cancelled == plugin.asked
    assert table.exchange.faults == 0


async def test_a_trial_that_waits_inside_the_plugin_is_not_timed():
    """With progress the clock starts at `started`; any message breaks the silence before it."""
    plugin = FakePlugin(echo, capabilities=frozenset({"progress", "cancel"}))
    plugin.script = lambda position, before: (2.0, Output("x"))
    table = Table(plugin, timeout=0.3, silence=60.0, concurrency=3, retries=0)
    run = asyncio.ensure_future(table.ask(3))
    await asyncio.sleep(0.4)
    started = TrialProgress(2, 1001, ProgressKind.STARTED)
    plugin.conversations[0].push(Received(news=[started]))

    await run

    assert isinstance(table.result(0), Output)
    assert isinstance(table.result(1), Output)
    assert table.result(2).category is FailureCategory.TIMEOUT


async def test_silence_after_started_is_a_timeout_unless_heartbeats_come():
    """Only the trial's own news breaks its silence once it has started."""
    plugin = FakePlugin(lambda *_: (2.0, Output("x")), capabilities=frozenset({"progress", "cancel"}))
    table = Table(plugin, timeout=60.0, silence=0.9, retries=0, concurrency=2)
    run = asyncio.ensure_future(table.ask(2))
    await asyncio.sleep(0.02)
    plugin.conversations[0].push(Received(news=[TrialProgress(n, 1001, ProgressKind.STARTED) for n in (0, 1)]))
    for _ in range(20):
        await asyncio.sleep(0.1)
        plugin.conversations[0].push(Received(news=[TrialProgress(0, 1001, ProgressKind.HEARTBEAT)]))

    await run

    assert isinstance(table.result(0), Output)
    assert table.result(1).category is FailureCategory.TIMEOUT


async def test_a_plugin_that_holds_everything_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch):
    """When given-up trials hold every credit, the conversation is broken off and opened again."""
    monkeypatch.setattr("evalbus_server.plugin.exchange.GRACE_AT_END", 0.1)
    plugin = FakePlugin(lambda position, before: HANG if position == 0 else Output("x"))
    table = Table(plugin, timeout=0.1, retries=0, concurrency=1)

    await table.ask(3)

    assert table.result(0).category is FailureCategory.TIMEOUT
    assert [table.result(n).text for n in (1, 2)] == ["x", "x"]
    assert plugin.restarts == 1


async def test_a_given_up_trial_does_not_hold_what_a_rate_limit_has_left(monkeypatch: pytest.MonkeyPatch):
    """One at a time is asked for, and the trial that hangs is not that one: the conversation goes on."""
    monkeypatch.setattr("evalbus_server.plugin.exchange.GRACE_AT_END", 1.0)
    plugin = FakePlugin(
        lambda position, before: (
            HANG
            if position == 0
            else failure(FailureCategory.RATE_LIMITED)
            if position == 1 and not before
            else Output("x")
        )
    )
    table = Table(plugin, concurrency=2, timeout=0.1, retries=0, trial_timeout=5.0)

    await asyncio.wait_for(table.ask(6), 30)

    assert [isinstance(table.result(position), Output) for position in range(6)] == [False] + [True] * 5
    assert len(plugin.conversations) == 1


async def test_a_given_up_trial_does_not_hold_the_last_place_of_a_pool_for_ever(monkeypatch: pytest.MonkeyPatch):
    """Nothing of ours is being worked on, so the conversation with whoever holds it is broken off."""
    monkeypatch.setattr("evalbus_server.plugin.exchange.GRACE_AT_END", 0.1)
    plugin = FakePlugin(lambda position, before: HANG if position == 0 else Output("x"))
    table = Table(plugin, concurrency=10, timeout=0.1, retries=0)
    pool = Pool(1)
    table.exchange.share(lambda granted: [pool])
    table.exchange.offer(flights(3))
    table.exchange.finish()
    await table.exchange.open()

    await asyncio.wait_for(table.exchange.run(), 30)

    assert isinstance(table.result(0), Failure)
    assert [table.result(position) for position in (1, 2)] == [Output("x")] * 2
    assert pool.held == 0


async def test_a_lost_conversation_costs_no_retries():
    """What was in flight is asked again; what was answered stands (PL-06)."""
    calls = 0

    def script(position: int, before: int):
        nonlocal calls
        calls += 1
        return DIE if calls == 4 else Output("x")

    plugin = FakePlugin(script)
    table = Table(plugin, retries=0, concurrency=4)

    await table.ask(10)

    assert all(isinstance(table.result(n), Output) for n in range(10))
    assert len(plugin.conversations) == 2


async def test_the_trial_that_kills_the_plugin_is_found_and_errored():
    """After two losses suspects are asked one at a time; the culprit is ERRORED with the process's last words."""
    plugin = FakePlugin(lambda position, before: DIE if position == 3 else (0.01, Output("x")))
    table = Table(plugin, concurrency=8)

    await table.ask(20)

    assert table.result(3).reason == "PLUGIN_DIED"
    assert "exit code 7" in table.result(3).message
    assert all(isinstance(table.result(n), Output) for n in range(20) if n != 3)


async def test_a_plugin_that_always_breaks_is_given_up():
    """A bounded number of times, and the reason holds its last words."""
    plugin = FakePlugin(lambda *_: DIE)
    plugin.script = lambda position, before: DIE
    table = Table(plugin, concurrency=50)
    table.exchange.offer(flights(50))
    table.exchange.finish()
    conversations = 0

    async def closed_at_once(_opening):
        nonlocal conversations
        conversations += 1
        conversation = await FakePlugin.converse(plugin, _opening)
        conversation.push(None)
        return conversation

    plugin.converse = closed_at_once  # type: ignore[method-assign]
    with pytest.raises(Unreachable, match="exit code 7"):
        await table.exchange.run()
    assert conversations <= 8


async def test_a_plugin_that_breaks_at_every_trial_is_given_up(monkeypatch: pytest.MonkeyPatch):
    """After so many trials in a row that it is not them, and with a pause that grows (PL-06)."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    plugin = FakePlugin(lambda *_: DIE)
    table = Table(plugin, concurrency=4)
    monkeypatch.setattr("evalbus_server.plugin.exchange.asyncio.sleep", noted)
    with pytest.raises(Unreachable, match=r"broke .* times \(exit code 7\).*\(UNAVAILABLE: Socket closed\)$"):
        await table.ask(100)

    assert len(table.done) == KILLERS_IN_A_ROW + 1
    assert len(plugin.conversations) < 2 * KILLERS_IN_A_ROW
    assert max(pauses) == LONGEST_PAUSE
    assert pauses[0] < 1


async def test_trials_that_break_the_plugin_now_and_then_do_not_end_the_run(monkeypatch: pytest.MonkeyPatch):
    """More of them than would do in a row: an answer between two says that the plugin can work."""
    monkeypatch.setattr("evalbus_server.plugin.losses.LONGEST_PAUSE", 0.0)
    plugin = FakePlugin(lambda position, before: DIE if position % 2 else Output("x"))
    table = Table(plugin, concurrency=2)

    await table.ask(3 * KILLERS_IN_A_ROW)

    assert {type(table.result(position)) for position in range(0, len(table.done), 2)} == {Output}
    assert {table.result(position).reason for position in range(1, len(table.done), 2)} == {"PLUGIN_DIED"}
    assert len(table.done) == 3 * KILLERS_IN_A_ROW


async def test_foreign_and_doubled_answers_are_faults_and_land_nowhere():
    """A reply for a foreign id never lands on another item; the first answer stands (PL-12)."""
    plugin = FakePlugin(lambda position, _: (0.05, Output("right")))
    table = Table(plugin)
    run = asyncio.ensure_future(table.ask(2))
    await asyncio.sleep(0.01)
    wrong = Output("wrong")
    plugin.conversations[0].push(
        Received([(77, 1001, wrong, None), (0, 9, wrong, None), (1, 1001, Output("first"), None)])
    )

    await run

    assert [table.result(n).text for n in (0, 1)] == ["right", "first"]
    assert table.exchange.faults == 3
    assert set(table.done) == {0, 1}


async def test_push_back_lowers_and_raises_the_limit():
    """A lower limit only stops new trials."""
    plugin = FakePlugin(lambda *_: (0.02, Output("x")))
    table = Table(plugin, concurrency=10)
    table.exchange.offer(flights(10))
    run = asyncio.ensure_future(table.exchange.run())
    await asyncio.sleep(0.005)
    plugin.conversations[0].push(Received(push_back=PushBack(2, 0.0)))
    await asyncio.sleep(0.05)
    plugin.most_held = 0
    table.exchange.offer(list(flights(30))[10:])
    table.exchange.finish()

    await run

    assert plugin.most_held == 2
    assert len(table.done) == 30


async def test_a_pause_is_kept():
    """No new trial is sent while the plugin asked for quiet."""
    plugin = FakePlugin(lambda *_: Output("x"))
    table = Table(plugin)
    table.exchange.offer(flights(1))
    run = asyncio.ensure_future(table.exchange.run())
    await asyncio.sleep(0.02)
    plugin.conversations[0].push(Received(push_back=PushBack(None, 0.3)))
    await asyncio.sleep(0.02)
    table.exchange.offer(flights(2)[1:])
    table.exchange.finish()
    await run

    assert plugin.times[1] - plugin.times[0] > 0.29


async def test_stop_lets_what_is_in_flight_finish():
    """Nothing new is sent, and what was not sent stays without a result."""
    plugin = FakePlugin(lambda *_: (0.1, Output("x")))
    table = Table(plugin, concurrency=2)
    table.exchange.offer(flights(10))
    run = asyncio.ensure_future(table.exchange.run())
    await asyncio.sleep(0.02)
    table.exchange.stop()

    await run

    assert len(table.done) == 2


async def test_cancel_reaches_the_plugin_and_leaves_trials_without_result():
    """CANCELLED answers for the whole run leave the trial pending (O5); a quicker answer stands."""
    plugin = FakePlugin(lambda position, _: (0.02 if position == 0 else 30.0, Output("x")))
    table = Table(plugin, concurrency=4)
    table.exchange.offer(flights(10))
    run = asyncio.ensure_future(table.exchange.run())
    while not table.done:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    table.exchange.cancel()

    await asyncio.wait_for(run, 60)

    assert set(table.done) == {0}
    assert len(plugin.cancelled) == 4


async def test_a_plugin_that_ignores_a_cancel_is_left_behind(monkeypatch: pytest.MonkeyPatch):
    """The run's end does not wait for it for ever."""
    monkeypatch.setattr("evalbus_server.plugin.exchange.GRACE_AT_END", 0.1)
    plugin = FakePlugin(lambda *_: HANG)
    table = Table(plugin, concurrency=4)
    table.exchange.offer(flights(10))
    run = asyncio.ensure_future(table.exchange.run())
    await asyncio.sleep(0.02)
    table.exchange.cancel()

    await asyncio.wait_for(run, 60)

    assert table.done == {}


async def test_a_rate_limit_halves_what_is_asked_at_a_time_and_answers_raise_it_again():
    """Additive increase, multiplicative decrease; a flood of refusals counts once."""
    refused = 0

    def script(position: int, before: int):
        nonlocal refused
        if position < 8 and before == 0:
            refused += 1
            return failure(FailureCategory.RATE_LIMITED)
        return (0.2, Output("x"))

    plugin = FakePlugin(script)
    table = Table(plugin, concurrency=8)
    table.exchange.offer(flights(60))
    table.exchange.finish()
    run = asyncio.ensure_future(table.exchange.run())
    while refused < 8:
        await asyncio.sleep(0)
    plugin.most_held = 0
    await asyncio.sleep(0.008)  # shorter than an answer takes, so nothing is raised yet
    lowered = plugin.most_held
    await run

    assert refused == 8
    assert lowered == 4
    assert plugin.most_held == 8
    assert len(table.done) == 60


async def test_a_fault_of_the_sender_ends_the_exchange_instead_of_hanging_it():
    """Nobody waits for the sender, so the receiver has to learn of it."""
    plugin = FakePlugin(echo)
    table = Table(plugin)
    table.exchange.offer(flights(3))
    await table.exchange.open()

    async def broken(flights, now):
        raise ValueError("cannot be encoded")

    plugin.conversations[0].send = broken  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="cannot be encoded"):
        await asyncio.wait_for(table.exchange.run(), 60)


async def test_a_cancel_does_not_wait_for_a_plugin_that_is_lost():
    """Also while the conversation is being opened again."""
    plugin = FakePlugin(lambda *_: DIE)
    table = Table(plugin)
    table.exchange.offer(flights(1))
    await table.exchange.open()

    async def never(opening):
        await asyncio.sleep(3600)

    plugin.converse = never  # type: ignore[method-assign]
    run = asyncio.ensure_future(table.exchange.run())
    await asyncio.sleep(0.05)
    table.exchange.cancel()

    await asyncio.wait_for(run, 60)
    assert table.done == {}


async def test_nothing_is_left_behind_after_many_rounds():
    """Tasks are back to the start level (RC-03)."""
    before = len(asyncio.all_tasks())
    for _ in range(20):
        table = Table(FakePlugin(lambda *_: (10.0, Output("x"))), concurrency=8)
        table.exchange.offer(flights(100))
        run = asyncio.ensure_future(table.exchange.run())
        await asyncio.sleep(0.001)
        table.exchange.cancel()
        await asyncio.wait_for(run, 60)
        await table.exchange.close()
    await asyncio.sleep(0)

    assert len(asyncio.all_tasks()) == before


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 60), concurrency=st.integers(1, 30))
def test_whatever_happens_each_trial_ends_exactly_once(seed: int, count: int, concurrency: int):
    """Random delays, failures, hangs and deaths: one final result for each trial, never two."""
    rng = random.Random(seed)
    fates = ["answer"] * 12 + ["fail", "limit", "invalid", "hang", "die"]

    def script(position: int, before: int):
        fate = rng.choice(fates)
        delay = rng.uniform(0, 0.01)
        return {
            "answer": (delay, Output(str(position))),
            "fail": (delay, failure(FailureCategory.INTERNAL, retryable=rng.random() < 0.3)),
            "limit": (delay, failure(FailureCategory.RATE_LIMITED)),
            "invalid": (delay, failure(FailureCategory.INVALID)),
            "hang": HANG,
            "die": (delay, DIE),
        }[fate]

    async def go() -> Table:
        plugin = FakePlugin(script)
        table = Table(plugin, concurrency=concurrency, timeout=0.05, trial_timeout=0.3, retries=1)
        with jumping():
            await asyncio.wait_for(table.ask(count), 100)
        return table

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evalbus_server.plugin.exchange.GRACE_AT_END", 0.02)
        patch.setattr("evalbus_server.plugin.retries.random.uniform", lambda low, high: 0.01)
        try:
            table = asyncio.run(go())
        except Unreachable:
            return  # a plugin that breaks again and again may be given up

    assert set(table.done) == set(range(count))
    assert table.doubled == 0
    assert all(
        not isinstance(flight.result, Output) or flight.result.text == str(position)
        for position, flight in table.done.items()
    )


@given(
    st.integers(0, 2**32),
    st.sampled_from(["stop", "cancel", "both"]),
    st.booleans(),
    st.integers(0, 40),
)
@settings(deadline=None, max_examples=25)
def test_every_failed_attempt_is_handed_on_when_the_run_ends_first(seed: int, how: str, cancels: bool, turns: int):
    """With its trial, or as one of a trial that was left; and no trial is handed on twice."""
    chance = random.Random(seed)
    dying = chance.choice([0.0, 0.03, 0.3])

    def script(position: int, before: int):
        said = chance.random()
        if said < dying:
            return DIE
        wait = chance.choice([0.0, 0.0, 0.002])
        category = chance.choice([FailureCategory.UNAVAILABLE, FailureCategory.RATE_LIMITED, FailureCategory.INVALID])
        return (wait, failure(category, retry_after=chance.choice([None, 100.0])) if said < 0.7 else Output("x"))

    async def main() -> None:
        with jumping():
            await ended_early()

    async def ended_early() -> None:
        plugin = FakePlugin(script, capabilities=frozenset({"cancel"} if cancels else ()))
        plugin.failed_usage = Usage(1)
        table = Table(plugin, concurrency=7, timeout=30.0)
        told: list[Usage] = []
        kept: list[tuple[int, FailedAttempt]] = []

        def keep(flights: list[Flight]) -> None:
            for flight in flights:
                failures = flight.failures or []
                kept.extend((flight.trial.trial_id, each) for each in failures[flight.noted :])
                flight.noted = len(failures)

        table.exchange.tell_of_failed(told.append)
        table.exchange.tell_of_left(keep)
        table.exchange.offer(flights(25))
        run = asyncio.ensure_future(table.exchange.run())
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        if how != "cancel":
            table.exchange.stop()
            await asyncio.sleep(0.001)
        if how != "stop":
            table.exchange.cancel()
        with contextlib.suppress(Unreachable):  # it may die too often
            await run
        table.exchange.stop()
        await table.exchange.close()

        keep(list(table.done.values()))
        assert len([each for _, each in kept if each.usage is not None]) == len(told)
        assert len({(trial, each.attempt) for trial, each in kept}) == len(kept)
        assert table.doubled == 0

    asyncio.run(main())
