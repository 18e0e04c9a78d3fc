"""Runs: how they are made, found and listed, and how their states change."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evalbus_server.errors import Conflict, NotFound, Reason
from evalbus_server.model.event import StateChanged, TrialsEnded
from evalbus_server.model.run import Counts, Outcome, Run, RunState, Verdict
from evalbus_server.store import RunFilter, Store, open_reader, open_store
from tests.unit.server.store.making import dataset, items, run_of, started, whole


def test_a_new_run_is_queued_and_its_first_event_says_so(store: Store) -> None:
    run = store.create_run(run_of(dataset(store, 3), state=RunState.RUNNING, session=7, last_sequence=99))

    assert (run.state, run.session, run.last_sequence) == (RunState.QUEUED, 0, 1)
    [event] = store.events(run.id, after=0, limit=10)
    assert (event.sequence, event.fact) == (1, StateChanged(RunState.QUEUED, Counts(3)))


def test_the_same_request_finds_the_run_that_it_made(store: Store) -> None:
    asked = run_of(dataset(store), request_id="r1")
    made = store.create_run(asked)

    again = store.create_run(replace(asked, id="another", created_at=2.0))

    assert again == made == store.run_of_request("r1")
    assert store.run_of_request("r2") is None
    assert len(store.runs()) == 1


def test_a_request_id_is_not_used_for_another_experiment(store: Store) -> None:
    asked = run_of(dataset(store), request_id="r1")
    store.create_run(asked)

    with pytest.raises(Conflict) as caught:
        store.create_run(replace(asked, id="another", digest="other"))

    assert caught.value.reason is Reason.REQUEST_ID_REUSED
    assert len(store.runs()) == 1


def test_runs_without_a_request_id_do_not_meet(store: Store) -> None:
    version = dataset(store)

    for name in "abc":
        store.create_run(run_of(version, id=name))

    assert [run.id for run in store.runs()] == ["c", "b", "a"]


def test_a_run_of_a_dataset_that_is_missing_is_refused(store: Store) -> None:
    version = dataset(store)

    for wrong in (replace(version, name="other"), replace(version, version=2)):
        with pytest.raises(NotFound):
            store.create_run(run_of(wrong))

    assert store.runs() == []


def test_a_run_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    version = dataset(store)
    for id in ("0123456a", "0123456b", "9876543"):
        store.create_run(run_of(version, id=id))

    assert store.run("987654").id == "9876543"
    assert store.run("0123456a").id == "0123456a"
    for unclear in ("98765", "0123456", "98765_", "nothing"):
        with pytest.raises(NotFound) as caught:
            store.run(unclear)
        assert caught.value.reason is Reason.RUN_NOT_FOUND


def test_an_id_that_another_one_begins_with_is_found(store: Store) -> None:
    version = dataset(store)
    for id in ("0123456", "01234567"):
        store.create_run(run_of(version, id=id))

    assert store.run("0123456").id == "0123456"


@pytest.fixture
def listed(store: Store) -> Store:
    one, other = dataset(store), dataset(store, 2, "other")
    store.create_run(run_of(one, id="a", name="nightly", tags=("x", "y")))
    store.create_run(run_of(other, id="b", name="weekly", tags=("y",)))
    store.create_run(run_of(one, id="c", name="weekly"))
    store.create_run(run_of(one, id="d", name="nightly", tags=("z",)))
    store.change_state("d", RunState.COMPLETED)
    return store


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (None, "dcba"),
        (RunFilter(experiment="weekly"), "cb"),
        (RunFilter(dataset="support"), "dca"),
        (RunFilter(dataset="missing"), ""),
        (RunFilter(tag="y"), "ba"),
        (RunFilter(state=RunState.QUEUED), "cba"),
        (RunFilter(state=RunState.INTERRUPTED), ""),
        (RunFilter("nightly", "support", "z", RunState.COMPLETED), "d"),
    ],
)
def test_runs_are_listed_newest_first_and_filtered(listed: Store, filter: RunFilter | None, expected: str) -> None:
    assert "".join(run.id for run in listed.runs(filter)) == expected


def test_runs_come_in_pages(listed: Store) -> None:
    assert [run.id for run in listed.runs(limit=2)] == ["d", "c"]
    assert [run.id for run in listed.runs(limit=2, before="c")] == ["b", "a"]
    assert listed.runs(before="a") == []
    with pytest.raises(NotFound):
        listed.runs(before="missing")


def test_a_state_is_changed_together_with_its_event(path: Path) -> None:
    times = iter(range(100, 200))
    with open_store(path, clock=lambda: float(next(times))) as store:
        run = store.create_run(run_of(dataset(store, 2)))
        running = store.begin_session(run.id)
        paused = store.change_state(run.id, RunState.PAUSED, reason="asked to")
        again = store.begin_session(run.id)
        store.commit(run.id, whole(range(2)))
        over = store.change_state(run.id, RunState.COMPLETED, verdict=Verdict.PASS)

        assert (running.state, running.session, running.ended_at) == (RunState.RUNNING, 1, None)
        assert (paused.state, paused.reason, paused.ended_at) == (RunState.PAUSED, "asked to", None)
        assert (again.state, again.session, again.reason) == (RunState.RUNNING, 2, "")
        assert (over.state, over.verdict, over.counts) == (RunState.COMPLETED, Verdict.PASS, Counts(2, passed=2))
        assert over.started_at == running.started_at
        assert over.started_at is not None and over.ended_at is not None and over.ended_at > over.started_at
        events = store.events(run.id, after=0, limit=10)
        assert [event.sequence for event in events] == [1, 2, 3, 4, 5, 6]
        assert [event.fact for event in events][3:] == [
            StateChanged(RunState.RUNNING, Counts(2)),
            TrialsEnded(((0, Outcome.PASSED), (1, Outcome.PASSED)), Counts(2, passed=2)),
            StateChanged(RunState.COMPLETED, Counts(2, passed=2), "", Verdict.PASS),
        ]
        assert over.last_sequence == store.last_sequence(run.id) == 6
        assert [event.sequence for event in store.events(run.id, after=2, limit=2)] == [3, 4]
        assert store.events(run.id, after=6, limit=2) == []


def test_a_run_that_goes_on_has_not_ended(store: Store) -> None:
    run = started(store)
    store.change_state(run.id, RunState.CANCELLED, verdict=Verdict.INCONCLUSIVE)

    resumed = store.begin_session(run.id)

    assert (resumed.ended_at, resumed.verdict, resumed.session) == (None, None, 2)


def test_the_time_at_work_leaves_out_the_pauses_and_what_nobody_knows_of(path: Path) -> None:
    moment = 0.0
    with open_store(path, clock=lambda: moment) as store:
        run = store.create_run(run_of(dataset(store, 3)))
        moment = 100.0
        assert store.begin_session(run.id).work_time(moment + 5) == 5.0
        moment = 110.0
        paused = store.change_state(run.id, RunState.PAUSED)
        moment = 1000.0
        waiting = store.change_state(run.id, RunState.QUEUED)
        moment = 1001.0
        again = store.begin_session(run.id)
        moment = 1003.0
        store.commit(run.id, whole(range(1)))

        assert (paused.worked, paused.session_began_at, paused.work_time(moment)) == (10.0, None, 10.0)
        assert waiting.work_time(moment) == 10.0
        assert (again.worked, again.session_began_at, again.work_time(1003.0)) == (10.0, 1001.0, 12.0)

    with open_reader(path) as reader:  # whoever worked on it is gone
        left = reader.run(run.id)
        assert (left.state, left.work_time(5000.0)) == (RunState.INTERRUPTED, 12.0)
    moment = 5000.0
    with open_store(path, clock=lambda: moment) as store:
        assert store.interrupt_orphans() == [run.id]
        orphan = store.run(run.id)
        assert (orphan.worked, orphan.session_began_at, orphan.ended_at) == (12.0, None, 5000.0)
        moment = 4000.0  # a clock that was set back takes nothing away
        store.begin_session(run.id)
        moment = 3000.0
        assert store.change_state(run.id, RunState.CANCELLED).worked == 12.0


def test_protocol_faults_add_up(store: Store) -> None:
    run = started(store)

    store.add_protocol_faults(run.id, 2)
    store.add_protocol_faults(run.id, 3)

    assert store.run(run.id).protocol_faults == 5


def test_a_run_that_is_missing_is_refused_everywhere(store: Store) -> None:
    for call in (
        lambda: store.change_state("x", RunState.PAUSED),
        lambda: store.begin_session("x"),
        lambda: store.events("x", after=0, limit=1),
        lambda: store.last_sequence("x"),
        lambda: store.add_protocol_faults("x", 1),
        lambda: store.commit("x", whole([])),
    ):
        with pytest.raises(NotFound):
            call()


ROOT = Path(__file__).parents[4]
DYING = """
import os, signal, sys
from evalbus_server.store import open_store
from tests.unit.server.store.making import dataset, run_of, started, whole
store = open_store(sys.argv[1])
run = started(store)
store.create_run(run_of(dataset(store), id="02queued"))
store.create_run(run_of(dataset(store), id="03paused"))
store.change_state("03paused", store.run("03paused").state.PAUSED)
store.commit(run.id, whole(range(4)))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_server_loses_no_commit_and_no_event_number_is_used_twice(path: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", DYING, str(path)], check=False, cwd=ROOT)
    assert dead.returncode == -signal.SIGKILL

    with open_reader(path) as reader:
        assert [(run.id, run.state) for run in reader.runs()] == [
            ("03paused", RunState.PAUSED),
            ("02queued", RunState.INTERRUPTED),
            ("01run", RunState.INTERRUPTED),
        ]
        assert len(reader.results(reader.run("01run"))) == 4

    with open_store(path) as store:
        assert store.counts(store.run("01run")) == Counts(10, passed=4)
        assert store.interrupt_orphans() == ["01run", "02queued"]

        run = store.run("01run")
        assert (run.state, run.counts) == (RunState.INTERRUPTED, Counts(10, passed=4))
        assert run.last_sequence == 3 + 1001
        assert store.run("03paused").state is RunState.PAUSED
        assert store.begin_session("01run").last_sequence == 3 + 1002
        assert store.begin_session("03paused").last_sequence == 2 + 1001
        assert store.create_run(run_of(dataset(store), id="04new")).last_sequence == 1
        assert store.commit("01run", whole([5])).sequence == 3 + 1003
        assert store.interrupt_orphans() == ["01run", "03paused", "04new"]


def test_no_event_number_is_left_out_after_an_orderly_end(path: Path) -> None:
    with open_store(path) as store:
        run = started(store)

    with open_store(path) as store:
        assert store.begin_session(run.id).last_sequence == run.last_sequence + 1


def test_a_long_experiment_is_not_written_anew_by_every_commit(store: Store) -> None:
    run = started(store, items(600), experiment_json="x" * 500_000)
    before = Path(f"{store.path}-wal").stat().st_size

    for position in range(20):
        store.commit(run.id, whole([position]))

    assert Path(f"{store.path}-wal").stat().st_size - before < 2_000_000
    assert isinstance(store.run(run.id), Run)
