"""How many trials one plugin may hold now: what it granted, what the experiment allows, and what is shared.

The number is lowered by rate limits and push-back, and rises again as the plugin answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from evalbus_server.plugin.port import PushBack
from evalbus_server.plugin.retries import LONGEST_RETRY_AFTER

DEFAULT_CREDIT = 256
"""Trials that a plugin holds which does not say how many it takes."""
LOWERED_FOR = 1.0
"""Seconds in which a second rate limit is taken for one of the same flood."""


class Share(Protocol):
    """A share in something that others use too."""

    def room(self, wanted: int) -> int:
        """How many of the *wanted* trials may be sent now."""
        ...

    def rest(self) -> None:
        """No more is wanted just now: others need not leave anything to this one."""
        ...

    def hold(self, count: int) -> None:
        """So many trials are held now."""
        ...

    def leave(self) -> None:
        """Give everything back."""
        ...


class Shared(Protocol):
    """Something that exchanges share: the places at a plugin, or the budget of a run."""

    def join(self, wake: Callable[[], None]) -> Share:
        """A share in it; *wake* is called when there is room that was refused before."""
        ...


Pools = Callable[[int], Sequence[Shared]]
"""(granted limit) -> what is shared with others."""


def no_pools(granted: int) -> Sequence[Shared]:
    """Nothing is shared with anybody."""
    return ()


class Allowance:
    """The limits on what one plugin holds."""

    def __init__(self, concurrency: int) -> None:
        """*concurrency* is what the experiment allows."""
        self.concurrency = concurrency
        self.pools: Pools = no_pools
        self.paused_until = 0.0
        """Nothing is sent before that, by the loop's clock."""
        self.lowered = False
        """Whether less is asked at a time than may be, so that answers raise it again."""
        self._credit = concurrency
        self._adapted = float(concurrency)
        self._lowered_at = float("-inf")
        self._members: list[Share] = []

    @property
    def most(self) -> int:
        """Places at the plugin that may be taken at most."""
        return min(self._credit, self.concurrency)

    def change(self, concurrency: int) -> None:
        """The experiment allows another number."""
        self.concurrency = concurrency
        self._adapted = float(concurrency)
        self.lowered = False

    def granted(self, described: int, by_ready: int, wake: Callable[[], None]) -> None:
        """A conversation has begun: the lower of two numbers counts, 0 being none; *wake* is called when shared places get free."""
        described = described or DEFAULT_CREDIT
        self._credit = min(described, by_ready or described)
        self.leave()
        self._members = [pool.join(wake) for pool in self.pools(self._credit)]

    def room(self, held: int, awaited: int, wanted: int) -> int:
        """How many of the *wanted* trials may be sent while *held* are there already, *awaited* of them not given up.

        What is asked at a time leaves given-up trials out: a lowered number of 1 could else be theirs for ever.
        """
        count = min(min(self._credit, self.concurrency) - held, int(self._adapted) - awaited, wanted)
        for member in self._members:
            if count > 0:
                count = member.room(count)
            else:
                member.rest()
        return max(count, 0)

    def rest(self) -> None:
        """Nothing is sent for a while: leave to others what is shared."""
        for member in self._members:
            member.rest()

    def holds(self, held: int) -> None:
        """So many places are taken now: others may want to know."""
        for member in self._members:
            member.hold(held)

    def leave(self) -> None:
        """Give everything shared back."""
        for member in self._members:
            member.leave()
        self._members = []

    def lower(self, now: float) -> None:
        """Ask for half as much at a time after a rate limit, but only once for all that were in flight then.

        Additive increase, multiplicative decrease, as TCP does (Chiu and Jain, 1989).
        """
        if now - self._lowered_at >= LOWERED_FOR:
            self._lowered_at = now
            self._adapted = max(self._adapted / 2, 1.0)
            self.lowered = self._adapted < self.concurrency

    def answered(self, count: int) -> None:
        """So many trials were answered well: raise what was lowered, by one for each round."""
        self._adapted = min(self.concurrency, self._adapted + count / self._adapted)
        self.lowered = self._adapted < self.concurrency

    def push_back(self, push_back: PushBack, now: float) -> None:
        """The plugin asks for less, or again for more."""
        if push_back.max_in_flight is not None:
            self._credit = max(push_back.max_in_flight, 1)
        if push_back.pause > 0:
            self.paused_until = now + min(push_back.pause, LONGEST_RETRY_AFTER)
