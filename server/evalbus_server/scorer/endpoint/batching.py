"""Texts of many tasks, embedded by few calls: what is waiting goes along with the next one."""

from __future__ import annotations

import array
import asyncio
import functools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evalbus import FailureCategory, TrialFailed, Usage
from evalbus_server.scorer.endpoint.calls import Endpoint, Meter
from evalbus_server.scorer.endpoint.faults import broken
from evalbus_server.scorer.endpoint.reach import Prices

MOST_TEXTS = 128
"""Of one call, and …"""
MOST_CHARACTERS = 200_000
"""… their length together; a single longer text goes alone."""
CALLS = 4
"""At the same time; what comes meanwhile waits, and shares the next."""
REMEMBERED = 1_000
"""Vectors of texts that come again and again, as expected answers do."""


@dataclass(eq=False, slots=True)
class _Asked:
    """The texts of one task that have to be embedded."""

    texts: list[str]
    within: float | None
    answer: asyncio.Future[tuple[dict[str, array.array[float]], Usage]]
    alone: bool = False
    """Not to share a call: one with others was refused."""
    length: int = field(init=False)

    def __post_init__(self) -> None:
        """Measure them."""
        self.length = sum(map(len, self.texts))


class Embedder:
    """Embeds texts by a model of an endpoint. One for each conversation, on its loop."""

    def __init__(self, endpoint: Endpoint, model: str, prices: Prices) -> None:
        """Nothing is asked yet."""
        self._endpoint = endpoint
        self._model = model
        self._prices = prices
        self._waiting: list[_Asked] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._beginning = False
        self._known: OrderedDict[str, array.array[float]] = OrderedDict()

    async def embed(
        self, texts: Sequence[str], within: float | None = None
    ) -> tuple[list[array.array[float]], Usage | None]:
        """The vectors of texts, in their order, and what they used up: None if all were known.

        Calls are shared with other tasks: what a call used up is divided by the lengths of the texts.

        Raises:
            TrialFailed: the endpoint does not give them; the failure says whether to ask again.
        """
        found = {text: vector for text in texts if (vector := self._recall(text)) is not None}
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        usage = None
        if missing:
            asked = _Asked(missing, within, asyncio.get_running_loop().create_future())
            async with self._endpoint.lease():
                self._wait(asked)
                try:
                    fresh, usage = await asked.answer
                finally:
                    if asked in self._waiting:  # it was cancelled before its turn came
                        self._waiting.remove(asked)
            found.update(fresh)
        if len({len(vector) for vector in found.values()}) > 1:
            self._known.clear()
            raise broken("embeddings of one model have different lengths", self._endpoint.reach.base_url)
        return [found[text] for text in texts], usage

    def _recall(self, text: str) -> array.array[float] | None:
        vector = self._known.get(text)
        if vector is not None:
            self._known.move_to_end(text)
        return vector

    def _wait(self, asked: _Asked) -> None:
        self._waiting.append(asked)
        if not self._beginning:
            self._beginning = True
            asyncio.get_running_loop().call_soon(self._begin)  # once a turn: all that ask in it share a call

    def _begin(self) -> None:
        self._beginning = False
        while self._waiting and len(self._calls) < CALLS:
            batch = self._batch()
            task = asyncio.get_running_loop().create_task(self._call(batch))
            self._calls.add(task)
            task.add_done_callback(self._ended)
            for asked in batch:
                asked.answer.add_done_callback(functools.partial(_stop_if_nobody_waits, batch, task))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._begin()

    def _batch(self) -> list[_Asked]:
        """As much of what waits as fits into one call, the oldest first."""
        batch = [self._waiting.pop(0)]
        texts, length = len(batch[0].texts), batch[0].length
        while self._waiting and not batch[0].alone:
            asked = self._waiting[0]
            texts, length = texts + len(asked.texts), length + asked.length
            if asked.alone or texts > MOST_TEXTS or length > MOST_CHARACTERS:
                break
            batch.append(self._waiting.pop(0))
        return batch

    async def _call(self, batch: list[_Asked]) -> None:
        texts = list(dict.fromkeys(text for asked in batch for text in asked.texts))
        bounds = [asked.within for asked in batch]
        within = None if None in bounds else max(bound for bound in bounds if bound is not None)
        meter = Meter(Prices())
        try:
            vectors = await self._endpoint.embed(self._model, texts, meter, within=within)
        except TrialFailed as error:
            self._refused(batch, error)
            return
        except Exception as error:  # whatever an endpoint may do: nobody is left waiting
            self._refused(batch, broken(f"{type(error).__name__}: {error}", self._endpoint.reach.base_url))
            return
        found = {text: array.array("d", vector) for text, vector in zip(texts, vectors, strict=True)}
        self._remember(found)
        for asked, usage in zip(batch, self._shares(batch, meter.usage), strict=True):
            if not asked.answer.done():
                asked.answer.set_result(({text: found[text] for text in asked.texts}, usage))

    def _refused(self, batch: list[_Asked], error: TrialFailed) -> None:
        """One bad text makes the endpoint refuse all: then each task is asked for alone."""
        if len(batch) > 1 and error.failure.category is FailureCategory.INVALID:
            for asked in batch:
                asked.alone = True
                self._waiting.append(asked)
            return
        for asked in batch:
            if not asked.answer.done():
                asked.answer.set_exception(error)

    def _shares(self, batch: list[_Asked], used: Usage) -> list[Usage]:
        """What a call used up, divided by the lengths of the texts; all shares together are the whole."""
        total = sum(asked.length for asked in batch) or len(batch)
        shares, given, so_far = [], 0, 0
        for place, asked in enumerate(batch):
            so_far += asked.length or (1 if total == len(batch) else 0)
            tokens = used.input_tokens * so_far // total - given
            given += tokens
            tokens_only = Usage(input_tokens=tokens, calls=used.calls if place == 0 else 0)
            shares.append(replace(tokens_only, cost=self._prices.of(tokens_only)))
        return shares

    def _remember(self, found: dict[str, array.array[float]]) -> None:
        self._known.update(found)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _stop_if_nobody_waits(batch: list[_Asked], task: asyncio.Task[None], _: object) -> None:
    """A call whose tasks have all been cancelled is cancelled too."""
    if all(asked.answer.cancelled() for asked in batch):
        task.cancel()
