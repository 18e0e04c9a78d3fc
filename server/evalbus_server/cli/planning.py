"""What a dry run prints: all that a run would do, from its plan and its experiment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from rich.text import Text

from evalbus import PluginInfo
from evalbus.kit._ranges import told as range_told
from evalbus_server.cli.figures import count, plain
from evalbus_server.cli.report import console, print_json, subject_of, wanted_by
from evalbus_server.cli.settings import told_settings
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import ScoreKey
from evalbus_server.runner.plan import Plan, dataset_name
from evalbus_server.wire.settings import experiment_document

Document: TypeAlias = dict[str, Any]

USUAL_LIMITS = ("concurrency", "timeout", "trial_timeout", "retries")
"""Limits that are told whatever they are."""
_CHOOSING = ("items", "tags", "limit", "shuffle")
_OF_SCORES = ("threshold", "weight")


def print_plan(experiment: Experiment, planned: Plan, *, as_json: bool) -> None:
    """What a run would do."""
    if as_json:
        print_json(plan_document(experiment, planned))
        return
    out = console()
    seen = ""
    for label, text in told(experiment, planned):
        shown = "" if label == seen else label
        out.print(Text.assemble((f"{shown:11}", "dim"), text), soft_wrap=True)
        seen = label
    for warning in planned.warnings:
        out.print(Text(f"{'note':11}{plain(warning)}", "yellow"), soft_wrap=True)
    out.print("Everything fits; nothing was asked and nothing is stored.", soft_wrap=True)


def plan_document(experiment: Experiment, planned: Plan) -> Document:
    """The same as JSON."""
    dataset = planned.dataset
    return {
        "name": experiment.name,
        "dry_run": True,
        "dataset": {
            "name": dataset_name(experiment) if dataset is None else dataset.name,
            "version": None if dataset is None else dataset.version,
        },
        "items": planned.items,
        "first_items": list(planned.first_items),
        "epochs": planned.epochs,
        "trials": planned.trials,
        "target_calls": planned.trials if planned.has_target else 0,
        "scorer_calls": planned.scorer_calls,
        "plugins": [{"name": plugin.name, "version": plugin.version} for plugin in planned.plugins],
        "scores": [key.key for key in planned.keys],
        "declared": {key.key: _declared(key) for key in planned.keys},
        "warnings": list(planned.warnings),
        "experiment": _document(experiment),
    }


def _document(experiment: Experiment) -> Document:
    """The experiment without the records that may stand in it."""
    dataset = experiment.dataset.model_copy(update={"records": ()}) if experiment.dataset.records else None
    shown = experiment if dataset is None else experiment.model_copy(update={"dataset": dataset})
    return experiment_document(shown.canonical_json())


def _declared(key: ScoreKey) -> Document:
    declaration = key.declaration
    return {
        "minimum": declaration.minimum,
        "maximum": declaration.maximum,
        "direction": declaration.direction.name,
        "unit": declaration.unit or None,
        "threshold": key.threshold,
        "weight": key.weight,
    }


def told(experiment: Experiment, planned: Plan) -> Iterator[tuple[str, str]]:
    """Lines, each with its label."""
    document = _document(experiment)
    chosen = {key: value for key, value in document["dataset"].items() if key in _CHOOSING}
    settings = list(_labelled(told_settings({**document, "dataset": chosen})))
    targets, scorers = planned.plugins[: planned.has_target], planned.plugins[planned.has_target :]
    yield "experiment", plain(experiment.name)
    yield "dataset", _dataset(experiment, planned)
    yield "items", _items(planned)
    yield from (("chosen by", text) for label, text in settings if label == "items")
    for text, info in zip((text for label, text in settings if label == "target"), targets or (None,), strict=False):
        yield "target", _plugin(info, text)
    ways = [text for label, text in settings if label == "scorer"]
    for place, info in enumerate(scorers):
        yield "scorer", _plugin(info, ways[place] if place < len(ways) else "named by items")
        yield from (("  score", _score(key)) for key in planned.keys if key.scorer == place)
    for criterion in document.get("criteria", ()):
        label = f"{plain(criterion['label'])}: " if criterion.get("label") else ""
        warns = "   warns only" if criterion.get("severity") == "warn" else ""
        yield "criterion", f"{label}{plain(subject_of(criterion))} {plain(wanted_by(criterion))}{warns}"
    yield "limits", _limits(document["limits"])
    yield from (row for row in settings if row[0] in ("scorers", "keep", "cache", "tags"))
    yield "trials", _trials(planned)


def _labelled(rows: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The same with each label in words, also where it is that of the line above."""
    last = ""
    for label, text in rows:
        last = label or last
        yield last, text


def _dataset(experiment: Experiment, planned: Plan) -> str:
    dataset = planned.dataset
    if dataset is not None:
        return f"{plain(dataset.name)} version {dataset.version}"
    use = experiment.dataset
    read = f"read from {use.path}" if use.path is not None else f"read, {use.source}"
    return f"{plain(f'{dataset_name(experiment)}, {read}')}; a run stores it, as a new version if it differs"


def _items(planned: Plan) -> str:
    more = planned.items - len(planned.first_items)
    first = plain(", ".join(planned.first_items))
    return f"{count(planned.items)}: {first}{f' and {count(more)} more' if more > 0 else ''}"


def _plugin(info: PluginInfo | None, text: str) -> str:
    """A plugin by its own name and version, and what the experiment says of it: but for what its scores tell."""
    if info is None:
        return text
    said = [part for part in text.split("   ") if part != info.name and part.partition(" ")[0] not in _OF_SCORES]
    return "   ".join((plain(f"{info.name} {info.version}"), *said))


def _score(key: ScoreKey) -> str:
    declaration = key.declaration
    parts = [plain(f"{key.key}: {range_told(declaration)}"), declaration.direction.name.lower().replace("_", " ")]
    if key.threshold is not None:
        parts.append(f"threshold {key.threshold:g}")
    if key.weight is not None:
        parts.append(f"weight {key.weight:g}")
    return ", ".join(parts)


def _limits(limits: Document) -> str:
    told = {name: limits[name] for name in USUAL_LIMITS if name in limits}
    rest = dict(told_settings({"dataset": {}, "target": "none", "scorers": (), "limits": limits})).get("limits", "")
    usual = "   ".join(f"{name} {value}" for name, value in told.items())
    more = [part for part in rest.split("   ") if part and part.partition(" ")[0] not in told]
    return "   ".join([usual, *more])


def _trials(planned: Plan) -> str:
    epochs = f" × {planned.epochs} epochs" if planned.epochs > 1 else ""
    calls = f"{count(planned.trials)} calls of the target" if planned.has_target else ""
    asked = ", ".join(filter(None, (calls, f"{count(planned.scorer_calls)} of scorers")))
    items = "item" if planned.items == 1 else "items"
    return f"{count(planned.trials)}: {count(planned.items)} {items}{epochs}; {asked}, without retries"
