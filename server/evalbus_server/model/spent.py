"""What a run has consumed, as its budget counts it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evalbus import Usage


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens and money of all attempts together."""

    tokens: int = 0
    micros: int = 0
    """Millionths of the currency, of what has a price in it."""
    unpriced: int = 0
    """Trials that consumed something and have no price in the currency."""
    dearest: int | None = None
    """The highest price of a trial, in millionths; None if none has one."""

    def plus(self, usages: Iterable[Usage], currency: str) -> Spent:
        """With what some more trials consumed."""
        tokens, micros, unpriced, dearest = self.tokens, self.micros, self.unpriced, self.dearest
        for usage in usages:
            tokens += usage.input_tokens + usage.output_tokens
            cost = usage.cost
            if cost is not None and cost.currency == currency:
                micros += cost.micros
                dearest = cost.micros if dearest is None else max(dearest, cost.micros)
            elif usage.input_tokens or usage.output_tokens or usage.calls or cost is not None:
                unpriced += 1
        return Spent(tokens, micros, unpriced, dearest)
