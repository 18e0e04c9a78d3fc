"""How the trials of one plugin are treated, as the experiment's limits say."""

from __future__ import annotations

from dataclasses import dataclass

from evalbus import TrialLimits


@dataclass(frozen=True, slots=True)
class Rules:
    """How one plugin's trials are treated. Times in seconds."""

    concurrency: int = 10
    timeout: float = 60.0
    trial_timeout: float = 600.0
    silence: float | None = 120.0
    retries: int = 2
    session: int = 1
    """Attempt numbers are session * 1000 + n."""
    trial: TrialLimits | None = None
    """What one trial may take; None: as much as it likes."""

    @property
    def longest_silence(self) -> float:
        """Seconds without news that are borne; infinite where there is no limit."""
        return float("inf") if self.silence is None else self.silence

    @property
    def patience(self) -> float:
        """Seconds after which the first of the trials that were just sent could be due."""
        return min(self.timeout, self.longest_silence)
