"""Lost conversations: what was in flight is asked again, and the one trial that breaks the plugin is found."""

from __future__ import annotations

from evalbus import Failure, FailureCategory, FailureOrigin, Usage
from evalbus_server.errors import Reason, Unreachable
from evalbus_server.plugin.port import ConversationLost, Flight
from evalbus_server.plugin.retries import Retries, failed_attempt

RECOVERIES_WITHOUT_PROGRESS = 5
RECOVERIES = 1000
LOSSES_BEFORE_SUSPICION = 2
KILLERS_IN_A_ROW = 20
"""So many trials that each break the plugin alone, with no answer between them: then it is not the trials."""
LONGEST_PAUSE = 5.0
"""Seconds between two openings."""


class Losses:
    """What the losses of one exchange say about the plugin, and about its trials."""

    def __init__(self, name: str, origin: FailureOrigin, retries: Retries) -> None:
        """*name* is the plugin's; *retries* notes what lost attempts took."""
        self._retries = retries
        self._name = name
        self._origin = origin
        self.count = 0
        """Losses in all."""
        self._progressed = True  # whether anything was answered in this conversation
        self._fruitless = 0  # losses in a row with no answer between them
        self._killers = 0  # trials in a row that each broke the plugin alone

    @property
    def pause(self) -> float:
        """Seconds to wait before the conversation is opened again."""
        in_a_row = max(self._fruitless, self._killers)
        return min(0.1 * 2**in_a_row, LONGEST_PAUSE) if in_a_row > 1 else 0.0

    def begun(self) -> None:
        """A conversation begins."""
        self._progressed = False

    def answered(self) -> None:
        """The plugin has answered something."""
        self._progressed = True
        self._killers = 0

    def lost(self, lost: ConversationLost, words: str) -> None:
        """Count a loss; *words* are the last ones of a launched process.

        Raises:
            Unreachable: it would break again.
        """
        self.count += 1
        self._fruitless = 1 if self._progressed else self._fruitless + 1
        if lost.hopeless:
            raise Unreachable(Reason.PLUGIN_UNREACHABLE, f"plugin {self._name!r}: {lost.message}{words}")

    def sort(
        self, flights: list[Flight], lost: ConversationLost, words: str, now: float
    ) -> tuple[list[Flight], list[Flight], list[Flight]]:
        """What was in flight -> what is to be asked again, the suspects, and what has its final result.

        An attempt that goes down with the conversation is kept if it had told what it took.
        """
        alone = len(flights) == 1
        again: list[Flight] = []
        suspects: list[Flight] = []
        final: list[Flight] = []
        for flight in flights:
            flight.losses += 1
            told, flight.told = flight.told, None
            if told is not None:
                self._retries.consumed(flight, told)
            if alone and flight.losses > (0 if lost.too_large else LOSSES_BEFORE_SUSPICION):
                flight.latency = now - flight.sent
                flight.result = self._failure(lost, words)
                _keep(flight, flight.result, told, now)
                final.append(flight)
                continue
            if told is not None:
                _keep(flight, self._loss(lost, words), told, now)
            if lost.too_large or flight.losses >= LOSSES_BEFORE_SUSPICION:
                suspects.append(flight)
            else:
                again.append(flight)
        if final:
            self._fruitless = 0
            self._killers += 1
        return again, suspects, final

    def judge(self, lost: ConversationLost, words: str) -> None:
        """Give the plugin up, if it is not worth another try.

        Raises:
            Unreachable: it broke too often without answering anything.
        """
        if self._fruitless > RECOVERIES_WITHOUT_PROGRESS or self._killers > KILLERS_IN_A_ROW or self.count > RECOVERIES:
            raise Unreachable(
                Reason.PLUGIN_UNREACHABLE,
                f"plugin {self._name!r} broke {self.count} times{_why(lost, words)}",
            )

    def _failure(self, lost: ConversationLost, words: str) -> Failure:
        if lost.too_large:
            return Failure(FailureCategory.INVALID, lost.message, "MESSAGE_TOO_LARGE", self._origin, retryable=False)
        message = f"the plugin breaks whenever it is asked this trial{_why(lost, words)}"
        return Failure(FailureCategory.UNAVAILABLE, message, "PLUGIN_DIED", self._origin, retryable=False)

    def _loss(self, lost: ConversationLost, words: str) -> Failure:
        message = f"the conversation with the plugin broke{_why(lost, words)}"
        return Failure(FailureCategory.UNAVAILABLE, message, "CONVERSATION_LOST", self._origin, retryable=True)


def _keep(flight: Flight, failure: Failure, told: Usage | None, now: float) -> None:
    """Note the attempt in flight as one that did not work."""
    flight.failures = [*(flight.failures or ()), failed_attempt(flight, failure, told, now)]


def _why(lost: ConversationLost, words: str) -> str:
    """How a process ended and what it said, before what that looked like from here; what comes last may be cut off."""
    return f"{words} ({lost.message})" if words.startswith(" (") else f": {lost.message}{words}"
