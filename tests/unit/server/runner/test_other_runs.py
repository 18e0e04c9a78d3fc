"""The runs that an experiment names: found before the run, and stored by their whole ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalbus_server.errors import Conflict, Invalid
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Run, RunState, Verdict
from evalbus_server.scorer.builtin import BUILTINS
from tests.unit.server.runner.test_against import PLUGINS
from tests.unit.server.runner.test_runs import Desk, desk, echo, numbered

EXACT: dict[str, Any] = {"echo": echo, "exact_match": BUILTINS["exact_match"]}
PAIRED: dict[str, Any] = {"echo": echo, **PLUGINS}


def criteria(baseline: str) -> list[dict[str, Any]]:
    return [{"metric": "mean", "scorer": "exact_match", "baseline": baseline, "max_drop": 0.1}]


def stored(run: Run) -> Experiment:
    return Experiment.from_json(run.experiment_json)


async def with_baseline(d: Desk, baseline: str, **more: Any) -> Run:
    return await d.run(EXACT, criteria=criteria(baseline), **more)


async def against(d: Desk, other: str, **more: Any) -> Run:
    return await d.run(PAIRED, scorers=[{"use": "pair", "against": other}], **more)


async def test_latest_is_the_newest_completed_run_of_the_same_name(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        await d.run(EXACT)
        newest = await d.run(EXACT)
        aborted = await d.run(EXACT)
        d.store.change_state(aborted.id, RunState.ABORTED)
        await d.run(EXACT, name="another")
        run = await with_baseline(d, "latest")

        assert stored(run).criteria[0].baseline == newest.id
        assert run.verdict is Verdict.PASS
        assert stored(await with_baseline(d, "latest")).criteria[0].baseline == run.id


async def test_outputs_are_compared_with_those_of_the_latest_run(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        other = await d.run(PAIRED, scorers=[])
        run = await against(d, "latest")

        assert stored(run).scorers[0].against == other.id
        assert [each.scores[0].score.explanation for each in d.store.results(run)] == [
            "answer 0",
            "answer 1",
            "answer 2",
        ]


async def test_the_beginning_of_an_id_is_stored_in_full(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        other = await d.run(EXACT)
        assert stored(await with_baseline(d, other.id[:-2])).criteria[0].baseline == other.id
        assert stored(await against(d, other.id[:-2])).scorers[0].against == other.id


async def test_a_rescoring_compares_with_what_was_before_the_run_that_it_scores(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        before = await d.run(PAIRED, scorers=[])
        source = await d.run(PAIRED, scorers=[])
        experiment = d.experiment(PAIRED, scorers=[{"use": "pair", "against": "latest"}])
        again = await d.runs.rescore(source.id, experiment, given=PAIRED)
        await d.runs.wait(again.id)

        assert stored(again).scorers[0].against == before.id


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("latest", "there is no earlier run of 'new' that is COMPLETED; run it without this first, or name a run"),
        ("r0", "there is no run 'r0'"),
        ("COMMON", "several runs begin with"),
        ("HALTED", "is ABORTED, not COMPLETED"),
    ],
)
async def test_what_names_no_run_is_refused_before_the_run(tmp_path: Path, name: str, said: str):
    async with desk(tmp_path, numbered(3)) as d:
        first, halted = await d.run(EXACT), await d.run(EXACT)
        d.store.change_state(halted.id, RunState.ABORTED)
        common = next(first.id[:n] for n in range(len(first.id), 0, -1) if halted.id.startswith(first.id[:n]))
        name = {"COMMON": common, "HALTED": halted.id}.get(name, name)

        with pytest.raises(Invalid, match=rf"criteria\[0\]\.baseline: .*{said}") as caught:
            await with_baseline(d, name, name="new")
        assert caught.value.field == "criteria[0].baseline"
        with pytest.raises(Invalid, match=rf"scorers\[0\]\.against: .*{said}"):
            await against(d, name, name="new")
        with pytest.raises(Invalid, match=rf"criteria\[0\]\.baseline: .*{said}"):
            await d.runs.plan(d.experiment(EXACT, name="new", criteria=criteria(name)), given=EXACT)
        assert d.rows("SELECT count(*) FROM run") == [(2,)]


async def test_a_request_that_comes_again_finds_its_run_though_another_is_the_latest_by_now(tmp_path: Path):
    async with desk(tmp_path, numbered(3)) as d:
        other = await d.run(EXACT)
        experiment = d.experiment(EXACT, criteria=criteria("latest"))
        first = await d.runs.start(experiment, request_id="once", given=EXACT)
        await d.runs.wait(first.id)
        newer = await d.run(EXACT)

        for same in ("latest", other.id, other.id[:-1]):
            asked = d.experiment(EXACT, criteria=criteria(same))
            assert (await d.runs.start(asked, request_id="once", given=EXACT)).id == first.id
        with pytest.raises(Conflict):
            await d.runs.start(d.experiment(EXACT, criteria=criteria(newer.id)), request_id="once", given=EXACT)
        with pytest.raises(Conflict):
            await d.runs.start(d.experiment(EXACT), request_id="once", given=EXACT)
