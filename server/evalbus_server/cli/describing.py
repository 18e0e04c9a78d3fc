"""The work of `evalbus plugins` and `evalbus scorers`: what plugins say of themselves, and one trial to try them."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from evalbus import MetricDeclaration, PluginInfo, ScoreDeclaration, ScorerInfo
from evalbus_server import logs
from evalbus_server.app import plugin_maker
from evalbus_server.cli.exits import Ending, ExitCode
from evalbus_server.cli.figures import number, plain
from evalbus_server.cli.report import console, print_json
from evalbus_server.embed import RunReport, TrialResult, run_async
from evalbus_server.errors import Invalid, NotFound, Reason, Unfit
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.faults import suggestion
from evalbus_server.model.run import Outcome
from evalbus_server.runner.crew import Wanted
from evalbus_server.runner.experiment_file import from_mapping
from evalbus_server.scorer.builtin import BUILTINS


@dataclass(frozen=True, slots=True)
class Sought:
    """Which plugin is meant."""

    entry: dict[str, Any]
    """As in an experiment."""
    kinds: tuple[str, ...]
    """target, scorer, or both if nobody said which."""


@dataclass(frozen=True, slots=True)
class OneTrial:
    """What a plugin is asked when it is tried."""

    settings: str
    input: str
    expected: str | None
    output: str


def sought(command: str | None, address: str | None, plugin: str, *, target: bool, scorer: bool) -> Sought:
    """The plugin that the options mean.

    Raises:
        Invalid: they contradict each other.
    """
    if (command is None) == (address is None):
        raise Invalid(Reason.REQUEST_INVALID, "say where the plugin is: --command 'python target.py' or --address A")
    if target and scorer:
        raise Invalid(
            Reason.REQUEST_INVALID, "--target and --scorer exclude each other; leave both out to look for any"
        )
    entry: dict[str, Any] = {"plugin": plugin}
    if command is not None:
        entry["command"] = shlex.split(command)
    else:
        entry["address"] = address
    kinds = ("target",) if target else ("scorer",) if scorer else ("target", "scorer")
    return Sought(entry, kinds)


# --- what they say of themselves --------------------------------------------------------------------------------


def describe(sought: Sought, *, as_json: bool) -> None:
    """Print what a plugin says of itself."""
    logs.set_up("warning")
    _print_infos(asyncio.run(_reach(sought)), as_json=as_json)


def list_builtins(*, as_json: bool) -> None:
    """Print the builtin scorers."""
    infos = [builtin.info for _, builtin in sorted(BUILTINS.items())]
    if as_json:
        print_json({"scorers": [_info_document(info) for info in infos]})
        return
    out = console()
    width = max(len(info.name) for info in infos) + 2
    for info in infos:
        out.print(Text.assemble((f"{info.name:{width}}", "bold"), info.description), soft_wrap=True)


def show_builtin(name: str, *, as_json: bool) -> None:
    """Print what a builtin scorer takes and gives.

    Raises:
        NotFound: there is none of this name.
    """
    if name not in BUILTINS:
        known = sorted(BUILTINS)
        raise NotFound(Reason.PLUGIN_UNKNOWN, f"there is no builtin scorer {name!r}{suggestion(name, known, known)}")
    _print_infos([BUILTINS[name].info], as_json=as_json)


async def _reach(sought: Sought) -> list[PluginInfo]:
    """The plugin of each kind that is sought, as far as there is one.

    Raises:
        ServerError: none can be reached.
    """
    found: list[PluginInfo] = []
    missing: list[Unfit] = []
    for kind in sought.kinds:
        experiment = _experiment(sought, kind)
        use = experiment.target if kind == "target" else experiment.scorers[0]
        assert use is not None
        wanted = Wanted(use, kind == "scorer", 1, experiment, None, "", {})
        plugin = plugin_maker()(wanted)
        try:
            found.append(await plugin.reach())
        except Unfit as error:
            if error.reason is not Reason.PLUGIN_UNKNOWN:
                raise
            missing.append(error)
        finally:
            await plugin.close()
    if not found:
        raise Unfit(Reason.PLUGIN_UNKNOWN, "; ".join(str(error) for error in missing))
    return found


def _experiment(sought: Sought, kind: str, **more: Any) -> Experiment:
    return from_mapping(_document(sought, kind, **more), os.getcwd())


def _document(
    sought: Sought, kind: str, record: dict[str, Any] | None = None, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    entry = {**sought.entry, "settings": settings or {}}
    return {
        "name": "check",
        "dataset": {"records": [record or {"input": ""}]},
        "target": entry if kind == "target" else "none",
        "scorers": [] if kind == "target" else [entry],
        "limits": {"retries": 0},
    }


def _print_infos(infos: list[PluginInfo], *, as_json: bool) -> None:
    if as_json:
        print_json({"plugins": [_info_document(info) for info in infos]})
        return
    out = console()
    for info in infos:
        for label, text in _told(info):
            out.print(Text.assemble((f"{label:12}", "dim"), plain(text)), soft_wrap=True)


def _told(info: PluginInfo) -> Iterator[tuple[str, str]]:
    kind = info.kind
    yield ("scorer" if isinstance(kind, ScorerInfo) else "target"), f"{info.name} {info.version}".rstrip()
    rows = (
        ("about", info.description),
        ("made with", ", ".join(part for part in (info.language, info.sdk) if part)),
        ("revision", f"{info.lowest_revision} to {info.highest_revision}"),
        ("can", ", ".join(sorted(info.capabilities))),
        ("in flight", f"at most {info.max_in_flight}" if info.max_in_flight else ""),
    )
    yield from (row for row in rows if row[1])
    yield from (("settings", text) for text in _settings_told(info.settings_schema))
    if isinstance(kind, ScorerInfo):
        yield from (("score", _declared(score)) for score in kind.scores)
        yield from (("metric", _declared_metric(metric)) for metric in kind.metrics)
        if kind.needs:
            yield "needs", ", ".join(need.name.lower() for need in kind.needs)
        if kind.inputs:
            yield "inputs", ", ".join(kind.inputs)


def _settings_told(schema: str) -> Iterator[str]:
    """A line for each setting; the schema itself if it does not list them."""
    document = json.loads(schema) if schema else {}
    properties = document.get("properties") if isinstance(document, dict) else None
    if not isinstance(properties, dict) or not all(isinstance(part, dict) for part in properties.values()):
        yield schema or "none"
        return
    for name, part in properties.items():
        kinds = [each.get("type") for each in part.get("anyOf", [part]) if isinstance(each, dict)]
        kind = (
            " or ".join(map(json.dumps, part["enum"])) if "enum" in part else " or ".join(map(str, filter(None, kinds)))
        )
        needed = "needed" if name in document.get("required", ()) else ""
        default = f"default {json.dumps(part['default'], ensure_ascii=False)}" if "default" in part else needed
        yield f"{name}: {', '.join(filter(None, (kind, default)))}{'. ' if kind or default else ''}{part.get('description', '')}"


def _declared(score: ScoreDeclaration) -> str:
    parts = [_range(score), score.unit, _better(score), score.description]
    return f"{score.name or '(the only one)'}: {', '.join(part for part in parts if part)}"


def _declared_metric(metric: MetricDeclaration) -> str:
    parts = [_range(metric), _better(metric), metric.description]
    return f"{metric.name}: {', '.join(part for part in parts if part)}"


def _range(declared: ScoreDeclaration | MetricDeclaration) -> str:
    low = "-∞" if declared.minimum is None else f"{declared.minimum:g}"
    high = "∞" if declared.maximum is None else f"{declared.maximum:g}"
    return f"{low} to {high}"


def _better(declared: ScoreDeclaration | MetricDeclaration) -> str:
    return "lower is better" if declared.direction.name == "LOWER_IS_BETTER" else ""


def _info_document(info: PluginInfo) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": "scorer" if isinstance(info.kind, ScorerInfo) else "target",
        "name": info.name,
        "version": info.version,
        "description": info.description,
        "language": info.language,
        "sdk": info.sdk,
        "revisions": [info.lowest_revision, info.highest_revision],
        "capabilities": sorted(info.capabilities),
        "max_in_flight": info.max_in_flight or None,
        "settings_schema": json.loads(info.settings_schema) if info.settings_schema else None,
    }
    if isinstance(info.kind, ScorerInfo):
        document["scores"] = [_declared_document(score) for score in info.kind.scores]
        document["metrics"] = [_declared_document(metric) for metric in info.kind.metrics]
        document["needs"] = [need.name for need in info.kind.needs]
        document["inputs"] = list(info.kind.inputs)
    return document


def _declared_document(declared: ScoreDeclaration | MetricDeclaration) -> dict[str, Any]:
    return {
        "name": declared.name,
        "min": declared.minimum,
        "max": declared.maximum,
        "direction": declared.direction.name,
    }


# --- one trial --------------------------------------------------------------------------------------------------


def check(sought: Sought, trial: OneTrial, *, as_json: bool) -> int:
    """Ask a plugin one trial, as a run would: with its settings, its limits, over its own connection.

    Raises:
        Ending: the trial failed.
    """
    logs.set_up("warning")
    settings = _settings(trial.settings)
    info, report = asyncio.run(_try(sought, trial, settings))
    result = next(report.results(), None)
    if as_json:
        print_json({"plugin": _info_document(info), "trial": None if result is None else _trial_document(result)})
    else:
        out = console()
        for label, text in (*_told(info), *_told_of(result)):
            out.print(Text.assemble((f"{label:12}", "dim"), plain(text)), soft_wrap=True)
    if result is None:
        raise Ending(ExitCode.TROUBLE, report.run.state.name, f"{info.name}: {report.run.reason}")
    if result.outcome is Outcome.ERRORED:
        why = result.failure.message if result.failure is not None else "it gave no score"
        raise Ending(ExitCode.FAIL, "TRIAL_FAILED", f"{info.name} could not do the trial: {why}")
    return ExitCode.PASS


async def _try(sought: Sought, trial: OneTrial, settings: dict[str, Any]) -> tuple[PluginInfo, RunReport]:
    infos = await _reach(sought)
    if len(infos) > 1:
        raise Invalid(Reason.REQUEST_INVALID, "a target and a scorer are served there; say --target or --scorer")
    kind = "scorer" if isinstance(infos[0].kind, ScorerInfo) else "target"
    record = {"id": "check", "input": trial.input}
    if trial.expected is not None:
        record["expected"] = trial.expected
    if kind == "scorer":
        record["output"] = trial.output
    return infos[0], await run_async(_document(sought, kind, record, settings))


def _settings(text: str) -> dict[str, Any]:
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise Invalid(Reason.SETTINGS_INVALID, f"--settings: not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise Invalid(Reason.SETTINGS_INVALID, '--settings: must be a JSON object, such as {"model": "small"}')
    return settings


def _told_of(result: TrialResult | None) -> Iterator[tuple[str, str]]:
    if result is None:
        return
    yield "trial", result.outcome.name
    if result.latency is not None:
        yield "took", f"{result.latency * 1000:.1f} ms"
    if result.failure is not None:
        yield "failure", f"{result.failure.category.name}: {result.failure.message}"
    elif not result.scores and result.output is not None:
        yield "content", str(result.output.content)
        yield from (("tool call", f"{call.name}({call.arguments_json})") for call in result.output.tool_calls)
    for key, score in result.scores.items():
        value = score.status.name if score.value is None else number(score.value)
        yield "score", f"{key}: {value}{f'  {score.explanation}' if score.explanation else ''}"


def _trial_document(result: TrialResult) -> dict[str, Any]:
    failure = result.failure
    return {
        "outcome": result.outcome.name,
        "content": None if result.output is None or result.output.content is None else str(result.output.content),
        "scores": {
            key: {"status": score.status.name, "value": score.value, "explanation": score.explanation}
            for key, score in result.scores.items()
        },
        "failure": None if failure is None else {"category": failure.category.name, "message": failure.message},
        "latency_ms": None if result.latency is None else result.latency * 1000,
    }
