"""What a run was told to do, as a document and as lines: whole, compact, and without anybody's secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evalbus_server.cli.settings import WIDEST, told_settings
from evalbus_server.model.experiment import Experiment
from evalbus_server.wire.settings import settings_document
from tests.unit.server.wire.samples import RUN

SMALL: dict[str, Any] = {"name": "x", "dataset": {"name": "d", "version": 2}, "target": "none", "scorers": []}


def document_of(**more: Any) -> dict[str, Any]:
    stored = Experiment.parse({**SMALL, **more}).canonical_json()
    found = settings_document(replace(RUN, experiment_json=stored))
    assert found is not None
    return found


def told(**more: Any) -> list[str]:
    return [f"{label}: {text}" for label, text in told_settings(document_of(**more))]


def test_what_is_as_usual_is_not_told():
    assert told() == ["target: none: the dataset has outputs"]


def test_what_is_not_as_usual_is_told():
    assert told(
        dataset={"name": "d", "items": ["a*", "b7"], "limit": 100},
        target={"command": ["python", "my target.py"], "plugin": "agent", "settings": {"model": "small"}},
        scorers=[
            {"use": "exact_match", "threshold": 1},
            {"name": "tone", "address": "a:1", "weight": 2, "timeout": "30s", "sampling": 0.25},
        ],
        epochs={"count": 3, "reducer": "pass_at(3)"},
        limits={"concurrency": 32, "timeout": "60s", "deadline": "2h", "max_errors": "50%"},
        keep={"outputs": False},
        tags=["nightly", "b"],
    ) == [
        "items: items a*, b7   limit 100",
        'target: python \'my target.py\'   plugin agent   settings {"model": "small"}',
        "scorer: exact_match   threshold 1",
        ": tone: a:1   sampling 0.25   timeout 30s   weight 2",
        "epochs: count 3   reducer pass_at(3)",
        "limits: concurrency 32   deadline 2h   max_errors 50%",
        "keep: outputs false",
        "tags: nightly, b",
    ]


def test_limits_within_limits_are_told_by_their_paths():
    assert told(limits={"pool": {"name": "gpu", "concurrency": 5}, "trial": {"steps": 9}}) == [
        "target: none: the dataset has outputs",
        "limits: pool.concurrency 5   pool.name gpu   trial.steps 9",
    ]
    assert told(limits={"trial": {}}) == ["target: none: the dataset has outputs"]


def test_limits_that_were_set_anew_are_told_with_their_values():
    changed = {"limits.concurrency": 32, "limits.max_errors": "5%", "limits.cost": None}
    lines = [f"{label}: {text}" for label, text in told_settings(document_of(limits={"concurrency": 32}), changed)]
    assert lines[1:] == [
        "limits: concurrency 32",
        "changed: limits.concurrency 32   limits.max_errors 5%   limits.cost none",
    ]


def test_secrets_are_in_neither():
    target = {"command": ["agent"], "env": {"KEY": "s3cret", "OTHER": "${env:OTHER}"}}
    scorers = [{"address": "a:1", "token": "s3cret", "tls": {}}, {"address": "b:1", "token": "${env:T}"}]
    found = document_of(target=target, scorers=scorers)
    lines = told(target=target, scorers=scorers)

    assert [scorer["token"] for scorer in found["scorers"]] == ["(hidden)", "${env:T}"]
    assert found["scorers"][0]["tls"] == {}
    assert "target: agent   env KEY, OTHER" in lines
    assert "scorer: a:1   with token   with tls" in lines
    assert "s3cret" not in "".join(lines)


def test_a_long_setting_is_cut_and_steers_no_terminal():
    line = told(target={"use": "t", "settings": {"prompt": "\x1b[31m" + "long " * 200}})[0]
    assert line.endswith("…") and len(line) < WIDEST + 40
    assert "\x1b" not in line


def test_the_document_has_every_default_and_is_an_experiment():
    found = document_of(scorers=[{"use": "exact_match"}])
    assert found["limits"]["retries"] == 2 and found["scorers"][0]["concurrency"] == 10
    assert Experiment.parse(found) == Experiment.parse({**SMALL, "scorers": [{"use": "exact_match"}]})


def test_a_run_without_an_experiment_tells_nothing():
    assert settings_document(replace(RUN, experiment_json="")) is None
    assert list(told_settings(None)) == []
