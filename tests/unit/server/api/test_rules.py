"""What an experiment of a caller may make the server do: its own commands, its own folders, no secrets."""

from __future__ import annotations

from typing import Any

import pytest

from evalbus_server.api.rules import Allowed, AllowedCommand
from evalbus_server.errors import Denied, Invalid, Reason
from evalbus_server.model.experiment import Experiment

ALLOWED = Allowed(
    commands=(AllowedCommand(("python", "target.py"), "/srv/plugins", frozenset({"MODEL"})),),
    environment=frozenset({"JUDGE_KEY"}),
    concurrency=100,
)


def experiment(target: dict[str, Any] | None = None, **more: Any) -> Experiment:
    return Experiment.parse(
        {"name": "x", "dataset": {"name": "d"}, "target": target or {"address": "localhost:1"}, **more}
    )


def test_a_command_of_the_configuration_is_started_in_the_folder_of_the_configuration() -> None:
    admitted = ALLOWED.admit(experiment({"command": ["python", "target.py"], "folder": "/home/caller"}))

    assert admitted.target is not None
    assert admitted.target.folder == "/srv/plugins"


@pytest.mark.parametrize(
    "command", [["python", "other.py"], ["python", "target.py", "-v"], ["python"], ["sh", "-c", "id"]]
)
def test_any_other_command_is_refused(command: list[str]) -> None:
    with pytest.raises(Denied) as caught:
        ALLOWED.admit(experiment({"command": command}))

    assert (caught.value.reason, caught.value.field) == (Reason.COMMAND_NOT_ALLOWED, "target.command")


def test_a_scorers_command_is_judged_too() -> None:
    with pytest.raises(Denied) as caught:
        ALLOWED.admit(experiment(scorers=[{"use": "exact_match"}, {"command": ["sh"]}]))

    assert caught.value.field == "scorers[1].command"


def test_a_variable_that_would_make_the_command_another_program_is_refused() -> None:
    ALLOWED.admit(experiment({"command": ["python", "target.py"], "env": {"MODEL": "small"}}))

    with pytest.raises(Denied) as caught:
        ALLOWED.admit(experiment({"command": ["python", "target.py"], "env": {"PYTHONPATH": "/tmp/mine"}}))
    assert caught.value.field == "target.env.PYTHONPATH"


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({"settings": {"key": "${env:HOME}"}}, "target.settings.key"),
        ({"settings": {"deep": [{"key": "${env:EVALBUS_TOKEN}"}]}}, "target.settings.deep[0].key"),
        ({"token": "${env:EVALBUS_TOKEN}"}, "target.token"),
    ],
)
def test_a_variable_of_the_server_is_not_sent_to_an_address_of_the_callers_choice(
    target: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        ALLOWED.admit(experiment({"address": "localhost:1", **target}))

    assert (caught.value.reason, caught.value.field) == (Reason.EXPERIMENT_INVALID, field)


def test_a_variable_that_is_listed_may_be_named() -> None:
    ALLOWED.admit(experiment({"address": "localhost:1", "token": "${env:JUDGE_KEY}"}))


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"limits": {"concurrency": 101}}, "limits.concurrency"),
        ({"scorers": [{"use": "exact_match", "concurrency": 101}]}, "scorers[0].concurrency"),
    ],
)
def test_more_at_a_time_than_the_server_allows_is_refused(more: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        ALLOWED.admit(experiment(**more))

    assert caught.value.field == field
