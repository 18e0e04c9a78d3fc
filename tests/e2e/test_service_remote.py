"""What the command line does against a server: files are uploaded, and what is printed is what a database would give."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from evalbus import CallFailed, ScoreStatus
from evalbus_server.cli.client import Remote
from evalbus_server.errors import Invalid
from evalbus_server.model.event import Event
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.result_filter import ResultFilter, ScoreFilter
from evalbus_server.model.run import Outcome, RunState
from evalbus_server.runner.experiment_file import load
from evalbus_server.store import RunFilter
from evalbus_server.wire.jsonform import event_document, result_document, run_document, summary_document

from .service import Served, echoing, serving

ITEMS = [
    {"id": "a", "input": "x", "expected": "x"},
    {"id": "b", "input": "y", "expected": "z"},
    {"id": "c", "input": "fail", "expected": "x"},
]


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with echoing() as made:
        yield made


@pytest.fixture
async def served(tmp_path: Path, address: str) -> AsyncIterator[Served]:
    """Ends before the target does: a run that has lost its target looks for it for a while."""
    async with serving(tmp_path, token="s3cret") as made:
        yield made


@pytest.fixture
async def remote(served: Served) -> AsyncIterator[Remote]:
    async with Remote(served.address, {"EVALBUS_TOKEN": "s3cret"}) as made:
        yield made


@pytest.fixture
def written(tmp_path: Path, address: str) -> Experiment:
    """An experiment file beside its items, as people have it."""
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    document: dict[str, Any] = {
        "name": "files",
        "dataset": {"path": "items.jsonl"},
        "target": {"address": address},
        "scorers": [{"use": "exact_match", "threshold": 1}, {"use": "levenshtein", "weight": 2}],
        "criteria": [{"metric": "pass_rate", "min": 0.5}],
    }
    (tmp_path / "e.json").write_text(json.dumps(document))
    return load(tmp_path / "e.json")


def like(document: Any) -> Any:
    """What equals a document but for lengths of time, which travel to the nanosecond, and points, to the microsecond."""
    if isinstance(document, dict):
        return {key: like(value) for key, value in document.items()}
    if isinstance(document, list):
        return [like(value) for value in document]
    return pytest.approx(document, abs=1e-5) if isinstance(document, float) else document


async def test_a_file_is_uploaded_and_everything_reads_as_from_the_database(
    served: Served, remote: Remote, written: Experiment
) -> None:
    started = await remote.start(written)
    events = [entry async for entry in remote.watch(started.id) if isinstance(entry, Event)]
    store = served.parts.store
    stored = store.run(started.id)

    assert (stored.dataset.name, stored.dataset.items) == ("items", 3)
    assert run_document(await remote.run(started.id)) == like(run_document(stored))
    assert [event_document(each) for each in events] == [
        event_document(each) for each in store.events(stored.id, after=0, limit=100)
    ]
    found = [result_document(*each) async for each in remote.results(stored)]
    assert found == like([result_document(each, stored) for each in store.results(stored)])
    summary = summary_document(await remote.summary(await remote.run(started.id)))
    local = summary_document(await served.parts.runs.summary(stored.id))
    assert summary == like(local)
    assert summary["criteria"][0]["outcome"] == "FAIL"


async def test_a_file_that_has_not_changed_makes_no_new_version(remote: Remote, written: Experiment) -> None:
    first, second = await remote.start(written), await remote.start(written)

    assert first.dataset.version == second.dataset.version == 1
    assert first.id != second.id


async def test_a_plan_reads_the_file_and_uploads_nothing(served: Served, remote: Remote, written: Experiment) -> None:
    plan = await remote.plan(written)

    assert (plan.items, plan.trials, plan.has_target, plan.scorer_calls) == (3, 3, True, 6)
    assert [key.key for key in plan.keys] == ["exact_match", "levenshtein"]
    assert served.parts.store.datasets() == []


async def test_a_plan_of_a_file_knows_who_judges_which_of_its_items(
    tmp_path: Path, served: Served, remote: Remote, address: str
) -> None:
    """Also by what a dataset of that name says already; of many items those that differ stand for all."""
    lines = [{"id": str(n), "input": "x", **({"scorers": ["levenshtein"]} if n == 1500 else {})} for n in range(1501)]
    (tmp_path / "many.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "e.json").write_text(
        json.dumps({"name": "files", "dataset": {"path": "many.jsonl"}, "target": {"address": address}})
    )
    plan = await remote.plan(load(tmp_path / "e.json"))
    assert (plan.trials, [key.key for key in plan.keys]) == (1501, ["levenshtein"])
    await served.client.create_dataset("many", scorers=["exact_match"])
    plan = await remote.plan(load(tmp_path / "e.json"))
    assert ([key.key for key in plan.keys], plan.scorer_calls) == (["exact_match", "levenshtein"], 1501)


async def test_a_plan_counts_what_is_selected(remote: Remote, written: Experiment) -> None:
    selected = written.model_copy(update={"dataset": written.dataset.model_copy(update={"items": ("[ab]",)})})
    none = written.model_copy(update={"dataset": written.dataset.model_copy(update={"items": ("z",)})})

    assert (await remote.plan(selected)).items == 2
    with pytest.raises(CallFailed) as caught:
        await remote.plan(none)
    assert caught.value.reason == "NOTHING_TO_RUN"


async def test_a_plan_of_a_stored_dataset_is_the_servers(remote: Remote, written: Experiment) -> None:
    started = await remote.start(written)
    plan = await remote.plan(written.over(started.dataset.name, 1))

    assert (plan.items, [plugin.name for plugin in plan.plugins]) == (3, ["echo", "exact_match", "levenshtein"])


async def test_a_broken_file_is_refused_here_and_nothing_is_uploaded(
    served: Served, remote: Remote, written: Experiment, tmp_path: Path
) -> None:
    (tmp_path / "items.jsonl").write_text('{"id": "a", "input": "x"}\n{"id": \n')
    with pytest.raises(Invalid):
        await remote.start(written)

    assert served.parts.store.datasets() == []


async def test_runs_are_found_by_filter_by_the_beginning_of_their_id_and_as_the_latest(
    remote: Remote, written: Experiment
) -> None:
    with pytest.raises(CallFailed, match="no run"):
        await remote.run("latest")
    first, second = await remote.start(written), await remote.start(written)

    assert [run.id for run in await remote.runs(RunFilter(), 10)] == [second.id, first.id]
    assert [run.id for run in await remote.runs(RunFilter(experiment="files"), 1)] == [second.id]
    assert await remote.runs(RunFilter(tag="none"), 10) == []
    assert (await remote.run("latest")).id == second.id
    assert (await remote.run(first.id[:-2])).id == first.id


async def test_results_are_filtered_by_the_server(remote: Remote, written: Experiment) -> None:
    run = await remote.start(written)
    async for _ in remote.watch(run.id):
        pass

    failed = [result.item.id async for result, _ in remote.results(run, ResultFilter((Outcome.FAILED,)))]
    named = [result.item.id async for result, _ in remote.results(run, ResultFilter(item="[ac]"))]
    scored = ResultFilter(scores=(ScoreFilter("exact_match", ScoreStatus.SCORED, below=0.5),))
    assert (failed, named) == (["b"], ["a", "c"])
    assert [result.item.id async for result, _ in remote.results(run, scored)] == ["b"]


async def test_a_cancel_of_a_run_that_is_over_changes_nothing(remote: Remote, written: Experiment) -> None:
    run = await remote.start(written)
    async for _ in remote.watch(run.id):
        pass

    assert (await remote.cancel(run.id)).state is RunState.COMPLETED


async def test_without_the_token_nothing_is_told(served: Served) -> None:
    async with Remote(served.address, {}) as stranger:
        with pytest.raises(CallFailed) as caught:
            await stranger.run("r1")

    assert caught.value.reason == "UNAUTHENTICATED"
