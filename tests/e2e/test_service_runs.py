"""RunService over a real socket: start, plan, get, list, cancel, results, summary, and every refusal with its reason."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from evalbus import Item, Output, TrialFailed, start_server, target
from evalbus.client import CallFailed, Event, LimitsChanged, Outcome, RunState, StateChanged, Verdict
from evalbus.v1 import experiment_pb2, run_pb2
from evalbus_server import app
from evalbus_server.api import results as results_module
from evalbus_server.api.rules import Allowed, AllowedCommand

from .service import Served, echoing, experiment, failure, items, serving, stubs


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with echoing() as made:
        yield made


@pytest.fixture
async def served(tmp_path: Path, address: str) -> AsyncIterator[Served]:
    """Ends before the target does: a run that has lost its target looks for it for a while."""
    async with serving(tmp_path) as made:
        yield made


async def refused(awaitable: Any) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await awaitable
    return caught.value


async def over(served: Served, address: str, number: int = 20, **more: Any) -> str:
    """A finished run over so many items."""
    await served.client.upload_dataset("d", items(number, fail=7))
    run = await served.client.start(experiment(address, **more))
    await run.wait()
    return run.id


# --- the whole way ----------------------------------------------------------------------------------------------


async def test_a_run_is_started_followed_and_read(served: Served, address: str) -> None:
    await served.client.upload_dataset("d", items(20, fail=7))

    run = await served.client.start(
        experiment(address, tags=["nightly"], criteria=[{"metric": "pass_rate", "min": 0.9}])
    )
    ended = await run.wait()

    assert (ended.state, ended.verdict, ended.partial) == (RunState.COMPLETED, Verdict.FAIL, False)
    assert (ended.counts.planned, ended.counts.passed, ended.counts.failed, ended.counts.errored) == (20, 16, 2, 2)
    assert ended.tags == ("nightly",)
    summary = await run.summary()
    assert summary.pass_rate == 0.8
    assert summary.score("exact_match").n == 18
    assert [(each.outcome, each.value) for each in summary.criteria] == [(Verdict.FAIL, 0.8)]
    results = [result async for result in run.results()]
    assert [result.item.id for result in results] == [f"i{index}" for index in range(20)]
    assert [result.outcome for result in results[:10]] == [Outcome.PASSED] * 6 + [Outcome.ERRORED, Outcome.PASSED, Outcome.PASSED, Outcome.FAILED]  # fmt: skip
    assert results[6].failure is not None and results[6].failure.message == "told to fail"
    assert results[9].output is not None and results[9].output.text == "text 9"
    assert (results[9].scores[0].key, results[9].scores[0].passed) == ("exact_match", False)


async def test_a_run_goes_on_when_its_caller_is_gone(served: Served) -> None:
    gate = asyncio.Event()
    async with echoing(gate) as address:
        await served.client.upload_dataset("d", items(5))
        run = await served.client.start(experiment(address))
        await served.client.close()
        gate.set()
        assert (await served.parts.runs.wait(run.id)).counts.passed == 5


async def test_items_in_the_request_are_stored_first_under_the_experiments_name(served: Served, address: str) -> None:
    asked = experiment(address, dataset="")
    asked["dataset"] = {"records": [Item("a", "x", "x"), Item("b", "y", "z")]}

    run = await served.client.start(asked)
    ended = await run.wait()

    assert (ended.dataset.name, ended.dataset.version) == ("x", 1)
    assert (ended.counts.passed, ended.counts.failed) == (1, 1)
    again = await (await served.client.start(asked)).wait()
    assert again.dataset.version == 1


async def test_items_and_dataset_say_who_judges_where_the_experiment_does_not(served: Served, address: str) -> None:
    own = [Item("a", "x", "x", scorers=("levenshtein",)), Item("b", "y", "z", scorers=()), Item("c", "z", "z")]
    await served.client.upload_dataset("d", own)
    assert (await served.client.update_dataset("d", scorers=["exact_match"])).scorers == ("exact_match",)
    asked = experiment(address)
    del asked["scorers"]

    async def keys(**more: Any) -> list[list[str]]:
        run = await served.client.start({**asked, **more})
        await run.wait()
        return [[score.key for score in result.scores] async for result in run.results()]

    assert await keys() == [["levenshtein"], [], ["exact_match"]]
    assert await keys(dataset={"name": "d", "scorers": []}) == [["levenshtein"], [], []]
    assert await keys(scorers=[]) == [[], [], []]
    assert await keys(scorers=[{"use": "exact_match"}]) == [["exact_match"]] * 3
    assert (await served.client.plan(asked)).scorer_calls == 2
    refusal = await refused(served.client.plan({**asked, "dataset": {"name": "d", "scorers": ["exact_mach"]}}))
    assert refusal.reason == "EXPERIMENT_INVALID" and "did you mean exact_match?" in str(refusal)


async def test_requests_with_items_in_them_do_not_get_into_each_others_way(served: Served, address: str) -> None:
    asked = experiment(address)
    asked["dataset"] = {"records": items(900)}

    runs = await asyncio.gather(*(served.client.start(asked) for _ in range(5)))

    assert len({run.id for run in runs}) == 5
    assert (await served.client.get_dataset("x")).version == 1


async def test_the_experiment_of_a_run_is_returned_resolved(served: Served, address: str) -> None:
    run_id = await over(served, address, limits={"concurrency": 3})
    async with served.channel() as channel:
        response = await stubs(channel)[0].GetRun(run_pb2.GetRunRequest(run_id=run_id))

    assert response.run.id == run_id
    assert response.experiment.dataset.stored.version == 1
    assert (response.experiment.limits.concurrency, response.experiment.limits.timeout.seconds) == (3, 60)


async def test_a_run_is_found_by_the_beginning_of_its_id(served: Served, address: str) -> None:
    run_id = await over(served, address, 1)

    assert (await served.client.get(run_id[:-3])).id == run_id


# --- plan and idempotency ---------------------------------------------------------------------------------------


async def test_a_plan_says_what_would_be_done_and_stores_nothing(served: Served, address: str) -> None:
    await served.client.upload_dataset("d", items(20))
    plan = await served.client.plan(experiment(address, epochs=3))

    assert (plan.items, plan.epochs, plan.trials, plan.target_calls, plan.scorer_calls) == (20, 3, 60, 60, 60)
    assert [plugin.name for plugin in plan.plugins] == ["echo", "exact_match"]
    assert plan.scores == ("exact_match",)
    assert [run async for run in served.client.runs()] == []


async def test_a_plan_of_items_in_the_request_stores_no_dataset(served: Served, address: str) -> None:
    asked = experiment(address)
    asked["dataset"] = {"records": items(4), "limit": 3}

    assert (await served.client.plan(asked)).items == 3
    assert [dataset async for dataset in served.client.datasets()] == []


async def test_one_request_id_starts_one_run(served: Served, address: str) -> None:
    await served.client.upload_dataset("d", items(3))
    asked = experiment(address)

    first, *others = await asyncio.gather(*(served.client.start(asked, request_id="once") for _ in range(5)))

    assert {run.id for run in others} == {first.id}
    assert len([run async for run in served.client.runs()]) == 1


async def test_one_request_id_starts_one_run_also_when_the_dataset_has_grown_since(
    served: Served, address: str
) -> None:
    await served.client.upload_dataset("d", items(3))
    first = await served.client.start(experiment(address), request_id="once")
    await served.client.upload_dataset("d", items(4))

    assert (await served.client.start(experiment(address), request_id="once")).id == first.id


async def test_a_request_id_of_another_experiment_is_refused(served: Served, address: str) -> None:
    await served.client.upload_dataset("d", items(3))
    await served.client.start(experiment(address), request_id="once")

    error = await refused(served.client.start(experiment(address, epochs=2), request_id="once"))
    assert (error.reason, error.code) == ("REQUEST_ID_REUSED", "ALREADY_EXISTS")


async def test_a_request_id_with_other_items_in_the_request_is_refused(served: Served, address: str) -> None:
    asked = experiment(address)
    asked["dataset"] = {"records": items(3)}
    await served.client.start(asked, request_id="once")
    asked["dataset"] = {"records": items(4)}

    assert (await refused(served.client.start(asked, request_id="once"))).reason == "REQUEST_ID_REUSED"


# --- lists and pages --------------------------------------------------------------------------------------------


async def test_runs_are_listed_newest_first_and_filtered(served: Served, address: str) -> None:
    first = await over(served, address, 2, tags=["a"])
    second = await over(served, address, 2, name="y", tags=["a", "b"])
    await served.client.upload_dataset("other", items(1))
    third = await (await served.client.start(experiment(address, "other"))).wait()

    async def listed(**wanted: Any) -> list[str]:
        return [run.id async for run in served.client.runs(**wanted)]

    assert await listed() == [third.id, second, first]
    assert await listed(experiment="x") == [third.id, first]
    assert await listed(dataset="d") == [second, first]
    assert await listed(tag="b") == [second]
    assert await listed(state=RunState.CANCELLED) == []
    assert await listed(state=RunState.COMPLETED, tag="a", experiment="y") == [second]


async def test_a_list_of_runs_is_paged_without_gap_or_double(served: Served, address: str) -> None:
    await served.client.upload_dataset("d", items(1))
    started = [(await served.client.start(experiment(address))).id for _ in range(5)]
    found, token = [], ""
    async with served.channel() as channel:
        runs, _ = stubs(channel)
        while True:
            page = await runs.ListRuns(run_pb2.ListRunsRequest(page_size=2, page_token=token))
            found.append([run.id for run in page.runs])
            started_meanwhile = await served.client.start(experiment(address))
            token = page.next_page_token
            if not token:
                break

    newest_first = started[::-1]
    assert found == [newest_first[:2], newest_first[2:4], newest_first[4:]]
    assert started_meanwhile.id not in newest_first


@pytest.mark.parametrize("change", [{"tag": "b"}, {"experiment": "y"}, {"state": run_pb2.RUN_STATE_ABORTED}])
async def test_a_page_token_serves_its_own_filter_alone(served: Served, address: str, change: dict[str, Any]) -> None:
    await over(served, address, 1)
    await over(served, address, 1)
    async with served.channel() as channel:
        runs, _ = stubs(channel)
        page = await runs.ListRuns(run_pb2.ListRunsRequest(page_size=1))
        error = await failure(runs.ListRuns(run_pb2.ListRunsRequest(page_token=page.next_page_token, **change)))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "page token" in (error.details() or "")


async def test_results_are_paged_and_filtered(served: Served, address: str) -> None:
    run_id = await over(served, address, 30, epochs=2)

    async def found(size: int, **wanted: Any) -> list[tuple[str, int]]:
        seen, token = [], ""
        async with served.channel() as channel:
            while True:
                request = run_pb2.ListResultsRequest(run_id=run_id, page_size=size, page_token=token, **wanted)
                page = await stubs(channel)[0].ListResults(request)
                assert len(page.results) <= (size or 100)
                seen += [(result.item.id, result.epoch) for result in page.results]
                token = page.next_page_token
                if not token:
                    return seen

    whole = [(f"i{index}", epoch) for index in range(30) for epoch in (1, 2)]
    assert await found(0) == whole
    assert await found(7) == whole
    assert await found(60) == whole
    assert await found(10_000) == whole
    assert await found(3, item="i1?") == [pair for pair in whole if len(pair[0]) == 3 and pair[0][1] == "1"]
    errored = [run_pb2.OUTCOME_ERRORED]
    assert await found(3, outcomes=errored) == [pair for pair in whole if int(pair[0][1:]) % 7 == 6]


async def test_a_full_last_page_has_no_token(served: Served, address: str) -> None:
    run_id = await over(served, address, 10)
    async with served.channel() as channel:
        page = await stubs(channel)[0].ListResults(run_pb2.ListResultsRequest(run_id=run_id, page_size=10))

    assert (len(page.results), page.next_page_token) == (10, "")


async def test_a_page_of_results_ends_at_its_size_in_bytes(
    served: Served, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_module, "BYTES", 100_000)
    texts = ["x" * size for size in (10_000, 30_000, 90_000, 10, 10, 10)]
    await served.client.upload_dataset("d", [Item(str(index), text, text) for index, text in enumerate(texts)])
    run = await served.client.start(experiment(address))
    await run.wait()
    pages, token = [], ""
    async with served.channel() as channel:
        while True:
            request = run_pb2.ListResultsRequest(run_id=run.id, page_token=token)
            page = await stubs(channel)[0].ListResults(request)
            pages.append([result.item.id for result in page.results])
            token = page.next_page_token
            if not token:
                break

    assert pages == [["0"], ["1"], ["2"], ["3", "4", "5"]]


async def test_large_results_reach_a_client_with_default_limits(served: Served, address: str) -> None:
    text = "x" * 900_000
    await served.client.upload_dataset("d", [Item(str(index), text) for index in range(5)])
    run = await served.client.start(experiment(address, scorers=[]))
    await run.wait()
    async with served.channel() as channel:
        page = await stubs(channel)[0].ListResults(run_pb2.ListResultsRequest(run_id=run.id))

    assert 1 <= len(page.results) < 5
    assert [result.item.id async for result in run.results()] == ["0", "1", "2", "3", "4"]


# --- cancel -----------------------------------------------------------------------------------------------------


async def test_a_cancelled_run_ends_soon_and_keeps_what_is_stored(served: Served) -> None:
    gate = asyncio.Event()
    async with echoing(gate) as address:
        await served.client.upload_dataset("d", items(10))
        run = await served.client.start(experiment(address))
        await run.cancel()
        async with asyncio.timeout(60):
            ended = await run.wait()

    assert (ended.state, ended.partial, ended.counts.pending) == (RunState.CANCELLED, True, 10)


async def test_a_run_is_paused_and_resumed(served: Served) -> None:
    """Its watchers stay with it, and see every trial end once."""
    gate = asyncio.Event()
    async with echoing(gate) as address:
        await served.client.upload_dataset("d", items(30))
        run = await served.client.start(experiment(address, limits={"concurrency": 3}))
        watcher = asyncio.create_task(run.wait())
        while not served.parts.runs.progress(run.id):
            await asyncio.sleep(0.01)
        assert (await run.pause()).state is RunState.RUNNING
        gate.set()
        while (await run.get()).state is not RunState.PAUSED:
            await asyncio.sleep(0.01)
        assert (await refused(served.client.pause("r999999"))).reason == "RUN_NOT_FOUND"
        assert (await run.pause()).state is RunState.PAUSED

        assert (await run.resume()).state is RunState.QUEUED
        ended = await asyncio.wait_for(watcher, 60)

    assert (ended.state, ended.counts.pending) == (RunState.COMPLETED, 0)
    assert (await refused(run.resume())).reason == "RUN_NOT_RESUMABLE"
    assert (await refused(run.pause())).reason == "RUN_NOT_HERE"


async def test_what_errored_is_asked_again(served: Served) -> None:
    """At a target that has been repaired, at the same address."""
    broken = True

    @target("echo")
    async def echo(item: Item) -> Output:
        if broken and item.id == "i3":
            raise TrialFailed.refused("out of order")
        return Output(item.input)

    plugin = await start_server(echo)
    await served.client.upload_dataset("d", items(10))
    run = await served.client.start(experiment(plugin.address))
    first = await run.wait()
    assert first.counts.errored == 1

    broken = False
    await run.retry()
    ended = await run.wait()

    assert (ended.state, ended.counts.errored) == (RunState.COMPLETED, 0)
    assert [result.attempts async for result in run.results(item="i3")] == [2]
    assert (await refused(run.retry())).reason == "NOTHING_TO_RUN"
    await plugin.stop(0.0)


async def test_outputs_are_scored_anew_in_a_new_run(served: Served, address: str) -> None:
    run_id = await over(served, address)

    again = await served.client.rescore(run_id, {"scorers": [{"use": "levenshtein", "threshold": 0.5}]})
    ended = await again.wait()

    assert (ended.source, ended.name, ended.state) == (run_id, "x", RunState.COMPLETED)
    assert (await served.client.get(run_id)).source == ""
    results = [result async for result in again.results()]
    assert [result.scores[0].key for result in results if result.output] == ["levenshtein"] * 18
    assert results[6].failure is not None and results[6].failure.message == "told to fail"
    async with served.channel() as channel:
        request = run_pb2.RescoreRunRequest(run_id=run_id, experiment=experiment_pb2.Experiment())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stubs(channel)[0].RescoreRun(request)
    assert "there must be one" in str(caught.value.details())


async def test_limits_change_while_a_run_is_at_work(served: Served) -> None:
    """Its watchers are told, and the run's experiment shows what is in force."""
    gate = asyncio.Event()
    async with echoing(gate) as address:
        await served.client.upload_dataset("d", items(30))
        run = await served.client.start(experiment(address, limits={"concurrency": 1}))
        await run.update_limits({"limits.concurrency": 9, "limits.max_errors": "50%", "limits.cost": None})
        while (going := served.parts.runs.progress(run.id)) is None or going.in_flight < 9:
            await asyncio.sleep(0.01)
        gate.set()
        facts = [news.fact async for news in run.watch(0) if isinstance(news, Event)]

    [changed] = [fact for fact in facts if isinstance(fact, LimitsChanged)]
    assert changed.settings == {"limits.concurrency": 9, "limits.max_errors": "50%", "limits.cost": None}
    async with served.channel() as channel:
        response = await stubs(channel)[0].GetRun(run_pb2.GetRunRequest(run_id=run.id))
        assert response.experiment.limits.concurrency == 9
        assert response.experiment.limits.max_errors.share == 0.5
        request = run_pb2.UpdateLimitsRequest(run_id=run.id, settings=[run_pb2.LimitSetting(path="x", value="{")])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stubs(channel)[0].UpdateLimits(request)
    assert "is no JSON" in str(caught.value.details())
    assert (await refused(run.update_limits({}))).reason == "REQUEST_INVALID"
    assert (await refused(run.update_limits({"epochs": 3}))).reason == "EXPERIMENT_INVALID"


async def test_a_run_is_deleted_once_it_is_over(served: Served) -> None:
    gate = asyncio.Event()
    async with echoing(gate) as address:
        await served.client.upload_dataset("d", items(5))
        run = await served.client.start(experiment(address))
        assert (await refused(run.delete())).reason == "RUN_AT_WORK"
        gate.set()
        await run.wait()
        again = await run.rescore({"scorers": [{"use": "levenshtein"}]})
        await again.wait()
        assert (await refused(run.delete())).reason == "RUN_IN_USE"

        await again.delete()
        await run.delete()

    assert (await refused(run.get())).reason == "RUN_NOT_FOUND"
    assert [run async for run in served.client.runs()] == []


async def test_a_run_that_callers_may_not_start_here_is_not_resumed_for_them(tmp_path: Path, address: str) -> None:
    """Though the run itself may stand in the database: somebody at this machine has started it."""
    async with serving(tmp_path) as served:
        run_id = await over(served, address, limits={"max_errors": 0})
        assert (await served.client.get(run_id)).state is RunState.ABORTED
    async with serving(tmp_path, allowed=Allowed(concurrency=1)) as served:
        assert (await refused(served.client.resume(run_id))).reason == "EXPERIMENT_INVALID"


async def test_cancelling_a_run_that_is_over_returns_it_as_it_is(served: Served, address: str) -> None:
    run_id = await over(served, address, 1)

    assert (await served.client.cancel(run_id)).state is RunState.COMPLETED


# --- refusals ---------------------------------------------------------------------------------------------------

REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"dataset": {"name": "none"}}, "DATASET_NOT_FOUND", "NOT_FOUND"),
    ({"dataset": {"name": "d", "version": 9}}, "DATASET_NOT_FOUND", "NOT_FOUND"),
    ({"dataset": {"name": "d", "items": ["zzz"]}}, "NOTHING_TO_RUN", "FAILED_PRECONDITION"),
    ({"name": ""}, "EXPERIMENT_INVALID", "INVALID_ARGUMENT"),
    ({"scorers": [{"use": "exact_mtach"}]}, "EXPERIMENT_INVALID", "INVALID_ARGUMENT"),
    ({"scorers": [{"use": "exact_match", "settings": {"nope": 1}}]}, "SETTINGS_INVALID", "FAILED_PRECONDITION"),
    ({"target": {"address": "127.0.0.1:1"}}, "PLUGIN_UNREACHABLE", "UNAVAILABLE"),
    ({"target": {"command": ["sh", "-c", "id"]}}, "COMMAND_NOT_ALLOWED", "PERMISSION_DENIED"),
    ({"criteria": [{"metric": "mean", "scorer": "none", "min": 0}]}, "EXPERIMENT_INVALID", "INVALID_ARGUMENT"),
    ({"criteria": [{"metric": "pass_rate", "baseline": "r1", "max_drop": 0.1}]}, "EXPERIMENT_INVALID", "INVALID_ARGUMENT"),
    ({"limits": {"concurrency": 0}}, "EXPERIMENT_INVALID", "INVALID_ARGUMENT"),
    ({"epochs": 10_001}, "EXPERIMENT_INVALID", "INVALID_ARGUMENT"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "reason", "code"), REFUSALS)
@pytest.mark.parametrize("ask", ["start", "plan"])
async def test_what_hinders_a_run_is_refused_with_its_reason_and_nothing_is_left(
    served: Served,
    address: str,
    ask: str,
    change: dict[str, Any],
    reason: str,
    code: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if reason == "PLUGIN_UNREACHABLE":
        monkeypatch.setattr(app, "ADDRESS_LIMIT", 0.3)
    await served.client.upload_dataset("d", items(2))
    error = await refused(getattr(served.client, ask)({**experiment(address), **change}))

    assert (error.reason, error.code) == (reason, code)
    assert "\n" not in str(error)
    assert [run async for run in served.client.runs()] == []


async def test_a_plugin_of_another_name_is_refused(served: Served, address: str) -> None:
    await served.client.upload_dataset("d", items(2))
    asked = experiment(address, target={"address": address, "plugin": "other"})

    assert (await refused(served.client.start(asked))).reason == "PLUGIN_UNKNOWN"


@pytest.mark.parametrize("ask", ["get", "cancel", "summary", "wait"])
async def test_a_run_that_is_not_there_is_not_found(served: Served, ask: str) -> None:
    error = await refused(getattr(served.client, ask)("r00000000000"))

    assert (error.reason, error.code) == ("RUN_NOT_FOUND", "NOT_FOUND")


async def test_results_of_a_run_that_is_not_there_are_not_found(served: Served) -> None:
    async def read() -> None:
        async for _ in served.client.results("r00000000000"):
            pass

    assert (await refused(read())).reason == "RUN_NOT_FOUND"


@pytest.mark.parametrize(
    "request_",
    [
        run_pb2.StartRunRequest(),
        run_pb2.StartRunRequest(experiment=experiment_pb2.Experiment(name="x"), request_id="i" * 101),
        run_pb2.StartRunRequest(experiment=experiment_pb2.Experiment(name="x")),
    ],
)
async def test_an_incomplete_request_is_invalid(served: Served, request_: run_pb2.StartRunRequest) -> None:
    async with served.channel() as channel:
        error = await failure(stubs(channel)[0].StartRun(request_))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_negative_page_size_is_invalid(served: Served, address: str) -> None:
    async with served.channel() as channel:
        error = await failure(stubs(channel)[0].ListRuns(run_pb2.ListRunsRequest(page_size=-1)))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_command_of_the_configuration_is_started_where_the_configuration_says(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "t.py").write_text(
        "from evalbus import *\n"
        "@target('up')\n"
        "def up(item: Item) -> Output:\n"
        "    return Output(item.input.text.upper())\n"
        "serve(up)\n"
    )
    allowed = Allowed((AllowedCommand(("python", "t.py"), str(plugins)),))
    async with serving(tmp_path, allowed=allowed) as served:
        await served.client.upload_dataset("d", [Item("a", "x", "X")])
        run = await served.client.start(experiment("", target={"command": ["python", "t.py"]}))
        ended = await run.wait()

    assert ended.counts.passed == 1


# --- numbers ----------------------------------------------------------------------------------------------------


async def test_a_number_without_a_value_is_absent_on_the_wire_and_never_nan(served: Served, address: str) -> None:
    await served.client.upload_dataset("d", [Item("a", "fail", "x")])
    run = await served.client.start(experiment(address))
    await run.wait()
    async with served.channel() as channel:
        summary = (await stubs(channel)[0].GetSummary(run_pb2.GetSummaryRequest(run_id=run.id))).summary

    (score,) = summary.scores
    assert (score.n, score.errored) == (0, 1)
    for absent in ("mean", "median", "min", "max", "std", "stderr", "interval"):
        assert not score.HasField(absent), absent
    assert not summary.HasField("weighted")
    assert [value for value in _doubles(summary) if not math.isfinite(value)] == []


def _doubles(message: Any) -> list[float]:
    found: list[float] = []
    for field, value in message.ListFields():
        for each in value if field.is_repeated else [value]:
            if isinstance(each, float):
                found.append(each)
            elif hasattr(each, "ListFields"):
                found += _doubles(each)
    return found


async def test_a_watcher_of_a_finished_run_gets_everything_and_ends(served: Served, address: str) -> None:
    run_id = await over(served, address, 300)
    news = [entry async for entry in served.client.watch(run_id, after=0)]

    states = [entry.fact.state for entry in news if isinstance(getattr(entry, "fact", None), StateChanged)]  # type: ignore[union-attr]
    assert states == [RunState.QUEUED, RunState.RUNNING, RunState.COMPLETED]
