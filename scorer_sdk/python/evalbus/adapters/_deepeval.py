"""`deepeval.NAME`: the metrics of DeepEval for single answers."""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import Any

from evalbus._definition import Scorer
from evalbus._errors import TrialFailed
from evalbus._failure import FailureCategory
from evalbus._item import ScoreTask
from evalbus._output import Money, ToolCall, Usage
from evalbus._score import Score
from evalbus._value import Value
from evalbus.adapters._adapter import ONE_SCORE, Foreign, Judge, first_line, plugin, spend
from evalbus.adapters._find import library, named
from evalbus.adapters._inputs import (
    accepted_of,
    best_of,
    input_of,
    missing,
    more_of,
    output_of,
    text_of,
    texts_of,
)
from evalbus.adapters._openai import API_KEY, BASE_URL, MODEL, key_for
from evalbus.adapters._parameters import Parameter, parameters_of
from evalbus.adapters._results import metadata_of, score_of

_QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
    "DEEPEVAL_DISABLE_DOTENV": "1",
    "DEEPEVAL_FILE_SYSTEM": "READ_ONLY",
    "DEEPEVAL_RETRY_MAX_ATTEMPTS": "1",
    "DEEPEVAL_DISABLE_TIMEOUTS": "1",
    "DEEPEVAL_UPDATE_WARNING_OPT_OUT": "1",
}
"""Nothing is sent home or written to files; tries and timeouts are the server's. What is set already stays."""

_OURS = ("async_mode", "verbose_mode", "flaky", "threshold", "strict_mode", "model", "system_one_model", "eval_mode")
"""Not for settings: how it runs, and what an experiment's `threshold` says."""
_FIXED = {"async_mode": True, "verbose_mode": False}
_TESTED = (
    "input",
    "actual_output",
    "expected_output",
    "context",
    "retrieval_context",
    "tools_called",
    "expected_tools",
)
_LISTS = ("context", "retrieval_context")


def adapt(name: str) -> Scorer[Any, Any]:
    """One of its metrics as a plugin.

    Raises:
        AdapterError: there is none of this name, or DeepEval is not installed.
    """
    for variable, usual in _QUIET.items():
        os.environ.setdefault(variable, usual)
    metrics = library("deepeval.metrics")
    kind: Any = named("deepeval", name, [metrics], _is_metric, "metric")
    asks = "model" in inspect.signature(kind).parameters
    return plugin(
        Foreign(
            name=kind.__name__,
            version=library("deepeval").__version__,
            description=first_line(kind),
            inputs=_TESTED,
            parameters=(*_parameters(kind), *((MODEL, BASE_URL, API_KEY) if asks else ())),
            prepare=lambda settings: _prepare(kind, settings),
            source=kind,
        )
    )


def _is_metric(found: Any) -> bool:
    base = library("deepeval.metrics").BaseMetric
    return inspect.isclass(found) and issubclass(found, base) and not inspect.isabstract(found)


def _parameters(kind: Any) -> list[Parameter]:
    return [
        Parameter("name", str, kind.__name__) if each.name == "name" else each
        for each in parameters_of(kind, without=_OURS)
    ]


def _prepare(kind: Any, settings: dict[str, Any]) -> Judge:
    settings = _arguments(kind, settings)
    first = kind(**settings)  # so that faults are told before the first trial
    if first.requires_trace:
        text = f"{kind.__name__} judges what DeepEval's own tracing has recorded, which an output does not hold"
        raise TrialFailed(text, FailureCategory.INVALID, reason="TRACE_NEEDED")
    required = _required(first)
    planning = asyncio.Lock()

    async def measure(fields: dict[str, Any]) -> Score:
        # A metric keeps what it found on itself, so each judgement has one of its own.
        if not settings.get("criteria") or settings.get("evaluation_steps"):
            return await _measure(kind(**settings), fields)
        async with planning:  # the first makes steps of the criteria, by which all are judged then
            if not settings.get("evaluation_steps"):
                metric = kind(**settings)
                score = await _measure(metric, fields)
                settings["evaluation_steps"] = metric.evaluation_steps
                return score
        return await _measure(kind(**settings), fields)

    async def judge(task: ScoreTask) -> Score:
        fields = _fields(task, required)
        if "expected_output" not in required:
            return await measure(fields)

        async def against(expected: Value) -> Score:
            return await measure({**fields, "expected_output": text_of(expected, "expected answer")})

        return await best_of(accepted_of(task, "expected_output"), against, ONE_SCORE)

    return judge


def _arguments(kind: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """What the constructor is given: objects of DeepEval where it does not take plain data."""
    made = dict(settings)
    takes = inspect.signature(kind).parameters
    if kind.__name__ == "GEval":
        made.setdefault("name", "GEval")
        wanted = library("deepeval.test_case").SingleTurnParams
        names = made.get("evaluation_params") or ("input", "actual_output")
        made["evaluation_params"] = [wanted(each) for each in names]
    if made.get("rubric"):
        rubric = library("deepeval.metrics.g_eval").Rubric
        made["rubric"] = [rubric(**entry) for entry in made["rubric"]]
    if "model" in takes:
        made["model"] = _model(made)
    return made | {name: value for name, value in _FIXED.items() if name in takes}


def _model(settings: dict[str, Any]) -> Any:
    """The model that its settings name; None for the one that DeepEval is set up with."""
    base_url, api_key = settings.pop("base_url", None), settings.pop("api_key", None)
    name = settings.pop("model", None)
    if base_url is None and api_key is None:
        return name
    found = library("deepeval.models").OpenAIModel
    return found(model=name, base_url=base_url, api_key=key_for(base_url, api_key))


def _required(metric: Any) -> set[str]:
    """The fields of a test case that a metric cannot do without."""
    asked = getattr(metric, "evaluation_params", None) or getattr(metric, "_required_params", None) or ()
    return {each.value for each in asked} if isinstance(asked, list | tuple) else set()


def _fields(task: ScoreTask, required: set[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "input": text_of(input_of(task), "input"),
        "actual_output": text_of(output_of(task, "actual_output"), "output"),
    }
    accepted = accepted_of(task, "expected_output")
    if accepted and accepted[0].kind != "blob":
        fields["expected_output"] = accepted[0].text
    for name in _LISTS:
        found = more_of(task, name)
        if found is not None:
            fields[name] = texts_of(found)
        elif name in required:
            missing(name)
    called = more_of(task, "tools_called")
    fields["tools_called"] = [_called(call) for call in task.output.tool_calls] if called is None else _tools(called)
    wanted = more_of(task, "expected_tools")
    if wanted is not None:
        fields["expected_tools"] = _tools(wanted)
    elif "expected_tools" in required:
        missing("expected_tools")
    return fields


def _called(call: ToolCall) -> Any:
    arguments = call.arguments
    return library("deepeval.test_case").ToolCall(
        name=call.name,
        input_parameters=arguments if isinstance(arguments, dict) else None,
        output=None if call.result is None else call.result.data,
    )


def _tools(found: Any) -> list[Any]:
    """Tool calls from data: names, or objects with a name, and arguments under `arguments` or `input_parameters`."""
    made = []
    for entry in found if isinstance(found, list) else [found]:
        call = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise TrialFailed.invalid(f"a tool call is a name, or an object with a name, not {entry!r:.80}")
        made.append(
            library("deepeval.test_case").ToolCall(
                name=call["name"],
                input_parameters=call.get("arguments", call.get("input_parameters")),
                output=call.get("result", call.get("output")),
            )
        )
    return made


async def _measure(metric: Any, fields: dict[str, Any]) -> Score:
    case = library("deepeval.test_case").LLMTestCase(**fields)
    try:
        await metric.a_measure(case, _show_indicator=False)
    finally:
        _spend(metric)
    if metric.error is not None:
        raise TrialFailed(f"{type(metric).__name__}: {metric.error}")
    absent = "the metric does not apply" if metric.skipped else "the metric gave no score"
    return score_of(
        None if metric.skipped else metric.score,
        metric.reason or "",
        absent=absent,
        metadata=metadata_of(_findings(metric)),
    )


def _findings(metric: Any) -> dict[str, Any]:
    found = {"model": metric.evaluation_model, "breakdown": metric.score_breakdown}
    for name in ("statements", "claims", "truths", "verdicts", "opinions", "evaluation_steps"):
        found[name] = getattr(metric, name, None)
    return {key: value for key, value in found.items() if value}


def _spend(metric: Any) -> None:
    """Count what a metric says that it used up; it does not say how many calls that were."""
    if metric.input_tokens is None and metric.output_tokens is None:
        return
    cost = metric.evaluation_cost
    spend(
        Usage(
            input_tokens=metric.input_tokens or 0,
            output_tokens=metric.output_tokens or 0,
            cost=Money(round(cost * 1_000_000)) if isinstance(cost, float) and cost > 0 else None,
        )
    )
