"""What all adapters share: a scorer of another library, described, and made a plugin."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from evalbus._context import Context
from evalbus._definition import Scorer, scorer
from evalbus._errors import EvalbusError, SettingsInvalid
from evalbus._failure import Failure, FailureCategory
from evalbus._item import ScoreTask
from evalbus._output import Usage
from evalbus._score import Direction, Score, ScoreDeclaration, ScoreStatus
from evalbus.adapters._failures import failed
from evalbus.adapters._parameters import Parameter, settings_class
from evalbus.adapters._results import no_value

Judge: TypeAlias = Callable[[ScoreTask], Awaitable["Score | Sequence[Score] | Several"]]

RANGE = Parameter(
    "range", list[float | None], None, "The lowest and the highest value that it can give; null leaves an end open."
)
DIRECTION = Parameter("direction", str, None, "Which values are better: `higher` or `lower`.")

ONE_SCORE = ScoreDeclaration()
SCORES = Parameter("scores", list[str], None, "The names of the scores that it gives, if there are several.")


class AdapterError(EvalbusError):
    """There is no such scorer here; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A scorer of another library."""

    name: str
    version: str
    """Of its library."""
    description: str
    inputs: tuple[str, ...]
    """What an experiment may map, by the library's own names."""
    parameters: tuple[Parameter, ...]
    """What it takes as settings."""
    prepare: Callable[[dict[str, Any]], Judge]
    """Makes it from those settings that were given; called once a conversation, before the first trial."""
    score: ScoreDeclaration = ONE_SCORE
    """What it promises, unless its settings say otherwise."""
    source: Any = None
    """The object whose code says what it does; a change of that code is another build."""
    shared: tuple[Parameter, ...] = ()
    """Further settings about what it promises."""
    names: tuple[str, ...] = ()
    """Of its scores, where it tells them itself; the setting `scores` goes before it."""


ROUNDING = 1e-9
_FIELDS = ("value", "name", "label", "answer", "explanation", "failure", "steps", "usage", "trace_ids")

_spent: ContextVar[list[Usage] | None] = ContextVar("spent", default=None)


def spend(usage: Usage) -> None:
    """Count what the judgement that is being made has used up."""
    spent = _spent.get()
    if spent is not None:
        spent.append(usage)


def plugin(foreign: Foreign) -> Scorer[Any, Any]:
    """It, as a plugin."""
    own = {parameter.name for parameter in foreign.parameters}
    about = [each for each in (RANGE, DIRECTION, *foreign.shared) if each.name not in own]
    parameters = [*foreign.parameters, *about]
    kind = settings_class(foreign.name, parameters)

    def given(settings: Any) -> dict[str, Any]:
        return {each.name: getattr(settings, each.name) for each in parameters if each.is_given_in(settings)}

    def declared(settings: Any) -> list[ScoreDeclaration]:
        mine = {key: value for key, value in given(settings).items() if key not in own}
        promised = declaration(foreign.score, mine)
        return [replace(promised, name=name) for name in mine.get("scores") or foreign.names or ("",)]

    def set_up(settings: Any) -> tuple[Judge, list[ScoreDeclaration]]:
        made = foreign.prepare({key: value for key, value in given(settings).items() if key in own})
        return made, declared(settings)

    async def judge(task: ScoreTask, state: tuple[Judge, list[ScoreDeclaration]], ctx: Context) -> Sequence[Score]:
        spent: list[Usage] = []
        _spent.set(spent)  # of this trial's own task
        ask, promised = state
        try:
            scores = await ask(task)
        except Exception as error:  # another library's code
            if spent:
                ctx.progress(usage=sum(spent[1:], spent[0]))
            known = failed(error)
            if known is error:
                raise
            raise known from error
        found = scores_of_all(scores, promised) if isinstance(scores, Score | Several) else scores
        return _with_usage([_within(_on_the_edge(score, promised[0]), promised[0]) for score in found], spent)

    for function in (declared, set_up):
        function.__annotations__["settings"] = kind
    return scorer(
        foreign.name,
        version=foreign.version,
        description=foreign.description,
        inputs=foreign.inputs,
        scores=declared,
        setup=set_up,
        digest=_digest(foreign),
    )(judge)


class Several:
    """The scores that a scorer gave at once, by their names, of which those are taken that were declared."""

    def __init__(self, scores: Mapping[str, Score]) -> None:
        """Each is nameless."""
        self.scores = scores


def scores_of_all(given: Score | Several, declared: Sequence[ScoreDeclaration]) -> list[Score]:
    """What was given, as the scores that were declared.

    Raises:
        TrialFailed: NO_VALUE: these do not go together.
    """
    names = [each.name for each in declared]
    if isinstance(given, Score):
        if names == [""] or given.status is not ScoreStatus.SKIPPED:
            return [given]
        return [_replaced(given, name=name) for name in names]
    known = ", ".join(given.scores)
    if names == [""]:
        listed = json.dumps(list(given.scores), ensure_ascii=False)
        raise no_value(
            f"the scorer gave several values ({known}): name those to take, as in settings: {{scores: {listed}}}"
        )
    missing = next((name for name in names if name not in given.scores), None)
    if missing is not None:
        raise no_value(f"the scorer gave no value {missing!r}, which `scores` names; it gave {known or 'none'}")
    return [_replaced(given.scores[name], name=name) for name in names]


def declaration(usual: ScoreDeclaration, settings: dict[str, Any]) -> ScoreDeclaration:
    """A declaration as the settings `range` and `direction` change it.

    Raises:
        SettingsInvalid: they make no sense.
    """
    ends = settings.get("range")
    if ends is not None:
        low, high = ends if len(ends) == 2 else (0, 0)
        if len(ends) != 2 or (low is not None and high is not None and low >= high):
            raise SettingsInvalid(f"settings.range: expected [lowest, highest], got {ends}", "settings.range")
        usual = replace(usual, minimum=low, maximum=high)
    directions = {"higher": Direction.HIGHER_IS_BETTER, "lower": Direction.LOWER_IS_BETTER}
    wanted = settings.get("direction")
    if wanted is not None:
        if wanted not in directions:
            text = f"settings.direction: expected `higher` or `lower`, got {wanted!r}"
            raise SettingsInvalid(text, "settings.direction")
        usual = replace(usual, direction=directions[wanted])
    return usual


def first_line(found: Any) -> str:
    """The first line of an object's docstring; "" if it has none of its own."""
    own = getattr(found, "__doc__", None)
    return inspect.cleandoc(own).partition("\n")[0] if isinstance(own, str) else ""


def _on_the_edge(score: Score, promised: ScoreDeclaration) -> Score:
    """A value that rounding has carried over an end of its range, as in 1.0000000000000002, is that end."""
    for end in (promised.minimum, promised.maximum):
        if end is not None and score.value is not None and 0 < abs(score.value - end) <= ROUNDING:
            return _replaced(score, value=end)
    return score


def _within(score: Score, promised: ScoreDeclaration) -> Score:
    """A value beyond its range is none, and it says how to give another range."""
    low, high = promised.minimum, promised.maximum
    value = score.value
    if value is None or ((low is None or value >= low) and (high is None or value <= high)):
        return score
    ends = f"{'below' if low is None else f'{low:g}'} to {'above' if high is None else f'{high:g}'}"
    told = f"the scorer gave {value:g}, and its range is {ends}: say another, as in settings: {{range: [0, 10]}}"
    failure = Failure(FailureCategory.INTERNAL, told, reason="CONTRACT_BROKEN", retryable=False)
    return Score.errored(failure, name=score.name, explanation=score.explanation, metadata=score.metadata_json)


def _with_usage(scores: Sequence[Score], spent: Sequence[Usage]) -> Sequence[Score]:
    if not spent or not scores or any(score.usage is not None for score in scores):
        return scores
    return [_replaced(scores[0], usage=sum(spent[1:], spent[0])), *scores[1:]]


def _replaced(score: Score, **changes: Any) -> Score:
    fields = {name: getattr(score, name) for name in _FIELDS}
    return Score(score.status, **{**fields, "metadata": score.metadata_json, **changes})


def _digest(foreign: Foreign) -> str:
    """A hash of the library's version and the scorer's own code."""
    try:
        code = inspect.getsource(foreign.source) if foreign.source is not None else ""
    except (OSError, TypeError):
        code = ""
    return hashlib.sha256(f"{foreign.name} {foreign.version}\n{code}".encode()).hexdigest()[:32]
