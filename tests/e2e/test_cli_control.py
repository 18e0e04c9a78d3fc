"""Runs under control: killed, resumed, paused and cancelled from other processes; what is missing is done once."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import stat
from collections import Counter

import psutil
import pytest

from tests.e2e.command_line import Desk, serving, wait_for

PLUGINS = """
import os
import time
from dataclasses import dataclass

from evalbus import Item, Output, Score, TrialFailed, scorer, serve, target


@dataclass(frozen=True)
class Settings:
    delay: float = 0.0
    free: int = 0


def note(file, item):
    with open(file, "a") as log:
        log.write(item.id + "\\n")


@target("adder", version=os.environ.get("ADDER_VERSION", "1.0.0"))
def adder(item: Item, settings: Settings) -> Output:
    \"\"\"Adds two numbers; at once from when on `quick` lies here, and for the first few items.\"\"\"
    note("target.log", item)
    until = time.monotonic() + (settings.delay if int(item.id[1:]) >= settings.free else 0)
    while time.monotonic() < until and not os.path.exists("quick"):
        time.sleep(0.01)
    if os.path.exists("broken") and item.id in open("broken").read():
        raise TrialFailed.invalid("out of order")
    return Output(sum(int(part) for part in item.input.text.split("+")))


@scorer("close", version="1.0.0")
def close(item: Item, output: Output) -> Score:
    \"\"\"How close a number is to the expected one; it takes its time while `slow` lies here.\"\"\"
    note("scorer.log", item)
    while os.path.exists("slow"):
        time.sleep(0.05)
    return Score.scored(1 / (1 + abs(output.content.data - item.expected.data)))


serve(adder, close)
"""

EXPERIMENT = """
name: sums
dataset: {path: items.jsonl}
target: {command: [python, plugins.py], settings: {delay: 1.0}}
scorers:
  - {use: exact_match, threshold: 1.0}
  - {command: [python, plugins.py], name: close, concurrency: 2}
limits: {concurrency: 4}
"""


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path, items=100)
    made.write("plugins.py", PLUGINS)
    made.write("sums.yaml", EXPERIMENT)
    return made


HELD = (
    *("--set", "target.settings.free=16"),
    *("--set", "target.settings.delay=600"),
    *("--set", "limits.timeout=10m"),
)
"""A run that stands still after its first answers, until it is to go on quickly."""


def quickly(desk):
    """From now on the target takes no time."""
    desk.write("quick", "")


def query(desk, statement):
    """From the database, which may not be there yet."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{desk.folder}/evalbus.db?mode=ro", uri=True)) as connection:
            return connection.execute(statement).fetchall()
    except sqlite3.OperationalError:
        return [(0,)]


def outputs(desk):
    return query(desk, "SELECT count(*) FROM output")[0][0]


def calls(desk, who):
    path = desk.folder / f"{who}.log"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def started(desk, *words, until=12):
    """A run at work that has stored some outputs."""
    process = desk.start("run", "sums.yaml", *words)
    wait_for(lambda: outputs(desk) >= until)
    return process


def killed(desk, process):
    """Gone without a word, and its plugins too."""
    plugins = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(plugins, timeout=60)
    assert alive == []


def assert_whole(desk, document, trials=100):
    """Exactly one result for each trial, with its scores, and counts that say so."""
    assert document["counts"]["pending"] == 0
    assert document["counts"]["passed"] == trials
    assert query(desk, "SELECT count(*) FROM result") == [(trials,)]
    assert query(desk, "SELECT count(*), count(DISTINCT trial) FROM output") == [(trials, trials)]
    assert query(desk, "SELECT key, count(*) FROM score GROUP BY key") == [(0, trials), (1, trials)]


# --- kill and resume --------------------------------------------------------------------------------------------


def test_a_killed_run_is_resumed_and_asks_the_target_only_for_what_was_missing(desk):
    """RC-07: also from the middle of a session that was itself a resumed one."""
    killed(desk, started(desk))
    first = {f"i{trial:03}" for (trial,) in query(desk, "SELECT trial FROM output")}
    asked = calls(desk, "target")
    assert 0 < len(first) < 100

    process = desk.start("runs", "resume", "latest")
    wait_for(lambda: outputs(desk) >= len(first) + 12)
    killed(desk, process)
    second = {f"i{trial:03}" for (trial,) in query(desk, "SELECT trial FROM output")} - first
    between = calls(desk, "target") - asked
    assert not first & between.keys()

    quickly(desk)
    ended = desk.run("runs", "resume", "latest", "--json")

    assert ended.code == 0, ended.err
    assert (ended.document["state"], ended.document["verdict"]) == ("COMPLETED", "PASS")
    assert_whole(desk, ended.document)
    last = calls(desk, "target") - asked - between
    assert last == Counter({f"i{n:03}" for n in range(100)} - first - second)
    assert desk.run("runs", "show", "latest", "--json").document == ended.document


def test_stored_outputs_without_a_score_are_scored_without_the_target(desk):
    """O7: whatever was stored is not asked again, and scores that were stored neither."""
    desk.write("slow", "")
    quickly(desk)
    process = started(desk, until=100)
    wait_for(lambda: calls(desk, "scorer"))
    killed(desk, process)
    asked = calls(desk, "target")
    assert query(desk, "SELECT count(*) FROM result") == [(0,)]
    (desk.folder / "slow").unlink()

    ended = desk.run("runs", "resume", "latest", "--json")

    assert ended.code == 0, ended.err
    assert_whole(desk, ended.document)
    assert calls(desk, "target") == asked


def test_a_run_goes_on_after_ctrl_c_and_its_progress_starts_at_what_is_done(desk):
    process = started(desk)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    run = query(desk, "SELECT id FROM run")[0][0]
    assert f"evalbus runs resume {run}" in out
    done = query(desk, "SELECT count(*) FROM result")[0][0]
    quickly(desk)

    ended = desk.run("runs", "resume", run)

    assert ended.code == 0, ended.err
    counts = [json.loads(body)["counts"] for (body,) in query(desk, "SELECT body FROM event ORDER BY sequence")]
    dones = [sum(each[1:]) for each in counts]
    assert dones == sorted(dones) and done in dones and dones[-1] == 100
    assert {each[0] for each in counts} == {100}


def test_what_cannot_be_resumed_says_why_and_changes_nothing(desk):
    killed(desk, started(desk))
    quickly(desk)
    other = {"ADDER_VERSION": "2.0.0"}
    before = query(desk, "SELECT state, session FROM progress")

    changed = desk.run("runs", "resume", "latest", env=other)
    assert changed.code == 2
    assert "plugin 'adder' has another version" in changed.reason
    assert "--accept-changed" in desk.run("runs", "resume", "--help").out
    unknown = desk.run("runs", "resume", "r999999", "--json")
    assert (unknown.code, json.loads(unknown.reason)["error"]["reason"]) == (2, "RUN_NOT_FOUND")
    assert desk.run("runs", "resume", "latest", "--db", "none.db").code == 4
    assert not (desk.folder / "none.db").exists()
    assert query(desk, "SELECT session FROM progress") == [(before[0][1],)]

    accepted = desk.run("runs", "resume", "latest", "--accept-changed", "--json", env=other)
    assert accepted.code == 0, accepted.err
    again = desk.run("runs", "resume", "latest")
    assert again.code == 2
    assert "is COMPLETED; what can be resumed is" in again.reason


def test_what_errored_is_asked_again_and_nothing_else(desk):
    """RC-15, with the exit code of the new verdict; a retry that was killed in the middle is resumed."""
    desk.write("broken", "i003 i004 i050")
    quickly(desk)
    assert desk.run("run", "sums.yaml").code == 3
    asked = calls(desk, "target")
    (desk.folder / "broken").unlink()
    desk.write("slow", "")
    process = desk.start("runs", "retry", "latest")
    wait_for(lambda: outputs(desk) == 100)
    killed(desk, process)
    (desk.folder / "slow").unlink()

    ended = desk.run("runs", "resume", "latest", "--json")

    assert ended.code == 0, ended.err
    assert_whole(desk, ended.document)
    assert calls(desk, "target") - asked == Counter(["i003", "i004", "i050"])
    nothing = desk.run("runs", "retry", "latest")
    assert (nothing.code, "nothing to ask again" in nothing.reason) == (2, True)


def test_outputs_are_scored_anew_without_the_target(desk):
    """With a file, or with what is set anew in the run's own experiment; the exit code is the new verdict's."""
    desk.write("broken", "i003")
    quickly(desk)
    assert desk.run("run", "sums.yaml").code == 3
    source = query(desk, "SELECT id FROM run")[0][0]
    asked = calls(desk, "target")
    desk.write(
        "other.yaml",
        "name: other\nscorers: [{use: levenshtein}]\ncriteria: [{metric: mean, min: 2, min_coverage: 0.5}]",
    )

    other = desk.run("runs", "rescore", source, "other.yaml", "--json")
    lower = desk.run("runs", "rescore", source, "--set", "scorers[0].threshold=0.5", "--json")

    assert other.code == 1, other.err
    assert (other.document["source"], other.document["name"]) == (source, "other")
    assert list(other.document["scores"]) == ["levenshtein"]
    assert lower.code == 3, lower.err
    assert lower.document["scores"]["exact_match"]["threshold"] == 0.5
    assert lower.document["counts"]["errored"] == 1
    assert calls(desk, "target") == asked
    assert outputs(desk) == 99
    neither = desk.run("runs", "rescore", source)
    assert (neither.code, "--set" in neither.reason) == (2, True)


def test_a_run_is_deleted_for_good(desk):
    quickly(desk)
    assert desk.run("run", "sums.yaml").code == 0
    assert "say --yes" in desk.run("runs", "delete", "latest").reason
    assert outputs(desk) == 100

    said = desk.run("runs", "delete", "latest", "--yes")

    assert (said.code, "with 100 results" in said.out) == (0, True)
    assert outputs(desk) == 0
    assert desk.run("runs", "delete", "latest", "--yes").code == 2


# --- over the control socket ------------------------------------------------------------------------------------


def test_a_run_of_another_process_is_paused_and_resumed(desk):
    """What is in flight finishes, and the process that carried it out ends; nobody is left behind."""
    process = started(desk, *HELD)

    paused = desk.run("runs", "pause", "latest")
    quickly(desk)
    out, err = process.communicate(timeout=60)

    assert paused.code == 0, paused.err
    assert "pauses once trials in flight have finished" in paused.out
    assert process.returncode == 3
    assert "is PAUSED: on request" in err.splitlines()[-1]
    assert "evalbus runs resume" in out
    assert query(desk, "SELECT count(*) FROM attempt") == [(0,)]
    assert calls(desk, "target").total() == outputs(desk)
    assert not (desk.folder / "evalbus.db.sock").exists()
    assert "is PAUSED" in desk.run("runs", "pause", "latest").out

    ended = desk.run("runs", "resume", "latest", "--json")
    assert ended.code == 0, ended.err
    assert_whole(desk, ended.document)
    assert calls(desk, "target").total() == 100


def test_limits_of_a_run_of_another_process_change(desk):
    process = started(desk, "--set", "limits.concurrency=1", until=2)

    said = desk.run("runs", "set", "latest", "limits.concurrency=50", "limits.max_errors=5%")
    process.communicate(timeout=60)

    assert (said.code, said.err) == (0, "")
    assert 'limits.concurrency=50, limits.max_errors="5%"' in said.out
    assert process.returncode == 0
    assert query(desk, "SELECT count(*) FROM event WHERE kind = 'limits'") == [(1,)]
    watched = desk.run("runs", "watch", "latest", "--json").documents
    [event] = [event for event in watched if event["kind"] == "limits"]
    assert event["limits"] == {"limits.concurrency": 50, "limits.max_errors": "5%"}
    shown = desk.run("runs", "show", "latest", "--json").document
    assert shown["changed_limits"] == {"limits.concurrency": 50, "limits.max_errors": "5%"}
    assert (shown["experiment"]["limits"]["concurrency"], shown["experiment"]["limits"]["max_errors"]) == (50, "5%")
    assert "changed  limits.concurrency 50   limits.max_errors 5%" in desk.run("runs", "show", "latest").out
    wrong = desk.run("runs", "set", "latest", "limits.concurency=5")
    assert (wrong.code, "did you mean limits.concurrency?" in wrong.reason) == (2, True)
    assert desk.run("runs", "set", "latest", "limits.concurrency").code == 2


def test_a_run_is_deleted_by_the_process_that_works_on_another_one(desk):
    """That one writes the database; what it works on is not deleted."""
    quickly(desk)
    assert desk.run("run", "sums.yaml", "--json").code == 0
    [over] = desk.run("runs", "list", "--json").document["runs"]
    (desk.folder / "quick").unlink()
    process = started(desk, *HELD, until=112)

    said = desk.run("runs", "delete", over["run"], "--yes", "--json")
    at_work = desk.run("runs", "delete", "latest", "--yes", "--json")
    quickly(desk)
    process.communicate(timeout=60)

    assert (said.code, said.document) == (0, {"deleted": over["run"]}), said.err
    assert at_work.code == 2
    assert "only a run that is over can be deleted" in at_work.err
    assert [run["counts"]["passed"] for run in desk.run("runs", "list", "--json").document["runs"]] == [100]
    assert outputs(desk) == 100


def test_a_run_of_another_process_is_cancelled_at_once(desk):
    process = started(desk, "--set", "target.settings.delay=500", "--set", "limits.concurrency=100", until=0)
    wait_for(lambda: calls(desk, "target"))

    asked = desk.run("runs", "cancel", "latest", "--json")
    process.communicate(timeout=60)  # the plugin cannot be interrupted in its sleep, and is ended

    assert asked.code == 0, asked.err
    assert asked.document["state"] == "RUNNING"
    assert process.returncode == 3
    shown = desk.run("runs", "show", "latest", "--json").document
    assert (shown["state"], shown["partial"], shown["verdict"]) == ("CANCELLED", True, "INCONCLUSIVE")
    assert shown["counts"]["errored"] == 0  # a cancel of the run leaves trials pending (O5)
    assert "is CANCELLED" in desk.run("runs", "cancel", "latest").out


def test_a_paused_run_that_nobody_works_on_is_cancelled(desk):
    process = started(desk, *HELD)
    desk.run("runs", "pause", "latest")
    quickly(desk)
    process.communicate(timeout=60)

    assert "is CANCELLED" in desk.run("runs", "cancel", "latest").out
    shown = desk.run("runs", "show", "latest", "--json").document
    assert (shown["state"], shown["verdict"]) == ("CANCELLED", "INCONCLUSIVE")
    nothing = desk.run("runs", "pause", "latest")
    assert nothing.code == 2
    assert "nothing to pause" in nothing.reason


def test_only_its_user_reaches_the_socket_and_a_dead_ones_is_replaced(desk):
    killed(desk, started(desk))
    path = desk.folder / "evalbus.db.sock"
    assert path.is_socket()  # left behind

    process = desk.start("runs", "resume", "latest")
    wait_for(lambda: _answers(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    quickly(desk)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not path.exists()


def _answers(path):
    """Whether somebody listens, and says that nonsense is nonsense."""
    with socket.socket(socket.AF_UNIX) as talking:
        talking.settimeout(60)
        try:
            talking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        for line in (b"nonsense\n",):
            talking.sendall(line)
            answer = json.loads(talking.makefile("rb").readline())
            assert answer["error"]["reason"] == "REQUEST_INVALID"
    return True


def test_a_database_in_a_deep_folder_is_controlled_too(desk):
    """The address of a socket holds about 100 bytes."""
    folder = desk.folder / ("deep" * 20) / ("deeper" * 20)
    folder.mkdir(parents=True)
    path = folder / "evalbus.db"
    process = desk.start("run", "sums.yaml", *HELD, "--db", str(path))
    wait_for(lambda: calls(desk, "target").total() > 10)

    assert desk.run("runs", "pause", "latest", "--db", str(path)).code == 0
    quickly(desk)
    process.communicate(timeout=60)
    assert process.returncode == 3


# --- at a server ------------------------------------------------------------------------------------------------


def test_the_same_at_a_server(desk):
    desk.write("server.yaml", "commands: [[python, plugins.py]]\n")
    with serving(desk, "--config", "server.yaml") as (_, address):
        at = ("--server", address)
        run = desk.run("run", "sums.yaml", "--detach", *HELD, *at).out.strip()
        wait_for(lambda: outputs(desk) >= 12)
        assert "pauses" in desk.run("runs", "pause", run, *at).out
        quickly(desk)
        wait_for(lambda: desk.run("runs", "show", run, "--json", *at).document["state"] == "PAUSED")
        (desk.folder / "quick").unlink()
        assert desk.run("runs", "resume", run, "--detach", *at).out.strip() == run
        assert "is being cancelled" in desk.run("runs", "cancel", run, *at).out
        wait_for(lambda: desk.run("runs", "show", run, "--json", *at).document["state"] == "CANCELLED")

        quickly(desk)
        ended = desk.run("runs", "resume", run, "--json", *at)

        assert ended.code == 0, ended.err
        assert_whole(desk, ended.document)
        refused = desk.run("runs", "resume", run, *at)
        assert (refused.code, "what can be resumed" in refused.reason) == (2, True)
    assert desk.run("runs", "resume", run, "--detach").code == 2
