"""The chaos suite itself: a seed plays through, and every fault that it looks for is found when it is there."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos import calls, ledger, soak
from tests.chaos.behaviour import FAULTS, Attempt, Manners
from tests.chaos.play import play
from tests.chaos.scenario import AFTERWARDS, BLOWS, ROLES, Blow, RunPlan, Scenario, scenario_of
from tests.chaos.world import World

LIMITS = {"concurrency": 8, "timeout": "2s", "silence": "2s", "trial_timeout": "30s", "retries": 2}
SCENARIO = Scenario(
    seed=7,
    manners=Manners(7, {"unavailable": 0.1, "refused": 0.05, "doubled": 0.05}, {}, 0.2),
    timeout=2.0,
    grant=16,
    capabilities="cancel progress",
    slowness=0.01,
    resume=False,
    runs=(RunPlan(40, 2, ("includes", "chaos"), False, LIMITS, 4),),
    blows=(Blow(0.4, "kill_server", 0, "target", 0.5), Blow(0.7, "kill_plugin", 0, "scorer", 0.5)),
)


KEEP = "experiment = json_set(experiment, '$.keep.{}', json('{}'))"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a scenario that was played, with a server and a scorer killed in the middle."""
    folder = tmp_path_factory.mktemp("c")
    assert asyncio.run(play(SCENARIO, folder)) == []
    return folder


@pytest.fixture
def copy(played: Path, tmp_path: Path) -> Path:
    """A copy of its database, to be spoilt."""
    with closing(sqlite3.connect(played / "chaos.db")) as whole:
        whole.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return Path(shutil.copy(played / "chaos.db", tmp_path / "spoilt.db"))


def spoil(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, f"nothing was spoilt by {statement}"
        connection.commit()


def test_a_run_that_was_hurt_is_whole(played: Path) -> None:
    log = calls.read_calls(played / "target.log")

    assert {call.attempt // 1000 for call in log} == {1, 2}, "the server was not killed in the middle"
    assert len({call.pid for call in calls.read_calls(played / "scorer.log")}) >= 2
    with closing(ledger.Ledger(played / "chaos.db")) as stored:
        (run,) = stored.runs()
        assert (run["state"], run["planned"], run["session"]) == (ledger.COMPLETED, 80, 2)
        assert run["passed"] and run["failed"] and run["errored"]


@pytest.mark.parametrize(
    ("check", "statements"),
    [
        (ledger.counts_add_up, ["UPDATE progress SET passed = passed + 1"]),
        (ledger.counts_add_up, ["UPDATE progress SET planned = planned - 1"]),
        (ledger.results_have_their_ground, ["UPDATE result SET outcome = 3 - outcome WHERE outcome = 1"]),
        (ledger.results_have_their_ground, ["UPDATE result SET failure = '{}' WHERE outcome = 1"]),
        (ledger.results_have_their_ground, ["UPDATE result SET epoch = 3 WHERE epoch = 2"]),
        (ledger.results_have_their_ground, ["DELETE FROM score WHERE key = 1"]),
        (ledger.outputs_come_first, ["DELETE FROM output WHERE id = (SELECT max(id) FROM output)"]),
        (ledger.outputs_come_first, ["DELETE FROM output WHERE id = (SELECT min(id) FROM output)"]),
        (ledger.attempts_are_kept, ["DELETE FROM attempt WHERE role = -1"]),
        (ledger.attempts_are_kept, ["UPDATE attempt SET attempt = attempt + 9000"]),
        (ledger.usage_is_summed, ["UPDATE result SET input_tokens = input_tokens + 1"]),
        (ledger.usage_is_summed, ["DELETE FROM attempt WHERE role <> -1"]),
        (ledger.usage_is_summed, ["UPDATE output SET cost_micros = cost_micros + 1"]),
        (ledger.numbers_of_events_have_no_gaps, ["DELETE FROM event WHERE sequence = 3"]),
        (ledger.numbers_of_events_have_no_gaps, ["UPDATE recovery SET era = 0"]),
        (ledger.states_are_legal, ["DELETE FROM event WHERE kind = 'state' AND sequence = 2"]),
        (ledger.states_are_legal, ["UPDATE progress SET state = 2"]),
        (ledger.events_tell_the_results, ["DELETE FROM event WHERE kind = 'trials' AND sequence = 4"]),
        (
            ledger.events_tell_the_results,
            ["UPDATE event SET body = json_set(body, '$.counts[1]', 0) WHERE kind = 'trials' AND sequence > 9"],
        ),
        (ledger.completed_runs_are_whole, ["DELETE FROM result WHERE epoch = 2 AND position = 3"]),
        (ledger.completed_runs_are_whole, ["INSERT INTO retry VALUES (1, 0, -1, -1)"]),
        (ledger.samples_are_the_same, ["UPDATE score SET status = 2, value = NULL WHERE key = 1 AND trial < 9"]),
        (
            ledger.samples_are_the_same,
            ["UPDATE run SET experiment = json_set(experiment, '$.scorers[1].sampling', 0.5)"],
        ),
        (ledger.nothing_is_kept_that_must_not_be, [f"UPDATE run SET {KEEP.format('outputs', 'false')}"]),
        (
            ledger.nothing_is_kept_that_must_not_be,
            [f"UPDATE run SET {KEEP.format('outputs', 'false')}", "UPDATE output SET content = '[not kept]'"],
        ),
        (ledger.nothing_is_kept_that_must_not_be, [f"UPDATE run SET {KEEP.format('scores', 'false')}"]),
        (
            ledger.nothing_is_kept_that_must_not_be,
            [
                f"UPDATE run SET {KEEP.format('scores', 'false')}",
                "DELETE FROM score",
                "UPDATE result SET weighted = NULL",
            ],
        ),
        (ledger.nothing_is_kept_that_must_not_be, ["INSERT INTO kept_summary VALUES (1, x'00')"]),
        (ledger.nothing_is_left_of_purged_items, ["INSERT INTO purged SELECT dataset, n, 0.0, 1 FROM item LIMIT 1"]),
        (
            ledger.results_have_their_ground,
            [
                "UPDATE run SET assignment = json_object('names', json_array('includes', 'chaos'), 'default', json_array('chaos'))"
            ],
        ),
        (
            ledger.results_have_their_ground,
            [
                "UPDATE run SET assignment = json_object('names', json_array('includes', 'chaos'), 'default', json_array('none'))"
            ],
        ),
    ],
)
def test_each_fault_in_a_database_is_found(
    copy: Path, check: Callable[[ledger.Kept], object], statements: list[str]
) -> None:
    spoil(copy, *statements)

    with closing(ledger.Ledger(copy)) as stored:
        (run,) = stored.runs()
        assert list(check(ledger.Kept(stored, run)))  # type: ignore[call-overload]
    assert ledger.faults(copy)


def test_faults_in_the_calls_are_found(played: Path, copy: Path) -> None:
    logs = {role: calls.read_calls(played / f"{role}.log") for role in ROLES}
    asked = next(call for call in logs["target"] if call.word == "asked")
    scored = next(call for call in logs["scorer"] if call.word == "asked")

    def found(role: str, *more: calls.Call) -> str:
        return "; ".join(calls.faults(copy, SCENARIO.seed, {**logs, role: [*logs[role], *more]}, ()))

    assert found("target") == ""
    assert "is asked 2 times" in found("target", asked)
    assert "was asked again" in found("target", asked._replace(attempt=2999))
    assert "is asked 2 times" in found("scorer", scored)
    assert "was asked again" in found("scorer", scored._replace(attempt=2999))
    assert "(O7)" in found("scorer", scored._replace(attempt=2998, more="i000/1/7"))
    assert "were granted" in found("target", asked._replace(word="over"))
    moment = calls.Stored({role: len(log) for role, log in logs.items()}, {(asked.run, asked.trial)}, set())
    again = {**logs, "target": [*logs["target"], asked._replace(attempt=2999)]}
    assert "although the answer was stored" in "; ".join(calls.faults(copy, SCENARIO.seed, again, [moment]))
    assert "share a pool of 16" in found("target", asked._replace(word="crowded", attempt=16))
    spoil(copy, "UPDATE output SET content = 'another' WHERE id = (SELECT min(id) FROM output)")
    assert "of another attempt" in found("target")
    spoil(copy, "UPDATE output SET attempt = -1 WHERE id = (SELECT max(id) FROM output)")
    assert "in a run that remembers nothing" in found("target")
    assert "a remembered output of its own run" in found("target")
    spoil(copy, "UPDATE run SET experiment = json_set(experiment, '$.scorers[1].sampling', 0.5)")
    assert "is not in the sample, and was asked" in found("scorer")


def test_calls_about_purged_items_are_found(played: Path) -> None:
    """One call of each trial may be on its way when the purge is answered, and none comes in a later session."""
    logs = {role: calls.read_calls(played / f"{role}.log") for role in ROLES}
    asked = next(call for call in logs["target"] if call.word == "asked")
    item = frozenset([asked.more.split()[0]])
    purge = calls.PurgedNow(item, {role: len(log) for role, log in logs.items()}, {asked.run: 2})

    def found(*more: calls.Call) -> str:
        return "; ".join(calls.after_purges({**logs, "target": [*logs["target"], *more]}, [purge]))

    assert found() == found(asked._replace(attempt=2007)) == ""
    assert "again" in found(asked._replace(attempt=2007), asked._replace(attempt=2008))
    assert "a later session" in found(asked._replace(attempt=3001))
    assert "stands where content was" in found(asked._replace(more="i999 [purged]"))


def test_faults_about_budgets_and_remembered_outputs_are_found(copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as stored:
        ((run,),) = stored.execute("SELECT id FROM run")
        (trial,) = stored.execute("SELECT trial FROM output").fetchone()
    target = {"command": World(copy.parent, SCENARIO).command("target")}

    assert ledger.remembered(copy, target) == set()
    spoil(copy, f"INSERT INTO cached VALUES ('key', 1, {trial})")
    assert ledger.remembered(copy, {"command": ["another"]}) == set()
    assert ledger.remembered(copy, target) == {trial}
    assert ledger.unremembered(copy, run, set()) == []
    assert f"trials [{trial}] are asked" in ledger.unremembered(copy, run, {trial})[0]
    assert ledger.unpaid(copy, run, 0, 9) == []
    ended = (
        "UPDATE progress SET state = 7, reason = 'BUDGET: all tokens are used', limits = '{{\"limits.tokens\": {}}}'"
    )
    for limit in (5, 1_000_000):
        spoil(copy, ended.format(limit))
        assert "tokens, and had up to 1 calls" in ledger.unpaid(copy, run, 1, 9)[0]
    assert ledger.unpaid(copy, run, 1_000_000, 9) != []
    spoil(copy, ended.format(5))
    assert ledger.unpaid(copy, run, 1_000_000, 9) == []


def test_a_seed_says_all() -> None:
    """The same seed, the same scenario and the same behaviour; and the seeds that CI plays meet everything."""
    assert scenario_of(3) == scenario_of(3) != scenario_of(4)
    attempt = Attempt("target", "i1", 1, 1001)
    manners = scenario_of(3).manners
    assert manners.kind(attempt) == dataclasses.replace(manners).kind(attempt)
    scenarios = [scenario_of(seed) for seed in range(1, 21)]
    assert {blow.kind for scenario in scenarios for blow in scenario.blows} == set(BLOWS)
    assert {name for scenario in scenarios for name in scenario.manners.weights} == set(FAULTS)
    assert any(scenario.manners.poison for scenario in scenarios)
    assert any(scenario.slowness for scenario in scenarios)
    assert any(len(scenario.runs) == 3 for scenario in scenarios)
    assert any(scenario.places and scenario.gentle for scenario in scenarios)
    assert {step.kind for scenario in scenarios for step in scenario.afterwards} == set(AFTERWARDS)
    assert {step.hurt for scenario in scenarios for step in scenario.afterwards} == {True, False}
    runs = [run for scenario in scenarios for run in scenario.runs]
    assert {(run.keep_outputs, run.keep_scores) for run in runs} == set(itertools.product((True, False), repeat=2))
    assert any(run.cache for run in runs)
    assert any(run.by_items for run in runs)
    assert any("tokens" in run.limits for run in runs)
    assert any("cost" in run.limits for run in runs)


async def test_a_server_whose_runs_are_over_holds_nothing_more(tmp_path: Path) -> None:
    """After runs side by side, and after cancelled ones: as many descriptors, threads, tasks and processes as before."""
    _, faults = await soak.soak(tmp_path, 2_000, 3)

    assert faults == []
