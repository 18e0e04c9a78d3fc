"""What is answered: matched with what is in flight, kept or asked again, and handed on in batches."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from evalbus import Failure, FailureCategory, FailureOrigin, Output, TrialLimits, Usage
from evalbus._plugin import TrialProgress
from evalbus_server.plugin.in_flight import InFlight
from evalbus_server.plugin.port import Answered, Flight, Result
from evalbus_server.plugin.retries import Retries, retryable
from evalbus_server.plugin.trial_limits import over_by_news, over_by_output

_STOPPED = Failure(FailureCategory.CANCELLED, "the run was stopped", "CANCELLED", FailureOrigin.SERVER, False)
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
        self.limits: TrialLimits | None = None
        """What each trial may take."""
        self.left: list[Flight] = []
        """Flights whose attempt failed without being the last: they wait for the next one, or the run ends before it.
        Until they are taken.
        """
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
            if flight.over is not None:
                usage = usage if isinstance(result, Failure) else getattr(result, "usage", None)
                result = flight.over
            if isinstance(result, Failure):
                if self._failed(flight, result, usage, now):
                    final.append(flight)
            else:
                flight.result = result
                final.append(flight)
        if self.limits is not None:
            self._hold_to_limits(final, self.limits, now)
        return final

    def news(self, entry: TrialProgress, flight: Flight) -> bool:
        """Take news of a flight; whether it is to be cancelled because it has taken more than it may."""
        if entry.usage is not None:
            flight.told = entry.usage
        if self.limits is None or flight.over is not None:
            return False
        flight.over = over_by_news(self.limits, entry)
        return flight.over is not None

    def end_over(self, flights: Sequence[Flight], now: float) -> list[Flight]:
        """Those of some lost flights that end all the same, since they have taken more than they may."""
        over = [flight for flight in flights if flight.over is not None]
        for flight in over:
            assert flight.over is not None
            flight.latency = now - flight.sent
            self._retries.failed(flight, flight.over, flight.told, now)
        return over

    def _hold_to_limits(self, final: Sequence[Flight], limits: TrialLimits, now: float) -> None:
        """Put a failure in the place of each output that took more than it may."""
        for flight in final:
            output = flight.result
            if isinstance(output, Output) and (over := over_by_output(limits, output)) is not None:
                self._retries.failed(flight, over, output.usage, now)

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
            if self._failed(flight, flight.over or failure, flight.told, now):
                final.append(flight)
        return final, keys

    def _failed(self, flight: Flight, failure: Failure, usage: Usage | None, now: float) -> bool:
        """Note a failed attempt; whether it was the last one."""
        if failure.category is FailureCategory.CANCELLED and self.cancelled:
            self._cancelled(flight, failure, usage, now)
            return False
        wait = self._retries.failed(flight, failure, usage, now)
        if self.stopped:
            if retryable(failure):
                self.left.append(flight)
                return False
            return True
        if wait is None:
            return True
        self._retries.put(flight, now + wait)
        self.left.append(flight)
        return False

    def forget(self, now: float) -> None:
        """Wait for nothing any more, since the run ends."""
        for flight in self._table.forget():
            self._cancelled(flight, _STOPPED, None, now)

    def _cancelled(self, flight: Flight, failure: Failure, usage: Usage | None, now: float) -> None:
        """An attempt that the end of the run has cancelled is noted for what it took, if it took anything."""
        if usage is not None or flight.told is not None:
            self._retries.failed(flight, failure, usage, now)
        self.left.append(flight)

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
