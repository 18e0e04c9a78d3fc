"""What a client sends of an experiment is what the server reads of the same words in a file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from evalbus import CallFailed
from evalbus._experiment import experiment_to_proto
from evalbus_server.errors import Invalid
from evalbus_server.model.bounds import Criterion, Keep, Limits, PoolUse, TrialBounds
from evalbus_server.model.experiment import Epochs, Experiment
from evalbus_server.model.plugin_use import MetricUse, ScorerUse
from evalbus_server.wire.experiment import experiment_from_proto

SMALL: dict[str, Any] = {"name": "x", "dataset": {"name": "d"}}

EXPERIMENTS: list[dict[str, Any]] = [
    SMALL,
    {**SMALL, "target": "none"},
    {**SMALL, "dataset": {"name": "d", "version": 2, "items": ["a*", "[bc]?"], "limit": 5}},
    {**SMALL, "description": "nightly", "tags": ["a", "b"], "metadata": {"team": "é", "n": 2**70, "deep": [{"x": None}]}},
    {**SMALL, "target": {"address": "dns:///a:1", "token": "${env:T}", "tls": {"root_certificates": "ca.pem"}}},
    {**SMALL, "target": {"address": "a:1", "tls": {"server_name": "b"}, "plugin": "p", "settings": {"k": 1.5}}},
    {**SMALL, "target": {"command": ["python", "t.py"], "env": {"A": "b", "C": ""}, "start_limit": "2m"}},
    {**SMALL, "scorers": [{"use": "exact_match"}, {"use": "includes", "settings": {"ignore_case": True}}]},
    {**SMALL, "scorers": [{"name": "tone", "address": "a:1", "threshold": 0.5, "weight": 2, "sampling": 0.25}]},
    {**SMALL, "scorers": [{"use": "a", "sampling": "never"}, {"use": "b", "sampling": "always"}], "scorers_from": "items"},
    {**SMALL, "scorers": []},
    {**SMALL, "target": {"use": "t"}, "cache": True},
    {**SMALL, "dataset": {"name": "d", "scorers": ["a"]}},
    {key: value for key, value in SMALL.items() if key != "scorers"},
    {**SMALL, "scorers": [{"use": "many", "threshold": {"a": 1, "b": 0.5}, "weight": {"a": 0}}]},
    {**SMALL, "scorers": [{"use": "m", "map": {"response": "output.content"}, "concurrency": 8, "timeout": "1m30s"}]},
    {**SMALL, "epochs": 3},
    {**SMALL, "keep": {"outputs": False, "scores": True}},
    {**SMALL, "keep": {"scores": False}},
    {**SMALL, "epochs": {"count": 5, "reducer": "pass_at(2)"}},
    {**SMALL, "limits": {"concurrency": 100, "timeout": "250ms", "trial_timeout": "1h", "silence": "90s", "deadline": "2d"}},
    {**SMALL, "limits": {"retries": 0, "max_errors": 0, "tokens": 0, "cost": 0.1, "currency": "EUR"}},
    {**SMALL, "limits": {"max_errors": "12.5%", "cost": 1234.567891, "trial": {"messages": 3, "steps": 4}}},
    {**SMALL, "limits": {"pool": {"name": "gpu", "concurrency": 4}, "trial": {"tokens": 5}}},
    {**SMALL, "criteria": [{"metric": "pass_rate", "min": 0.9}, {"metric": "mean", "scorer": "s", "max": 1, "severity": "warn"}]},
    {**SMALL, "criteria": [{"metric": "mean", "baseline": "r1", "max_drop": 0, "min_coverage": 0.5, "label": "no worse"}]},
]  # fmt: skip


@pytest.mark.parametrize("document", EXPERIMENTS)
def test_a_client_says_an_experiment_in_the_words_of_a_file(document: dict[str, Any]) -> None:
    received, items = experiment_from_proto(experiment_to_proto(document))

    assert received == Experiment.parse(document)
    assert received.digest() == Experiment.parse(document).digest()
    assert items == ()


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ({"command": ["python", "s.py"], "token": "t"}, "token: goes with address, not with command; leave it out"),
        ({"command": ["python", "s.py"], "tls": {}}, "tls: goes with address, not with command; leave it out"),
        ({"address": "a:1", "env": {"A": "b"}}, "env: goes with command, not with address; leave it out"),
        ({"use": "exact_match", "env": {"A": "b"}}, "env: goes with command, not with use; leave it out"),
        ({"use": "exact_match", "token": "t"}, "token: goes with address, not with use; leave it out"),
        ({"use": "autoevals.Levenshtein", "tls": {}}, "tls: goes with address, not with use; leave it out"),
        ({"address": "a:1", "python": "p"}, "python: goes with a scorer of another library in use; leave it out"),
    ],
)  # fmt: skip
def test_a_client_drops_nothing_that_goes_with_another_way(use: dict[str, Any], said: str) -> None:
    document = {**SMALL, "scorers": [use]}

    with pytest.raises(CallFailed) as refused:
        experiment_to_proto(document)
    assert (refused.value.reason, str(refused.value)) == ("EXPERIMENT_INVALID", f"scorers[0].{said}")
    with pytest.raises(Invalid, match=said.partition(": ")[2]):  # as a file with it would be
        Experiment.parse(document)


def test_a_client_passes_on_the_environment_of_what_serves_another_library() -> None:
    document = {**SMALL, "scorers": [{"use": "autoevals.Factuality", "env": {"A": "b"}, "python": "p"}]}

    assert experiment_from_proto(experiment_to_proto(document))[0] == Experiment.parse(document)


@pytest.mark.parametrize(
    ("use", "said"),
    [({"command": ["s"], "env": ["A"]}, "env"), ({"use": "includes", "map": "output"}, "map")],
)
def test_a_client_refuses_a_list_of_pairs_that_is_none(use: dict[str, Any], said: str) -> None:
    with pytest.raises(CallFailed, match=rf"scorers\[0\]\.{said}: must be a mapping"):
        experiment_to_proto({**SMALL, "scorers": [use]})


def sections() -> list[tuple[str, str]]:
    """Each part of an experiment that has the same keys for a client as in a file, with each of its keys."""
    parts: dict[str, type[BaseModel]] = {
        "": Experiment,
        "limits": Limits,
        "limits.trial": TrialBounds,
        "limits.pool": PoolUse,
        "epochs": Epochs,
        "keep": Keep,
        "criteria": Criterion,
        "scorers": ScorerUse,
        "scorers.metrics": MetricUse,
    }
    own = {"folder", "python"}  # where the file stands, and an environment that it names
    return [(where, key) for where, part in parts.items() for key in part.model_fields if key not in own]


@pytest.mark.parametrize(("where", "key"), sections())
def test_a_client_knows_every_key_of_a_file(where: str, key: str) -> None:
    """A key whose value cannot be right is refused for its value, not for its name."""
    document: dict[str, Any] = {key: object()}
    if where == "scorers" and key in ("env", "tls"):
        document.update({"address": "a:1"} if key == "tls" else {"command": ["a"]})
    for part in reversed(where.split(".") if where else []):
        document = {part: [document] if part in ("criteria", "scorers", "metrics") else document}

    with pytest.raises(CallFailed) as caught:
        experiment_to_proto({**({} if where == "" else SMALL), **document})

    assert "unknown key" not in str(caught.value)
    assert key in str(caught.value)
