"""What is answered: matched with what is in flight, kept or asked again, and handed on in batches."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from evalbus import Failure, FailureCategory, FailureOrigin, Usage
from evalbus_server.plugin.in_flight import InFlight
from evalbus_server.plugin.port import Answered, Flight, Result
from evalbus_server.plugin.retries import Retries, retryable

_log = structlog.get_logger("evalbus.plugin")


class Settling:
    """Takes flights out of the table of what is in flight, each with its result or its failed attempt."""

    def __init__(self, table: InFlight, retries: Retries, plugin: str) -> None:
        """*plugin* is its name, for the log."""
        self._table = table
        self._retries = retries
        self._plugin = plugin
        self.stopped = False
        """Nothing is asked again."""
        self.cancelled = False
        """The run is cancelled: what a plugin cancels therefore stays without a result (O5)."""
        self.faults = 0
        """Answers that nobody waited for: late, doubled, foreign."""

    def settle(self, answers: Sequence[Answered], now: float) -> list[Flight]:
        """Match answers by (trial id, attempt); the flights that have their final result."""
        final: list[Flight] = []
        flying, running = self._table.flying, self._table.running
        for trial_id, attempt, result, usage in answers:
            flight = flying.get(trial_id)
            place = flying
            if flight is None and running:
                flight = running.get(trial_id)
                place = running
            if flight is None or flight.attempt != attempt:
                self._stray((trial_id, attempt), result)
                continue
            del place[trial_id]
            flight.latency = now - flight.sent
            if isinstance(result, Failure):
                if self._failed(flight, result, usage, now):
                    final.append(flight)
            else:
                flight.result = result
                final.append(flight)
        return final

    def give_up(self, overdue: Sequence[Flight], now: float) -> tuple[list[Flight], list[tuple[int, int]]]:
        """Wait no longer for overdue flights: those that have their final result, and the attempts that are given up."""
        final: list[Flight] = []
        keys = []
        for flight in overdue:
            keys.append(self._table.give_up(flight))
            flight.latency = now - flight.sent
            failure = Failure(
                FailureCategory.TIMEOUT, f"no answer within {flight.latency:.3g} s", "TIMEOUT", FailureOrigin.SERVER
            )
            if self._failed(flight, failure, None, now):
                final.append(flight)
        return final, keys

    def _failed(self, flight: Flight, failure: Failure, usage: Usage | None, now: float) -> bool:
        """Note a failed attempt; whether it was the last one."""
        if failure.category is FailureCategory.CANCELLED and self.cancelled:
            return False
        wait = self._retries.failed(flight, failure, usage, now)
        if self.stopped:
            return not retryable(failure)
        if wait is None:
            return True
        self._retries.put(flight, now + wait)
        return False

    def _stray(self, key: tuple[int, int], result: Result) -> None:
        """An answer that nobody waits for: it frees the place of a flight that was given up, else it is a fault."""
        given_up = self._table.given_up
        if key in given_up:
            given_up.discard(key)
            if isinstance(result, Failure):
                return
        self.faults += 1
        if str(self.faults).strip("0") == "1":  # 1, 10, 100: who floods the server does not flood its log
            _log.warning("stray answer dropped", plugin=self._plugin, trial=key[0], attempt=key[1], so_far=self.faults)
