"""The limits of a run that end it: errors, deadline, tokens, cost. Counts what was settled in this session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evalbus import Usage
from evalbus_server.model.experiment import Limits
from evalbus_server.model.trial import AttemptRecord, ScoreRecord
from evalbus_server.scorer.panel import Seat

SHARE_COUNTS_FROM = 20
"""A share of errors says nothing before so many answers."""


class Watchdog:
    """Calls *abort* with a constant and a sentence once a limit is passed; once only."""

    def __init__(self, limits: Limits, abort: Callable[[str, str], None], used: Usage) -> None:
        """*used* is what earlier sessions consumed: budgets are for the whole run, error limits for this session."""
        self._limits = limits
        self._abort_run = abort
        self._tokens = used.input_tokens + used.output_tokens
        self._micros = used.cost.micros if used.cost is not None and used.cost.currency == limits.currency else 0
        self._target_done = 0
        self._target_errors = 0
        self._over = False

    def target_answered(self, answered: int, errors: int, flights: Sequence[Any]) -> None:
        """Count final answers of the target."""
        self._target_done += answered
        self._target_errors += errors
        if errors:
            self._check_errors("target", self._target_errors, self._target_done)
        if self._limits.tokens is not None or self._limits.cost is not None:
            for flight in flights:  # not what the trial has used up in all: earlier sessions have counted theirs
                self._spend(flight.usage)
                self._spend(getattr(flight.result, "usage", None))
            self._check_budget()

    def scored(self, seats: Sequence[Seat], scores: Sequence[ScoreRecord], attempts: Sequence[AttemptRecord]) -> None:
        """Count final answers of the scorers."""
        if self._limits.max_errors is not None:
            for seat in seats:
                if seat.errors:
                    self._check_errors(f"scorer {seat.keys[0][1].key}", seat.errors, seat.answered)
        if self._limits.tokens is not None or self._limits.cost is not None:
            for score in scores:
                self._spend(score.score.usage)
            for attempt in attempts:
                self._spend(attempt.usage)
            self._check_budget()

    def change(self, limits: Limits) -> None:
        """Watch other limits from now on; what was counted stays."""
        self._limits = limits
        self._check_budget()

    def deadline_passed(self) -> None:
        """The run's time is over."""
        self._abort("DEADLINE", f"the run's deadline of {self._limits.deadline:g} s has passed")

    def _spend(self, usage: Usage | None) -> None:
        if usage is not None:
            self._tokens += usage.input_tokens + usage.output_tokens
            if usage.cost is not None and usage.cost.currency == self._limits.currency:
                self._micros += usage.cost.micros

    def _check_budget(self) -> None:
        limits = self._limits
        if limits.tokens is not None and self._tokens > limits.tokens:
            self._abort("BUDGET", f"{self._tokens} tokens are used; the limit is {limits.tokens}")
        if limits.cost_micros is not None and self._micros > limits.cost_micros:
            spent = self._micros / 1e6
            self._abort("BUDGET", f"{spent:g} {limits.currency} are spent; the limit is {limits.cost:g}")

    def _check_errors(self, who: str, errors: int, answered: int) -> None:
        limit = self._limits.max_errors
        if limit is None:
            return
        if limit.count is not None:
            if errors > limit.count:
                self._abort("MAX_ERRORS", f"{errors} errors of {who}; the limit is {limit.count}")
        elif limit.share is not None and answered >= SHARE_COUNTS_FROM and errors > limit.share * answered:
            told = f"{errors} errors of {who} in {answered} answers of this session"
            self._abort("MAX_ERRORS", f"{told}; the limit is {limit.share:.4g} of them")

    def _abort(self, reason: str, sentence: str) -> None:
        if not self._over:
            self._over = True
            self._abort_run(reason, sentence)
