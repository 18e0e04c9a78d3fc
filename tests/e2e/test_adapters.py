"""Scorers of other libraries in runs: a process of their own serves them, and only where that is allowed."""

import json

import pytest

from tests.e2e.command_line import Desk, serving

EXPERIMENT = """
name: adapted
dataset: {path: said.jsonl}
target: none
scorers:
  - {use: "python:checks.near", settings: {tolerance: 2}, threshold: 1.0}
"""
CHECKS = '''
import os

def near(output: float, expected: float, tolerance: float = 0.0):
    """1 if two numbers are near."""
    return abs(output - expected) <= tolerance, f"off by {abs(output - expected)}{os.environ.get('SIGN', '')}"
'''


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    desk.write("checks.py", CHECKS)
    rows = [{"id": f"s{n}", "input": "?", "expected": 10, "output": 10 + n} for n in range(5)]
    desk.write("said.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    desk.write("adapted.yaml", EXPERIMENT)
    return desk


def test_a_plain_function_judges_a_run(desk):
    ended = desk.run("run", "adapted.yaml", "--json")
    assert ended.code == 1, ended.err
    assert ended.document["scores"]["near"]["mean"] == pytest.approx(0.6)
    (result, *_) = desk.run("runs", "results", "latest", "--jsonl").documents
    assert result["scores"]["near"]["explanation"] == "off by 0"


def test_variables_of_its_environment_are_the_experiments(desk):
    assert desk.run("run", "adapted.yaml", "--set", "scorers[0].env={SIGN: '!'}").code == 1
    (result, *_) = desk.run("runs", "results", "latest", "--jsonl").documents
    assert result["scores"]["near"]["explanation"] == "off by 0!"


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ("use=python:checks.neer", 4, "module 'checks' has no 'neer'; did you mean near?"),
        ("settings={tolerence: 1}", 2, "unknown setting (did you mean 'tolerance'?)"),
        ("use=autoevals.Factuality", 4, "autoevals is not installed for"),
        ("use=autoeval.Factuality", 2, "there is no builtin scorer 'autoeval.Factuality'; of another library there is"),
        ("python=no/such/python", 4, "cannot start no/such/python: no such program"),
        ("map={context: item.metadata.x}", 2, "scorer 'near' takes no input 'context'"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(desk, change, code, told):
    ended = desk.run("run", "adapted.yaml", "--set", f"scorers[0].{change}")
    assert ended.code == code, ended.err
    assert told in ended.reason
    assert ended.err.count("\n") == 1


def test_an_interpreter_without_evalbus_is_told_apart(desk):
    bare = desk.write("bare", "#!/bin/sh\necho \"No module named 'evalbus'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    ended = desk.run("run", "adapted.yaml", "--set", "scorers[0].python=./bare")
    assert ended.code == 4
    assert "install evalbus there, as in ./bare -m pip install evalbus" in ended.reason


def test_a_server_starts_only_what_its_configuration_lists(desk):
    with serving(desk) as (_, address):
        refused = desk.run("run", "adapted.yaml", "--server", address)
    assert refused.code == 2
    assert "scorers[0].use: this server does not start 'python:checks.near'" in refused.reason
    desk.write("server.yaml", "db: server.db\ncommands: [{use: 'python:checks.near'}]\n")
    with serving(desk, "--config", "server.yaml") as (_, address):
        ended = desk.run("run", "adapted.yaml", "--server", address, "--json")
        other = desk.run("run", "adapted.yaml", "--server", address, "--set", "scorers[0].python=/bin/sh")
    assert ended.document["scores"]["near"]["mean"] == pytest.approx(0.6)
    assert (other.code, "does not start" in other.reason) == (2, True)
