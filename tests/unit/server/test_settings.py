"""The configuration of a server: one schema, refused in one line, secrets resolved at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalbus_server.api.rules import AllowedCommand
from evalbus_server.errors import Invalid, Reason
from evalbus_server.settings import Serving, Settings, database_path, load_settings

FULL = """
listen: 0.0.0.0:7000
db: data/runs.db
tls: {certificate: server.pem, key: /etc/keys/server.key}
tokens: ["${env:CI_TOKEN}", plain]
commands:
  - [python, target.py]
  - {command: [node, tone.js], folder: scorers, env: [MODEL]}
env: [JUDGE_KEY]
limits: {concurrency: 64, runs: 20, grace: 30s}
"""


def written(folder: Path, text: str, name: str = "evalbus.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_says_all_there_is_to_say(tmp_path: Path) -> None:
    serving = Serving(load_settings(written(tmp_path, FULL)), tmp_path, {"CI_TOKEN": "s3cret"})

    assert serving.listening.address == "0.0.0.0:7000"
    assert serving.listening.tokens == ("s3cret", "plain")
    assert serving.listening.certificate == tmp_path / "server.pem"
    assert serving.listening.key == Path("/etc/keys/server.key")
    assert serving.db == tmp_path / "data/runs.db"
    assert serving.allowed.commands == (
        AllowedCommand(("python", "target.py"), str(tmp_path)),
        AllowedCommand(("node", "tone.js"), str(tmp_path / "scorers"), frozenset({"MODEL"})),
    )
    assert serving.allowed.environment == {"JUDGE_KEY"}
    assert (serving.allowed.concurrency, serving.most_open, serving.grace) == (64, 20, 30.0)


def test_without_a_file_the_server_is_private_and_starts_no_command(tmp_path: Path) -> None:
    serving = Serving(Settings(), tmp_path, {})

    assert serving.listening.address == "127.0.0.1:50051"
    assert (serving.listening.tokens, serving.allowed.commands) == ((), ())
    assert serving.db == Path("evalbus.db")
    assert serving.most_open == 1_000


def test_the_token_may_come_from_the_environment(tmp_path: Path) -> None:
    assert Serving(Settings(), tmp_path, {"EVALBUS_TOKEN": "s3cret"}).listening.tokens == ("s3cret",)


def test_an_empty_variable_is_no_token(tmp_path: Path) -> None:
    assert Serving(Settings(), tmp_path, {"EVALBUS_TOKEN": ""}).listening.tokens == ()


def test_tokens_of_the_file_go_before_that_of_the_environment(tmp_path: Path) -> None:
    settings = Settings.parse({"tokens": ["mine"]})

    assert Serving(settings, tmp_path, {"EVALBUS_TOKEN": "other"}).listening.tokens == ("mine",)


@pytest.mark.parametrize("environ", [{}, {"CI_TOKEN": ""}])
def test_a_token_that_is_not_there_does_not_open_the_door(tmp_path: Path, environ: dict[str, str]) -> None:
    settings = Settings.parse({"tokens": ["${env:CI_TOKEN}"]})

    with pytest.raises(Invalid) as caught:
        Serving(settings, tmp_path, environ)
    assert caught.value.reason is Reason.REQUEST_INVALID


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listn: x", "line 1, column 1: listn: unknown key; did you mean listen?"),
        ("listen: 50051", "line 1, column 1: listen: must be text, not the number 50051; put it in quotes"),
        ("tls: {certificate: a.pem}", "line 1, column 1: tls.key: missing"),
        ("\ncommands:\n  - []", "line 3, column 5: commands[0].command: must not be empty"),
        ("tokens: ['']", "line 1, column 1: tokens: an empty token lets everybody in; leave it out"),
        ("tokens: ['x', ' ']", "line 1, column 1: tokens: an empty token lets everybody in; leave it out"),
        (
            "limits: {grace: 10}",
            "line 1, column 10: limits.grace: a length of time needs a unit: write 10s, or 10m for minutes",
        ),
        ("limits: {concurrency: 0}", "line 1, column 10: limits.concurrency: must be at least 1, not 0"),
        ("- 1", "must be a mapping of keys to values"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)

    with pytest.raises(Invalid) as caught:
        load_settings(path)
    assert str(caught.value).replace(f"{path} ", "").replace(f"{path}: ", "") == message


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        load_settings(tmp_path / "none.yaml")
    assert "there is no such file" in str(caught.value)


@pytest.mark.parametrize("document", [None, [], "x", 3])
def test_plain_data_must_be_a_mapping(document: Any) -> None:
    with pytest.raises(Invalid):
        Settings.parse(document)


def test_the_database_is_the_given_one_then_that_of_the_environment_then_the_usual_one() -> None:
    assert database_path(Path("mine.db"), {"EVALBUS_DB": "other.db"}) == Path("mine.db")
    assert database_path(None, {"EVALBUS_DB": "other.db"}) == Path("other.db")
    assert database_path(None, {}) == Path("evalbus.db")
