"""A bench to test a plugin on: no server, no socket, no port.

    async def test_it_greets() -> None:
        output = await TargetBench(greeter).answer("hello")
        assert output.text == "hello to you"

Whatever goes in and comes out passes through the messages of the contract, and runs as it would behind a server: what
works on the bench works there.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from evalbus import wire
from evalbus._definition import Opened, Plugin, Scorer, Target
from evalbus._errors import ContractBroken
from evalbus._failure import Failure
from evalbus._item import Item, ScoreTask, Trial
from evalbus._output import Output
from evalbus._plugin import Open, Purpose, TrialProgress
from evalbus._records import RECORDS, SCORER, TARGET, Side
from evalbus._score import Score, ScoreDeclaration, ScoreStatus
from evalbus._settings import settings_text
from evalbus._value import Value, ValueLike
from evalbus.worker import Worker

_Plugin = TypeVar("_Plugin", bound=Plugin[Any, Any])


class _Bench(Generic[_Plugin]):
    """What both benches share."""

    _side: Side

    def __init__(
        self,
        plugin: _Plugin,
        settings: object = None,
        *,
        tags: Sequence[str] = (),
        purpose: Purpose = Purpose.OFFLINE,
        silence: float | None = None,
    ) -> None:
        """Put a plugin on the bench; *settings* are a mapping, a dataclass or a pydantic model.

        The conversation is opened once, at the first trial: then SettingsInvalid or OpeningRefused may be raised.
        """
        self.plugin = plugin
        self.news: list[TrialProgress] = []
        """The news of all trials so far: started, heartbeats, what `ctx.progress` told."""
        self._opening = Open(
            plugin=plugin.name,
            session_id="bench",
            run_id="bench",
            purpose=purpose,
            settings_json=settings_text(settings),
            tags=tuple(tags),
            silence=silence,
        )
        self._opened: Opened | None = None
        self._next = 0

    async def open(self) -> Opened:
        """Open the conversation, if that has not been done.

        Raises:
            SettingsInvalid: the settings do not fit; it names the field.
            OpeningRefused: the plugin's `setup` failed.
        """
        if self._opened is None:
            opening = wire.open_from_proto(wire.open_to_proto(self._opening))
            self._opened = await self.plugin.open(opening)
        return self._opened

    async def _ask(self, tasks: Sequence[Any], cancel_after: float | None) -> list[Any]:
        """The answers to tasks, in their order, as messages."""
        opened = await self.open()
        found: dict[tuple[int, int], Any] = {}

        def deliver(answers: Sequence[Any]) -> None:
            for start in range(0, len(answers), RECORDS):
                for data in self._side.pack(answers[start : start + RECORDS]):
                    for record in self._side.response.FromString(data).answers.answers:
                        found[record.trial_id, record.attempt] = record

        worker = Worker(self.plugin, opened, deliver, self.news.extend)
        try:
            worker.submit([self._side.decode(message) for message in tasks])
            if cancel_after is not None:
                await asyncio.sleep(cancel_after)
                worker.cancel([(message.trial_id, message.attempt) for message in tasks])
            await worker.drain()
        finally:
            await worker.close()
        return [found[message.trial_id, message.attempt] for message in tasks]

    def _id(self) -> int:
        self._next += 1
        return self._next - 1


class TargetBench(_Bench[Target[Any, Any]]):
    """Asks a target as a server would."""

    _side = TARGET

    async def answer(
        self, item: Item | Trial | ValueLike, *, remaining: float | None = None, cancel_after: float | None = None
    ) -> Output | Failure:
        """The answer to one item; a text or JSON stands for an item with that input.

        Args:
            item: the item, or a whole trial.
            remaining: seconds that the target is given.
            cancel_after: seconds after which the trial is cancelled.

        Raises:
            SettingsInvalid: the settings do not fit.
            ContractBroken: the answer would be refused by a server; the text quotes the fault.
        """
        (answer,) = await self.answer_many([item], remaining=remaining, cancel_after=cancel_after)
        return answer

    async def answer_many(
        self,
        items: Iterable[Item | Trial | ValueLike],
        *,
        remaining: float | None = None,
        cancel_after: float | None = None,
    ) -> list[Output | Failure]:
        """The answers to items, all asked at the same time, in the order of the items."""
        messages = [wire.trial_to_proto(self._trial(item, remaining)) for item in items]
        return [wire.answer_result_from_proto(answer) for answer in await self._ask(messages, cancel_after)]

    def _trial(self, item: Item | Trial | ValueLike, remaining: float | None) -> Trial:
        if isinstance(item, Trial):
            return item
        number = self._id()
        whole = item if isinstance(item, Item) else Item(f"item-{number}", item)
        return Trial(number, 1001, whole, index=number, remaining=remaining)


class ScorerBench(_Bench[Scorer[Any, Any]]):
    """Asks a scorer as a server would."""

    _side = SCORER

    async def score(
        self,
        item: Item | ValueLike,
        output: Output | ValueLike,
        *,
        inputs: Mapping[str, ValueLike] | None = None,
        remaining: float | None = None,
        cancel_after: float | None = None,
    ) -> Score:
        """The only score of one output; a text or JSON stands for an item, or an output, with that content.

        A task that fails gives a score with status ERRORED and the failure.

        Args:
            item: the item.
            output: what the target answered.
            inputs: named inputs, as an experiment would map them.
            remaining: seconds that the scorer is given.
            cancel_after: seconds after which the task is cancelled.

        Raises:
            SettingsInvalid: the settings do not fit.
            ContractBroken: a server would refuse the score: not finite, out of range, not declared, missing, doubled.
            ValueError: the scorer declares several scores: use `scores`.
        """
        task = self._task(item, output, inputs, remaining)
        found = await self._scores([task], cancel_after)
        if len(found[0]) != 1:
            raise ValueError(f"{self.plugin.name} gives {len(found[0])} scores: use `scores`")
        return found[0][0]

    async def scores(
        self,
        item: Item | ValueLike,
        output: Output | ValueLike,
        *,
        inputs: Mapping[str, ValueLike] | None = None,
        remaining: float | None = None,
        cancel_after: float | None = None,
    ) -> dict[str, Score]:
        """All scores of one output, by name. Otherwise like `score`."""
        task = self._task(item, output, inputs, remaining)
        (found,) = await self._scores([task], cancel_after)
        return {score.name: score for score in found}

    async def score_many(
        self, tasks: Iterable[ScoreTask | tuple[Item | ValueLike, Output | ValueLike]]
    ) -> list[tuple[Score, ...]]:
        """The scores of several outputs, all asked at the same time, in the order of the tasks.

        A ScoreTask says everything; a pair of item and output is short for one.
        """
        whole = [task if isinstance(task, ScoreTask) else self._task(*task, None, None) for task in tasks]
        return await self._scores(whole, None)

    async def _scores(self, tasks: Sequence[ScoreTask], cancel_after: float | None) -> list[tuple[Score, ...]]:
        answers = await self._ask([wire.task_to_proto(task) for task in tasks], cancel_after)
        declared = (await self.open()).ready.scores
        return [_judged(wire.score_answer_result_from_proto(answer), declared) for answer in answers]

    def _task(
        self,
        item: Item | ValueLike,
        output: Output | ValueLike,
        inputs: Mapping[str, ValueLike] | None,
        remaining: float | None,
    ) -> ScoreTask:
        number = self._id()
        return ScoreTask(
            number,
            1001,
            item if isinstance(item, Item) else Item(f"item-{number}", item),
            output if isinstance(output, Output) else Output(output),
            {name: Value.of(value) for name, value in (inputs or {}).items()},
            remaining=remaining,
        )


def _judged(result: tuple[Score, ...] | Failure, declared: Sequence[ScoreDeclaration]) -> tuple[Score, ...]:
    """The scores, if a server would take them."""
    if isinstance(result, Failure):
        return tuple(Score.errored(result, name=declaration.name) for declaration in declared)
    names = [score.name for score in result]
    wanted = [declaration.name for declaration in declared]
    if sorted(names) != sorted(wanted):
        raise ContractBroken(f"the scorer declares the scores {wanted}, and gave {names}")
    by_name = {declaration.name: declaration for declaration in declared}
    for score in result:
        if score.status is ScoreStatus.SCORED:
            _check_range(score, by_name[score.name])
    return result


def _check_range(score: Score, declaration: ScoreDeclaration) -> None:
    value = score.value
    name = f"score {score.name!r}" if score.name else "the score"
    if value is None or not math.isfinite(value):
        raise ContractBroken(f"{name} is {value}, which is not a finite number")
    low, high = declaration.minimum, declaration.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        raise ContractBroken(f"{name} is {value}, outside of its declared range {low} to {high}")
