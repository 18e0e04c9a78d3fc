"""What is to be sent to one plugin, in which order, and how much of it now."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from evalbus_server.plugin.allowance import Allowance
from evalbus_server.plugin.deadlines import Deadlines
from evalbus_server.plugin.in_flight import InFlight
from evalbus_server.plugin.port import Flight
from evalbus_server.plugin.rules import Rules

RECORDS_A_MESSAGE = 256


class Sending:
    """Takes flights from the queue into the table of what is in flight."""

    def __init__(self, table: InFlight, allowance: Allowance, deadlines: Deadlines, rules: Rules) -> None:
        """Nothing is to be sent."""
        self.rules = rules
        self.todo: deque[Flight] = deque()
        self.suspects: deque[Flight] = deque()
        """Trials that may break the plugin: they are asked one at a time, before the others."""
        self.to_cancel: list[tuple[int, int]] = []
        """(trial id, attempt) pairs that the plugin is to be told not to go on with."""
        self.starved = False
        """Whether nothing could be sent though nothing is awaited: given-up trials, or other runs, hold every place."""
        self.sift: Callable[[list[Flight]], list[Flight]] | None = None
        """Says of what is about to be sent what still is to be."""
        self._table = table
        self._allowance = allowance
        self._deadlines = deadlines

    def __len__(self) -> int:
        """Flights that are to be sent."""
        return len(self.todo) + len(self.suspects)

    def clear(self) -> list[Flight]:
        """Forget what was not sent, and say what that was."""
        flights = [*self.todo, *self.suspects]
        self.todo.clear()
        self.suspects.clear()
        return flights

    def next_part(self, now: float, wake_by: Callable[[float], None]) -> list[Flight]:
        """Take what may be sent now into flight: as much as the allowance and one message take.

        *wake_by* is told when it is worth looking again.
        """
        table, allowance = self._table, self._allowance
        self.starved = False
        if now < allowance.paused_until:
            allowance.rest()
            wake_by(allowance.paused_until)
            return []
        while part := self._take():
            if self.sift is not None:
                part = self.sift(part)
            if part:
                wake_by(self._launch(part, now))
                allowance.holds(table.held)
                return part
        return []

    def _take(self) -> list[Flight]:
        table = self._table
        if self.suspects:
            alone = not table.held and self._allowance.room(0, 0, 1)
            return [self.suspects.popleft()] if alone else []
        count = self._allowance.room(table.held, len(table), min(len(self.todo), RECORDS_A_MESSAGE))
        if count <= 0:
            self.starved = bool(self.todo) and not table
            return []
        take = self.todo.popleft
        return [take() for _ in range(count)]

    def _launch(self, part: list[Flight], now: float) -> float:
        """Take flights into the air; when the first of them can be due.

        What only a failed attempt needs to know is left to the failure.
        """
        rules = self.rules
        first = rules.session * 1000 + 1
        limit = rules.timeout
        deadline = now + limit
        soonest = now + rules.patience
        hurried = rules.trial_timeout < limit
        flying = self._table.flying
        for flight in part:
            flight.sent = now
            flight.deadline = deadline
            if flight.attempt:
                flight.attempt += 1
                flight.started = False
                flight.told = None
            else:
                flight.attempt = first
            flying[flight.trial.trial_id] = flight
            if hurried or flight.budget is not None:
                left = rules.trial_timeout if flight.budget is None else flight.budget
                if left < limit:
                    self._deadlines.shorten(flight, now + left)
                    soonest = min(soonest, flight.deadline)
        return soonest
