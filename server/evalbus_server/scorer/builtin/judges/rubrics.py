"""Judges whose measure is in the settings: a rubric, criteria one by one, a prompt of the user's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evalbus import ScoreDeclaration, SettingsInvalid
from evalbus_server.scorer.builtin.judges.common import REASON, clamped
from evalbus_server.scorer.builtin.judges.definition import Definition, Facts, Found, Stage
from evalbus_server.scorer.builtin.judges.material import PARTS
from evalbus_server.scorer.builtin.judges.prompts import placeholders
from evalbus_server.scorer.builtin.judges.settings import JudgeSettings, said
from evalbus_server.scorer.builtin.judges.shapes import Choice, Each, Number, Record, Text, menu_of

ALL_INPUTS = ("input", "output", "expected", "context", "tools", "goal", "baseline", "prompt")
_LONG_REASON = Text("Why, step by step, before the verdict.")


def _check_choices(choices: dict[str, float], what: str) -> None:
    """Refuse a menu that is none.

    Raises:
        ValueError: it is none.
    """
    try:
        menu_of(list(choices))
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    if not all(map(math.isfinite, choices.values())):
        raise ValueError(f"{what}: values are finite numbers")


def _range_of(choices: dict[str, float]) -> ScoreDeclaration:
    return ScoreDeclaration(minimum=min(choices.values()), maximum=max(choices.values()))


# --- a rubric as a whole ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricSettings(JudgeSettings):
    """The measure."""

    rubric: str = said("What is good and what is not, and which grade is for what.")
    choices: dict[str, float] = said(
        "The grades and their values, such as {poor: 0, fair: 0.5, good: 1}; fail 0 and pass 1 if not said.", dict
    )

    def __post_init__(self) -> None:
        """Refuse to measure without a measure."""
        JudgeSettings.__post_init__(self)
        if not self.rubric.strip():
            raise ValueError("say the rubric")
        _check_choices(self.grades, "choices")

    @property
    def grades(self) -> dict[str, float]:
        """The menu."""
        return self.choices or {"fail": 0.0, "pass": 1.0}


def _by_grade(facts: Facts) -> Found:
    reply = facts.replies["score"]
    return Found(facts.settings.grades[reply["verdict"]], reply["reason"], reply["verdict"])


RUBRIC = Definition(
    "judge_rubric",
    """The grade that the output gets by a rubric of yours.

    A model reads the rubric and takes one of the grades; value and range are those of `choices`. It also sees the expected
    answer, if the item has one.""",
    (
        Stage(
            "score",
            """\
Here is what was asked, the reference answer if there is one, and what was answered.

{{input}}

{{expected}}

{{output}}

Grade the answer by this rubric, and by nothing else:

{{rubric}}

The grades, from the lowest to the highest: {{grades}}.""",
            chosen=lambda settings: Record({"reason": _LONG_REASON, "verdict": Choice(tuple(settings.grades))}),
        ),
    ),
    _by_grade,
    settings=RubricSettings,
    scores=lambda settings: (_range_of(settings.grades),),
    given=lambda settings: {
        "rubric": settings.rubric,
        "grades": ", ".join(sorted(settings.grades, key=lambda grade: settings.grades[grade])),
    },
    vote="majority",
    inputs=("input", "output", "expected"),
)


# --- criterion by criterion -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing that an output is asked for."""

    name: str = said("What it is called; the name of its score with `separate`.")
    text: str = said("What has to hold, as a statement about the output.")
    required: bool = said("Whether the whole fails without it; if no criterion is required, all are.", True)
    weight: float = said("What it weighs with `combine: share`.", 1.0)

    def __post_init__(self) -> None:
        """Refuse a criterion that says nothing."""
        if not self.text.strip() or not self.name.strip():
            raise ValueError("each criterion has a name and a text")
        if "." in self.name or not self.name.isprintable() or len(self.name) > 100 or self.name == "overall":
            raise ValueError(f"{self.name!r} cannot name a score: no dots, at most 100 characters, not `overall`")
        if not 0 <= self.weight < math.inf:
            raise ValueError("a weight is at least 0 and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class CriteriaSettings(JudgeSettings):
    """The criteria, and how they are put together."""

    criteria: list[Criterion] = said("Each with `name`, `text`, and maybe `required`, `weight`.", list)
    combine: Literal["gate", "share"] = said(
        "gate: 1 if all that are required hold, else 0; share: the weighted share that holds.", "gate"
    )
    separate: bool = said("Whether each criterion is a score of its own, beside `overall`.", False)

    def __post_init__(self) -> None:
        """Refuse criteria that are none."""
        JudgeSettings.__post_init__(self)
        names = [each.name for each in self.criteria]
        if not names:
            raise ValueError("say the criteria: each has a name and a text")
        if len(set(names)) < len(names):
            raise ValueError("two criteria have the same name")
        if self.combine == "share" and not sum(each.weight for each in self.criteria):
            raise ValueError("all weights are 0")


def _criteria(facts: Facts) -> list[Found]:
    settings = facts.settings
    verdicts = facts.replies["analyze"]["verdicts"]
    judged = list(zip(settings.criteria, verdicts, strict=True))
    whole = _overall(settings, judged)
    if not settings.separate:
        return [whole]
    return [
        Found(whole.value, whole.explanation, whole.label, "overall", whole.metadata),
        *(
            Found(_HELD.get(found["verdict"]), found["reason"], found["verdict"], each.name)
            if found["verdict"] in _HELD
            else Found(None, f"it does not apply: {found['reason']}", name=each.name)
            for each, found in judged
        ),
    ]


_HELD = {"yes": 1.0, "no": 0.0}
_CRITERION = Record({"reason": REASON, "verdict": Choice(("yes", "no", "not_applicable"))})


def _overall(settings: Any, judged: Sequence[tuple[Criterion, dict[str, Any]]]) -> Found:
    applied = [(each, found) for each, found in judged if found["verdict"] in _HELD]
    metadata = {"criteria": {each.name: found["verdict"] for each, found in judged}}
    if not applied:
        return Found(None, "no criterion applies", metadata=metadata)
    failed = [f"{each.name}: {found['reason']}" for each, found in applied if found["verdict"] == "no"]
    told = f"{len(applied) - len(failed)} of {len(applied)} criteria hold"
    told += f"; not: {'; '.join(failed)}" if failed else ""
    if settings.combine == "share":
        weight = sum(each.weight for each, _ in applied)
        if not weight:
            return Found(None, "no criterion that applies weighs anything", metadata=metadata)
        value = sum(each.weight * _HELD[found["verdict"]] for each, found in applied) / weight
        return Found(clamped(value), told, metadata=metadata)
    gates = (
        [pair for pair in applied if pair[0].required] if any(each.required for each in settings.criteria) else applied
    )
    if not gates:
        return Found(None, "no required criterion applies", metadata=metadata)
    holds = all(found["verdict"] == "yes" for _, found in gates)
    return Found(float(holds), told, "pass" if holds else "fail", metadata=metadata)


def _declared(settings: Any) -> Sequence[ScoreDeclaration]:
    if not settings.separate:
        return (ScoreDeclaration(),)
    return (
        ScoreDeclaration("overall"),
        *(ScoreDeclaration(each.name, description=" ".join(each.text.split())[:200]) for each in settings.criteria),
    )


CRITERIA = Definition(
    "judge_criteria",
    """Whether the output meets criteria of yours, with a verdict on each.

    A model says yes, no or not_applicable for each criterion. Value: 1 if all that are required hold, else 0 (with none
    required, all are), as in Mastra's rubric; or with `combine: share` the weighted share that holds. Criteria that do not
    apply take no part. With `separate: true` each criterion is a score of its own, beside `overall`.""",
    (
        Stage(
            "analyze",
            """\
Here is what was asked, the reference answer if there is one, and what was answered.

{{input}}

{{expected}}

{{output}}

Here are criteria. For each, by its number: does it hold for the answer? "yes" only if all of it holds, "no" if not, and
"not_applicable" if it is about a situation that is not there.

{{criteria}}""",
            chosen=lambda settings: Record({"verdicts": Each(len(settings.criteria), _CRITERION)}),
        ),
    ),
    _criteria,
    settings=CriteriaSettings,
    scores=_declared,
    given=lambda settings: {
        "criteria": "\n".join(f"{number}. {each.name}: {each.text}" for number, each in enumerate(settings.criteria, 1))
    },
    vote="majority",
    inputs=("input", "output", "expected"),
)


# --- a prompt of the user's own ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettings(JudgeSettings):
    """The prompt, and what may be replied."""

    prompt: str = said("The question to the model; {{output}}, {{input}} and other parts stand for texts.")
    choices: dict[str, float] = said("The words that may be replied, and their values.", dict)
    range: list[float] = said("In place of choices: the lowest and the highest number that may be replied.", list)
    scale: bool = said("Whether a number of the range becomes one from 0 to 1.", True)

    def __post_init__(self) -> None:
        """Refuse a prompt that nothing can come of."""
        JudgeSettings.__post_init__(self)
        if not self.prompt.strip():
            raise ValueError("say the prompt")
        if bool(self.choices) == bool(self.range):
            raise ValueError("say choices, or range, and not both")
        if self.choices:
            _check_choices(self.choices, "choices")
        elif len(self.range) != 2 or not all(map(math.isfinite, self.range)) or self.range[0] >= self.range[1]:
            raise ValueError("range is the lowest and the highest number, such as [1, 5]")
        elif not math.isfinite(self.range[1] - self.range[0]):
            raise ValueError("range is too wide to be brought to 0 to 1")


def _check_prompt(settings: Any) -> None:
    names = placeholders(settings.prompt)
    known = [name for name in PARTS if name != "against"]
    for name in names:
        if name not in known:
            raise SettingsInvalid(
                f"settings.prompt: nothing is known by {{{{{name}}}}}; known are {', '.join(known)}", "settings.prompt"
            )
    if not names:
        raise SettingsInvalid("settings.prompt: it shows nothing to the model; name {{output}}", "settings.prompt")


def _own_reply(settings: Any) -> Record:
    if settings.choices:
        return Record({"reason": _LONG_REASON, "verdict": Choice(tuple(settings.choices))})
    return Record({"reason": _LONG_REASON, "verdict": Number(*settings.range)})


def _own_value(facts: Facts) -> Found:
    reply, settings = facts.replies["score"], facts.settings
    verdict = reply["verdict"]
    if settings.choices:
        return Found(settings.choices[verdict], reply["reason"], verdict)
    low, high = settings.range
    value = clamped((verdict - low) / (high - low)) if settings.scale else verdict
    return Found(value, reply["reason"], metadata={"number": verdict})


def _own_declared(settings: Any) -> Sequence[ScoreDeclaration]:
    if settings.choices:
        return (_range_of(settings.choices),)
    return (
        ScoreDeclaration()
        if settings.scale
        else ScoreDeclaration(minimum=settings.range[0], maximum=settings.range[1]),
    )


PROMPT = Definition(
    "judge_prompt",
    """What a model replies to a prompt of yours: a word of a menu, or a number.

    Texts stand in the prompt in place of `{{output}}`, `{{input}}`, `{{expected}}`, `{{context}}`, `{{conversation}}`,
    `{{calls}}`, `{{tools}}`, `{{choices}}`, `{{metadata}}`, `{{goal}}`, `{{baseline}}` and `{{prompt}}`, each fenced off, and
    are not looked through for more. Value: that of the word in `choices`, or the number, brought from `range` to 0 to 1.
    What to reply, and in which form, the prompt need not say.""",
    (
        Stage(
            "score",
            "{{prompt}}",
            chosen=_own_reply,
        ),
    ),
    _own_value,
    settings=PromptSettings,
    scores=_own_declared,
    rewrite=lambda stage, settings: settings.prompt,
    check=_check_prompt,
    vote="majority",
    inputs=ALL_INPUTS,
)

DEFINITIONS = (RUBRIC, CRITERIA, PROMPT)
