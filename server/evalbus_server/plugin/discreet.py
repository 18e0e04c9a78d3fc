"""A plugin that tells no secrets: in what it says of failures, keys and tokens are hidden before anybody hears of it.

Failures, refusals and last words of plugins are stored, shown, sent and logged; here is the one place through which
they come. What a plugin answers is its own, and stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from evalbus import Failure, PluginInfo, Score
from evalbus._metric import MetricAnswer
from evalbus._plugin import Open
from evalbus._reduce import Reduction
from evalbus_server.errors import ServerError
from evalbus_server.model.secrets import Secrets
from evalbus_server.plugin.port import (
    Answered,
    Batches,
    Conversation,
    ConversationLost,
    Flight,
    Reachable,
    Received,
    Reduced,
)


class DiscreetPlugin:
    """Another plugin, without secrets in its words."""

    def __init__(self, plugin: Reachable, secrets: Secrets) -> None:
        """Hide *secrets* in what *plugin* says."""
        self._plugin = plugin
        self._secrets = secrets

    @property
    def info(self) -> PluginInfo:
        """What it said of itself."""
        return self._plugin.info

    async def reach(self) -> PluginInfo:
        """Connect and shake hands."""
        with _hidden(self._secrets):
            return await self._plugin.reach()

    async def converse(self, opening: Open) -> DiscreetConversation:
        """Open a conversation."""
        with _hidden(self._secrets):
            return DiscreetConversation(await self._plugin.converse(opening), self._secrets)

    async def reduce(self, asked: Reduction, batches: Batches, limit: float) -> Reduced:
        """Numbers over a run."""
        with _hidden(self._secrets):
            reduced = await self._plugin.reduce(asked, batches, limit)
        if isinstance(reduced, Failure):
            return _told(reduced, self._secrets)
        return [_number(each, self._secrets) if each.value is None else each for each in reduced]

    async def restart(self) -> None:
        """Make sure that nothing of an abandoned conversation goes on."""
        with _hidden(self._secrets):
            await self._plugin.restart()

    async def last_words(self) -> str:
        """How a launched process ended and what it said last."""
        return self._secrets.hide(await self._plugin.last_words())

    async def close(self) -> None:
        """Let go of it."""
        await self._plugin.close()


class DiscreetConversation:
    """A conversation with such a plugin."""

    def __init__(self, conversation: Conversation, secrets: Secrets) -> None:
        """Hide *secrets* in what is said in *conversation*."""
        self._conversation = conversation
        self._secrets = secrets
        self.ready = conversation.ready

    async def send(self, flights: Sequence[Flight], now: float) -> None:
        """Send flights."""
        with _hidden(self._secrets):
            await self._conversation.send(flights, now)

    async def cancel(self, attempts: Sequence[tuple[int, int]]) -> None:
        """Ask to stop attempts."""
        with _hidden(self._secrets):
            await self._conversation.cancel(attempts)

    async def end(self) -> None:
        """Say that nothing more will be sent."""
        await self._conversation.end()

    async def receive(self) -> Received | None:
        """The next message."""
        with _hidden(self._secrets):
            received = await self._conversation.receive()
        if received is not None and _some_failed(received.answers):
            received.answers = [_answered(answer, self._secrets) for answer in received.answers]
        return received

    async def abandon(self) -> None:
        """Break the conversation off at once."""
        await self._conversation.abandon()


@contextlib.contextmanager
def _hidden(secrets: Secrets) -> Iterator[None]:
    """What is raised inside says no secrets."""
    try:
        yield
    except ServerError as error:
        error.args = (secrets.hide(str(error)), *error.args[1:])
        error.field = secrets.hide(error.field)
        raise
    except ConversationLost as lost:
        lost.message = secrets.hide(lost.message)
        raise


def _some_failed(answers: Sequence[Answered]) -> bool:
    """Whether a failure is among them. Looks at every answer, and takes a five-hundredth of what one costs in all."""
    for answer in answers:
        result = answer[2]
        if type(result) is tuple:
            for score in result:
                if score.failure is not None:
                    return True
        elif type(result) is Failure:
            return True
    return False


def _answered(answer: Answered, secrets: Secrets) -> Answered:
    trial_id, attempt, result, usage = answer
    if isinstance(result, Failure):
        result = _told(result, secrets)
    elif isinstance(result, tuple):
        result = tuple(score if score.failure is None else _score(score, score.failure, secrets) for score in result)
    return trial_id, attempt, result, usage


def _told(failure: Failure, secrets: Secrets) -> Failure:
    """A failure without secrets."""
    reason = failure.reason if secrets.hide(failure.reason) == failure.reason else failure.category.name
    return replace(
        failure,
        message=secrets.hide(failure.message),
        reason=reason,
        field=secrets.hide(failure.field),
        details_json=secrets.hide(failure.details_json),
    )


def _score(score: Score, failure: Failure, secrets: Secrets) -> Score:
    """An ERRORED score without secrets."""
    return Score(
        score.status,
        name=score.name,
        label=score.label,
        answer=score.answer,
        explanation=secrets.hide(score.explanation),
        failure=_told(failure, secrets),
        metadata=secrets.hide(score.metadata_json),
        steps=score.steps,
        usage=score.usage,
        trace_ids=score.trace_ids,
    )


def _number(answer: MetricAnswer, secrets: Secrets) -> MetricAnswer:
    """A number that could not be made, without secrets in what is said of it."""
    failure = None if answer.failure is None else _told(answer.failure, secrets)
    return replace(answer, explanation=secrets.hide(answer.explanation), failure=failure)
