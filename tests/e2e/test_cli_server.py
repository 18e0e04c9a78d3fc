"""The commands with `--server`: the same documents, tables and exit codes as over a database."""

import contextlib
import json
import os
import pty
import signal

import pytest

from tests.e2e.command_line import Desk, serving

CONFIGURATION = "db: server.db\ncommands: [[python, plugins.py]]\n"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    desk = Desk(tmp_path_factory.mktemp("desk"), items=200)
    desk.write("server.yaml", CONFIGURATION)
    return desk


@pytest.fixture(scope="module")
def server(desk):
    with serving(desk, "--config", "server.yaml") as (_, address):
        yield ("--server", address)


@pytest.fixture(scope="module")
def passed(desk, server):
    ended = desk.run("run", "sums.yaml", "--limit", "20", "--json", *server)
    assert (ended.code, ended.err) == (0, "")
    return ended.document


def test_a_run_at_a_server_gives_the_same_document_as_one_here(desk, passed):
    here = desk.run("run", "sums.yaml", "--limit", "20", "--json").document
    assert passed.keys() == here.keys()
    for key in ("name", "state", "verdict", "counts", "pass_rate", "weighted", "scores", "criteria", "digest", "tags"):
        assert passed[key] == here[key], key
    assert passed["dataset"] == here["dataset"]


def test_a_run_at_a_server_ends_with_its_verdict(desk, server):
    ended = desk.run("run", "sums.yaml", "--limit", "5", "--set", "target.settings.off_by=1", *server)
    assert ended.code == 1
    assert ended.reason == "evalbus: FAIL: nearly all right: mean of exact_match is 0, below 0.9"
    assert "evalbus runs results r" in ended.out and " ".join(server) in ended.out


def test_runs_are_listed_shown_and_read_as_from_a_database(desk, server, passed):
    listed = desk.run("runs", "list", "--json", *server).document["runs"]
    assert passed["run"] in [run["run"] for run in listed]
    shown = desk.run("runs", "show", passed["run"], "--json", *server).document
    assert shown["scores"] == passed["scores"]
    results = desk.run("runs", "results", passed["run"], "--jsonl", "--item", "i00*", *server).documents
    assert [each["item"] for each in results] == [f"i{n:03}" for n in range(10)]
    here = desk.run("runs", "results", passed["run"], "--jsonl", "--item", "i00*", "--db", "server.db").documents
    for there, own in zip(results, here, strict=True):
        assert there.pop("latency_ms") == pytest.approx(own.pop("latency_ms"), abs=1e-3)  # whole nanoseconds
        assert there == own
    assert "exact_match" in desk.run("runs", "results", passed["run"], *server).out


def test_watching_sees_every_event(desk, server, passed):
    there = desk.run("runs", "watch", passed["run"], "--json", *server)
    assert there.code == 0
    assert there.documents == desk.run("runs", "watch", passed["run"], "--json", "--db", "server.db").documents


def test_a_detached_run_goes_on_by_itself(desk, server):
    words = ("--detach", "--limit", "20", "--set", "target.settings.delay=0.05")
    ended = desk.run("run", "sums.yaml", *words, *server)
    run_id = ended.out.strip()
    assert (ended.code, ended.err) == (0, "")
    watched = desk.run("runs", "watch", run_id, *server)
    assert watched.code == 0, watched.err
    assert "20 passed" in watched.out


def test_ctrl_c_stops_the_watching_only(desk, server):
    terminal, theirs = pty.openpty()  # there it shows that it watches
    words = ("run", "sums.yaml", "--limit", "20", *desk.gated(8), *server)
    process = desk.start(*words, env={"TERM": "xterm", "COLUMNS": "200"}, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"8 of 20" not in shown:
        shown += os.read(terminal, 1000)
    [found] = desk.run("runs", "list", "--state", "running", "--json", *server).document["runs"]
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # which is how its end is told
        while more := os.read(terminal, 1000):
            shown += more
    os.close(terminal)
    out, _ = process.communicate(timeout=60)
    run_id = found["run"]
    assert (process.returncode, out) == (130, "")
    assert f"evalbus: run {run_id} goes on; watch it again with evalbus runs watch" in shown.decode()
    desk.open_gate()
    assert desk.run("runs", "watch", run_id, *server).code == 0


def test_a_dry_run_lets_the_server_check(desk, server):
    ended = desk.run("run", "sums.yaml", "--dry-run", "--json", "--epochs", "2", *server)
    assert (ended.code, ended.document["trials"]) == (0, 400), ended.err
    refused = desk.run("run", "sums.yaml", "--dry-run", "--set", "target.settings.speed=1", *server)
    assert refused.code == 2
    assert "settings.speed" in refused.reason


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["run", "sums.yaml", "--set", "target.command=[python, other.py]"], 2, "COMMAND_NOT_ALLOWED"),
        (["run", "sums.yaml", "--set", "target.settings.speed=1"], 2, "SETTINGS_INVALID"),
        (["run", "sums.yaml", "--set", "dataset.path=nowhere.jsonl"], 2, "DATASET_INVALID"),
        (["runs", "show", "r0123456789"], 2, "RUN_NOT_FOUND"),
    ],
)
def test_refusals_end_as_they_do_here(desk, server, words, code, reason):
    ended = desk.run(*words, "--json", *server)
    assert (ended.code, ended.out) == (code, "")
    assert json.loads(ended.err)["error"]["reason"] == reason


@pytest.mark.parametrize("words", [["run", "sums.yaml"], ["runs", "list"], ["runs", "show", "latest"]])
def test_a_server_that_is_not_there_ends_with_4(desk, words):
    ended = desk.run(*words, "--server", "127.0.0.1:1")
    assert (ended.code, ended.out) == (4, "")
    assert "127.0.0.1:1" in ended.reason
    assert ended.err.count("\n") == 1


def test_the_token_is_that_of_the_environment(desk, tmp_path):
    other = Desk(tmp_path, items=3)
    token = {"EVALBUS_TOKEN": "secret-token"}
    with serving(other, env=token) as (_, address):
        refused = other.run("runs", "list", "--server", address)
        assert refused.code == 2
        assert refused.reason == f"evalbus: the server at {address} wants a token; set EVALBUS_TOKEN"
        wrong = other.run("run", "sums.yaml", "--server", address, env={"EVALBUS_TOKEN": "of-yesterday"})
        assert wrong.code == 2
        assert wrong.reason == f"evalbus: the server at {address} does not know this token; correct EVALBUS_TOKEN"
        assert refused.err.count("\n") == wrong.err.count("\n") == 1
        assert other.run("runs", "list", "--server", address, env=token).out == "No runs.\n"


def test_another_file_of_a_name_is_refused_as_without_a_server(tmp_path):
    """An edited file is a version of the first, and so is one that was moved; any other has to say what it is."""
    desk = Desk(tmp_path, items=2)
    items = (desk.folder / "items.jsonl").read_text()
    for folder in ("a", "b"):
        (desk.folder / folder).mkdir()
        desk.write(f"{folder}/items.jsonl", items)
    desk.write("server.yaml", CONFIGURATION)
    of = ("run", "sums.yaml", "--json", "--set")
    with serving(desk, "--config", "server.yaml") as (_, address):
        to = ("--server", address)
        first = desk.run(*of, "dataset.path=a/items.jsonl", *to)
        desk.write("a/items.jsonl", items.replace("i000", "new"))
        edited = desk.run(*of, "dataset.path=a/items.jsonl", *to)
        other = desk.run("run", "sums.yaml", "--set", "dataset.path=b/items.jsonl", *to)
        named = desk.run(*of, "dataset={path: b/items.jsonl, name: mine}", *to)
        shown = desk.run("dataset", "show", "items", *to)
        (desk.folder / "a" / "items.jsonl").unlink()
        moved = desk.run(*of, "dataset.path=b/items.jsonl", *to)
        now = desk.run("dataset", "show", "items", "--json", *to)
    here = desk.run("run", "sums.yaml", "--set", "dataset.path=items.jsonl", "--db", "server.db")

    assert [each.document["dataset"]["version"] for each in (first, edited, moved)] == [1, 2, 3]
    a, b = (os.path.realpath(desk.folder / folder / "items.jsonl") for folder in ("a", "b"))
    assert other.code == 2
    assert f"the dataset 'items' comes from {a}, and {b} is another file: beside path, give it a name" in other.reason
    assert [named.document["dataset"][key] for key in ("name", "version")] == ["mine", 1]
    assert f"from {a}" in shown.out.replace("\n", "")
    assert now.document["origin"] == b
    assert here.code == 2
    assert f"comes from {b}, and {os.path.realpath(desk.folder / 'items.jsonl')} is another file" in here.reason
