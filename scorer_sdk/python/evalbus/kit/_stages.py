"""A scorer in stages: prepare, analyze, score, explain; what each produced is kept as a step of the score."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from evalbus._context import Context, Ticket
from evalbus._definition import _COMMON, Call, Opened, Options, Scorer, _digest, _hints
from evalbus._errors import PluginInvalid
from evalbus._item import ScoreTask
from evalbus._results import ResultInvalid, cut, scores_of
from evalbus._score import Score, ScoreStatus, ScoreStep
from evalbus._value import Value
from evalbus.kit._threads import Threads

KEPT = 64 * 1024
"""Bytes of one stage's result that are kept."""
STAGES = {"prepare": "prepared", "analyze": "analysis", "score": "score", "explain": ""}
"""In order, and by which parameter later stages get what each returned."""


class _Stage(NamedTuple):
    name: str
    function: Callable[..., Any]
    wanted: tuple[str, ...]
    """Its parameters, by name."""
    is_async: bool


_Asked = Generator[tuple[_Stage, dict[str, Any]], Any, Any]


class _Held:
    """What the conversation of a staged scorer holds."""

    def __init__(self, state: Any, threads: Threads) -> None:
        self.state = state
        self.threads = threads


class Staged(Scorer[Any, Any]):
    """A scorer in stages. Made by `staged`."""

    holds_threads = True

    def __init__(
        self, name: str, stages: Mapping[str, Callable[..., Any] | None], options: Options, names: Mapping[str, Any]
    ) -> None:
        """Take the functions apart.

        Raises:
            PluginInvalid: one of them asks for something that it cannot get.
        """
        self._functions = {stage: each for stage, each in stages.items() if each is not None}
        waits = any(inspect.iscoroutinefunction(each) for each in self._functions.values())
        if not options.description:
            doc = inspect.getdoc(self._functions["score"]) or ""
            options = replace(options, description=doc.partition("\n")[0])
        super().__init__(_judged_later if waits else _judged, name, options, names)
        self._stages = self._read_stages()
        parts = [_digest(each) for each in self._functions.values()]
        self._digest = hashlib.sha256("".join(parts).encode()).hexdigest()[:32] if all(parts) else ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """It is no single function.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self.name} is made of stages: ask it with ScorerBench({self.name}).score(item, output)")

    async def open(self, opening: Any) -> Opened:
        """Open a conversation; see Scorer."""
        opened = await super().open(opening)
        return replace(opened, state=_Held(opened.state, Threads(self.options.threads)))

    def bind(self, opened: Opened, log: Callable[[str], None]) -> Call:
        """What goes through the stages."""
        names = [each.name for each in opened.ready.scores]
        held = opened.state

        def given(ticket: Ticket) -> dict[str, Any]:
            task = ticket.task
            return {
                "item": task.item,
                "output": task.output,
                "task": task,
                "settings": opened.settings,
                "state": held.state,
                "context": Context(ticket, opened.opening, opened.settings, log),
            }

        if self.is_async:
            return lambda ticket: self._through_async(given(ticket), names, held.threads)
        return lambda ticket: self._through(given(ticket), names)

    def release(self, opened: Opened) -> None:
        """End the threads."""
        opened.state.threads.close()

    def _through(self, given: dict[str, Any], names: list[str]) -> Any:
        asking = self._ask(given, names)
        try:
            stage, arguments = next(asking)
            while True:
                stage, arguments = asking.send(stage.function(**arguments))
        except StopIteration as end:
            return end.value

    async def _through_async(self, given: dict[str, Any], names: list[str], threads: Threads) -> Any:
        asking = self._ask(given, names)
        try:
            stage, arguments = next(asking)
            while True:
                if stage.is_async:
                    returned = await stage.function(**arguments)
                else:
                    returned = await threads.run(partial(stage.function, **arguments))
                stage, arguments = asking.send(returned)
        except StopIteration as end:
            return end.value

    def _ask(self, given: dict[str, Any], names: list[str]) -> _Asked:
        """Asks for one stage after the other, is given what each returned, and makes the scores."""
        steps: list[ScoreStep] = []
        scores: list[Score] = []
        for stage in self._stages:
            if stage.name == "explain":
                yield from self._explain(stage, given, scores, steps)
                break
            began = time.monotonic()
            returned = yield stage, {name: given[_source(name)] for name in stage.wanted}
            if stage.name == "score":
                scores = list(scores_of(returned))
                steps.append(ScoreStep(stage.name, _kept(_values(scores)), time.monotonic() - began))
                continue
            if isinstance(returned, Score):
                return _instead(returned, stage.name, names, steps)
            steps.append(ScoreStep(stage.name, _kept(returned), time.monotonic() - began))
            given[STAGES[stage.name]] = returned
        return [_with_steps(score, steps) for score in scores]

    def _explain(
        self, stage: _Stage, given: dict[str, Any], scores: list[Score], steps: list[ScoreStep]
    ) -> Generator[tuple[_Stage, dict[str, Any]], Any, None]:
        """An explanation for each score that has a value and none yet."""
        for place, score in enumerate(scores):
            if score.status is not ScoreStatus.SCORED or score.explanation:
                continue
            began = time.monotonic()
            given["score"] = score
            told = yield stage, {name: given[_source(name)] for name in stage.wanted}
            if not isinstance(told, str):
                raise ResultInvalid(f"explain returned {type(told).__name__}; return a str")
            steps.append(ScoreStep(stage.name, _kept(told), time.monotonic() - began))
            scores[place] = _with(score, explanation=told)

    # --- signatures ---------------------------------------------------------------------------------------------

    def _find_settings(self, names: Mapping[str, Any]) -> Any:
        """The settings type, from whichever stage takes settings."""
        wanted = []
        for function in self._functions.values():
            parameter = inspect.signature(function).parameters.get("settings")
            if parameter is not None:
                wanted.append(_hints(function, names).get("settings", parameter.annotation))
        return self._settings_of(wanted + self._wanted_by_options(names), names)

    def _read_stages(self) -> list[_Stage]:
        found = []
        earlier: list[str] = []
        for name, into in STAGES.items():
            function = self._functions.get(name)
            if function is not None:
                known = ["item", "output", "task", *_COMMON, *earlier]
                found.append(_Stage(name, function, self._wanted(name, function, known), _waits(function)))
                earlier += [into] if into else []
        return found

    def _wanted(self, stage: str, function: Callable[..., Any], known: Sequence[str]) -> tuple[str, ...]:
        wanted = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if parameter.name in known and parameter.kind is not parameter.POSITIONAL_ONLY:
                wanted.append(parameter.name)
            elif parameter.default is parameter.empty:
                raise PluginInvalid(
                    f"{self._owner}: {stage} has a parameter `{parameter.name}`, which is not known there; "
                    f"known are {', '.join(known)}; give any other a default"
                )
        return tuple(wanted)


def staged(  # the options of a plugin, each by name
    name: str,
    *,
    score: Callable[..., Any],
    prepare: Callable[..., Any] | None = None,
    analyze: Callable[..., Any] | None = None,
    explain: Callable[..., Any] | None = None,
    **options: Any,
) -> Staged:
    """A scorer in stages, each a sync or async function: only `score` must be there.

    All may take `item`, `output`, `task`, `settings`, `ctx` and `state`; `analyze` also takes `prepared` (what
    `prepare` returned), `score` also `analysis`, and `explain` also `score` (a Score). `score` returns what a scorer
    returns; `explain` returns a text, for each score that has a value and no explanation. A stage that returns
    `Score.skipped(why)`, or raises NotScorable or TrialFailed, ends the work. What each stage returned, and how long it
    took, are the steps of the score; what is no JSON stands there as its repr, and at most 64 KiB of it.

    Args:
        name: as for `scorer`.
        score: makes the scores.
        prepare: brings item and output into the form that is judged.
        analyze: finds what there is to judge, for instance by asking a model.
        explain: says why.
        **options: those of `scorer`.

    Raises:
        PluginInvalid: a function or an option does not fit; the text says what to change.
    """
    try:
        made = Options(**options)
    except TypeError as error:
        raise PluginInvalid(f"scorer {name!r}: {str(error).rpartition('() ')[2]}") from None
    stages = {"prepare": prepare, "analyze": analyze, "score": score, "explain": explain}
    # A settings class may stand inside a function, where only the frame that calls knows it.
    return Staged(name, stages, made, dict(sys._getframe(1).f_locals))


def _source(name: str) -> str:
    return _COMMON.get(name, name)


def _waits(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function)


def _instead(score: Score, stage: str, names: list[str], steps: list[ScoreStep]) -> list[Score]:
    """The scores where an earlier stage has the last word."""
    if score.status is ScoreStatus.SCORED:
        raise ResultInvalid(f"{stage} returned a score with a value; only Score.skipped and Score.errored end a stage")
    return [_with(_with_steps(score, steps), name=name) for name in names]


def _with_steps(score: Score, steps: Sequence[ScoreStep]) -> Score:
    return _with(score, steps=(*steps, *score.steps))


def _with(score: Score, **changed: Any) -> Score:
    fields = {each.name: getattr(score, each.name) for each in dataclasses.fields(score)}
    fields["metadata"] = fields.pop("metadata_json")
    return Score(**{**fields, **changed})


def _values(scores: Sequence[Score]) -> Any:
    told = {score.name: score.value if score.status is ScoreStatus.SCORED else score.status.name for score in scores}
    return told[""] if list(told) == [""] else told


def _kept(returned: Any) -> Value | None:
    """What a stage returned, as far as it can be kept; None for nothing."""
    if returned is None:
        return None
    try:
        value = Value.of(_plain(returned))
        size = _size(value)
    except (TypeError, ValueError, RecursionError):  # no JSON, or a text with a lone surrogate
        value = Value(repr(returned).encode("utf-8", "replace").decode())
        size = _size(value)
    if size <= KEPT:
        return value
    return Value(cut(str(value), KEPT))


def _size(value: Value) -> int:
    return len(value.body) if isinstance(value.body, bytes) else len(value.body.encode())


def _plain(returned: Any) -> Any:
    if dataclasses.is_dataclass(returned) and not isinstance(returned, (type, Value)):
        return dataclasses.asdict(returned)
    if hasattr(returned, "model_dump_json"):  # a pydantic model
        return Value.json(returned.model_dump_json())
    return returned


def _judged(task: ScoreTask) -> None:
    """Stands for the function that a scorer in stages is not."""


async def _judged_later(task: ScoreTask) -> None:
    """The same where a stage has to be waited for."""
