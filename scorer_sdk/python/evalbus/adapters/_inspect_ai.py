"""`inspect_ai.NAME`: the scorers of inspect_ai."""

from __future__ import annotations

import inspect
import math
from typing import Any

from evalbus._definition import Scorer
from evalbus._errors import TrialFailed
from evalbus._item import ScoreTask
from evalbus._output import Usage
from evalbus._score import Score
from evalbus.adapters._adapter import SCORES, AdapterError, Foreign, Judge, Several, first_line, plugin, spend
from evalbus.adapters._find import library, named
from evalbus.adapters._inputs import NO_EXPECTED, accepted_of, input_of, messages_of, output_of, text_of
from evalbus.adapters._openai import API_KEY, BASE_URL, MODEL, key_for
from evalbus.adapters._parameters import Parameter, parameters_of
from evalbus.adapters._results import metadata_of, no_value, score_of

_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Its letters: correct, partial, incorrect, no answer."""
_WORDS = {"correct": 1.0, "yes": 1.0, "true": 1.0, "incorrect": 0.0, "no": 0.0, "false": 0.0}
_INPUTS = ("input", "output", "expected")
_MODEL_OPTIONS = (
    Parameter("temperature", float, None, "Of the model that grades."),
    Parameter("max_tokens", int, None, "Of one answer of the model that grades."),
)


def adapt(name: str) -> Scorer[Any, Any]:
    """One of its scorers as a plugin.

    Raises:
        AdapterError: there is none of this name, or inspect_ai is not installed.
    """
    scorers = library("inspect_ai.scorer", "inspect_ai")
    factory: Any = named("inspect_ai", name, [scorers], _is_scorer, "scorer")
    takes = inspect.signature(factory).parameters
    asked = (MODEL, *_MODEL_OPTIONS, BASE_URL, API_KEY) if "model" in takes else ()
    return plugin(
        Foreign(
            name=name.rpartition(":")[2].rpartition(".")[2],
            version=library("inspect_ai").__version__,
            description=first_line(factory),
            inputs=_INPUTS,
            parameters=(*parameters_of(factory, without=("model", "model_role")), *asked),
            prepare=lambda settings: _prepare(factory, settings),
            source=factory,
            shared=(SCORES,),
            names=_names_of(factory),
        )
    )


def _names_of(factory: Any) -> tuple[str, ...]:
    """The names of its values, where its metrics tell them: a mapping from names, without patterns."""
    registry = library("inspect_ai._util.registry")
    metrics = registry.registry_info(factory).metadata.get("metrics")
    for each in metrics if isinstance(metrics, list) else [metrics]:
        if isinstance(each, dict) and not any(any(sign in name for sign in "*?[.") for name in each):
            return tuple(map(str, each))
    return ()


def _is_scorer(found: Any) -> bool:
    registry = library("inspect_ai._util.registry")
    return inspect.isroutine(found) and bool(registry.is_registry_object(found, "scorer"))


def _prepare(factory: Any, settings: dict[str, Any]) -> Judge:
    settings = dict(settings)
    name = settings.pop("model", None)
    base_url, api_key = settings.pop("base_url", None), settings.pop("api_key", None)
    options = {key: settings.pop(key) for key in ("temperature", "max_tokens") if key in settings}
    if name:
        models = library("inspect_ai.model")
        settings["model"] = models.get_model(
            name if "/" in name else f"openai/{name}",
            config=models.GenerateConfig(max_retries=0, **options),
            base_url=base_url,
            api_key=key_for(base_url, api_key) if base_url or api_key else None,
            memoize=False,
        )
    scorer = factory(**settings)
    if not callable(scorer):
        raise AdapterError(f"{factory} made {scorer!r}, no scorer")
    wants = "choice" if getattr(factory, "__name__", "") == "choice" else ""

    async def judge(task: ScoreTask) -> Score | Several:
        accepted = accepted_of(task)
        if not accepted:
            return Score.skipped(NO_EXPECTED)
        target = library("inspect_ai.scorer").Target([text_of(each, "expected answer") for each in accepted])
        state = _state(task, target)
        if wants:
            _mark_choices(state)
        usage = _begin()
        try:
            found = await scorer(state, target)
        finally:
            _count(usage)
        return Score.skipped("the scorer gave no score") if found is None else _score(found)

    return judge


def _state(task: ScoreTask, target: Any) -> Any:
    """The item and the output as inspect_ai's state of a sample."""
    models, solvers = library("inspect_ai.model"), library("inspect_ai.solver")
    roles = {
        "system": models.ChatMessageSystem,
        "user": models.ChatMessageUser,
        "assistant": models.ChatMessageAssistant,
    }
    messages = [roles[role](content=text) for role, text in messages_of(task) if role in roles]
    text = text_of(output_of(task), "output")
    return solvers.TaskState(
        model=models.ModelName("evalbus/target"),
        sample_id=task.item.id,
        epoch=task.epoch,
        input=text_of(input_of(task), "input"),
        messages=messages,
        target=target,
        choices=list(task.item.choices) or None,
        output=models.ModelOutput.from_content("evalbus/target", text),
        metadata=task.item.metadata,
    )


def _mark_choices(state: Any) -> None:
    """Mark the choices that the output names, which a solver of inspect_ai would have done: by letter, or by text."""
    said = state.output.completion.strip().rpartition("ANSWER:")[2].strip().rstrip(".")
    letters = {each.strip() for each in said.split(",")}
    for place in range(len(state.choices)):
        letter = chr(ord("A") + place)
        state.choices.mark_choice(place, letter in letters or state.choices[place].value == said)


def _begin() -> Any:
    """Where inspect_ai will count what models use up within this trial."""
    models = library("inspect_ai.model._model")
    if hasattr(models, "init_sample_model_usage"):
        models.init_sample_model_usage()
    return getattr(models, "sample_model_usage", dict)


def _count(usage: Any) -> None:
    for each in usage().values():
        spend(Usage(input_tokens=each.input_tokens, output_tokens=each.output_tokens, calls=1))


def _score(found: Any) -> Score | Several:
    """A score; several, where the value is a mapping from names, or a list, which goes by places: "0", "1" …"""
    value = found.value
    if not isinstance(value, (dict, list)):
        return _single(found, value)
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    return Several({str(name): _single(found, each) for name, each in entries})


def _single(found: Any, value: Any) -> Score:
    """NaN is how inspect_ai says that a sample is not scored: its grader failed, or it does not apply."""
    why = found.explanation or ""
    metadata = metadata_of(found.metadata)
    if isinstance(value, float) and math.isnan(value):
        reason = found.reason if isinstance(getattr(found, "reason", None), str) else ""
        if reason == "grader_failed":  # the model that grades may do better the next time
            raise TrialFailed(f"the scorer gave no score ({reason}): {why}", reason="NO_VALUE")
        if reason == "scoring_failed":
            raise no_value(f"the scorer gave no score ({reason})", why)
        return Score.skipped(why or reason or "the scorer left it unscored", metadata=metadata)
    if isinstance(value, str):
        number = _GRADES.get(value, _WORDS.get(value.lower()))
        if number is None:
            try:
                number = float(value)
            except ValueError:
                raise no_value(f"the scorer gave {value!r:.80}, which is no grade", why) from None
        return score_of(number, why, label=value, answer=found.answer, metadata=metadata)
    return score_of(value, why, answer=found.answer, metadata=metadata)
