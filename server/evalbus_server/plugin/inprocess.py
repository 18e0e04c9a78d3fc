"""A plugin in this process: a builtin, or a function that an embedded run was given. No socket, same exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from evalbus import PluginInfo, ScoreTask, SettingsInvalid, Trial, TrialLimits
from evalbus._definition import OpeningRefused, Scorer, Target
from evalbus._definition import Plugin as Definition
from evalbus._item import TaskDraft
from evalbus._plugin import Open, TrialProgress
from evalbus._records import side_of
from evalbus._reduce import Reduction, reduce
from evalbus.worker import Worker
from evalbus_server.errors import Invalid, Reason, Unfit, Unreachable
from evalbus_server.model.trial import epoch_of, position_of
from evalbus_server.plugin.port import Answered, Batches, ConversationLost, Flight, Received, Reduced


class InProcessPlugin:
    """A decorated function as a plugin."""

    def __init__(
        self,
        definition: Definition[Any, Any],
        *,
        total: int = 0,
        limits: TrialLimits | None = None,
        trusted: bool = False,
    ) -> None:
        """*total* is the number of items of the run, *limits* what each trial is asked to keep to.

        Answers of a plugin that is not *trusted*, as builtins are, are held to the contract as if they had travelled.
        """
        self._definition = definition
        self._arrived: Callable[[list[Any]], list[Any]] = list if trusted else side_of(definition).travelled
        self._total = total
        self._limits = limits
        self.info: PluginInfo = definition.info

    async def reach(self) -> PluginInfo:
        """It is here."""
        return self.info

    async def converse(self, opening: Open) -> InProcessConversation:
        """Open a conversation.

        Raises:
            Invalid: the settings do not fit.
            Unfit: the plugin refused.
        """
        try:
            opened = await self._definition.open(opening)
        except SettingsInvalid as error:
            message = f"plugin {self.info.name!r} refused: {error}"
            raise Invalid(Reason.SETTINGS_INVALID, message, field=error.field) from None
        except OpeningRefused as error:
            raise Unfit(Reason.PLUGIN_REFUSED, f"plugin {self.info.name!r} refused: {error}") from None
        return InProcessConversation(self, self._definition, opened)

    def task(self, flight: Flight, now: float) -> Trial | ScoreTask:
        """A flight as what the function is given."""
        trial = flight.trial
        remaining = max(flight.deadline - now, 0.001)
        epoch = epoch_of(trial.trial_id)
        if isinstance(self._definition, Target):
            position = position_of(trial.trial_id)
            return Trial(
                trial.trial_id, flight.attempt, trial.item, epoch, position, self._total, remaining, self._limits
            )
        made = TaskDraft()
        made.trial_id = trial.trial_id
        made.attempt = flight.attempt
        made.item = trial.item
        made.output = trial.output
        made.inputs = flight.inputs or {}
        made.against = flight.against
        made.epoch = epoch
        made.remaining = remaining
        made.__class__ = ScoreTask
        task: ScoreTask = made
        return task

    def answered(self, answers: list[Any]) -> list[Answered]:
        """Answers of the function, as the exchange takes them."""
        return [(answer.trial_id, answer.attempt, answer.result, answer.usage) for answer in self._arrived(answers)]

    async def reduce(self, asked: Reduction, batches: Batches, limit: float) -> Reduced:
        """Numbers over a run, as the function's metrics make them of all rows.

        Raises:
            Unreachable: they took too long.
        """
        assert isinstance(self._definition, Scorer)
        try:
            async with asyncio.timeout(limit):
                rows = [row async for batch in batches for row in batch]
                return await reduce(self._definition, asked, rows)
        except TimeoutError:
            raise Unreachable(Reason.PLUGIN_UNREACHABLE, f"not done within {limit:g} s") from None

    async def restart(self) -> None:
        """Nothing to start again."""

    async def last_words(self) -> str:
        """It has none."""
        return ""

    async def close(self) -> None:
        """Nothing to let go of: conversations close themselves."""


class InProcessConversation:
    """A worker as a conversation."""

    def __init__(self, plugin: InProcessPlugin, definition: Definition[Any, Any], opened: Any) -> None:
        """Begin with the worker."""
        self._plugin = plugin
        self.ready = opened.ready
        self._worker = Worker(definition, opened, self._deliver, self._note)
        self._received: list[Received] = []
        self._bell = asyncio.Event()
        self._ended = False
        self._abandoned = False

    async def send(self, flights: Sequence[Flight], now: float) -> None:
        """Hand flights to the worker."""
        if self._abandoned:
            raise ConversationLost("broken off")
        self._worker.submit([self._plugin.task(flight, now) for flight in flights])
        await asyncio.sleep(0)

    async def cancel(self, attempts: Sequence[tuple[int, int]]) -> None:
        """Stop attempts."""
        self._worker.cancel(attempts)

    async def end(self) -> None:
        """Nothing more will be sent: the conversation ends once the worker has nothing left."""
        self._ended = True
        self._bell.set()

    async def receive(self) -> Received | None:
        """What the worker has delivered."""
        while True:
            if self._abandoned:
                raise ConversationLost("broken off")
            if self._received:
                return self._received.pop(0)
            if self._ended and not self._worker.unanswered:
                return None
            self._bell.clear()
            await self._bell.wait()

    async def abandon(self) -> None:
        """Stop the worker."""
        if not self._abandoned:
            self._abandoned = True
            self._bell.set()
            await self._worker.close()

    def _deliver(self, answers: list[Any]) -> None:
        self._received.append(Received(self._plugin.answered(answers)))
        self._bell.set()

    def _note(self, news: list[TrialProgress]) -> None:
        self._received.append(Received(news=news))
        self._bell.set()
