"""Processes that are killed with -9 in the middle of a run: nothing that was stored is lost, doubled or made up."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from evalbus_server.model.run import Run, RunState
from evalbus_server.plugin.launch import LaunchedProcess
from evalbus_server.store import open_reader
from tests.e2e.command_line import Ended, command, environment

PLUGINS = Path(__file__).parents[1] / "plugins"
ITEMS = 400
CONCURRENCY = 16
ORPHANS_LIVE = 60.0
"""Seconds in which whatever a killed server had started is gone."""


class Line(NamedTuple):
    """What a plugin wrote down."""

    word: str
    item: str
    pid: int
    time: float


@dataclass
class Desk:
    """A folder with an experiment whose target and scorer are processes that write down what they are asked."""

    folder: Path

    def __post_init__(self) -> None:
        rows = [{"id": f"i{n:03}", "input": f"text {n}", "expected": f"text {n}"} for n in range(ITEMS)]
        (self.folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        script = str(PLUGINS / "logged.py")
        experiment = {
            "name": "crash",
            "dataset": {"path": "items.jsonl"},
            "target": {"command": ["python", script, "target", str(self.log("target"))]},
            "scorers": [
                {"use": "exact_match"},
                {"command": ["python", script, "scorer", str(self.log("scorer"))], "concurrency": CONCURRENCY},
            ],
            "limits": {"concurrency": CONCURRENCY},
        }
        (self.folder / "crash.json").write_text(json.dumps(experiment))

    @property
    def db(self) -> Path:
        return self.folder / "crash.db"

    def log(self, kind: str) -> Path:
        return self.folder / f"{kind}.log"

    def lines(self, kind: str) -> list[Line]:
        """What a plugin has written down so far."""
        if not self.log(kind).exists():
            return []
        whole = self.log(kind).read_text().rpartition("\n")[0].splitlines()
        return [Line(word, item, int(pid), float(at)) for word, item, pid, at in map(str.split, whole)]

    def wait_for_lines(self, kind: str, more_than: float) -> list[Line]:
        """The lines of a plugin, once there are so many."""
        wait_for(lambda: len(self.lines(kind)) > more_than)
        return self.lines(kind)

    def newest(self, kind: str, without: set[int]) -> int | None:
        """The process that wrote the last line of a plugin; None while it is one of those."""
        lines = self.lines(kind)
        return lines[-1].pid if lines and lines[-1].pid not in without else None

    def evalbus(self, *words: str) -> Ended:
        """Another command on the same database, to its end."""
        return ended(self.start(*words))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command; without words, the run."""
        words = words or ("run", "crash.json", "--json")
        return subprocess.Popen(
            command((*words, "--db", str(self.db))),
            cwd=self.folder, env=environment(None), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def rows(self, statement: str) -> list[Any]:
        connection = sqlite3.connect(f"file:{self.db}?mode=ro", uri=True)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=100)
    return Ended(process.returncode, out, err)


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All that a process has started, and what that has."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def check(desk: Desk, run: Run) -> None:
    """What is stored of a run is whole: nothing twice, nothing without its ground, counts that add up."""
    (number,) = desk.rows(f"SELECT n FROM run WHERE id = '{run.id}'")[0]
    of_run = f"WHERE run = {number}"
    counts = run.counts
    assert counts.planned == counts.passed + counts.failed + counts.errored + counts.skipped + counts.pending
    assert desk.rows(f"SELECT trial FROM output {of_run} GROUP BY trial HAVING count(*) > 1") == []
    assert desk.rows(f"SELECT position FROM result {of_run} GROUP BY position, epoch HAVING count(*) > 1") == []
    assert desk.rows(f"SELECT count(*) FROM result {of_run}") == [(counts.done,)]
    outputs = f"SELECT trial FROM output {of_run}"
    assert desk.rows(f"SELECT 1 FROM result {of_run} AND failure IS NULL AND position NOT IN ({outputs})") == []
    assert desk.rows(f"SELECT 1 FROM score {of_run} AND trial NOT IN ({outputs})") == []  # O7
    scored = f"SELECT trial FROM score {of_run} GROUP BY trial HAVING count(*) = {len(run.score_keys)}"
    assert desk.rows(f"SELECT 1 FROM result {of_run} AND failure IS NULL AND position NOT IN ({scored})") == []
    events = [json.loads(body) for (body,) in desk.rows(f"SELECT body FROM event {of_run} AND kind = 'trials'")]
    told = Counter(trial for event in events for trial, _ in _trials(event))
    assert dict(told) == {row[0]: 1 for row in desk.rows(f"SELECT position FROM result {of_run}")}


def _trials(event: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Trial and outcome of each that an event tells of, as the store writes them."""
    (pairs,) = (value for key, value in event.items() if isinstance(value, list) and key == "trials")
    yield from pairs


def test_a_killed_server_leaves_a_whole_database_and_nobody_behind(desk: Desk):
    """At any moment, from before the first trial on: readers see INTERRUPTED, and the next run on the file works."""
    moments = random.Random(20250414)
    known: set[str] = set()
    pending = []
    for moment in [None, *(moments.uniform(0.0, 1.2) for _ in range(4))]:
        before = len(desk.lines("target"))
        process = desk.start()
        if moment is None:
            time.sleep(0.35)
        else:
            desk.wait_for_lines("target", before)
            time.sleep(moment)
        children = family(process)
        process.kill()
        ended(process)
        _, left = psutil.wait_procs(children, timeout=ORPHANS_LIVE)
        assert left == []

        if not desk.db.exists():
            continue
        with open_reader(desk.db) as reader:
            assert desk.rows("PRAGMA integrity_check") == [("ok",)]
            fresh = [run for run in reader.runs() if run.id not in known]
            for run in fresh:
                check(desk, run)
                assert run.state is RunState.INTERRUPTED
                assert len(reader.results(run, limit=1000)) == run.counts.done
                assert run.counts.done <= len({line.item for line in desk.lines("target")[before:]})
                pending.append(run.counts.pending)
            known |= {run.id for run in fresh}

    assert len(known) in (4, 5)  # the first may have been there before its process was killed
    assert sum(0 < count < ITEMS for count in pending) >= 2  # hit in the middle
    last = ended(desk.start())
    assert (last.code, last.document["counts"]["passed"]) == (0, ITEMS)
    with open_reader(desk.db) as reader:
        runs = reader.runs()
        assert {run.id for run in runs} - known == {last.document["run"]}
        for run in runs:
            check(desk, run)
        assert Counter(run.state for run in runs if run.id in known) == {RunState.INTERRUPTED: len(known)}


def test_a_killed_run_is_resumed_where_it_stood(desk: Desk):
    """What is stored is not asked again, neither of the target nor of the scorer, and every trial ends once (RC-07)."""
    process = desk.start()
    desk.wait_for_lines("scorer", ITEMS / 2)
    children = family(process)
    process.kill()
    ended(process)
    psutil.wait_procs(children, timeout=ORPHANS_LIVE)  # plugins write down what they were sent until they are ended
    outputs = {f"i{trial:03}" for (trial,) in desk.rows("SELECT trial FROM output")}
    scores = {f"i{trial:03}" for (trial,) in desk.rows("SELECT trial FROM score WHERE key = 1")}
    before = {kind: len(desk.lines(kind)) for kind in ("target", "scorer")}

    (run,) = desk.evalbus("runs", "list", "--json").document["runs"]
    resumed = desk.evalbus("runs", "resume", run["run"], "--json")

    assert run["state"] == "INTERRUPTED"
    assert (resumed.code, resumed.document["counts"]["passed"]) == (0, ITEMS), resumed.err
    assert CONCURRENCY < len(scores) <= len(outputs) < ITEMS
    everything = {f"i{number:03}" for number in range(ITEMS)}
    for kind, stored in (("target", outputs), ("scorer", scores)):
        asked = [line.item for line in desk.lines(kind)[before[kind] :] if line.word == "asked"]
        assert sorted(asked) == sorted(everything - stored)
        first = [line.item for line in desk.lines(kind)[: before[kind]] if line.word == "asked"]
        assert len(first) <= len(stored) + 4 * CONCURRENCY  # what was in flight, or not committed yet
    with open_reader(desk.db) as reader:
        (ran,) = reader.runs()
        check(desk, ran)
        assert len(reader.results(ran, limit=1000)) == ITEMS


@pytest.mark.parametrize("kind", ["target", "scorer"])
def test_a_killed_plugin_costs_only_what_it_held(desk: Desk, kind: str):
    """It is started again; what it had answered is not asked again, what it held is, and every trial ends once."""
    process = desk.start()
    first = desk.wait_for_lines(kind, 300)[0].pid
    answered = f"SELECT trial FROM {'output' if kind == 'target' else 'score WHERE key = 1'}"
    stored = {f"i{position:03}" for (position,) in desk.rows(answered)}
    os.kill(first, signal.SIGKILL)
    ran = ended(process)

    assert ran.code == 0, ran.err
    assert ran.err.count("conversation lost") == 1
    assert ran.document["counts"] == {
        "planned": ITEMS,
        "passed": ITEMS,
        "failed": 0,
        "errored": 0,
        "skipped": 0,
        "pending": 0,
    }
    lines = desk.lines(kind)
    asked = Counter(line.item for line in lines if line.word == "asked")
    again = {item for item, times in asked.items() if times > 1}
    assert len(asked) == ITEMS
    assert max(asked.values()) <= 2
    assert 0 < len(again) <= CONCURRENCY
    assert len(stored) > CONCURRENCY
    assert not again & stored
    assert len({line.pid for line in lines}) == 2
    other = Counter(
        line.item for line in desk.lines("scorer" if kind == "target" else "target") if line.word == "asked"
    )
    assert set(other.values()) == {1}
    with open_reader(desk.db) as reader:
        (run,) = reader.runs()
        check(desk, run)
        assert len(reader.results(run, limit=1000)) == ITEMS


def test_a_plugin_that_is_killed_again_and_again_costs_nobody_a_result(desk: Desk):
    """Target and scorer in turn, at random moments: no trial is lost, none is ERRORED for the death of its plugin."""
    moments = random.Random(7)
    process = desk.start()
    killed: set[int] = set()
    for kind in ("target", "scorer", "target", "scorer"):
        wait_for(functools.partial(desk.newest, kind, killed))
        time.sleep(moments.uniform(0.0, 0.3))
        victim = desk.lines(kind)[-1].pid
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)
    ran = ended(process)

    assert ran.code == 0, ran.err
    assert ran.document["counts"]["passed"] == ITEMS
    assert len(killed) == 4
    with open_reader(desk.db) as reader:
        (run,) = reader.runs()
        check(desk, run)


def test_a_killed_guard_takes_its_plugin_along(desk: Desk):
    """Nobody would end a plugin whose guard is gone."""
    process = desk.start()
    plugin = psutil.Process(desk.wait_for_lines("target", 100)[0].pid)
    guard = plugin.parent()
    assert guard is not None and "guard.py" in " ".join(guard.cmdline())
    guard.kill()
    ran = ended(process)

    assert ran.code == 0, ran.err
    assert ran.document["counts"]["passed"] == ITEMS
    _, left = psutil.wait_procs([plugin], timeout=ORPHANS_LIVE)
    assert left == []


async def test_a_plugin_without_the_sdk_does_not_outlive_its_guard_either():
    """It knows nothing of guards, and has to be ended from outside."""
    place = LaunchedProcess(["python", "rogue_target.py"], str(PLUGINS), {})
    await place.address()
    guard = psutil.Process(place._process.pid)  # type: ignore[union-attr]
    (plugin,) = wait_for(guard.children)

    guard.kill()

    _, left = psutil.wait_procs([plugin], timeout=ORPHANS_LIVE)
    await place.end()
    assert left == []


def test_what_a_failed_attempt_took_is_not_lost_with_the_server_that_waits_to_ask_again(desk: Desk):
    """Neither the target's nor a scorer's: usage is summed over all attempts, whatever dies between them (O6)."""
    plugin = {"command": ["python", str(PLUGINS / "dear.py"), str(desk.folder)]}
    dear = {"name": "dear", "dataset": {"path": "items.jsonl", "limit": 3}, "target": plugin, "scorers": [plugin]}
    (desk.folder / "dear.json").write_text(json.dumps(dear))

    for failed in (1, 2):
        process = desk.start(*(("run", "dear.json") if failed == 1 else ("runs", "resume", "latest")))
        wait_for(lambda: desk.db.exists() and desk.rows("SELECT count(*) FROM attempt") == [(failed,)])  # noqa: B023
        process.kill()
        ended(process)
    resumed = desk.evalbus("runs", "resume", "latest", "--json")

    assert resumed.code == 0, resumed.err
    assert resumed.document["usage"]["input_tokens"] == 2 * 1000 + 2 * 3
    assert resumed.document["attempts"] == 3 + 1
    assert sorted(desk.rows("SELECT role, input_tokens FROM attempt")) == [(-1, 1000), (0, 1000)]


@pytest.mark.parametrize(("who", "role", "answers"), [("target", -1, "output"), ("scorer", 0, "score")])
def test_what_a_plugin_told_before_it_died_is_not_lost_with_the_server(desk: Desk, who: str, role: int, answers: str):
    """Usage is summed over all attempts, also over those that went down with a conversation (O6)."""
    plugin = {"command": ["python", str(PLUGINS / "mortal.py"), str(desk.folder), who]}
    mortal = {"name": "mortal", "dataset": {"path": "items.jsonl", "limit": 3}, "target": plugin, "scorers": [plugin]}
    (desk.folder / "mortal.json").write_text(json.dumps(mortal))

    process = desk.start("run", "mortal.json")
    wait_for(lambda: desk.db.exists() and desk.rows(f"SELECT count(*) FROM {answers}") == [(2,)])
    (desk.folder / "die").touch()
    wait_for(lambda: desk.rows("SELECT count(*) FROM attempt") == [(1,)])
    process.kill()
    ended(process)
    (desk.folder / "go").touch()
    resumed = desk.evalbus("runs", "resume", "latest", "--json")

    assert resumed.code == 0, resumed.err
    assert resumed.document["usage"]["input_tokens"] == 1000 + 2 * 3
    assert desk.rows("SELECT role, json_extract(failure, '$.reason'), input_tokens FROM attempt") == [
        (role, "CONVERSATION_LOST", 1000)
    ]
