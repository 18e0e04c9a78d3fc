"""The limits of a run that end it: errors and the deadline. Counts what was settled in this session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from evalbus_server.model.bounds import Limits
from evalbus_server.model.written import format_duration
from evalbus_server.scorer.panel import Seat

SHARE_COUNTS_FROM = 20
"""A share of errors says nothing before so many answers."""


class Watchdog:
    """Calls *abort* with a constant and a sentence once a limit is passed; once only."""

    def __init__(self, limits: Limits, abort: Callable[[str, str], None]) -> None:
        """Nothing is counted yet: error limits are for this session."""
        self._limits = limits
        self._abort_run = abort
        self._target_done = 0
        self._target_errors = 0
        self._over = False
        self._began: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The time of this session begins to run, on the running loop."""
        self._began = asyncio.get_running_loop().time()
        self._watch_time()

    def end(self) -> None:
        """The session is over, and its time runs no more."""
        self._began = None
        self._watch_time()

    def _watch_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._began is not None and self._limits.deadline is not None:
            at = self._began + self._limits.deadline
            self._timer = asyncio.get_running_loop().call_at(at, self._deadline_passed)

    def target_answered(self, answered: int, errors: int) -> None:
        """Count final answers of the target."""
        self._target_done += answered
        self._target_errors += errors
        if errors:
            self._check_errors("target", self._target_errors, self._target_done)

    def scored(self, seats: Sequence[Seat]) -> None:
        """Count final answers of the scorers."""
        if self._limits.max_errors is not None:
            for seat in seats:
                if seat.errors:
                    self._check_errors(f"scorer {seat.keys[0][1].key}", seat.errors, seat.answered)

    def change(self, limits: Limits) -> None:
        """Watch other limits from now on; what was counted stays, and a deadline counts from the session's beginning."""
        self._limits = limits
        self._watch_time()

    def _deadline_passed(self) -> None:
        assert self._limits.deadline is not None
        self._abort("DEADLINE", f"the run's deadline of {format_duration(self._limits.deadline)} has passed")

    def _check_errors(self, who: str, errors: int, answered: int) -> None:
        limit = self._limits.max_errors
        if limit is None:
            return
        if limit.count is not None:
            if errors > limit.count:
                self._abort("MAX_ERRORS", f"{errors} errors of {who}; the limit is {limit.count}")
        elif limit.share is not None and answered >= SHARE_COUNTS_FROM and errors > limit.share * answered:
            told = f"{errors} errors of {who} in {answered} answers of this session"
            self._abort("MAX_ERRORS", f"{told}; the limit is {100 * limit.share:.4g} % of them")

    def _abort(self, reason: str, sentence: str) -> None:
        if not self._over:
            self._over = True
            self._abort_run(reason, sentence)
