"""What waiting costs: turns of the loop are counted, in a time that jumps over every wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from evalbus import Failure, FailureCategory, Output
from evalbus._plugin import Open, ProgressKind, TrialProgress
from evalbus_server.plugin.port import Answered, Flight, Received
from tests.unit.clock import Clock
from tests.unit.server.plugin.fakes import FakeConversation, FakePlugin, Table, echo, flights

MANY = 10_000
BATCH = 250
MESSAGES = MANY // BATCH
FEW = 20
"""Turns that anything may take: no more for ten thousand trials than for one."""


class Holding(FakePlugin):
    """Keeps what it is sent, and answers when it is told to."""

    def __init__(self, capabilities: frozenset[str] = frozenset({"cancel"})) -> None:
        super().__init__(echo, capabilities=capabilities, max_in_flight=MANY)
        self.held: dict[int, int] = {}
        """Attempts by trial."""

    async def converse(self, opening: Open) -> FakeConversation:
        conversation = Keeping(self)
        self.conversations.append(conversation)
        return conversation

    def batches_held(self) -> Iterator[list[tuple[int, int]]]:
        """All that it holds, by message."""
        held = list(self.held.items())
        for first in range(0, len(held), BATCH):
            yield held[first : first + BATCH]

    def answer_all(self, result: Any) -> None:
        """Answer all that it holds with the same."""
        for batch in list(self.batches_held()):
            answers: list[Answered] = [(trial, self.held.pop(trial), result, None) for trial, _ in batch]
            self.conversations[-1].push(Received(answers))

    def tell_all(self, kind: ProgressKind) -> None:
        """Tell news of all that it holds."""
        for batch in self.batches_held():
            self.conversations[-1].push(Received(news=[TrialProgress(*key, kind) for key in batch]))


class Keeping(FakeConversation):
    """A conversation with it."""

    async def send(self, flights: Sequence[Flight], now: float) -> None:
        plugin = self._plugin
        assert isinstance(plugin, Holding)
        plugin.batches.append(len(flights))
        plugin.held.update((flight.trial.trial_id, flight.attempt) for flight in flights)

    async def cancel(self, attempts: Sequence[tuple[int, int]]) -> None:
        self._plugin.cancelled.extend(attempts)

    async def end(self) -> None:
        self.push(None)


async def begin(plugin: Holding, **rules: Any) -> tuple[Table, asyncio.Task[None]]:
    """All trials are with the plugin."""
    table = Table(plugin, concurrency=MANY, **rules)
    table.exchange.offer(flights(MANY))
    table.exchange.finish()
    run = asyncio.create_task(table.exchange.run())
    while len(plugin.held) < MANY:
        await asyncio.sleep(0)
    return table, run


async def test_trials_in_flight_cost_no_turns(clock: Clock):
    """Ten thousand of them are waited for by one timer, which their deadline sets."""
    plugin = Holding()
    table, run = await begin(plugin, timeout=300.0, trial_timeout=300.0, silence=None)

    idle = await clock.turns_during(250.0)
    plugin.answer_all(Output("x"))
    await run

    assert idle <= FEW
    assert len(table.done) == MANY


async def test_trials_that_time_out_cost_no_turn_each(clock: Clock):
    """One look at the clock finds all that are due."""
    plugin = Holding(frozenset())
    table, run = await begin(plugin, timeout=60.0, retries=0)
    sent = clock.turns

    while len(table.done) < MANY:
        await asyncio.sleep(1.0)

    assert clock.turns - sent <= FEW + 70 + MESSAGES
    assert all(isinstance(flight.result, Failure) for flight in table.done.values())
    plugin.conversations[-1].push(None)
    await asyncio.wait({run})


async def test_heartbeats_cost_the_turns_of_their_messages(clock: Clock):
    """A silence that is broken again and again is looked at when it may have ended, and not in between."""
    plugin = Holding(frozenset({"cancel", "progress"}))
    table, run = await begin(plugin, timeout=3000.0, trial_timeout=3000.0, silence=100.0)
    plugin.tell_all(ProgressKind.STARTED)
    before = clock.turns

    for _ in range(20):
        await asyncio.sleep(50.0)
        plugin.tell_all(ProgressKind.HEARTBEAT)
    plugin.answer_all(Output("x"))
    await run

    assert clock.turns - before <= 20 * 4 * MESSAGES
    assert all(isinstance(flight.result, Output) for flight in table.done.values())


@pytest.mark.parametrize("category", [FailureCategory.UNAVAILABLE, FailureCategory.RATE_LIMITED])
async def test_trials_that_wait_for_a_retry_cost_no_turns(clock: Clock, category: FailureCategory):
    """Nothing happens until the first is due; where each comes alone there are a few turns for it, to send and to settle."""
    plugin = Holding()
    table, run = await begin(plugin, retries=1)
    plugin.answer_all(Failure(category, "later", retry_after=120.0))
    while table.exchange.in_flight:
        await asyncio.sleep(0)

    idle = await clock.turns_during(115.0)
    assert (idle <= FEW, plugin.held, len(table.done)) == (True, {}, 0)

    before = clock.turns
    while not run.done():
        plugin.answer_all(Output("x"))
        await asyncio.wait({run}, timeout=1.0)
    assert clock.turns - before <= 4 * MANY
    assert all(isinstance(flight.result, Output) for flight in table.done.values())
