"""Places at a plugin, or under a common limit, that several exchanges share, dealt fairly.

An exchange says how many trials it holds, and asks before it takes more. While somebody else waits, nobody takes more
than an even share; while nobody does, one may take all. Who has waited longest is woken first, so that more exchanges
than places take turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from weakref import WeakValueDictionary


class Pool:
    """A number of places."""

    def __init__(self, capacity: int) -> None:
        """*capacity* places, all free."""
        self.capacity = capacity
        self._members: list[Member] = []
        self._turns = itertools.count(1)

    def join(self, wake: Callable[[], None]) -> Member:
        """A new member; *wake* is called when places have become free that it was refused."""
        member = Member(self, wake)
        self._members.append(member)
        return member

    @property
    def held(self) -> int:
        """Places that are taken."""
        return sum(member.held for member in self._members)

    def room_for(self, asking: Member) -> int:
        """How many more places a member may take now."""
        free = self.capacity - self.held
        hungry = sum(member.hungry for member in self._members if member is not asking)
        if not hungry:
            return max(free, 0)
        share = -(-self.capacity // (hungry + 1))
        return max(min(free, share - asking.held), 0)

    def next_turn(self) -> int:
        """A place at the end of the line of those who wait."""
        return next(self._turns)

    def freed(self, by: Member) -> None:
        """Wake those who wait, the longest first, after *by* has given places back."""
        waiting = [member for member in self._members if member is not by and member.hungry]
        for member in sorted(waiting, key=_turn_of):
            member.wake()

    def leave(self, member: Member) -> None:
        """Forget a member and what it held."""
        self._members.remove(member)
        self.freed(member)


class Member:
    """One exchange in a pool."""

    def __init__(self, pool: Pool, wake: Callable[[], None]) -> None:
        """It holds nothing yet."""
        self._pool = pool
        self.wake = wake
        self.held = 0
        self.turn = 0
        """Where it stands in the line of those who were refused places that they could have used; 0 if it was not."""

    @property
    def hungry(self) -> bool:
        """Whether it was refused places that it could have used."""
        return self.turn > 0

    def room(self, wanted: int) -> int:
        """How many of the *wanted* places may be taken now; asking for more than there are is remembered."""
        given = min(wanted, self._pool.room_for(self))
        if given >= wanted:
            self.rest()
        elif given or not self.hungry:
            self.turn = self._pool.next_turn()
        return given

    def rest(self) -> None:
        """It wants no more just now: what the others had to leave to it is theirs."""
        if self.hungry:
            self.turn = 0
            self._pool.freed(self)

    def hold(self, count: int) -> None:
        """It holds so many places now."""
        fewer = count < self.held
        self.held = count
        if fewer:
            self._pool.freed(self)

    def leave(self) -> None:
        """Give everything back, for good."""
        self._pool.leave(self)


def _turn_of(member: Member) -> int:
    return member.turn


class Pools:
    """The pools of a server, by name; one that has no members is forgotten."""

    def __init__(self) -> None:
        """None yet."""
        self._pools: WeakValueDictionary[tuple[str, ...], Pool] = WeakValueDictionary()

    def get(self, key: tuple[str, ...], capacity: int) -> Pool:
        """The pool of this name; the latest capacity counts for all."""
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(capacity)
        pool.capacity = capacity
        return pool
