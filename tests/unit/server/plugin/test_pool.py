"""Pools: places that exchanges share, dealt fairly."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import Output
from evalbus_server.plugin.pool import Pool, Pools
from evalbus_server.plugin.port import ConversationLost, PushBack, Received
from tests.unit.server.plugin.fakes import DIE, HANG, FakePlugin, Table, flights


def nobody() -> None:
    """Wake nobody."""


def test_one_member_may_take_all():
    """While nobody else waits."""
    member = Pool(5).join(nobody)

    assert member.room(9) == 5


def test_members_share_evenly_while_both_wait():
    """Nobody takes more than an even share; what one gives back wakes the other."""
    woken = []
    pool = Pool(6)
    first = pool.join(lambda: woken.append("first"))
    second = pool.join(lambda: woken.append("second"))
    first.hold(first.room(10))
    assert second.room(10) == 0

    first.hold(4)
    assert woken == ["second"]
    second.hold(second.room(10))

    assert (first.held, second.held) == (4, 2)
    assert first.room(10) == 0
    first.hold(3)
    assert second.room(10) == 1


def test_who_leaves_gives_everything_back():
    """And wakes those who wait."""
    woken = []
    pool = Pool(2)
    first = pool.join(nobody)
    second = pool.join(lambda: woken.append("second"))
    first.hold(2)
    assert second.room(1) == 0

    first.leave()

    assert woken == ["second"]
    assert second.room(5) == 2


def test_who_wants_nothing_any_more_leaves_its_share_to_others():
    """Though it was refused something before, and gives nothing back."""
    woken = []
    pool = Pool(4)
    first = pool.join(nobody)
    second = pool.join(lambda: woken.append("second"))
    first.hold(first.room(1))
    second.hold(second.room(3))
    assert (first.room(5), second.room(5)) == (0, 0)
    second.hold(1)
    assert second.room(5) == 1

    first.rest()

    assert woken[-1:] == ["second"]
    assert second.room(5) == 2


async def so(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["stopped", "paused", "lost"])
async def test_a_run_that_sends_nothing_does_not_hold_up_another(how: str):
    """One whose last trial takes its time, one whose plugin has asked for a rest, one that waits to be connected."""
    pool = Pool(6)
    first, second = (Table(FakePlugin(lambda *_: HANG), concurrency=10) for _ in range(2))
    first.plugin.restart = asyncio.Event().wait  # type: ignore[method-assign, assignment]  # for ever
    for table in (first, second):
        table.exchange.share(lambda granted: [pool])
        table.exchange.offer(flights(10))
    running = [asyncio.create_task(first.exchange.run())]
    await so(lambda: first.plugin.most_held == 6)
    running.append(asyncio.create_task(second.exchange.run()))
    await so(lambda: [member.hungry for member in pool._members] == [True, True])
    (conversation,) = first.plugin.conversations
    held = sorted(conversation._held)
    for trial_id, attempt in held[:3]:
        conversation._answer(trial_id, attempt, Output("x"))
    await so(lambda: second.plugin.most_held == 3)

    if how == "stopped":
        first.exchange.stop()
    elif how == "paused":
        conversation.push(Received([], push_back=PushBack(None, 3600.0)))
    else:
        conversation.push(ConversationLost("UNAVAILABLE: Socket closed"))
    for trial_id, attempt in held[3:5]:
        conversation._answer(trial_id, attempt, Output("x"))

    await so(lambda: second.plugin.most_held >= 5)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_a_suspect_that_is_asked_alone_waits_for_its_place():
    """Others hold the plugin's places while it is found out who breaks it."""
    pool = Pool(3)
    other = pool.join(nobody)
    peak = 0

    def script(position: int, before: int):
        nonlocal peak
        peak = max(peak, pool.held)
        return DIE if position == 1 else Output("x")

    async def take_and_give() -> None:
        while True:
            other.hold(other.room(3))
            await asyncio.sleep(0.005)
            other.hold(0)
            await asyncio.sleep(0.001)

    table = Table(FakePlugin(script), concurrency=3)
    table.exchange.share(lambda granted: [pool])
    taking = asyncio.create_task(take_and_give())
    await asyncio.wait_for(table.ask(6), 60)
    taking.cancel()

    assert peak <= 3
    assert [isinstance(table.result(position), Output) for position in range(6)] == [True, False] + [True] * 4


def test_a_pool_has_one_name_in_a_server():
    """The latest capacity counts for all."""
    pools = Pools()
    member = pools.get(("named", "gpu"), 3).join(nobody)
    member.hold(2)

    assert pools.get(("named", "gpu"), 3).held == 2
    assert pools.get(("named", "gpu"), 3) is pools.get(("named", "gpu"), 5)
    assert pools.get(("named", "gpu"), 5).capacity == 5
    assert pools.get(("plugin", "gpu"), 1) is not pools.get(("named", "gpu"), 5)


def test_a_pool_without_members_is_forgotten():
    """A server that runs for months does not collect the pools of all its runs."""
    pools = Pools()
    member = pools.get(("named", "gpu"), 3).join(nobody)
    member.hold(2)
    member.leave()
    del member

    assert pools.get(("named", "gpu"), 3).held == 0


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=60))
def test_no_order_of_events_overfills_a_pool(capacity: int, steps: list[tuple[int, int]]):
    """Takes and gives of four members."""
    pool = Pool(capacity)
    members = [pool.join(nobody) for _ in range(4)]
    for who, count in steps:
        member = members[who]
        member.hold(member.held + member.room(count) if count % 2 else max(member.held - count, 0))
        assert 0 <= pool.held <= capacity


async def test_two_runs_never_exceed_a_shared_limit_and_both_get_on():
    """RC-15: the peak is the limit, and neither run starves."""
    pool = Pool(3)
    held = peak = 0
    order: list[str] = []

    def table(name: str) -> Table:
        def script(position: int, before: int):
            nonlocal held, peak
            held += 1
            peak = max(peak, held)

            def over() -> None:
                nonlocal held
                held -= 1
                order.append(name)

            asyncio.get_running_loop().call_later(0.0049, over)
            return (0.005, Output("x"))

        made = Table(FakePlugin(script), concurrency=10)
        made.exchange.share(lambda granted: [pool])
        made.exchange.offer(flights(40))
        made.exchange.finish()
        return made

    first, second = table("first"), table("second")

    await asyncio.gather(first.exchange.run(), second.exchange.run())

    assert peak == 3
    assert (len(first.done), len(second.done)) == (40, 40)
    assert 10 <= order[:40].count("second") <= 30


def test_who_was_refused_longest_is_woken_first():
    """And who was served last comes last, whatever the order in which they joined."""
    woken: list[str] = []
    pool = Pool(1)
    members = {name: pool.join(lambda name=name: woken.append(name)) for name in "abcd"}  # type: ignore[misc]
    members["a"].hold(members["a"].room(1))
    for name in "dbc":
        assert members[name].room(5) == 0

    members["a"].hold(0)
    assert members["d"].room(5) == 1
    members["d"].hold(1)
    assert [members[name].room(5) for name in "abc"] == [0, 0, 0]
    woken.clear()
    members["d"].hold(0)

    assert woken == ["b", "c", "a"]


@pytest.mark.parametrize(("runs", "places"), [(16, 4), (5, 1), (3, 2)])
async def test_more_runs_than_places_take_turns(runs: int, places: int):
    """Nobody stands still until others have ended."""
    pool = Pool(places)
    order: list[int] = []

    def table(who: int) -> Table:
        def script(position: int, before: int):
            order.append(who)
            return (0.005, Output("x"))

        made = Table(FakePlugin(script), concurrency=10)
        made.exchange.share(lambda granted: [pool])
        made.exchange.offer(flights(20))
        made.exchange.finish()
        return made

    tables = [table(who) for who in range(runs)]
    await asyncio.gather(*(each.exchange.run() for each in tables))

    assert [len(each.done) for each in tables] == [20] * runs
    half = order[: runs * 10]
    assert min(half.count(who) for who in range(runs)) >= 5
