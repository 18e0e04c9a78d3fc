"""What can be wrong with what a user gives: the right exit code, one clear line, and nothing ran."""

import json
import os
import sqlite3

import pytest

from evalbus_server.model.run import RunState
from evalbus_server.store import open_reader
from tests.e2e.command_line import Desk

GARBAGE = "import sys\nwhile True: sys.stdout.write('\\x00garbage ' * 1000)"
DIES = "import sys\nprint('no licence found', file=sys.stderr)\nsys.exit(3)"
NO_PLUGIN = "import time\nprint('ready', flush=True)\ntime.sleep(600)"

QUALITY = """
from evalbus import Output, scorer, serve


@scorer("short")
def short(output: Output) -> bool:
    return len(str(output.content)) < 80


@scorer("polite")
def polite(output: Output) -> bool:
    return "please" in str(output.content)


serve(short, polite)
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    desk = Desk(tmp_path_factory.mktemp("desk"), items=5)
    desk.write("not_yaml.yaml", "name: [unclosed\n")
    desk.write("list.yaml", "- name: x\n")
    desk.write("unknown_key.yaml", "name: x\ndataset: {path: items.jsonl}\ncriterias: []\n")
    desk.write("wrong_type.yaml", "name: x\ndataset: {path: items.jsonl}\nlimits:\n  retries: many\n")
    desk.write("empty.yaml", "")
    desk.write("empty.jsonl", "")
    desk.write("malformed.jsonl", '{"input": "1+1"}\n{"input": "2+2"}\n{"input": "3+\n')
    desk.write("no_input.jsonl", '{"question": "1+1"}\n')
    desk.write("twice.jsonl", '{"id": "a", "input": "1"}\n{"id": "a", "input": "2"}\n')
    desk.write("garbage.py", GARBAGE)
    desk.write("dies.py", DIES)
    desk.write("no_plugin.py", NO_PLUGIN)
    desk.write("quality.py", QUALITY)
    desk.write("not_executable.sh", "#!/bin/sh\n")
    desk.write("text.db", "this is a letter and no database; " * 100)
    return desk


@pytest.fixture(scope="module")
def ran(desk):
    """There is a database with a run."""
    assert desk.run("run", "sums.yaml").code == 0


def target(text):
    return ("--set", f"target={text}")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere.yaml"], 2, "nowhere.yaml: there is no such file"),
        (["items.jsonl"], 2, "items.jsonl: the suffix '.jsonl' says no format"),
        (["."], 2, "is a folder"),
        (["empty.yaml"], 2, "empty.yaml: is empty"),
        (["not_yaml.yaml"], 2, "not_yaml.yaml: line 2, column 1: not YAML"),
        (["list.yaml"], 2, "list.yaml: must be a mapping of keys to values"),
        (["unknown_key.yaml"], 2, "unknown_key.yaml: line 3, column 1: criterias: unknown key; did you mean criteria?"),
        (
            ["wrong_type.yaml"],
            2,
            "wrong_type.yaml: line 4, column 3: limits.retries: must be a whole number, not 'many'",
        ),
        (["sums.yaml", "--set", "scorers=[{use: exact_macth}]"], 2, "no builtin scorer 'exact_macth'; did you mean"),
        (["sums.yaml", "--set", "limits.timeout=60"], 2, "a length of time needs a unit: write 60s"),
        (["sums.yaml", "--set", "criteria=[{metric: mean, scorer: tone, min: 1}]"], 2, "there is no score 'tone'"),
        (["sums.yaml", "--set", "target.settings.speed=3"], 2, "plugin 'adder' refused: settings.speed"),
        (["sums.yaml", "--set", "target.settings.off_by=much"], 2, "plugin 'adder' refused: settings.off_by"),
        (["sums.yaml", "--set", "target.settings.key=${env:NO_SUCH_KEY}"], 2, "no variable NO_SUCH_KEY"),
        (
            ["sums.yaml", "--set", "target.plugin=multiplier"],
            2,
            "no target 'multiplier' is served there; there is: adder",
        ),
        (["sums.yaml", "--set", "nonsense"], 2, "--set nonsense: write PATH=VALUE"),
        (["sums.yaml", "--set", "dataset.path=nowhere.jsonl"], 2, "nowhere.jsonl: there is no such file"),
        (["sums.yaml", "--set", "dataset.path=empty.jsonl"], 2, "empty.jsonl: holds no items"),
        (["sums.yaml", "--set", "dataset.path=malformed.jsonl"], 2, "malformed.jsonl line 3: "),
        (
            ["sums.yaml", "--set", "dataset.path=no_input.jsonl"],
            2,
            "no_input.jsonl line 1: no input; there is question",
        ),
        (["sums.yaml", "--set", "dataset.path=twice.jsonl"], 2, "twice.jsonl line 2: "),
        (["sums.yaml", "--set", "dataset={name: unknown}"], 2, "unknown"),
        (["sums.yaml", "--set", "dataset.items=['z*']"], 2, "nothing to run: the dataset has no item"),
        (["sums.yaml", *target("{command: [no-such-program]}")], 4, "cannot start no-such-program: no such program"),
        (["sums.yaml", *target("{command: [./not_executable.sh]}")], 4, "permission denied (not executable)"),
        (["sums.yaml", *target("{command: [python, nowhere.py]}")], 4, "exit code 2; it said last: "),
        (["sums.yaml", *target("{command: [python, dies.py]}")], 4, "exit code 3; it said last: no licence found"),
        (
            ["sums.yaml", *target("{command: [python, no_plugin.py], start_limit: 1s}")],
            4,
            "did not answer Describe within 1 s; it said last: ready",
        ),
        (
            ["sums.yaml", *target("{command: [python, garbage.py], start_limit: 1s}")],
            4,
            "did not answer Describe within 1 s",
        ),
        (["sums.yaml", *target("{address: '127.0.0.1:1', start_limit: 1s}")], 4, "127.0.0.1:1"),
        (["sums.yaml", "--db", "text.db"], 4, "text.db"),
        (["sums.yaml", "--db", "no/folder/here.db"], 4, "there is no folder"),
        (["sums.yaml", "--db", "."], 4, "is a folder, not a database"),
    ],
)
def test_each_is_one_line_with_its_exit_code(desk, words, code, said):
    ended = desk.run("run", *words)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert ended.err.startswith("evalbus: ")
    assert ended.err.count("\n") == 1
    assert "a fault of evalbus" not in ended.err
    assert [run for run in stored_runs(desk) if run.state is not RunState.COMPLETED] == []


def stored_runs(desk):
    path = desk.folder / "evalbus.db"
    if not path.exists():
        return []
    with open_reader(path) as reader:
        return reader.runs()


def test_a_database_that_is_newer_than_the_program_is_refused(tmp_path):
    desk = Desk(tmp_path, items=3)
    assert desk.run("run", "sums.yaml").code == 0
    with sqlite3.connect(desk.folder / "evalbus.db") as raw:
        raw.execute("PRAGMA user_version = 9999")
    raw.close()
    ended = desk.run("run", "sums.yaml")
    assert ended.code == 4
    assert "newer" in ended.reason
    assert desk.run("runs", "list").code == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_database_that_is_read_only_is_refused(tmp_path):
    desk = Desk(tmp_path, items=3)
    assert desk.run("run", "sums.yaml").code == 0
    (desk.folder / "evalbus.db").chmod(0o444)
    assert desk.run("run", "sums.yaml").code == 4


def test_a_database_that_another_program_holds_is_refused(tmp_path):
    desk = Desk(tmp_path, items=3)
    assert desk.run("run", "sums.yaml").code == 0
    raw = sqlite3.connect(desk.folder / "evalbus.db")
    raw.execute("BEGIN EXCLUSIVE")
    ended = desk.run("run", "sums.yaml")
    raw.close()
    assert ended.code == 4
    assert ended.err.count("\n") == 1


def test_a_target_that_dies_on_one_item_harms_that_item_alone(tmp_path):
    desk = Desk(tmp_path, items=12)
    ended = desk.run(
        "run", "sums.yaml", "--json", "--set", "target.settings.dies_at=i007", "--set", "scorers=[{use: exact_match}]",
        "--set", "criteria=[]",
    )  # fmt: skip
    assert ended.code == 3, ended.err
    assert (ended.document["counts"]["passed"], ended.document["counts"]["errored"]) == (11, 1)
    errored = desk.run("runs", "results", "latest", "--jsonl", "--outcome", "errored").documents
    assert [each["item"] for each in errored] == ["i007"]
    why, _, seen = errored[0]["failure"]["message"].partition("no more memory (")
    assert why.startswith("the plugin breaks whenever it is asked this trial (exit code 3); it said last: ")
    assert seen.startswith("UNAVAILABLE: ")
    assert ended.err.count("conversation lost") == 1
    assert "process='exit code 3'" in ended.err


def test_output_that_nobody_reads_ends_a_command_quietly(desk, ran):
    process = desk.start("runs", "results", "latest", "--jsonl")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait(60)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["runs", "show", "r0123456"], 2, "r0123456"),
        (["runs", "watch", "nobody"], 2, "nobody"),
        (["run", "sums.yaml", "--concurrency", "0"], 2, "evalbus: --concurrency: must be at least 1, not '0'; see"),
        (["run", "sums.yaml", "--limit", "all"], 2, "evalbus: --limit: must be a whole number, not 'all'; see"),
        (["run", "sums.yaml", "--set", "cache=yes"], 2, "--set cache=yes: cache: must be true or false, not 'yes'"),
        (
            ["runs", "results", "latest", "--outcome", "fail"],
            2,
            "evalbus: --outcome: 'fail' is not one of 'passed', 'failed', 'errored', 'skipped'; see",
        ),
        (["runs", "delete", "latest"], 2, "evalbus: nothing brings the run back: say --yes; see evalbus runs delete"),
        (["runs", "rescore", "latest"], 2, "evalbus: give an experiment FILE, or what is to be set anew"),
        (["runs", "list", "--state", "asleep"], 2, "asleep"),
        (["runs", "list", "--db", "nowhere.db"], 4, "nowhere.db"),
        (["runs", "list", "--db", "text.db"], 4, "text.db"),
        (["plugins", "check", "--command", "python plugins.py"], 2, "--target or --scorer"),
        (
            ["plugins", "check", "--command", "python quality.py"],
            2,
            "evalbus: the scorers short, polite are served there: say which one with --plugin, as in --plugin short",
        ),
        (
            ["plugins", "check", "--command", "python quality.py", "--plugin", "polit"],
            2,
            "evalbus: no plugin 'polit' is served there, but the scorers short, polite: give one of these, "
            "as in --plugin polite",
        ),
        (
            ["plugins", "describe", "--command", "python quality.py", "--target"],
            2,
            "evalbus: no target is served there, but the scorers short, polite: leave --target out",
        ),
        (
            ["plugins", "check", "--command", "python plugins.py", "--plugin", "nope"],
            2,
            "evalbus: no plugin 'nope' is served there, but the target adder and the scorer close: give one of these, "
            "as in --plugin adder",
        ),
        (
            ["run", "sums.yaml", *target("{command: [python, quality.py]}")],
            2,
            "started as 'python quality.py' serves no evalbus target, but the scorers short, polite, which belong "
            "under `scorers`",
        ),
        (
            ["plugins", "check", "--command", "python plugins.py", "--target", "--settings", "{"],
            2,
            "--settings: not JSON",
        ),
    ],
)
def test_the_other_commands_do_the_same(desk, ran, words, code, said):
    ended = desk.run(*words)
    assert ended.code == code
    assert said in ended.reason
    assert ended.err.count("\n") == 1


def test_an_error_is_a_document_where_json_is_wanted(desk, ran):
    ended = desk.run("runs", "show", "r0123456", "--json")
    assert json.loads(ended.err)["error"]["reason"] == "RUN_NOT_FOUND"
