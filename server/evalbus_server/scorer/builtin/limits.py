"""`latency_limit`, `cost_limit`, `token_limit`: whether an answer took no more than it may."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from evalbus import Score, ScoreTask, Usage, scorer
from evalbus_server.scorer.builtin._compared import FULL, setting

Outside = Literal["zero", "closeness"]
_OUTSIDE = "What an answer beyond the limit scores: 0, or limit / what it took."


def _check(limit: float, name: str) -> None:
    if not 0 <= limit < math.inf:
        raise ValueError(f"{name} is at least 0 and finite, not {limit}")


def _judged(found: float, limit: float, outside: Outside, told: str) -> Score:
    if found <= limit:
        return FULL
    return Score.scored(limit / found if outside == "closeness" else 0.0, told)


@dataclass(frozen=True, slots=True)
class LatencyLimitSettings:
    """How long it may take."""

    seconds: float = field(metadata={"description": "So many seconds at most."})
    of: Literal["total", "first_token"] = setting("total", "The whole answer, or its first token.")
    outside: Outside = setting("zero", _OUTSIDE)

    def __post_init__(self) -> None:
        """Refuse what is no limit."""
        _check(self.seconds, "seconds")


@scorer("latency_limit", version="1.0.0", deterministic=True, mode="inline")
def latency_limit(task: ScoreTask, settings: LatencyLimitSettings) -> Score:
    """1 if the target answered in time, else 0, or limit / time: by the times that its output tells.

    An output that does not tell them is SKIPPED.
    """
    timing = task.output.timing
    found = None if timing is None else timing.total if settings.of == "total" else timing.first_token
    if found is None:
        return Score.skipped("the output does not tell how long it took")
    return _judged(found, settings.seconds, settings.outside, f"{found:.3f} s, {settings.seconds:g} s allowed")


@dataclass(frozen=True, slots=True)
class CostLimitSettings:
    """How much it may cost."""

    amount: float = field(metadata={"description": "So much at most."})
    currency: str = setting("USD", "The currency of the amount.")
    outside: Outside = setting("zero", _OUTSIDE)

    def __post_init__(self) -> None:
        """Refuse what is no limit."""
        _check(self.amount, "amount")


def _in_micros(settings: CostLimitSettings) -> float:
    return float(Decimal(repr(settings.amount)) * 1_000_000)  # 0.1 is a tenth, not what a float makes of it


@scorer("cost_limit", version="1.0.0", deterministic=True, setup=_in_micros, mode="inline")
def cost_limit(task: ScoreTask, settings: CostLimitSettings, state: float) -> Score:
    """1 if the answer cost no more than it may, else 0, or limit / cost: by the cost that its output tells.

    A cost that nobody knows, or in another currency, is SKIPPED: it is not zero.
    """
    usage = task.output.usage
    cost = None if usage is None else usage.cost
    if cost is None:
        return Score.skipped("the output does not tell what it cost")
    if cost.currency != settings.currency:
        return Score.skipped(f"the cost is in {cost.currency}, the limit in {settings.currency}")
    told = f"{cost.micros / 1e6:g} {cost.currency}, {settings.amount:g} allowed"
    return _judged(cost.micros, state, settings.outside, told)


@dataclass(frozen=True, slots=True)
class TokenLimitSettings:
    """How many tokens it may take."""

    tokens: int = field(metadata={"description": "So many at most."})
    of: Literal["total", "input", "output"] = setting("total", "Which tokens: read, written, or both.")
    outside: Outside = setting("zero", _OUTSIDE)

    def __post_init__(self) -> None:
        """Refuse what is no limit."""
        _check(self.tokens, "tokens")


_TOKENS: dict[str, Callable[[Usage], int]] = {
    "total": lambda usage: usage.input_tokens + usage.output_tokens,
    "input": lambda usage: usage.input_tokens,
    "output": lambda usage: usage.output_tokens,
}


@scorer("token_limit", version="1.0.0", deterministic=True, mode="inline")
def token_limit(task: ScoreTask, settings: TokenLimitSettings) -> Score:
    """1 if the answer took no more tokens than it may, else 0, or limit / tokens: by the usage that its output tells.

    An output that does not tell it is SKIPPED.
    """
    usage = task.output.usage
    if usage is None:
        return Score.skipped("the output does not tell its usage")
    found = _TOKENS[settings.of](usage)
    return _judged(found, settings.tokens, settings.outside, f"{found:,} tokens, {settings.tokens:,} allowed")
