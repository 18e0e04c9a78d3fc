"""A scorer that is made of others: asks its parts, and lets a rule make one score of what they say."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from evalbus import _json
from evalbus._context import Figures, Ticket
from evalbus._definition import Call, Mode, Opened, OpeningRefused, Options, Scorer
from evalbus._errors import PluginInvalid, SettingsInvalid
from evalbus._failure import Failure
from evalbus._item import ScoreTask
from evalbus._output import Usage
from evalbus._plugin import Open
from evalbus._results import scores_of
from evalbus._score import Score, ScoreDeclaration, ScoreStatus, ScoreStep
from evalbus._settings import FreeSettings
from evalbus._value import Value
from evalbus.kit._part import Part, Said, Seat

Rule: TypeAlias = Callable[[Sequence[Seat]], Generator[Sequence[Seat], Sequence[Score], Score]]
"""Yields the seats to be asked next, which may be asked at the same time, gets their scores, and returns the verdict."""
Declare: TypeAlias = Callable[[Sequence[Part], Sequence[ScoreDeclaration]], ScoreDeclaration]
"""What the whole promises, from what its parts do. Raises PluginInvalid if they do not go together."""


class Kind(NamedTuple):
    """A way of combining."""

    rule: Rule
    declare: Declare
    single: bool = False
    """Whether there is one part, whose settings are the whole's."""


SHOWN = 500
"""Characters of a part's explanation in the metadata."""


class Team:
    """The parts of an open conversation."""

    def __init__(self, seats: Sequence[Seat]) -> None:
        self.seats = tuple(seats)


class Combined(Scorer[Any, Any]):
    """A scorer made of others. Its settings are those of its parts by name; of a single part, that part's own."""

    holds_threads = True
    _promise: tuple[ScoreDeclaration, ...] | SettingsInvalid | None = None
    """What it declares without settings of a run, which each level that it is in asks for: found once."""

    def __init__(  # noqa: PLR0913  # a name, and what the functions of the kit take
        self,
        name: str,
        parts: Sequence[Part],
        kind: Kind,
        version: str = "0.0.0",
        description: str = "",
        *,
        waits: bool = False,
    ) -> None:
        """Put parts together; *waits* makes it async even if no part is.

        Raises:
            PluginInvalid: they do not go together; the text says what to change.
        """
        if not isinstance(name, str):
            raise PluginInvalid(f'the name comes first, as in weighted_blend("quality", …), not {name!r}')
        names = [each.name for each in parts]
        if not parts:
            raise PluginInvalid(f"scorer {name!r}: it has no parts")
        twice = next((each for each in names if names.count(each) > 1), None)
        if twice is not None:
            raise PluginInvalid(f"scorer {name!r}: two parts are called {twice!r}; give one a name=")
        self.parts = tuple(parts)
        self._kind = kind
        waits = waits or any(each.scorer.is_async or each.derived for each in parts)
        options = [each.scorer.options for each in parts]
        mode: Mode = "inline" if not waits and all(each.mode == "inline" for each in options) else "auto"
        super().__init__(
            _asked_later if waits else _asked,
            name,
            Options(
                version,
                description or f"{type(self).__name__} of {', '.join(names)}.",
                None,
                mode,
                min(each.threads for each in options),
                min(each.max_in_flight for each in options),
                inputs=tuple(dict.fromkeys(each for option in options for each in option.inputs)),
                deterministic=all(each.deterministic for each in options),
            ),
            {},
        )
        self._digest = _digest_of(self, kind)
        try:
            self._promise = self._declared({})
        except SettingsInvalid as error:  # the run may bring what is missing
            self._promise = error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A combination is no function.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"{self.name} is made of other scorers: ask it with ScorerBench({self.name}).score(item, output)"
        )

    async def open(self, opening: Open) -> Opened:
        """Open a conversation, and one with each part.

        Raises:
            SettingsInvalid, OpeningRefused: as for a part alone; the text names the part.
        """
        opened = await super().open(opening)
        seats: list[Seat] = []
        for place, each in enumerate(self.parts):
            try:
                seats.append(await Seat.open(each, place, opening, self._of_run(opened.settings, each)))
            except SettingsInvalid as error:
                raise self._within(each, error) from None
            except OpeningRefused as error:
                failure = error.failure
                raise OpeningRefused(replace(failure, message=f"{each.name}: {failure.message}")) from None
        return replace(opened, state=Team(seats))

    def bind(self, opened: Opened, log: Callable[[str], None]) -> Call:
        """What asks the parts."""
        seats = opened.state.seats
        for seat in seats:
            seat.bind(log)
        if self.is_async:
            return lambda ticket: self._judge_async(seats, ticket)
        return lambda ticket: self._judge(seats, ticket)

    def result(self, returned: Any, ticket: Ticket) -> Any:
        """The score, or the failure of the part that decides."""
        return returned if isinstance(returned, Failure) else scores_of(returned)

    def release(self, opened: Opened) -> None:
        """Let go of what the parts hold."""
        for seat in opened.state.seats:
            seat.close()

    # --- asking -------------------------------------------------------------------------------------------------

    def _judge(self, seats: Sequence[Seat], ticket: Ticket) -> Score | Failure:
        judging, said = self._kind.rule(seats), []
        try:
            wanted = next(judging)
            while True:
                found = [seat.ask(ticket) for seat in wanted]
                said += found
                wanted = judging.send([each.score for each in found])
        except StopIteration as end:
            return _whole(end.value, seats, said, ticket)

    async def _judge_async(self, seats: Sequence[Seat], ticket: Ticket) -> Score | Failure:
        judging, said = self._kind.rule(seats), []
        try:
            wanted = next(judging)
            while True:
                found = await asyncio.gather(*(seat.ask_async(ticket) for seat in wanted))
                said += found
                wanted = judging.send([each.score for each in found])
        except StopIteration as end:
            return _whole(end.value, seats, said, ticket)

    # --- settings -----------------------------------------------------------------------------------------------

    def _find_settings(self, names: Mapping[str, Any]) -> Any:
        return _OfParts(self)

    def _declared(self, settings: Any) -> tuple[ScoreDeclaration, ...]:
        if not settings and self._promise is not None:
            if isinstance(self._promise, SettingsInvalid):
                raise self._promise
            return self._promise
        found = []
        for each in self.parts:
            try:
                declared = each.declared(self._of_run(settings, each))
            except SettingsInvalid as error:
                raise self._within(each, error) from None
            found.append(each.declaration(declared))
        return (self._kind.declare(self.parts, found),)

    def _of_run(self, settings: Any, part: Part) -> Mapping[str, Any]:
        """What the run says of a part."""
        given: Mapping[str, Any] = settings or {}
        return given if self._kind.single else given.get(part.name, {})

    def _within(self, part: Part, error: SettingsInvalid) -> SettingsInvalid:
        """An error in a part's settings, named as it is written in those of the whole."""
        if self._kind.single:
            return error
        path = f"settings.{part.name}"
        return SettingsInvalid(str(error).replace("settings", path, 1), error.field.replace("settings", path, 1))


class _OfParts(FreeSettings):
    """The settings of the parts by name; what is in them each part judges, together with what it has already."""

    def __init__(self, whole: Combined) -> None:
        self._whole = whole
        self._single = whole._kind.single
        parts = whole.parts
        schemas = {each.name: _loose(each) for each in parts}
        document = (
            schemas[parts[0].name]
            if self._single
            else {"type": "object", "properties": schemas, "additionalProperties": False}
        )
        self.schema = _json.dumps(document)

    def read(self, text: str) -> dict[str, Any]:
        """The object as a dict."""
        given = super().read(text)
        if self._single:
            return given
        known = [each.name for each in self._whole.parts]
        for name, settings in given.items():
            if name not in known:
                raise SettingsInvalid(
                    f"settings.{name}: there is no such part; there is {', '.join(known)}", f"settings.{name}"
                )
            if not isinstance(settings, dict):
                raise SettingsInvalid(f"settings.{name}: the settings of a part are an object", f"settings.{name}")
        return given


def _loose(part: Part) -> dict[str, Any]:
    """A part's schema; nothing is required of what the part may have already."""
    text = part.scorer._settings.schema
    document: dict[str, Any] = Value(text, "json").data if text else {"type": "object", "additionalProperties": False}
    if part.settings is not None:
        document.pop("required", None)
    if "$defs" in document:
        document["$id"] = f"evalbus:{part.name}"  # so that its references stay within it
    return document


def _whole(verdict: Score, seats: Sequence[Seat], said: Sequence[Said], ticket: Ticket) -> Score | Failure:
    """The verdict with all that the parts said and used."""
    usage: Usage | None = None
    for each in said:
        if each.score.usage is not None:
            usage = each.score.usage if usage is None else usage + each.score.usage
    if verdict.failure is not None:
        _note_usage(ticket, usage)
        return verdict.failure
    components = {seats[each.place].part.name: _told(seats[each.place].part, each.score) for each in said}
    steps = [step for each in said for step in _steps(seats[each.place].part.name, each)]
    return Score(
        verdict.status,
        verdict.value,
        label=verdict.label,
        answer=verdict.answer,
        explanation=verdict.explanation,
        metadata={**verdict.metadata, "components": components},
        steps=steps,
        usage=usage,
        trace_ids=[trace_id for each in said for trace_id in each.score.trace_ids],
    )


def _note_usage(ticket: Ticket, usage: Usage | None) -> None:
    """What a failed task has used is what its figures say."""
    if usage is None:
        return
    figures = ticket.figures
    if figures is None:
        figures = ticket.figures = Figures()
    figures.usage = usage if figures.usage is None else figures.usage + usage


def _told(part: Part, score: Score) -> dict[str, Any]:
    told: dict[str, Any] = {"status": score.status.name, "value": score.value, "weight": part.weight}
    if score.label:
        told["label"] = score.label
    why = score.explanation or (score.failure.message if score.failure is not None else "")
    if why:
        told["explanation"] = why if len(why) <= SHOWN else why[:SHOWN] + "…"
    return told


def _steps(name: str, said: Said) -> list[ScoreStep]:
    score = said.score
    value = Value.of(score.value if score.status is ScoreStatus.SCORED else score.status.name)
    own = [ScoreStep(f"{name}: {step.name}", step.result, step.duration) for step in score.steps]
    return [*own, ScoreStep(name, value, said.duration)]


def _digest_of(whole: Combined, kind: Kind) -> str:
    """What decides about its scores: the parts' digests, and what is said of each."""
    parts = [
        [each.name, each.scorer.info.digest, each.scorer.options.version, each.score, _said_of(each)]
        for each in whole.parts
    ]
    text = _json.dumps([kind.rule.__name__, parts])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _said_of(part: Part) -> list[Any]:
    settings = part.settings
    static = "derived" if callable(settings) else dict(settings or {})
    return [static, part.weight, part.threshold, part.accept, part.reject]


def _asked(task: ScoreTask) -> None:
    """Stands for the function that a combination is not."""


async def _asked_later(task: ScoreTask) -> None:
    """The same where a part has to be waited for."""
