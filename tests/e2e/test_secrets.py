"""What must not lie around: keys are in no database, log or export, and what was asked and answered is in no log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.command_line import Desk, serving

KEYS = {"A_KEY": "MARK-1-of-settings", "B_KEY": "MARK-2-of-env", "C_KEY": "MARK-3-of-nobody"}
PAYLOAD = "ZEBRA-77"
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
