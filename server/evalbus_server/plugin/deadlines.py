"""When a trial in flight is given up: its own time, the silence of the plugin, and the one timer that all share."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from evalbus_server.plugin.in_flight import InFlight
from evalbus_server.plugin.port import Flight
from evalbus_server.plugin.rules import Rules


class Alarm:
    """A timer that is set again and again, and fires at the earliest time that was asked for."""

    def __init__(self, fire: Callable[[], None]) -> None:
        """It is not set."""
        self._fire = fire
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def by(self, when: float) -> None:
        """Fire by *when*, by the loop's clock."""
        if self._timer is not None:
            if self._at <= when:
                return
            self._timer.cancel()
        self._at = when
        self._timer = self._loop.call_at(when, self._fired)

    def off(self) -> None:
        """Do not fire."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        self._fire()


class Deadlines:
    """Finds what is overdue in a table of flights.

    The order of the table is the queue of deadlines, since most trials have equal time; those that have less stand in
    a heap as well.
    """

    def __init__(self, table: InFlight, rules: Rules, *, progress: bool) -> None:
        """*progress*: whether the plugin says when a trial starts, so that its time begins only then."""
        self._table = table
        self._rules = rules
        self._progress = progress
        self._silence = rules.longest_silence
        self._short: list[tuple[float, int, Flight, int]] = []
        self._serial = 0
        self.heard = 0.0
        """When the plugin was last heard of, by the loop's clock."""

    def change(self, rules: Rules) -> None:
        """Go on by other rules; what is in flight keeps its deadlines."""
        self._rules = rules
        self._silence = rules.longest_silence

    def shorten(self, flight: Flight, deadline: float) -> None:
        """A flight has less time than its place in the table says."""
        flight.deadline = deadline
        self._look_at(flight, deadline, flight.attempt)

    def started(self, flight: Flight, now: float) -> float:
        """A flight has started, so its time begins; when to look at it first."""
        rules = self._rules
        limit = min(rules.timeout, rules.trial_timeout if flight.budget is None else flight.budget)
        flight.deadline = now + limit
        self._table.start(flight)
        if limit < rules.timeout:
            self._look_at(flight, flight.deadline, flight.attempt)
        if self._silence >= rules.timeout:
            return flight.deadline
        self._look_at(flight, now + self._silence, flight.attempt)
        return min(flight.deadline, now + self._silence)

    def overdue(self, now: float) -> list[Flight]:
        """What is to be given up."""
        table = self._table
        overdue: list[Flight] = []
        for flight in table.flying.values():
            if self._due_in_queue(flight) > now:
                break
            overdue.append(flight)
        for flight in table.running.values():
            if flight.deadline > now:
                break
            overdue.append(flight)
        while self._short and self._short[0][0] <= now:
            _, _, flight, attempt = heapq.heappop(self._short)
            if not table.has(flight, attempt) or flight in overdue:
                continue
            if flight.deadline <= now or (flight.started and flight.heard + self._silence <= now):
                overdue.append(flight)
            elif flight.started and self._silence < self._rules.timeout:
                self._look_at(flight, flight.heard + self._silence, attempt)
        return overdue

    def next(self) -> float:
        """When something can be overdue next; infinite if nothing can."""
        table = self._table
        due = self._short[0][0] if self._short else float("inf")
        if table.flying:
            due = min(due, self._due_in_queue(next(iter(table.flying.values()))))
        if table.running:
            due = min(due, next(iter(table.running.values())).deadline)
        return due

    def _look_at(self, flight: Flight, when: float, attempt: int) -> None:
        self._serial += 1
        heapq.heappush(self._short, (when, self._serial, flight, attempt))

    def _due_in_queue(self, flight: Flight) -> float:
        """When a flight that has not started is given up."""
        if self._progress:  # it waits inside the plugin, and its clock has not begun
            quiet = max(flight.sent, self.heard) + self._silence
            return min(quiet, flight.sent + self._rules.trial_timeout)
        return flight.sent + self._rules.patience
