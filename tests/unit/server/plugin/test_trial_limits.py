"""The bounds of one trial: whoever takes more ends as its own failure, once, with what it took."""

import asyncio

import pytest

from evalbus import Failure, FailureCategory, Message, Output, TrialLimits, Usage
from evalbus._plugin import ProgressKind, TrialProgress
from evalbus_server.plugin.port import ConversationLost, Received
from tests.unit.server.plugin.fakes import HANG, FakePlugin, Table, flights

pytestmark = pytest.mark.usefixtures("clock")

LIMITS = TrialLimits(messages=4, tokens=100, steps=3)


def news(**told) -> Received:
    return Received(news=[TrialProgress(1, 1001, ProgressKind.HEARTBEAT, **told)])


async def asked(plugin: FakePlugin, **rules) -> tuple[Table, asyncio.Future[None]]:
    """A table whose trials 0 and 1 are at the plugin."""
    table = Table(plugin, trial=LIMITS, concurrency=4, retries=2, **rules)
    table.exchange.offer(flights(2))
    table.exchange.finish()
    run = asyncio.ensure_future(table.exchange.run())
    while len(plugin.asked) < 2:
        await asyncio.sleep(0)
    return table, run


@pytest.mark.parametrize(
    ("told", "name", "limit"),
    [
        ({"steps": 4}, "4 steps", "steps is 3"),
        ({"messages": 5}, "5 messages", "messages is 4"),
        ({"usage": Usage(60, 41)}, "101 tokens", "tokens is 100"),
    ],
)
async def test_a_trial_that_tells_of_too_much_is_cancelled_and_ends_as_its_own_failure(told, name: str, limit: str):
    """BUDGET for the trial, not for the run: it is ERRORED, never asked again, and the others go on."""
    plugin = FakePlugin(lambda position, before: (0.3, Output("x")))
    table, run = await asked(plugin)

    plugin.conversations[0].push(news(**told))
    await asyncio.wait_for(run, 30)

    failure = table.result(1)
    assert (failure.category, failure.reason) == (FailureCategory.BUDGET, "TRIAL_LIMIT")
    assert name in failure.message and limit in failure.message
    assert plugin.cancelled == [(1, 1001)]
    assert plugin.asked == [(0, 1001), (1, 1001)]
    assert table.result(0) == Output("x")
    assert table.exchange.faults == 0


async def test_what_is_just_allowed_goes_on():
    """The limit itself may be reached."""
    plugin = FakePlugin(lambda position, before: (0.1, Output("x", usage=Usage(100))))
    table, run = await asked(plugin)

    plugin.conversations[0].push(news(steps=3, messages=4, usage=Usage(50, 50)))
    await asyncio.wait_for(run, 30)

    assert plugin.cancelled == []
    assert isinstance(table.result(1), Output)


@pytest.mark.parametrize(
    "output", [Output("x", usage=Usage(99, 2)), Output("x", messages=tuple(Message("user", str(n)) for n in range(5)))]
)
async def test_an_output_that_took_too_much_is_no_output(output: Output):
    """Also of a target that tells nothing on the way."""
    table = Table(FakePlugin(lambda position, before: output if position else Output("fine")), trial=LIMITS)

    await table.ask(2)

    assert table.result(0) == Output("fine")
    assert table.result(1).reason == "TRIAL_LIMIT"
    assert table.done[1].usage == output.usage
    assert len(table.done[1].failures or ()) == 1
    assert len(table.plugin.asked) == 2


async def test_the_usage_is_that_of_the_cancelled_answer_or_else_what_was_told_last(monkeypatch: pytest.MonkeyPatch):
    """The plugin's last word counts; one that ignores the cancel gets a while for it, and is left behind then."""
    monkeypatch.setattr("evalbus_server.plugin.exchange.GRACE_AT_END", 0.2)
    for answer in ((0.05, Output("x")), HANG):
        plugin = FakePlugin(lambda position, before, answer=answer: answer if position else Output("x"))  # type: ignore[misc]
        table, run = await asked(plugin)

        plugin.conversations[0].push(news(usage=Usage(200)))
        await asyncio.wait_for(run, 30)

        assert table.result(1).reason == "TRIAL_LIMIT"
        assert table.done[1].usage == Usage(200)

    plugin = FakePlugin(lambda position, before: HANG if position else Output("x"))
    table, run = await asked(plugin)
    plugin.conversations[0].push(news(usage=Usage(200)))
    cancelled = Failure(FailureCategory.CANCELLED, "stopped")
    plugin.conversations[0].push(Received([(1, 1001, cancelled, Usage(230))]))
    await asyncio.wait_for(run, 30)

    assert table.done[1].usage == Usage(230)


async def test_an_answer_that_crosses_the_cancel_does_not_stand():
    """It took too much, whatever came of it."""
    plugin = FakePlugin(lambda position, before: HANG if position else Output("x"))
    table, run = await asked(plugin)

    plugin.conversations[0].push(news(steps=9))
    plugin.conversations[0].push(Received([(1, 1001, Output("late", usage=Usage(7)), None)]))
    await asyncio.wait_for(run, 30)

    assert table.result(1).reason == "TRIAL_LIMIT"
    assert table.done[1].usage == Usage(7)


async def test_a_trial_over_its_limit_is_not_asked_again_after_a_loss():
    """The stream breaks before the plugin has answered the cancel."""
    plugin = FakePlugin(lambda position, before: Output("x") if before or not position else HANG)
    table, run = await asked(plugin)

    plugin.conversations[0].push(news(steps=9, usage=Usage(50)))
    plugin.conversations[0].push(ConversationLost("UNAVAILABLE: Socket closed"))
    await asyncio.wait_for(run, 30)

    assert table.result(1).reason == "TRIAL_LIMIT"
    assert table.done[1].usage == Usage(50)
    assert [position for position, _ in plugin.asked].count(1) == 1


async def test_a_plugin_that_cannot_cancel_is_not_asked_to():
    """The trial ends at once; its place is held until the plugin answers."""
    plugin = FakePlugin(lambda position, before: (0.2, Output("x")), capabilities=frozenset())
    table, run = await asked(plugin)

    plugin.conversations[0].push(news(steps=9))
    while 1 not in table.done:
        await asyncio.sleep(0)
    held = 0 not in table.done
    await asyncio.wait_for(run, 30)

    assert held
    assert plugin.cancelled == []
    assert table.result(1).reason == "TRIAL_LIMIT"


async def test_what_a_lost_or_timed_out_attempt_told_counts_as_consumed():
    """Usage is summed over all attempts, also over those that nobody answered."""
    plugin = FakePlugin(lambda position, before: Output("x", usage=Usage(5)) if before or not position else HANG)
    table, run = await asked(plugin)
    kept: list[tuple[int, list[tuple[str, Usage | None]]]] = []
    table.exchange.tell_of_left(
        lambda left: kept.extend(
            (each.trial.trial_id, [(one.failure.reason, one.usage) for one in each.failures or ()]) for each in left
        )
    )

    plugin.conversations[0].push(news(usage=Usage(50)))
    plugin.conversations[0].push(ConversationLost("UNAVAILABLE: Socket closed"))
    await asyncio.wait_for(run, 30)

    assert kept == [(1, [("CONVERSATION_LOST", Usage(50))])]
    assert table.done[1].usage == Usage(50)
    assert table.result(1) == Output("x", usage=Usage(5))
