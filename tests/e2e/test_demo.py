"""The demo runs as its README says, with the numbers that stand there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evalbus_server.cli.figures import number
from tests.e2e.command_line import environment

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "docs" / "demo"


def evalbus(*words, timeout=100):
    return subprocess.run(
        [sys.executable, "-m", "evalbus_server", *words],
        cwd=ROOT,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    return str(tmp_path_factory.mktemp("demo") / "demo.db")


@pytest.fixture(scope="module")
def large(database):
    return evalbus("run", "docs/demo/experiment.yaml", "--db", database, "--json")


@pytest.fixture(scope="module")
def small(database, large):
    words = ("--db", database, "--json", "--set", "target.settings.model=small")
    return evalbus("run", "docs/demo/experiment.yaml", *words)


def test_the_large_desk_meets_the_criteria_and_the_small_one_does_not(large, small):
    assert (large.returncode, json.loads(large.stdout)["verdict"]) == (0, "PASS"), large.stderr
    assert (small.returncode, json.loads(small.stdout)["verdict"]) == (1, "FAIL"), small.stderr


def test_the_numbers_are_those_of_the_readme(large, small):
    rows = re.findall(r"^\| ([\w.]+) \| ([\d.]+) \| ([\d.]+) \|$", (DEMO / "README.md").read_text(), re.MULTILINE)
    said = {key: (of_large, of_small) for key, of_large, of_small in rows}
    pairs = zip(json.loads(large.stdout)["scores"].items(), json.loads(small.stdout)["scores"].values(), strict=True)
    assert said == {key: (number(one["mean"]), number(other["mean"])) for (key, one), other in pairs}


def test_every_message_is_answered_in_both_desks(large, small):
    for ended in (large, small):
        counts = json.loads(ended.stdout)["counts"]
        assert counts["planned"] == counts["passed"] + counts["failed"] == 252


def test_an_output_tells_how_it_came_about(database, large):
    run = json.loads(large.stdout)["run"]
    lines = evalbus("runs", "results", run, "--db", database, "--jsonl").stdout.splitlines()
    results = [json.loads(line) for line in lines]
    assert len(results) == 252
    for result in results:
        assert result["output"].keys() == {"intent", "confidence", "reply", "articles"}
        assert result["answer"] == result["output"]["intent"]
        call = result["tool_calls"][0]
        assert ("result" in call) != ("error" in call)
        assert call["duration"] >= 0 and call["started_at"] > 1.6e9
    assert any("error" in result["tool_calls"][0] for result in results)
    assert any(result["scores"]["reply.covers"]["explanation"].startswith("missing: ") for result in results)


def test_the_experiment_fits_without_a_run():
    ended = evalbus("run", "docs/demo/experiment.yaml", "--dry-run", "--json")
    assert json.loads(ended.stdout)["trials"] == 252, ended.stderr


def test_the_script_runs_it_and_says_what_to_type_next(tmp_path):
    """In the environment that runs the tests; that it sets one up by itself is for a fresh clone to show."""
    if not (ROOT / ".venv" / "bin" / "evalbus").exists() or Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("the tests run in an environment that the scripts have not made")
    ended = subprocess.run(
        ["scripts/demo", "--limit", "40"],
        cwd=ROOT,
        env=environment({"EVALBUS_DB": str(tmp_path / "demo.db"), "CI": "true"}),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode in (0, 1), ended.stderr  # of forty messages nobody has promised anything
    assert f"Database: {tmp_path}/demo.db" in ended.stdout
    assert "verdict  " in ended.stdout
