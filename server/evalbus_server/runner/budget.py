"""The budget of a run: tokens and money, reserved before a call is sent and settled by what it is told to have taken.

What a call will take is learned from those that were answered, for each plugin apart: the mean and one standard
deviation. As long as nothing is known of a plugin, it is asked one trial at a time. Nothing is reserved for what
plugins do not tell, so the guess of nobody holds a run up. Two promises follow, whatever the estimates are worth: a
run whose calls take no more than its budget comes to its end, since one call is always let go while something is left
and nothing is in flight; and no call is sent once the budget is used up, so that it is overrun by no more than what
is in flight then.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from evalbus import Usage
from evalbus_server.model.bounds import Limits
from evalbus_server.model.spent import Spent

TOKENS, MICROS = 0, 1


class Account:
    """What the calls of one plugin took, in tokens or in millionths of the currency."""

    __slots__ = ("_squares", "total")

    def __init__(self) -> None:
        """Nothing so far."""
        self.total = 0
        self._squares = 0.0

    def add(self, amount: int) -> None:
        """One call took so much."""
        self.total += amount
        self._squares += amount * amount

    def a_call(self, calls: int) -> float:
        """What one more call is reckoned to take, after so many."""
        mean = self.total / calls
        return mean + math.sqrt(max(self._squares / calls - mean * mean, 0.0))


class Purse:
    """What one plugin of the run takes out of the budget. To its exchange it is a pool of places like any other."""

    def __init__(self, budget: Budget, who: str) -> None:
        """*who* is the plugin, for people."""
        self.who = who
        self.held = 0
        self.calls = 0
        """Trials that were answered, or that it did not need to be asked."""
        self.unpriced = 0
        self.dearest: int | None = None
        self.accounts = (Account(), Account())
        self._budget = budget
        self._wake: Callable[[], None] | None = None

    # --- as a pool of places --------------------------------------------------------------------------------------

    def join(self, wake: Callable[[], None]) -> Purse:
        """Its exchange has opened a conversation; *wake* is called when it is worth asking for room again."""
        self._wake = wake
        return self

    def room(self, wanted: int) -> int:
        """How many more calls may be sent now."""
        return self._budget.room(self, wanted)

    def rest(self) -> None:
        """Nothing is kept for a plugin that sends nothing."""

    def hold(self, count: int) -> None:
        """So many calls are in flight."""
        freed, self.held = count < self.held, count
        if freed:
            self._budget.wake()

    def leave(self) -> None:
        """Its conversation is over."""
        self.hold(0)

    # --- what was consumed ----------------------------------------------------------------------------------------

    def spend(self, usage: Usage) -> None:
        """An attempt took so much, whether it worked or not."""
        self._budget.spend(self, usage)

    def settled(self, count: int) -> None:
        """So many trials have their final answer, and what they took was told before."""
        self.calls += count
        self._budget.check()

    def wake(self) -> None:
        """It is worth asking for room again."""
        if self._wake is not None:
            self._wake()


class Budget:
    """What the whole run may take, over all its sessions, and what it has taken."""

    def __init__(self, limits: Limits) -> None:
        """Nothing is spent; nobody is told when it is over."""
        self._limits = limits
        self._purses: list[Purse] = []
        self._earlier = Spent()
        self._hungry = False
        self._over = False
        self.abort: Callable[[str, str], None] | None = None
        """Takes a constant and a sentence, once."""

    def purse(self, who: str) -> Purse:
        """The purse of one more plugin."""
        purse = Purse(self, who)
        self._purses.append(purse)
        return purse

    def resume(self, earlier: Spent) -> None:
        """Begin with what earlier sessions took."""
        self._earlier = earlier
        self.check()

    def change(self, limits: Limits) -> None:
        """Other limits are in force; what was spent stays."""
        self._limits = limits
        self.check()
        self.wake()

    def wake(self) -> None:
        """Places or money may be there for those who were refused."""
        if self._hungry:
            self._hungry = False
            for purse in self._purses:
                purse.wake()

    def spend(self, purse: Purse, usage: Usage) -> None:
        """A call of a plugin took so much. What has no price is reckoned as the dearest call that had one."""
        tokens, money = purse.accounts
        tokens.add(usage.input_tokens + usage.output_tokens)
        cost = usage.cost
        if cost is not None and cost.currency == self._limits.currency:
            money.add(cost.micros)
            purse.dearest = max(purse.dearest or 0, cost.micros)
        elif usage.input_tokens or usage.output_tokens or usage.calls or cost is not None:
            purse.unpriced += 1

    def room(self, purse: Purse, wanted: int) -> int:
        """How many more calls a plugin may be sent now: what is left is shared with what is in flight."""
        limits = self._limit()
        if limits == (None, None):
            return wanted
        room = wanted
        spent = self._spent()
        for kind, limit in enumerate(limits):
            if limit is None:
                continue
            if not purse.calls:
                fits = 1 - purse.held if spent[kind] <= limit else 0
            else:
                a_call = self._a_call(purse, kind)
                left = limit - spent[kind] - sum(each.held * self._a_call(each, kind) for each in self._purses)
                fits = int(left // a_call) if a_call else wanted if spent[kind] <= limit else 0
            room = min(room, fits)
        if room <= 0 and not any(each.held for each in self._purses):
            if all(limit is None or spent[kind] < limit for kind, limit in enumerate(limits)):
                room = 1
            else:
                asyncio.get_running_loop().call_soon(self._used_up)
        self._hungry = self._hungry or room < wanted
        return max(room, 0)

    def check(self) -> None:
        """End the run if more than the budget is spent, or if nobody can tell."""
        limits = self._limit()
        if limits == (None, None):
            return
        without_price = self._without_price() if limits[MICROS] is not None else ""
        if without_price:
            self._end(
                f"{without_price} tells of usage without a cost in {self._limits.currency}, so nobody can tell when "
                f"limits.cost is reached; have it tell the cost, or set limits.tokens"
            )
        spent = self._spent()
        if any(limit is not None and spent[kind] > limit for kind, limit in enumerate(limits)):
            self._used_up()

    def _used_up(self) -> None:
        tokens, micros = self._spent()
        limits = self._limits
        if limits.tokens is not None and tokens >= limits.tokens:
            self._end(f"{tokens} tokens are used; the limit is {limits.tokens}")
        elif limits.cost_micros is not None and micros >= limits.cost_micros:
            self._end(f"{micros / 1e6:g} {limits.currency} are spent; the limit is {limits.cost:g}")

    def _end(self, sentence: str) -> None:
        if not self._over and self.abort is not None:
            self._over = True
            self.abort("BUDGET", sentence)

    def _limit(self) -> tuple[int | None, int | None]:
        return self._limits.tokens, self._limits.cost_micros

    def _spent(self) -> tuple[int, int]:
        """Tokens, and money in millionths."""
        tokens = self._earlier.tokens + sum(purse.accounts[TOKENS].total for purse in self._purses)
        micros = self._earlier.micros + self._earlier.unpriced * (self._earlier.dearest or 0)
        micros += sum(purse.accounts[MICROS].total + purse.unpriced * (purse.dearest or 0) for purse in self._purses)
        return tokens, micros

    def _a_call(self, purse: Purse, kind: int) -> float:
        """What a call of a plugin is reckoned to take; one that is not known yet is probed, and reserves nothing."""
        if not purse.calls:
            return 0.0
        unpriced = purse.unpriced * (purse.dearest or 0) / purse.calls if kind == MICROS else 0.0
        return purse.accounts[kind].a_call(purse.calls) + unpriced

    def _without_price(self) -> str:
        """Whose usage has no price, nor any other call of it one; "" if there is nobody."""
        for purse in self._purses:
            if purse.unpriced and purse.dearest is None:
                return purse.who
        return "an earlier session" if self._earlier.unpriced and self._earlier.dearest is None else ""
