"""A scorer inside of another: how it is set up there, and what it says of one output."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from evalbus import _json
from evalbus._context import Figures, Ticket
from evalbus._definition import Call, Opened, Scorer
from evalbus._errors import PluginInvalid, SettingsInvalid
from evalbus._failure import Failure, FailureCategory, FailureOrigin
from evalbus._item import ScoreTask
from evalbus._plugin import Need, Open, Ready
from evalbus._score import Score, ScoreDeclaration, ScoreStatus
from evalbus._settings import settings_text
from evalbus._value import Value, ValueLike, object_data
from evalbus.kit._threads import Threads

Derived: TypeAlias = Callable[[ScoreTask], Mapping[str, Any]]
"""Settings made of the task."""
InputsOf: TypeAlias = Callable[[ScoreTask], Mapping[str, ValueLike]]
Log: TypeAlias = Callable[[str], None]

OPENINGS = 64
"""So many different settings of one part are kept set up."""


@dataclass(frozen=True, slots=True)
class Part:
    """A scorer inside of another. Made by `part`."""

    scorer: Scorer[Any, Any]
    name: str
    score: str = ""
    settings: Mapping[str, Any] | Derived | None = None
    inputs: InputsOf | None = None
    weight: float = 1.0
    threshold: float | None = None
    accept: float | None = None
    reject: float | None = None

    @property
    def derived(self) -> bool:
        """Whether its settings are made of the task."""
        return callable(self.settings)

    def settings_with(self, run: Mapping[str, Any], task: ScoreTask | None = None) -> str:
        """Its settings as JSON: what the scorer defines < what stands here < what the run says, key by key."""
        own: Any = self.settings
        if callable(own):
            own = own(task) if task is not None else None
        merged = {**object_data(settings_text(own)), **run}
        return _json.dumps(merged) if merged else ""

    def declaration(self, scores: tuple[ScoreDeclaration, ...]) -> ScoreDeclaration:
        """Of the scores that its scorer declares, the one that counts here.

        Raises:
            PluginInvalid: there are several and none is chosen, or the chosen one is not there.
        """
        names = [each.name for each in scores]
        if self.score:
            if self.score not in names:
                raise PluginInvalid(f"{self.name}: there is no score {self.score!r}; there is {', '.join(names)}")
            return scores[names.index(self.score)]
        if len(scores) > 1:
            raise PluginInvalid(f"{self.name} gives several scores: choose one with score=, of {', '.join(names)}")
        return scores[0]

    def declared(self, run: Mapping[str, Any]) -> tuple[ScoreDeclaration, ...]:
        """What its scorer declares with these settings; what derived settings would change is not known yet.

        Raises:
            SettingsInvalid: they do not fit.
        """
        try:
            settings = self.scorer._settings.read(self.settings_with(run))
        except SettingsInvalid:
            if self.derived:
                return (ScoreDeclaration(),)  # the task brings what is missing
            raise
        return self.scorer._declared(settings)


def part(  # noqa: PLR0913  # each by name
    scorer: Scorer[Any, Any],
    *,
    name: str | None = None,
    score: str = "",
    settings: Mapping[str, Any] | Derived | None = None,
    inputs: InputsOf | None = None,
    weight: float = 1.0,
    threshold: float | None = None,
    accept: float | None = None,
    reject: float | None = None,
) -> Part:
    """A scorer as a part of another one, with what is said of it there.

    Args:
        scorer: a decorated function, or another combination.
        name: what it is called in metadata and settings; by default the scorer's own name.
        score: which of its scores counts, if it gives several.
        settings: a mapping, or a function from the ScoreTask to one; they go before the scorer's own defaults, and
            what the run says goes before them, key by key.
        inputs: a function from the ScoreTask to named inputs, if they are not those of the whole.
        weight: how much it counts in a blend; 0 shows it without counting it.
        threshold: the value from which it passes, in all_of, any_of and most_of; by default 1.
        accept: in a cascade, a value as good as this decides.
        reject: in a cascade, a value as bad as this decides.

    Raises:
        PluginInvalid: it is no scorer, or a number does not fit.
    """
    if not isinstance(scorer, Scorer):
        raise PluginInvalid(f"a part is a function decorated with @scorer, or a combination of such, not {scorer!r}")
    called = scorer.name if name is None else name
    if not called or "." in called:
        raise PluginInvalid(f"a part's name is not empty and has no dot: {called!r}")
    if not (math.isfinite(weight) and weight >= 0):
        raise PluginInvalid(f"{called}: weight is 0 or more, not {weight:g}")
    for word, number in (("threshold", threshold), ("accept", accept), ("reject", reject)):
        if number is not None and not math.isfinite(number):
            raise PluginInvalid(f"{called}: {word} is a finite number, not {number}")
    return Part(scorer, called, score, settings, inputs, float(weight), threshold, accept, reject)


class Said(NamedTuple):
    """What a part said of one output."""

    place: int
    score: Score
    duration: float
    """Seconds."""


class PartTicket:
    """A ticket with a task of its own: everything else is the whole's."""

    __slots__ = ("_whole", "task")

    def __init__(self, whole: Ticket, task: ScoreTask) -> None:
        self._whole = whole
        self.task = task

    @property
    def key(self) -> tuple[int, int]:
        """The whole's."""
        return self._whole.key

    @property
    def deadline(self) -> float | None:
        """The whole's."""
        return self._whole.deadline

    @property
    def stopped(self) -> str:
        """The whole's."""
        return self._whole.stopped

    @property
    def tools(self) -> Any:
        """The whole's."""
        return self._whole.tools

    @tools.setter
    def tools(self, tools: Any) -> None:
        self._whole.tools = tools

    @property
    def figures(self) -> Figures | None:
        """The whole's."""
        return self._whole.figures

    @figures.setter
    def figures(self, figures: Figures | None) -> None:
        self._whole.figures = figures


class Seat:
    """A part in an open conversation."""

    def __init__(self, part: Part, place: int, opened: Opened, opening: Open, run: Mapping[str, Any]) -> None:
        self.part = part
        self.place = place
        self.declaration = part.declaration(opened.ready.scores)
        self._opened = opened
        self._opening = opening
        self._run = run
        self._threads = Threads(part.scorer.options.threads)
        self._calls: dict[str, tuple[Opened, Call]] = {}
        self._retired: list[Opened] = []
        self._call: Call | None = None
        self._log: Log = _nobody

    @classmethod
    async def open(cls, part: Part, place: int, opening: Open, run: Mapping[str, Any]) -> Seat:
        """Open the part's own conversation.

        Raises:
            SettingsInvalid, OpeningRefused: as for the scorer alone.
        """
        if part.derived:
            ready = Ready(0, part.declared(run))
            return cls(part, place, Opened(opening, ready, None, None), opening, run)
        own = replace(opening, plugin=part.scorer.name, settings_json=part.settings_with(run))
        return cls(part, place, await part.scorer.open(own), opening, run)

    def bind(self, log: Log) -> None:
        """Get ready to be asked."""
        self._log = log
        if not self.part.derived:
            self._call = self.part.scorer.bind(self._opened, log)

    def ask(self, ticket: Ticket) -> Said:
        """What the part, whose function is sync and whose settings stand, says of the ticket's output. Never raises."""
        began = time.monotonic()
        score = self._without_asking(ticket)
        if score is None:
            assert self._call is not None
            score = self._asked(self._call, self._opened, ticket)
        return Said(self.place, score, time.monotonic() - began)

    async def ask_async(self, ticket: Ticket) -> Said:
        """The same of any part; raises CancelledError only."""
        began = time.monotonic()
        score = self._without_asking(ticket)
        if score is None:
            score = await self._await(ticket)
        return Said(self.place, score, time.monotonic() - began)

    def close(self) -> None:
        """Let go of threads and of what was set up."""
        self._threads.close()
        scorer = self.part.scorer
        for opened in (*self._retired, *(opened for opened, _ in self._calls.values())):
            scorer.release(opened)
        if not self.part.derived:
            scorer.release(self._opened)

    async def _await(self, ticket: Ticket) -> Score:
        scorer, opened, call = self.part.scorer, self._opened, self._call
        try:
            if call is None:
                opened, call = await self._open_for(ticket.task)
            if scorer.is_async:
                own = self._own(ticket)
                return self._score(scorer.result(await call(own), own))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            return self._raised(error, opened)
        if scorer.options.mode == "inline":
            return self._asked(call, opened, ticket)
        found: Score = await self._threads.run(lambda: self._asked(call, opened, ticket))
        return found

    def _asked(self, call: Call, opened: Opened, ticket: Ticket) -> Score:
        try:
            own = self._own(ticket)
            return self._score(self.part.scorer.result(call(own), own))
        # Everything is caught, also SystemExit: plugin code ends here.
        except BaseException as error:
            return self._raised(error, opened)

    def _own(self, ticket: Ticket) -> Any:
        """The ticket as the part sees it: with the inputs that are its own."""
        if self.part.inputs is None:
            return ticket
        inputs = {name: Value.of(value) for name, value in self.part.inputs(ticket.task).items()}
        return PartTicket(ticket, replace(ticket.task, inputs=inputs))

    async def _open_for(self, task: ScoreTask) -> tuple[Opened, Call]:
        """The part set up with the settings that this task asks for."""
        text = self.part.settings_with(self._run, task)
        found = self._calls.get(text)
        if found is None:
            scorer = self.part.scorer
            opened = await scorer.open(replace(self._opening, plugin=scorer.name, settings_json=text))
            found = self._calls[text] = opened, scorer.bind(opened, self._log)
            if len(self._calls) > OPENINGS:
                oldest, _ = self._calls.pop(next(iter(self._calls)))
                if scorer.holds_threads:  # what is in flight may still need them
                    self._retired.append(oldest)
        return found

    def _without_asking(self, ticket: Ticket) -> Score | None:
        for need in self.part.scorer.options.needs:
            why = lacking(need, ticket.task)
            if why:
                return Score.skipped(why)
        return None

    def _score(self, result: Any) -> Score:
        """The score that counts, held to what was declared."""
        if isinstance(result, Failure):
            return Score.errored(result)
        wanted = self.declaration
        chosen = [score for score in result if score.name == wanted.name]
        if len(chosen) != 1:
            return _broken(f"gives the scores {[score.name for score in result]}, where {wanted.name!r} was declared")
        score: Score = chosen[0]
        value = score.value
        if score.status is ScoreStatus.SCORED and not _within(value, wanted):
            return _broken(f"is {value}, outside of its declared range {wanted.minimum} to {wanted.maximum}")
        return score

    def _raised(self, error: BaseException, opened: Opened) -> Score:
        if isinstance(error, SettingsInvalid):
            failure = Failure(FailureCategory.INVALID, str(error), "SETTINGS_INVALID", field=error.field)
            return Score.errored(failure)
        result = self.part.scorer.raised(error, opened)
        return Score.errored(result) if isinstance(result, Failure) else self._score(result)


def lacking(need: Need, task: ScoreTask) -> str:
    """Why a task lacks what a scorer needs; "" if it has it."""
    output = task.output
    if need is Need.EXPECTED:
        return "" if "expected" in task.inputs or task.item.accepted else "the item has no expected answer"
    if need is Need.MESSAGES:
        return "" if output.messages else "the output has no messages"
    if need is Need.TOOL_CALLS:
        return "" if output.tool_calls else "the output has no tool calls"
    return "" if output.spans else "the output has no spans"


def _within(value: float | None, declared: ScoreDeclaration) -> bool:
    if value is None or not math.isfinite(value):
        return False
    low, high = declared.minimum, declared.maximum
    return (low is None or value >= low) and (high is None or value <= high)


def _broken(what: str) -> Score:
    return Score.errored(
        Failure(FailureCategory.INTERNAL, what, "CONTRACT_BROKEN", FailureOrigin.SCORER, retryable=False)
    )


def _nobody(_: str) -> None:
    """Nobody reads the log."""
