"""What must not lie around: keys are in no database, log or export, and what was asked and answered is in no log."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from tests.e2e.command_line import Desk, serving
from tests.mock_endpoint import MockEndpoint, Status

KEYS = {"A_KEY": "MARK-1-of-settings", "B_KEY": "MARK-2-of-env", "C_KEY": "MARK-3-of-nobody"}
PAYLOAD = "ZEBRA-77"
RESULTS = ("runs", "results", "latest", "--jsonl")
PLUGINS = """
import os

from evalbus import Item, Output, TrialFailed, serve, target


@target("keyed", version="1.0.0")
def keyed(item: Item, settings: dict) -> Output:
    assert settings["api_key"].startswith("MARK-1") and os.environ["OWN"].startswith("MARK-2")
    if item.id == "i1":
        raise TrialFailed.refused("no answer to " + item.input.text)
    return Output("an answer to " + item.input.text)


serve(keyed)
"""
EXPERIMENT = """
name: keyed
dataset: {path: items.jsonl}
target:
  command: [python, plugins.py]
  settings: {api_key: "${env:A_KEY}"}
  env: {OWN: "${env:B_KEY}"}
scorers: [{use: exact_match}]
limits: {retries: 0}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path, items=3)
    made.write("plugins.py", PLUGINS)
    made.write("keyed.yaml", EXPERIMENT)
    made.write(
        "items.jsonl", "".join(f'{{"id": "i{n}", "input": "{PAYLOAD} {n}", "expected": "x"}}\n' for n in range(3))
    )
    return made


def holding(folder: Path, mark: str) -> list[str]:
    """The files that hold a mark, WAL and all."""
    return [path.name for path in folder.rglob("*") if path.is_file() and mark.encode() in path.read_bytes()]


def test_no_key_is_stored_logged_or_exported(desk: Desk):
    """Also not at the level debug, and a run whose keys stand in the environment is retried all the same (SE-03)."""
    env = {**KEYS, "EVALBUS_LOG": "debug"}
    ran = desk.run("run", "keyed.yaml", "--db", "runs.db", "--json", "--junit", "junit.xml", env=env)
    told = [ran, *(desk.run(*words, "--db", "runs.db", env=env) for words in (
        ("runs", "show", "latest", "--json"),
        ("runs", "results", "latest", "--jsonl"),
        ("runs", "retry", "latest"),
    ))]  # fmt: skip

    assert ran.document["counts"] == {"planned": 3, "passed": 2, "failed": 0, "errored": 1, "skipped": 0, "pending": 0}
    assert [holding(desk.folder, mark) for mark in KEYS.values()] == [[], [], []]
    assert PAYLOAD in told[2].out
    for ended in told:
        assert "MARK-" not in ended.out + ended.err


def test_what_was_asked_and_answered_is_in_no_log(desk: Desk):
    """Neither of a run nor of a server that is given it, also where a trial fails with the text in its error (SE-04)."""

    env = {**KEYS, "EVALBUS_LOG": "info"}
    embedded = desk.run("run", "keyed.yaml", "--json", env=env)
    assert embedded.document["counts"]["errored"] == 1
    assert PAYLOAD not in embedded.err
    with serving(desk, "--db", "served.db", env=env) as (process, address):
        desk.run("dataset", "import", "d", "items.jsonl", "--server", address)
        assert PAYLOAD in desk.run("dataset", "export", "d", "--server", address).out
        process.terminate()
        assert process.stderr is not None
        assert PAYLOAD not in process.stderr.read()


ECHOED = {
    "A_KEY": "MARK-1",
    "B_KEY": 'MARK-2-"in"\\quotes',
    "C_KEY": "Bearer MARK-3-of-a-header",
    "SERVICE_PASSWORD": "MARK-4-that-is-inherited",
    "T_TOKEN": "MARK-5-of-an-address",
}
LEAKY = """
import os

from evalbus import Failure, FailureCategory, Item, Output, Score, ScoreRow, SettingsInvalid, TrialFailed
from evalbus import metric, scorer, serve, target

NAMES = ("A_KEY", "B_KEY", "C_KEY", "SERVICE_PASSWORD", "EVALBUS_TOKEN")
KEYS = [value for name, value in os.environ.items() if name in NAMES and "MARK" in value]


def all_of_it(settings: object = None) -> str:
    return " ".join([str(settings), repr(KEYS), *KEYS, *(word for key in KEYS for word in key.split())])


def set_up(settings: dict) -> dict:
    if settings.get("refuse"):
        raise SettingsInvalid("settings.api_key: unknown are " + all_of_it(settings), "settings." + KEYS[0])
    return settings


@metric("gap", minimum=0, maximum=1)
def gap(rows: list[ScoreRow]) -> float:
    raise ValueError("no gap between " + all_of_it())


@target("leaky", version="1.0.0", setup=set_up)
def leaky(item: Item, settings: dict) -> Output:
    if item.id == "i0":
        raise TrialFailed.refused("forbidden for " + all_of_it(settings) * 200)
    if item.id == "i1":
        raise ValueError(all_of_it(settings))
    if item.id == "i2":
        print("dying of", "x" * 5000, (all_of_it(settings) + " ") * 100, flush=True)
        os._exit(3)
    return Output("fine")


@scorer("chatty", version="1.0.0", setup=set_up, metrics=[gap])
def chatty(item: Item, output: Output, settings: dict) -> Score:
    if item.id == "i3":
        return Score.errored("no score with " + all_of_it(settings), explanation=all_of_it())
    if item.id == "i4":
        raise TrialFailed.refused("no score at all with " + all_of_it(settings))
    return Score.scored(1.0)


serve(leaky, chatty)
"""
LEAKING = """
name: leaking
dataset: {path: items.jsonl}
target: &plugin
  command: [python, leaky.py]
  settings: {api_key: "${env:A_KEY}", headers: {Authorization: "${env:C_KEY}"}}
  env: {B_KEY: "${env:B_KEY}"}
scorers: [{<<: *plugin, command: [python, leaky.py, again], name: chatty, metrics: [gap]}]
limits: {retries: 0}
"""
SERVED = """
db: served.db
commands: [{command: [python, leaky.py], env: [B_KEY]}, {command: [python, leaky.py, again], env: [B_KEY]}]
env: [A_KEY, B_KEY, C_KEY, T_TOKEN]
"""


@pytest.fixture
def leaking(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("leaky.py", LEAKY)
    desk.write("leaking.yaml", LEAKING)
    desk.write("server.yaml", SERVED)
    desk.write("items.jsonl", "".join(f'{{"id": "i{n}", "input": "{n}"}}\n' for n in range(6)))
    return desk


@pytest.mark.parametrize("where", ["embedded", "served"])
def test_a_key_that_a_plugin_writes_into_its_errors_is_hidden(leaking: Desk, where: str):
    """In failures, refusals, last words and numbers that could not be made, in a database, a log and on a screen (SE-03)."""
    env = {**ECHOED, "EVALBUS_LOG": "debug"}
    told: list[str] = []
    with contextlib.ExitStack() as stack:
        place = ("--db", "runs.db")
        if where == "served":
            process, address = stack.enter_context(serving(leaking, "--config", "server.yaml", env=env))
            place = ("--server", address)
        for words in (
            ("run", "leaking.yaml", "--junit", "junit.xml", "--markdown", "run.md"),
            ("run", "leaking.yaml", "--set", "target.settings.refuse=true"),
            ("runs", "show", "latest", "--json"),
            RESULTS,
            ("runs", "watch", "latest", "--json"),
            ("runs", "results", "latest"),
        ):
            ended = leaking.run(*words, *place, env=env)
            told.append(ended.out + ended.err)
        if where == "served":
            process.terminate()
            assert process.stderr is not None
            told.append(process.stderr.read())

    assert "settings.api_key: unknown are" in told[1]
    rows = [json.loads(line) for line in told[3].splitlines() if line.startswith("{")]
    failures = {row["item"]: row["failure"]["message"] for row in rows if "failure" in row}
    assert {
        item: message.partition("(hidden)")[0].partition("; it said last: …")[0] for item, message in failures.items()
    } == {
        "i0": "forbidden for {'api_key': '",
        "i1": "ValueError: {'api_key': '",
        "i2": "the plugin breaks whenever it is asked this trial (exit code 3)",
        "i3": "no score with {'api_key': '",
        "i4": "no score at all with {'api_key': '",
    }
    assert "it said last: …" in failures["i2"]
    assert "no gap between" in told[2]
    assert [text[max(text.find("ARK-") - 100, 0) : text.find("ARK-") + 40] for text in told if "ARK-" in text] == []
    assert holding(leaking.folder, "ARK-") == []


def test_a_token_that_a_plugin_at_an_address_echoes_is_hidden(leaking: Desk):
    """One that listens already, lets us in by the token, and writes it into its failures (SE-03)."""
    token = {"T_TOKEN": ECHOED["T_TOKEN"]}
    with leaking.listening("leaky.py", {"EVALBUS_TOKEN": token["T_TOKEN"]}) as address:
        leaking.write(
            "at.yaml",
            f"""
            name: at
            dataset: {{path: items.jsonl, items: [i0, i1, i3, i4]}}
            target: &plugin {{address: "{address}", token: "${{env:T_TOKEN}}"}}
            scorers: [{{<<: *plugin, name: chatty}}]
            """,
        )
        told = [leaking.run(*words, "--db", "at.db", env=token) for words in (("run", "at.yaml"), RESULTS)]

    failures = [row["failure"]["message"].split(" {}")[0] for row in told[1].documents]
    assert failures == ["forbidden for", "ValueError:", "no score with", "no score at all with"]
    assert not any("MARK-" in ended.out + ended.err for ended in told)
    assert holding(leaking.folder, "MARK-") == []


def test_a_key_that_an_endpoint_echoes_is_hidden(leaking: Desk):
    """A judge's endpoint that repeats the key it does not know, though it looks like no key (SE-03)."""
    with MockEndpoint(lambda call: Status(401, {"error": {"message": f"no {call.headers['authorization']}"}})) as mock:
        leaking.write(
            "judged.yaml",
            """
            name: judged
            dataset: {records: [{id: a, input: x, output: y}]}
            target: none
            scorers: [{use: judge_closed_qa, settings: {model: m, criterion: good}}]
            """,
        )
        env = {"OPENAI_BASE_URL": mock.base_url, "OPENAI_API_KEY": "MARK-6"}
        told = [leaking.run(*words, "--db", "judged.db", env=env) for words in (("run", "judged.yaml"), RESULTS)]

    (row,) = told[1].documents
    assert "no Bearer (hidden)" in row["failure"]["message"]
    assert not any("MARK-" in ended.out + ended.err for ended in told)
    assert holding(leaking.folder, "MARK-") == []
