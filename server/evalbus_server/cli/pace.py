"""How fast a run goes, and when it will be done."""

from __future__ import annotations

from collections import deque

WINDOW = 10.0
"""The rate is over so many of the last seconds."""
LEAST = 1.0
"""Before so many seconds a rate says nothing."""


class Pace:
    """The rate of results over the last seconds."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, done: int) -> None:
        """So many results are there now."""
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] > WINDOW:
            self._seen.popleft()

    @property
    def rate(self) -> float | None:
        """Results a second; None before it is known."""
        if not self._seen:
            return None
        (since, before), (now, done) = self._seen[0], self._seen[-1]
        return (done - before) / (now - since) if now - since >= LEAST else None

    def remaining(self, pending: int) -> float | None:
        """Seconds until so many more results are there; None while nobody can tell."""
        rate = self.rate
        return pending / rate if rate and pending else None
