"""Ctrl-C: the first stops a run in order, the second leaves at once; nothing that is stored is lost."""

import contextlib
import json
import os
import signal
import sqlite3

import psutil
import pytest

from tests.e2e.command_line import Desk, wait_for

FREE = 8
"""Items whose answers come at once; what comes after them waits until the gate is opened."""


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path, items=200)


def started(desk, *words):
    """A run that is at work, and that has some results already."""
    process = desk.start("run", "sums.yaml", *desk.gated(FREE), "--set", "limits.concurrency=4", *words)

    def run():
        ended = desk.run("runs", "list", "--json")
        runs = ended.document["runs"] if ended.code == 0 else []
        return runs[0] if runs and runs[0]["counts"]["passed"] == FREE else None

    return process, wait_for(run)


def watching(desk, *words):
    """A command that watches a run in JSON, and its first line."""
    watcher = desk.start("runs", "watch", *words, "--json")
    return watcher, watcher.stdout.readline()


def said(process, text):
    """The lines on stderr up to one that holds a text."""
    lines = [process.stderr.readline()]
    while text not in lines[-1]:
        assert lines[-1], lines
        lines.append(process.stderr.readline())
    return lines


def children(pid):
    return psutil.Process(pid).children(recursive=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_lets_trials_in_flight_finish(desk, number):
    process, run = started(desk, "--json")
    process.send_signal(number)
    said(process, "stopping: trials in flight get 10 s")
    desk.open_gate()
    out, err = process.communicate(timeout=60)
    document = json.loads(out)
    assert process.returncode == 130
    assert (document["run"], document["state"], document["partial"]) == (run["run"], "INTERRUPTED", True)
    assert document["verdict"] == "INCONCLUSIVE"
    counts = document["counts"]
    assert counts["errored"] == 0
    assert FREE <= counts["passed"] <= FREE + 4
    with contextlib.closing(sqlite3.connect(desk.folder / "evalbus.db")) as stored:
        assert stored.execute("SELECT count(*) FROM output").fetchone() == (
            FREE + 4,
        )  # those in flight were let finish
    error = json.loads(err.splitlines()[-1])["error"]
    assert error["reason"] == "INTERRUPTED"
    assert run["run"] in error["message"]


def test_what_was_stored_is_there_afterwards(desk):
    process, run = started(desk)
    process.send_signal(signal.SIGINT)
    said(process, "stopping: trials in flight get 10 s")
    desk.open_gate()
    process.communicate(timeout=60)
    shown = desk.run("runs", "show", run["run"], "--json").document
    results = desk.run("runs", "results", run["run"], "--jsonl").documents
    assert shown["state"] == "INTERRUPTED"
    assert len(results) == 200 - shown["counts"]["pending"] >= FREE


def test_the_second_signal_leaves_at_once_and_leaves_nobody_behind(desk):
    process, run = started(desk)
    plugins = children(process.pid)
    process.send_signal(signal.SIGINT)
    said(process, "Ctrl-C again leaves at once")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"evalbus: left at once; run {run['run']} keeps what is stored" in err
    _, alive = psutil.wait_procs(plugins, timeout=60)
    assert alive == []
    assert desk.run("runs", "show", run["run"], "--json").document["state"] == "INTERRUPTED"


def test_a_killed_run_shows_as_interrupted(desk):
    process, run = started(desk)
    plugins = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    shown = desk.run("runs", "show", "latest", "--json").document
    assert (shown["run"], shown["state"], shown["verdict"]) == (run["run"], "INTERRUPTED", "INCONCLUSIVE")
    _, alive = psutil.wait_procs(plugins, timeout=60)
    assert alive == []


def test_a_signal_before_the_first_trial_ends_it_too(desk):
    desk.write("slow.py", "import time; time.sleep(600)")
    process = desk.start(
        "run", "sums.yaml", "--set", "target.command=[python, slow.py]", "--set", "target.start_limit=10m"
    )
    wait_for(lambda: any("slow.py" in child.cmdline() for child in children(process.pid)))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "evalbus: interrupted"


def test_two_runs_on_one_database_end_with_4_and_name_the_other(desk):
    process, _ = started(desk)
    ended = desk.run("run", "sums.yaml")
    assert ended.code == 4
    assert f"process {process.pid}" in ended.reason
    desk.open_gate()
    process.communicate(timeout=60)


def test_watching_follows_a_run_of_another_process_to_its_end(desk):
    process, run = started(desk, "--limit", "20")
    watcher, first = watching(desk, run["run"])
    desk.open_gate()
    events = [json.loads(line) for line in (first, *watcher.stdout)]
    _, err = watcher.communicate(timeout=60)
    process.communicate(timeout=60)
    assert watcher.returncode == 0, err
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["state"] == "COMPLETED"
    seen = [trial["trial"] for event in events if event["kind"] == "trials" for trial in event["trials"]]
    assert sorted(seen) == list(range(20))


def test_watching_can_be_left_and_harms_nobody(desk):
    process, run = started(desk, "--limit", "20")
    watcher, _ = watching(desk, run["run"])
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=60)
    assert watcher.returncode == 130
    desk.open_gate()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_watching_ends_when_nobody_works_on_the_run_any_more(desk):
    process, run = started(desk)
    watcher, _ = watching(desk, run["run"])
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    _, err = watcher.communicate(timeout=60)
    assert watcher.returncode == 3
    assert f"run {run['run']} is INTERRUPTED" in err
