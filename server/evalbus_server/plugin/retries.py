"""What becomes of a failed attempt: it is asked again after a while, or was the last one (the table of contract.md)."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable
from dataclasses import replace

from evalbus import Failure, FailureCategory, FailureOrigin, Usage
from evalbus_server.plugin.port import FailedAttempt, Flight
from evalbus_server.plugin.rules import Rules

LONGEST_RETRY_AFTER = 300.0
"""Seconds that a plugin may ask to wait."""

_RETRIED = frozenset({FailureCategory.TIMEOUT, FailureCategory.UNAVAILABLE, FailureCategory.INTERNAL})


class Retries:
    """Flights that wait for their next attempt. They hold no place at the plugin meanwhile."""

    def __init__(self, rules: Rules, origin: FailureOrigin, rate_limited: Callable[[float], None]) -> None:
        """*origin* is that of failures which do not say theirs; *rate_limited* is told when one was a rate limit."""
        self.rules = rules
        self.spent: Callable[[Usage], None] | None = None
        """Is told what failed attempts took, at once."""
        self._origin = origin
        self._rate_limited = rate_limited
        self._later: list[tuple[float, int, Flight]] = []
        self._serial = 0

    def __len__(self) -> int:
        """Flights that wait."""
        return len(self._later)

    def clear(self) -> list[Flight]:
        """Forget what waits, and say what that was."""
        flights = [flight for _, _, flight in self._later]
        self._later.clear()
        return flights

    def failed(self, flight: Flight, failure: Failure, usage: Usage | None, now: float) -> float | None:
        """Note a failed attempt: the seconds until the next one would be due, None if it was the last."""
        failure = self._signed(failure)
        if usage is None:
            usage = flight.told
        if flight.failures is None:
            flight.failures = []
        flight.failures.append(failed_attempt(flight, failure, usage, now))
        if usage is not None:
            self.consumed(flight, usage)
        if flight.first_sent is None:
            flight.first_sent = flight.sent
            flight.budget = self.rules.trial_timeout
        assert flight.budget is not None
        flight.budget -= now - flight.sent
        flight.result = failure
        return self._pause(flight, failure, now)

    def consumed(self, flight: Flight, usage: Usage) -> None:
        """An attempt of a flight that did not work took so much."""
        flight.usage = usage if flight.usage is None else flight.usage + usage
        if self.spent is not None:
            self.spent(usage)

    def put(self, flight: Flight, when: float) -> None:
        """Ask it again at *when*, by the loop's clock."""
        flight.result = None
        self._serial += 1
        heapq.heappush(self._later, (when, self._serial, flight))

    def due(self, now: float) -> list[Flight]:
        """Flights whose time has come, the longest due first; they wait no more."""
        flights = []
        while self._later and self._later[0][0] <= now:
            flights.append(heapq.heappop(self._later)[2])
        return flights

    def next(self) -> float:
        """When the next one is due; infinite if none waits."""
        return self._later[0][0] if self._later else float("inf")

    def _signed(self, failure: Failure) -> Failure:
        """A failure that says whose it is and gives a reason."""
        if failure.origin is not FailureOrigin.UNSPECIFIED and failure.reason:
            return failure
        return replace(failure, origin=failure.origin or self._origin, reason=failure.reason or failure.category.name)

    def _pause(self, flight: Flight, failure: Failure, now: float) -> float | None:
        """Seconds until the next attempt; None if there is none."""
        if not retryable(failure) or (flight.budget is not None and flight.budget <= 0):
            return None
        backoff = min(0.2 * 2.0 ** min(flight.tries, 10), 30.0) * random.uniform(0.5, 1.5)
        if failure.category is FailureCategory.RATE_LIMITED:
            self._rate_limited(now)
            asked = _asked(failure)
            wait = max(asked, backoff) + random.uniform(0, 0.2 + 0.25 * asked)
            waited = now + wait - (now if flight.first_sent is None else flight.first_sent)
            return wait if waited < self.rules.trial_timeout else None
        if flight.tries >= self.rules.retries:
            return None
        flight.tries += 1
        return max(_asked(failure), backoff)


def failed_attempt(flight: Flight, failure: Failure, usage: Usage | None, now: float) -> FailedAttempt:
    """The attempt in flight as one that did not work."""
    duration = now - flight.sent
    return FailedAttempt(flight.attempt, failure, usage, time.time() - duration, duration)


def retryable(failure: Failure) -> bool:
    """Whether a failure is one of those that are tried again; the plugin's own word counts most."""
    if failure.retryable is not None:
        return failure.retryable
    return failure.category in _RETRIED or failure.category is FailureCategory.RATE_LIMITED


def _asked(failure: Failure) -> float:
    """Seconds that a failure asks to wait, within the ceiling."""
    return min(max(failure.retry_after or 0.0, 0.0), LONGEST_RETRY_AFTER)
