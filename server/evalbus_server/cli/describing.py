"""The work of `evalbus plugins describe`, `evalbus scorers list` and `show`: what plugins say of themselves."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from evalbus import MetricDeclaration, PluginInfo, ScoreDeclaration, ScorerInfo
from evalbus._adapted import OF_LIBRARIES, is_adapted, looks_adapted
from evalbus._settings import settings_type
from evalbus_server import logs
from evalbus_server.app import plugin_maker
from evalbus_server.cli.figures import plain
from evalbus_server.cli.report import console, print_json
from evalbus_server.errors import Invalid, NotFound, Reason, Unfit
from evalbus_server.model.faults import BUILTINS_LISTED, suggestion
from evalbus_server.plugin.remote import NotServed, listed
from evalbus_server.runner.crew import Wanted
from evalbus_server.runner.experiment_file import from_mapping
from evalbus_server.scorer.builtin import BUILTINS, GROUPS
from evalbus_server.scorer.metrics import AMONG_METRICS, METRICS, Metric

LEAST = 24
"""So wide a description is at least, on the narrowest terminal."""
_METRICS = "numbers over all trials: what `metrics` of a scorer may name"


@dataclass(frozen=True, slots=True)
class Sought:
    """Which plugin is meant."""

    entry: dict[str, Any]
    """As in an experiment."""
    kinds: tuple[str, ...]
    """target, scorer, or both if nobody said which."""


@dataclass(frozen=True, slots=True)
class Way:
    """How to reach a plugin, as it stood on the command line: one of them."""

    command: str | None
    address: str | None
    use: str | None


def sought(way: Way, plugin: str, *, target: bool, scorer: bool) -> Sought:
    """The plugin that the options mean.

    Raises:
        Invalid: they contradict each other.
        NotFound: there is none of the name.
    """
    if sum(each is not None for each in (way.command, way.address, way.use)) != 1:
        raise Invalid(
            Reason.REQUEST_INVALID,
            "say where the plugin is: --command 'python target.py', --address A, or --use NAME for one that an experiment just names",
        )
    if target and scorer:
        raise Invalid(
            Reason.REQUEST_INVALID, "--target and --scorer exclude each other; leave both out to look for any"
        )
    if way.use is not None:
        named(way.use)
        if target:
            raise Invalid(Reason.REQUEST_INVALID, f"{way.use} is a scorer, not a target; leave --target out")
        if plugin:
            raise Invalid(
                Reason.REQUEST_INVALID, "--plugin goes with --command and --address, not with --use; leave it out"
            )
        return Sought({"use": way.use}, ("scorer",))
    entry: dict[str, Any] = {"plugin": plugin}
    if way.command is not None:
        entry["command"] = shlex.split(way.command)
    else:
        entry["address"] = way.address
    kinds = ("target",) if target else ("scorer",) if scorer else ("target", "scorer")
    return Sought(entry, kinds)


def named(use: str) -> None:
    """Check that `use` of an experiment may say this of a scorer.

    Raises:
        NotFound: it is neither a builtin nor one of another library.
    """
    if use not in BUILTINS and not is_adapted(use):
        known = sorted(BUILTINS)
        hint = OF_LIBRARIES if looks_adapted(use) else suggestion(use, known, known, BUILTINS_LISTED)
        hint = AMONG_METRICS if use in METRICS else hint
        raise NotFound(Reason.PLUGIN_UNKNOWN, f"there is no builtin scorer {use!r}{hint}")


# --- what they say of themselves --------------------------------------------------------------------------------


def describe(sought: Sought, *, as_json: bool) -> None:
    """Print what a plugin says of itself."""
    logs.set_up("warning")
    _print_infos(asyncio.run(reach(sought)), as_json=as_json)


def list_builtins(*, as_json: bool) -> None:
    """Print the builtin scorers."""
    if as_json:
        by_name = sorted((scorer.name, group, scorer.info) for group, of in GROUPS.items() for scorer in of)
        scorers = [{**info_document(info), "group": group} for _, group, info in by_name]
        metrics = [{"name": metric.name, "description": metric.about} for metric in METRICS.values()]
        print_json({"scorers": scorers, "metrics": metrics})
        return
    listed = {group: [(each.name, each.info.description) for each in of] for group, of in GROUPS.items()}
    listed[_METRICS] = [(metric.name, metric.about) for metric in METRICS.values()]
    width = max(len(name) for rows in listed.values() for name, _ in rows) + 4
    out = console()
    room = max(out.width - width, LEAST) if out.is_terminal else None
    for place, (group, rows) in enumerate(listed.items()):
        out.print(Text(f"{'' if place == 0 else chr(10)}{group}", "bold"), soft_wrap=True)
        for name, about in rows:
            first, *more = [about] if room is None else textwrap.wrap(about, room) or [""]
            out.print(Text(f"  {name:{width - 2}}{first}"), soft_wrap=True)
            for line in more:
                out.print(Text(f"{'':{width}}{line}"), soft_wrap=True)


def show_scorer(name: str, *, as_json: bool) -> None:
    """Print what a scorer takes and gives that an experiment just names; or a number over all trials, or both.

    Raises:
        NotFound: there is none of this name.
        ServerError: that of another library cannot be reached.
    """
    metric = METRICS.get(name)
    if metric is None or name in BUILTINS:
        named(name)
        describe(Sought({"use": name}, ("scorer",)), as_json=as_json)
    if metric is not None and not (as_json and name in BUILTINS):
        _show_metric(metric, as_json=as_json)


def _show_metric(metric: Metric, *, as_json: bool) -> None:
    schema = settings_type(metric.settings, {}, metric.name).schema
    if as_json:
        about = {"name": metric.name, "description": metric.about, "settings_schema": json.loads(schema)}
        print_json({"metric": about})
        return
    rows = [("metric", metric.name), ("about", metric.about)]
    if json.loads(schema).get("properties"):
        rows += [("settings", text) for text in _settings_told(schema)]
    rows += [("inputs", "output, expected"), ("stands in", "`metrics` of any scorer in an experiment")]
    for label, text in rows:
        console().print(Text.assemble((f"{label:12}", "dim"), plain(text)), soft_wrap=True)


async def reach(sought: Sought) -> list[PluginInfo]:
    """The plugin of each kind that is sought, as far as there is one.

    Raises:
        ServerError: none can be reached.
    """
    found: list[PluginInfo] = []
    served: dict[str, list[str]] = {}
    missing: list[NotServed] = []
    for kind in sought.kinds:
        experiment = from_mapping(entry_alone(sought.entry, kind), os.getcwd())
        use = experiment.target if kind == "target" else experiment.scorers[0]
        assert use is not None
        wanted = Wanted(use, kind == "scorer", 1, experiment, BUILTINS.get(use.use or ""), "", {})
        plugin = plugin_maker()(wanted)
        try:
            found.append(await plugin.reach())
        except NotServed as error:
            missing.append(error)
            served |= {kind: list(names) for kind, names in error.served.items()}
        finally:
            await plugin.close()
    if not found:
        raise Unfit(Reason.PLUGIN_UNKNOWN, _not_served(sought, served) or str(missing[0]))
    return found


def _not_served(sought: Sought, served: dict[str, list[str]]) -> str:
    """What is served instead of what was sought, and which option means it; "" if nothing is."""
    there = " and ".join(listed(kind, served[kind]) for kind in ("target", "scorer") if served.get(kind))
    if not there:
        return ""
    fitting = [name for kind in sought.kinds for name in served.get(kind, ())]
    plugin = sought.entry.get("plugin", "")
    if not fitting:
        kind = sought.kinds[0]
        return f"no {kind} is served there, but {there}: leave --{kind} out"
    if plugin:
        what = sought.kinds[0] if len(sought.kinds) == 1 else "plugin"
        near = difflib.get_close_matches(plugin, fitting, n=1) or fitting
        return f"no {what} {plugin!r} is served there, but {there}: give one of these, as in --plugin {near[0]}"
    return f"{there} are served there: say which one with --plugin, as in --plugin {fitting[0]}"


def entry_alone(
    entry: dict[str, Any], kind: str, record: dict[str, Any] | None = None, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """An experiment of one plugin, by its entry, and one record."""
    whole = {**entry, "settings": settings or {}}
    return {
        "name": "check",
        "dataset": {"records": [record or {"input": ""}]},
        "target": whole if kind == "target" else "none",
        "scorers": [] if kind == "target" else [whole],
        "limits": {"retries": 0},
    }


def _print_infos(infos: list[PluginInfo], *, as_json: bool) -> None:
    if as_json:
        print_json({"plugins": [info_document(info) for info in infos]})
        return
    out = console()
    for info in infos:
        for label, text in told(info):
            out.print(Text.assemble((f"{label:12}", "dim"), plain(text)), soft_wrap=True)


def told(info: PluginInfo) -> Iterator[tuple[str, str]]:
    """What a plugin says of itself, as lines with their labels."""
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


def info_document(info: PluginInfo) -> dict[str, Any]:
    """What a plugin says of itself, as JSON."""
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
