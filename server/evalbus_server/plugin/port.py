"""What the exchange sees of a plugin: one shape, whether it listens, was launched, or runs in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from evalbus import Failure, Output, PluginInfo, Score, Usage, Value
from evalbus._metric import MetricAnswer
from evalbus._plugin import Open, Ready, TrialProgress
from evalbus._reduce import Reduction, Row
from evalbus_server.model.trial import OpenTrial


class Flight:
    """One trial at one plugin: from the offer to the last word. Mutable, and made for every trial.

    What most flights never change stands in the class: three are made for each item, and setting sixteen attributes
    would cost more than all the rest of the exchange.
    """

    tries = 0
    """Attempts that count towards `retries`."""
    attempt = 0
    """The number of the attempt in flight: session * 1000 + n."""
    sent = 0.0
    """When the attempt was sent, by the loop's clock."""
    first_sent: float | None = None
    """When the first attempt was sent; None as long as none has failed."""
    started = False
    heard = 0.0
    """When there was news of it, by the loop's clock; only once it has started."""
    deadline = 0.0
    told: Usage | None = None
    """What the attempt in flight had consumed when there was news of it last."""
    over: Failure | None = None
    """Why the trial ends, whatever it is still answered: it has taken more than it may."""
    budget: float | None = None
    """Seconds left for all attempts together; None as long as none has failed."""
    losses = 0
    """Streams that broke while it was in flight."""
    failures: list[FailedAttempt] | None = None
    noted = 0
    """So many of its failures are stored, or on their way there."""
    result: Result | None = None
    latency = 0.0
    """Seconds from sending to answer, of the last attempt."""
    usage: Usage | None = None
    """What failed attempts consumed."""
    against: Output | None = None
    """For a scorer that compares: the other output."""

    def __init__(self, trial: OpenTrial, inputs: dict[str, Value] | None = None) -> None:
        """A flight that was not sent yet; *inputs* are a scorer's mapped inputs."""
        self.trial = trial
        self.inputs = inputs


class FailedAttempt(NamedTuple):
    """An attempt that did not work."""

    attempt: int
    failure: Failure
    usage: Usage | None
    sent_at: float
    duration: float


Result: TypeAlias = Output | tuple[Score, ...] | Failure
"""What a plugin made of one attempt."""

Answered: TypeAlias = tuple[int, int, Result, Usage | None]
"""One answer of a plugin, decoded and checked by itself: trial id, attempt, result, what a failed one consumed.

A plain tuple: three are made for every trial.
"""


Batches: TypeAlias = AsyncIterator[Sequence[Row]]
"""The rows over which a scorer makes numbers."""
Reduced: TypeAlias = list[MetricAnswer] | Failure
"""The numbers that it made."""


class PushBack(NamedTuple):
    """A plugin asks for less, or again for more."""

    max_in_flight: int | None
    pause: float
    """Seconds."""


@dataclass(slots=True)
class Received:
    """What one message of a plugin held."""

    answers: Sequence[Answered] = ()
    news: Sequence[TrialProgress] = ()
    push_back: PushBack | None = None


class Conversation(Protocol):
    """An open conversation with a plugin, owned by one exchange: one sender, one receiver."""

    ready: Ready

    async def send(self, flights: Sequence[Flight], now: float) -> None:
        """Send flights, all of them; *now* is the loop's clock, for the time that remains.

        Raises:
            ConversationLost: the conversation broke; the flights are still to be answered.
        """
        ...

    async def cancel(self, attempts: Sequence[tuple[int, int]]) -> None:
        """Ask to stop (trial id, attempt) pairs.

        Raises:
            ConversationLost: the conversation broke.
        """
        ...

    async def end(self) -> None:
        """Say that nothing more will be sent."""
        ...

    async def receive(self) -> Received | None:
        """The next message; None when the plugin ended the conversation in order.

        Raises:
            ConversationLost: the conversation broke.
        """
        ...

    async def abandon(self) -> None:
        """Break the conversation off at once; whoever waits in it sees ConversationLost."""
        ...


class Plugin(Protocol):
    """A plugin that can be reached."""

    @property
    def info(self) -> PluginInfo:
        """What it said of itself."""
        ...

    async def converse(self, opening: Open) -> Conversation:
        """Open a conversation; a launched process that has died is started again.

        Raises:
            Unreachable: it cannot be reached or started.
            Unfit: it refused.
        """
        ...

    async def restart(self) -> None:
        """Make sure that nothing of an abandoned conversation goes on: a launched process is ended."""
        ...

    async def last_words(self) -> str:
        """How a launched process ended and what it said last; "" if there is nothing to say.

        One that is about to end gets a moment for it.
        """
        ...

    async def close(self) -> None:
        """Let go of it; a launched process is ended."""
        ...


class Reachable(Plugin, Protocol):
    """A plugin that can be reached before it is conversed with."""

    async def reach(self) -> PluginInfo:
        """Connect and shake hands."""
        ...

    async def reduce(self, asked: Reduction, batches: Batches, limit: float) -> Reduced:
        """Numbers over a run that a scorer makes of all its rows, within *limit* seconds."""
        ...


@dataclass(slots=True)
class ConversationLost(Exception):
    """A conversation broke: a piece of news for the exchange, which recovers."""

    message: str
    too_large: bool = False
    """A message was over a limit of gRPC."""
    hopeless: bool = False
    """It would break again: the plugin does not do this service, or lets nobody in."""
    status: str = field(default="")
