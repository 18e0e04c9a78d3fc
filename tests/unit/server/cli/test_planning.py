"""What a dry run prints: everything that a run would do, and nothing that a terminal would obey."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evalbus import Direction, PluginInfo, ScoreDeclaration, ScorerInfo, TargetInfo
from evalbus_server.cli.planning import plan_document, told
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import DatasetVersion, ScoreKey
from evalbus_server.runner.plan import Plan

EXPERIMENT: dict[str, Any] = {
    "name": "nightly",
    "dataset": {"path": "data/items.jsonl", "limit": 250, "tags": ["hard"]},
    "target": {"command": ["python", "agent.py"], "settings": {"model": "small"}},
    "scorers": [
        {"use": "exact_match", "threshold": 1, "weight": 2},
        {"command": ["node", "tone.js"], "timeout": "5s", "settings": {"language": "en"}},
    ],
    "epochs": 2,
    "criteria": [
        {"metric": "mean", "scorer": "exact_match", "min": 0.7, "label": "mostly right"},
        {"metric": "error_rate", "max": 0.05, "severity": "warn"},
    ],
    "limits": {"concurrency": 32, "cost": 5},
    "tags": ["night"],
}
PLAN = Plan(
    250,
    2,
    (
        PluginInfo("agent", TargetInfo(), version="1.2.0"),
        PluginInfo("exact_match", ScorerInfo(()), version="1.0.0"),
        PluginInfo("tone", ScorerInfo(()), version="0.3.0"),
    ),
    (
        ScoreKey("exact_match", 0, ScoreDeclaration(), 1.0, 2.0),
        ScoreKey("tone.warm", 1, ScoreDeclaration("warm", 0, 10)),
        ScoreKey("tone.delay", 1, ScoreDeclaration("delay", 0, None, Direction.LOWER_IS_BETTER, "ms")),
    ),
    True,
    500,
    None,
    ("a1", "b7"),
)


def lines(experiment: dict[str, Any], plan: Plan) -> list[str]:
    return [f"{label}: {text}" for label, text in told(Experiment.parse(experiment), plan)]


def test_a_dry_run_tells_all_that_a_run_would_do():
    assert lines(EXPERIMENT, PLAN) == [
        "experiment: nightly",
        "dataset: items, read from data/items.jsonl; a run stores it, as a new version if it differs",
        "items: 250: a1, b7 and 248 more",
        "chosen by: limit 250   tags hard",
        'target: agent 1.2.0   python agent.py   settings {"model": "small"}',
        "scorer: exact_match 1.0.0",
        "  score: exact_match: 0 to 1, higher is better, threshold 1, weight 2",
        'scorer: tone 0.3.0   node tone.js   settings {"language": "en"}   timeout 5s',
        "  score: tone.warm: 0 to 10, higher is better",
        "  score: tone.delay: 0 or more ms, lower is better",
        "criterion: mostly right: mean of exact_match ≥ 0.7",
        "criterion: error_rate ≤ 0.05   warns only",
        "limits: concurrency 32   timeout 1m   trial_timeout 10m   retries 2   cost 5",
        "tags: night",
        "trials: 500: 250 items × 2 epochs; 500 calls of the target, 1,000 of scorers, without retries",
    ]


def test_a_stored_dataset_is_told_by_its_version_and_scorers_of_items_by_who_names_them():
    experiment = {"name": "x", "dataset": {"name": "desk"}, "target": "none", "scorers": [], "scorers_from": "items"}
    plan = replace(
        PLAN,
        items=1,
        epochs=1,
        plugins=PLAN.plugins[1:2],
        keys=PLAN.keys[:1],
        has_target=False,
        tasks=1,
        dataset=DatasetVersion("desk", 3, 9, "ab", 0.0),
        first_items=("a1",),
    )
    found = lines(experiment, plan)

    assert "dataset: desk version 3" in found and "items: 1: a1" in found
    assert "target: none: the dataset has outputs" in found
    assert "scorer: exact_match 1.0.0   named by items" in found
    assert found[-1] == "trials: 1: 1 item; 1 of scorers, without retries"
    assert plan_document(Experiment.parse(experiment), plan)["dataset"] == {"name": "desk", "version": 3}


def test_the_document_has_the_ranges_and_no_record():
    records = {**EXPERIMENT, "dataset": {"records": [{"input": "a secret of somebody"}]}}
    document = plan_document(Experiment.parse(records), replace(PLAN, warnings=("mixed",)))

    assert document["declared"]["tone.warm"] == {
        "minimum": 0,
        "maximum": 10,
        "direction": "HIGHER_IS_BETTER",
        "unit": None,
        "threshold": None,
        "weight": None,
    }
    assert (document["trials"], document["target_calls"], document["scorer_calls"]) == (500, 500, 1000)
    assert document["warnings"] == ["mixed"]
    assert document["experiment"]["limits"]["concurrency"] == 32
    assert "secret" not in str(document)


def test_what_comes_from_outside_steers_no_terminal():
    evil = replace(
        PLAN, first_items=("\x1b[31mred\n",), plugins=(PluginInfo("a\x1b[0m", TargetInfo()), *PLAN.plugins[1:])
    )
    assert "\x1b" not in "".join(lines(EXPERIMENT, evil))
