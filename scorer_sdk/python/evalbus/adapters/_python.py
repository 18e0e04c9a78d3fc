"""`python:MODULE.FUNCTION`: a plain Python function as a scorer, without a line of evalbus in it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from evalbus._definition import THREADS, Scorer
from evalbus._errors import TrialFailed
from evalbus._failure import FailureCategory
from evalbus._item import ScoreTask
from evalbus._output import Output
from evalbus._results import scores_of
from evalbus._score import Score, ScoreDeclaration
from evalbus._value import Value
from evalbus.adapters._adapter import SCORES, AdapterError, Foreign, Judge, Several, first_line, plugin
from evalbus.adapters._find import imported
from evalbus.adapters._inputs import accepted_of, best_of, input_of, missing, more_of, output_of, text_of
from evalbus.adapters._parameters import Parameter, hints_of, parameters_of
from evalbus.adapters._results import metadata_of, no_value, score_of

_KNOWN: dict[str, Callable[[ScoreTask], Any]] = {
    "task": lambda task: task,
    "item": lambda task: task.item,
    "input": input_of,
    "output": output_of,
    "metadata": lambda task: task.item.metadata,
    "choices": lambda task: list(task.item.choices),
}
"""What a parameter of this name gets; `expected` gets each of the expected answers in turn."""
_MAPPED = ("input", "output")
_NUMBERS = ("score", "value")
_REASONS = ("explanation", "reason", "rationale", "comment")


def adapt(name: str) -> Scorer[Any, Any]:
    """A function, or a class whose instances are called like one, as a plugin.

    Raises:
        AdapterError: it cannot be imported, or is nothing that can be called.
    """
    found = imported(name)
    if isinstance(found, Scorer):
        return found  # it was written with the SDK
    if not callable(found):
        raise AdapterError(f"{name} is {type(found).__name__}, not a function")
    made = inspect.isclass(found)
    function = found.__call__ if made else found
    parameters = _parameters_of(function, name, bound=not made)
    return plugin(
        Foreign(
            name=name.rpartition(":")[2].rpartition(".")[2],
            version=str(getattr(inspect.getmodule(found), "__version__", "0.0.0")),
            description=first_line(found),
            inputs=tuple(each for each in parameters if each not in _KNOWN or each in _MAPPED),
            parameters=tuple(_settings(found, parameters, made=made)),
            prepare=lambda settings: _prepare(found, parameters, settings, made=made),
            source=found if made or inspect.isroutine(found) else type(found),
            shared=(SCORES,),
        )
    )


def _parameters_of(function: Callable[..., Any], name: str, *, bound: bool) -> dict[str, inspect.Parameter]:
    """The parameters by name, with annotations as objects where they are understood."""
    try:
        hints = hints_of(function)
        parameters = inspect.signature(function).parameters.values()
        found = [each.replace(annotation=hints.get(each.name, each.annotation)) for each in parameters]
    except (TypeError, ValueError):
        raise AdapterError(f"{name} does not say what it takes; wrap it in a function that does") from None
    found = found if bound else found[1:]
    for parameter in found:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise AdapterError(f"{name}: its parameter {parameter.name!r} has to be given by name")
    named = [each for each in found if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if not {"output", "task"} & {each.name for each in named}:
        raise AdapterError(f"{name} takes no output: give it a parameter `output`")
    return {each.name: each for each in named}


def _settings(found: Any, parameters: Mapping[str, inspect.Parameter], *, made: bool) -> list[Parameter]:
    """Of a class those of its constructor; of a function everything that is not known by its name."""
    if made:
        return list(parameters_of(found))
    usual = [each for each in parameters_of(found) if each.name in parameters]
    return [
        Parameter(each.name, each.annotation, None if _is_required(parameters[each.name]) else each.default)
        for each in usual
        if each.name not in _KNOWN and each.name != "expected"
    ]


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty


Made: TypeAlias = Score | Sequence[Score] | Several


def _prepare(found: Any, parameters: Mapping[str, inspect.Parameter], settings: dict[str, Any], *, made: bool) -> Judge:
    function = found(**settings) if made else found
    fixed = {} if made else settings
    call = function.__call__ if made else function
    run = _awaited if inspect.iscoroutinefunction(call) else _in_threads(ThreadPoolExecutor(THREADS, "scorer"))
    each = "expected" in parameters

    async def judge(task: ScoreTask) -> Made:
        given = {
            name: found
            for name, parameter in parameters.items()
            if name != "expected" and (found := _argument(task, parameter, fixed)) is not None
        }
        if not each:
            return _scores(await run(function, given))
        accepted = accepted_of(task)
        if not accepted and not _is_required(parameters["expected"]):
            return _scores(await run(function, given))

        async def against(expected: Value) -> Score:
            wanted = _as_annotated(expected, parameters["expected"])
            scores = _scores(await run(function, {**given, "expected": wanted}))
            if isinstance(scores, Score):
                return scores
            raise _NoBest(scores)

        try:
            return await best_of(accepted, against, ScoreDeclaration())
        except _NoBest as several:
            return several.scores

    return judge


class _NoBest(Exception):
    """A function gave several scores, of which none is the best; the first expected answer decides."""

    def __init__(self, scores: Sequence[Score] | Several) -> None:
        super().__init__()
        self.scores = scores


def _argument(task: ScoreTask, parameter: inspect.Parameter, settings: Mapping[str, Any]) -> Any:
    """What a parameter gets; None leaves it to its default."""
    name = parameter.name
    if name in _KNOWN:
        if name == "output" and parameter.annotation in (Output, "Output", "evalbus.Output"):
            return task.output
        found = _KNOWN[name](task)
        return _as_annotated(found, parameter) if isinstance(found, Value) else found
    if name in task.inputs:
        return task.inputs[name].data
    if name in settings:
        return settings[name]
    if not _is_required(parameter):
        return None
    found = more_of(task, name)
    if found is None:
        missing(name)
    return found


def _as_annotated(value: Value, parameter: inspect.Parameter) -> Any:
    """A value as Python data; as a text where the function wants a str, and a text as a number where it wants one."""
    wanted, what = parameter.annotation, parameter.name
    if wanted in (str, "str"):
        return text_of(value, what)
    data = value.data
    if wanted in (float, int, "float", "int") and isinstance(data, str):
        try:
            return float(data) if wanted in (float, "float") else int(data)
        except ValueError:
            text = f"`{what}` is {data[:80]!r}, not a number"
            raise TrialFailed(text, FailureCategory.INVALID, reason="NOT_A_NUMBER") from None
    return data


async def _awaited(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    return await function(**given)


def _in_threads(threads: ThreadPoolExecutor) -> Callable[..., Any]:
    async def run(function: Callable[..., Any], given: dict[str, Any]) -> Any:
        context = contextvars.copy_context()
        call = functools.partial(context.run, function, **given)
        found = await asyncio.get_running_loop().run_in_executor(threads, call)
        return await found if inspect.isawaitable(found) else found

    return run


def _scores(found: Any) -> Made:
    """What a function returned as scores: a number, a Score, a number with a reason, or a mapping of either form."""
    if isinstance(found, Score):
        return found
    if isinstance(found, (list, tuple)) and found and all(isinstance(entry, Score) for entry in found):
        return scores_of(found)
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], str):
        return score_of(found[0], found[1], absent="the function returned None")
    if isinstance(found, Mapping):
        return _of_mapping(found)
    for key in _NUMBERS:  # such as the Score of autoevals
        if hasattr(found, key) and not callable(getattr(found, key)):
            return _one({name: getattr(found, name, None) for name in (key, *_REASONS, "metadata", "label")})
    if isinstance(found, str):
        raise no_value(f"the function returned the text {found!r:.80}, not a number")
    return score_of(found, absent="the function returned None")


def _of_mapping(found: Mapping[str, Any]) -> Score | Several:
    if any(key in found for key in _NUMBERS):
        return _one(found)
    if not found:
        raise no_value("the function returned an empty mapping")
    return Several(
        {
            str(name): _one(value, str(name)) if isinstance(value, Mapping) else score_of(value)
            for name, value in found.items()
        }
    )


def _one(found: Mapping[str, Any], name: str = "") -> Score:
    key = next((key for key in _NUMBERS if key in found), None)
    if key is None:
        known = " or ".join(f"`{each}`" for each in _NUMBERS)
        raise TrialFailed(f"the score {name!r} has no {known}", FailureCategory.INTERNAL, retryable=False)
    metadata = metadata_of(found.get("metadata"))
    reasons = [found.get(each) or (metadata or {}).get(each) for each in _REASONS]
    why = next((each for each in reasons if isinstance(each, str)), "")
    label = found.get("label")
    return score_of(
        found[key],
        why,
        absent="the function returned None",
        label=label if isinstance(label, str) else "",
        metadata=metadata,
    )
