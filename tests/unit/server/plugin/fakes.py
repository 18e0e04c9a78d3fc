"""A plugin without a process: a script decides what each attempt is answered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from evalbus import Failure, FailureCategory, FailureOrigin, Item, Output, PluginInfo, TargetInfo, Usage
from evalbus._plugin import Open, Ready
from evalbus_server.model.trial import OpenTrial, trial_id_of
from evalbus_server.plugin.exchange import Exchange
from evalbus_server.plugin.port import ConversationLost, Flight, Received
from evalbus_server.plugin.rules import Rules

HANG = object()
"""A script's answer that never comes."""
DIE = object()
"""A script's answer that breaks the conversation."""

Script = Callable[[int, int], Any]
"""(position, how often it was asked before) -> Output, Failure, HANG, DIE, or (seconds, any of these)."""


class FakePlugin:
    """Answers by a script, one conversation after the other."""

    def __init__(
        self, script: Script, *, capabilities: frozenset[str] = frozenset({"cancel"}), max_in_flight: int = 0
    ) -> None:
        self.script = script
        self.info = PluginInfo("fake", TargetInfo(), capabilities=capabilities, max_in_flight=max_in_flight)
        self.conversations: list[FakeConversation] = []
        self.asked: list[tuple[int, int]] = []
        self.times: list[float] = []
        self.batches: list[int] = []
        self.cancelled: list[tuple[int, int]] = []
        self.most_held = 0
        self.restarts = 0
        self.failed_usage: Usage | None = None
        """What a failed attempt says that it has taken."""

    async def converse(self, opening: Open) -> FakeConversation:
        conversation = FakeConversation(self)
        self.conversations.append(conversation)
        return conversation

    async def restart(self) -> None:
        self.restarts += 1

    async def last_words(self) -> str:
        return " (exit code 7)"

    async def close(self) -> None:
        pass


class FakeConversation:
    """One conversation with a fake plugin."""

    def __init__(self, plugin: FakePlugin) -> None:
        self.ready = Ready()
        self._plugin = plugin
        self._received: deque[Received | ConversationLost | None] = deque()
        self._bell = asyncio.Event()
        self._held: set[tuple[int, int]] = set()
        self._ended = False

    def push(self, received: Received | ConversationLost | None) -> None:
        self._received.append(received)
        self._bell.set()

    async def send(self, flights: Sequence[Flight], now: float) -> None:
        plugin = self._plugin
        plugin.batches.append(len(flights))
        loop = asyncio.get_running_loop()
        for flight in flights:
            position = flight.trial.trial_id
            before = sum(1 for seen, _ in plugin.asked if seen == position)
            plugin.asked.append((position, flight.attempt))
            plugin.times.append(loop.time())
            self._held.add((position, flight.attempt))
            plugin.most_held = max(plugin.most_held, len(self._held))
            answer = plugin.script(position, before)
            delay = 0.0
            if isinstance(answer, tuple):
                delay, answer = answer
            loop.call_later(delay, self._answer, position, flight.attempt, answer)

    def _answer(self, position: int, attempt: int, answer: Any) -> None:
        if answer is HANG:
            return
        if answer is DIE:
            self.push(ConversationLost("UNAVAILABLE: Socket closed"))
            return
        if (position, attempt) not in self._held:
            return  # it was cancelled
        self._held.discard((position, attempt))
        usage = self._plugin.failed_usage if isinstance(answer, Failure) else None
        self.push(Received([(position, attempt, answer, usage)]))
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._ended and not self._held:
            self.push(None)

    async def cancel(self, attempts: Sequence[tuple[int, int]]) -> None:
        self._plugin.cancelled.extend(attempts)
        for key in attempts:
            if key in self._held and self._plugin.script(key[0], -1) is not HANG:
                self._held.discard(key)
                self.push(
                    Received([(*key, Failure(FailureCategory.CANCELLED, "cancelled"), self._plugin.failed_usage)])
                )
        self._end_if_done()

    async def end(self) -> None:
        self._ended = True
        self._end_if_done()

    async def receive(self) -> Received | None:
        while not self._received:
            self._bell.clear()
            await self._bell.wait()
        received = self._received.popleft()
        if isinstance(received, ConversationLost):
            raise received
        return received

    async def abandon(self) -> None:
        self.push(ConversationLost("broken off"))


class Table:
    """An exchange with a fake plugin, and what came out of it."""

    def __init__(self, plugin: FakePlugin, **rules: Any) -> None:
        self.plugin = plugin
        self.done: dict[int, Flight] = {}
        self.doubled = 0
        self.exchange = Exchange(plugin, Open(), Rules(**rules), self._take, origin=FailureOrigin.TARGET)

    def _take(self, flights: list[Flight]) -> None:
        for flight in flights:
            self.doubled += flight.trial.trial_id in self.done
            self.done[flight.trial.trial_id] = flight

    def result(self, position: int) -> Any:
        return self.done[position].result

    async def ask(self, count: int) -> None:
        """Ask *count* trials and wait for the end."""
        self.exchange.offer(flights(count))
        self.exchange.finish()
        await self.exchange.run()
        await self.exchange.close()


def flights(count: int) -> list[Flight]:
    """Flights for the positions from 0."""
    return [Flight(OpenTrial(trial_id_of(position, 1), Item(f"i{position}"))) for position in range(count)]


def echo(position: int, before: int) -> Output:
    """Answer at once."""
    return Output(str(position))
