"""The client against a server of the test's own: what it sends, what it makes of answers, how it comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from evalbus import Item, Message, Output, _connection, wire
from evalbus.client import (
    CallFailed,
    Client,
    Counts,
    Event,
    Idle,
    News,
    Outcome,
    RunState,
    Snapshot,
    StateChanged,
    TrialsEnded,
    Verdict,
)
from evalbus.v1 import dataset_pb2, dataset_pb2_grpc, experiment_pb2, item_pb2, run_pb2, run_pb2_grpc

SMALL: dict[str, Any] = {"name": "x", "dataset": {"name": "d"}}


def refusal(code: grpc.StatusCode, reason: str, message: str) -> Any:
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="evalbus"))
    return rpc_status.to_status(status_pb2.Status(code=code.value[0], message=message, details=[detail]))


class Fake:
    """Both services: answers as the test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.metadata: list[dict[str, Any]] = []
        self.answer: Callable[[Any], Any] = lambda request: None
        self.watch: Callable[[Any], list[Any]] = lambda request: []

    async def _do(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        answer = self.answer(request)
        if isinstance(answer, grpc.Status):
            await context.abort_with_status(answer)
        return answer

    def __getattr__(self, name: str) -> Any:
        return self._do

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[run_pb2.WatchRunResponse]:
        self.asked.append(request)
        for step in self.watch(request):
            if isinstance(step, grpc.Status):
                await context.abort_with_status(step)
            elif isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step

    async def UploadDataset(self, requests: Any, context: Any) -> Any:
        asked = [request async for request in requests]
        await context.send_initial_metadata(())  # ends here if the caller is gone, which looks like an end of its side
        return await self._do(asked, context)


@asynccontextmanager
async def talking(fake: Fake, **more: Any) -> AsyncIterator[Client]:
    server = grpc.aio.server()
    servicer: Any = fake
    run_pb2_grpc.add_RunServiceServicer_to_server(servicer, server)
    dataset_pb2_grpc.add_DatasetServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Client(f"127.0.0.1:{port}", **more) as client:
        yield client
    await server.stop(0)


def state(sequence: int, number: RunState) -> run_pb2.WatchRunResponse:
    changed = run_pb2.StateChanged(state=run_pb2.RunState.ValueType(number), counts=run_pb2.Counts(planned=3))
    return run_pb2.WatchRunResponse(event=run_pb2.Event(sequence=sequence, state=changed))


def snapshot(sequence: int) -> run_pb2.WatchRunResponse:
    return run_pb2.WatchRunResponse(snapshot=run_pb2.Snapshot(run=run_pb2.Run(id="r1", last_sequence=sequence)))


async def listed(news: Any) -> list[News]:
    async with asyncio.timeout(60), aclosing(news) as entries:
        return [entry async for entry in entries]


def sequences(news: list[News]) -> list[int]:
    return [entry.sequence for entry in news if isinstance(entry, Event)]


GONE = refusal(grpc.StatusCode.UNAVAILABLE, "SERVER_STOPPING", "the server stops")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connection, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(_connection, "_LONGEST_PAUSE", 0.05)


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "ipv4:[::1]:1: Tls handshake failed: SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: self signed certificate",
            "not trusted",
        ),
        ("Tls handshake failed (TSI_PROTOCOL_FAILURE): WRONG_VERSION_NUMBER: OK", "does not speak TLS"),
        ("last error: UNAVAILABLE: ipv4:127.0.0.1:50063: Socket closed", "if it speaks TLS, say tls=True"),
        ("Failed to connect to remote host: Connection refused", "Connection refused"),
    ],
)
async def test_an_end_that_does_not_fit_the_other_is_told_with_what_to_do(said: str, told: str) -> None:
    fake = Fake()
    fake.answer = lambda _: refusal(grpc.StatusCode.UNAVAILABLE, "", said)
    async with talking(fake) as client:
        with pytest.raises(CallFailed) as caught:
            await client.get("r9")

    assert caught.value.reason == "SERVER_UNREACHABLE"
    assert told in str(caught.value)


async def test_a_refusal_is_raised_with_its_reason_message_and_code() -> None:
    fake = Fake()
    fake.answer = lambda _: refusal(grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND", "there is no run 'r9'")
    async with talking(fake) as client:
        with pytest.raises(CallFailed) as caught:
            await client.get("r9")

    assert (caught.value.reason, str(caught.value), caught.value.code) == (
        "RUN_NOT_FOUND",
        "there is no run 'r9'",
        "NOT_FOUND",
    )


async def test_a_status_without_a_reason_has_its_code_for_one() -> None:
    fake = Fake()
    fake.answer = lambda _: rpc_status.to_status(status_pb2.Status(code=12, message="not here"))
    async with talking(fake) as client:
        with pytest.raises(CallFailed) as caught:
            await client.get("r9")

    assert (caught.value.reason, caught.value.code) == ("UNIMPLEMENTED", "UNIMPLEMENTED")


async def test_a_server_that_is_not_there_is_said_with_its_address() -> None:
    async with Client("127.0.0.1:1") as client:
        with pytest.raises(CallFailed) as caught:
            await client.get("r1")

    assert caught.value.reason == "SERVER_UNREACHABLE"
    assert "127.0.0.1:1" in str(caught.value)


@pytest.mark.parametrize(
    ("details", "reason", "code"),
    [("Internal error from Core", "SERVER_UNREACHABLE", "UNAVAILABLE"), ("a fault", "INTERNAL", "INTERNAL")],
)
async def test_what_grpc_says_of_a_connection_that_broke_in_the_middle_is_not_taken_for_a_fault_of_the_server(
    details: str, reason: str, code: str
) -> None:
    fake = Fake()
    fake.answer = lambda _: rpc_status.to_status(status_pb2.Status(code=13, message=details))
    async with talking(fake) as client:
        with pytest.raises(CallFailed) as caught:
            await client.get("r1")

    assert (caught.value.reason, caught.value.code) == (reason, code)


async def test_a_watch_of_a_server_that_is_not_there_is_an_error_at_once() -> None:
    async with Client("127.0.0.1:1") as client:
        with pytest.raises(CallFailed):
            await listed(client.watch("r1"))


async def test_the_token_goes_along_with_every_call() -> None:
    fake = Fake()
    fake.answer = lambda _: run_pb2.GetRunResponse()
    async with talking(fake, token="s3cret") as client:
        await client.get("r1")

    assert fake.metadata[0]["authorization"] == "Bearer s3cret"


# --- starting ---------------------------------------------------------------------------------------------------


async def test_an_experiment_goes_out_as_it_is_written_in_a_file() -> None:
    fake = Fake()
    fake.answer = lambda _: run_pb2.StartRunResponse(run=run_pb2.Run(id="r1"))
    experiment = {
        "name": "support",
        "description": "nightly",
        "dataset": {"name": "items", "version": 3, "items": ["a*"], "limit": 10},
        "target": {"command": ["python", "t.py"], "plugin": "p", "settings": {"k": 2**70}, "env": {"A": "b"}},
        "scorers": [
            {"use": "exact_match", "threshold": 1},
            {
                "name": "tone",
                "address": "dns:///judge:1",
                "token": "${env:T}",
                "tls": {"server_name": "judge"},
                "threshold": {"warm": 0.5},
                "weight": 2,
                "map": {"response": "output.content"},
                "concurrency": 8,
                "timeout": "1m30s",
                "sampling": 0.5,
            },
        ],
        "epochs": 3,
        "limits": {"timeout": "250ms", "max_errors": "50%", "cost": 1.1, "retries": 0, "trial": {"steps": 5}},
        "criteria": [{"metric": "pass_rate", "min": 0.9, "severity": "warn"}],
        "tags": ["nightly"],
        "metadata": {"team": "é"},
    }
    async with talking(fake) as client:
        run = await client.start(experiment, request_id="once")

    assert run.id == "r1"
    (request,) = fake.asked
    assert (request.request_id, request.validate_only) == ("once", False)
    sent = request.experiment
    assert (sent.dataset.stored.name, sent.dataset.stored.version, sent.dataset.limit) == ("items", 3, 10)
    assert sent.target.settings == '{"k":1180591620717411303424}'
    assert list(sent.target.command.argv) == ["python", "t.py"]
    assert sent.scorers[0].thresholds == [experiment_pb2.ScoreNumber(value=1.0)]
    assert sent.scorers[1].thresholds == [experiment_pb2.ScoreNumber(score="warm", value=0.5)]
    assert (sent.scorers[1].timeout.seconds, sent.scorers[1].plugin.address.tls.server_name) == (90, "judge")
    assert (sent.epochs.count, sent.limits.timeout.nanos, sent.limits.cost_micros) == (3, 250_000_000, 1_100_000)
    assert (sent.limits.max_errors.share, sent.limits.retries, sent.limits.trial.steps) == (0.5, 0, 5)
    assert sent.criteria[0].severity == experiment_pb2.SEVERITY_WARN
    assert sent.metadata == '{"team":"é"}'


async def test_records_travel_inside_the_request() -> None:
    fake = Fake()
    fake.answer = lambda _: run_pb2.StartRunResponse(run=run_pb2.Run(id="r1"))
    async with talking(fake) as client:
        await client.start({"name": "x", "dataset": {"records": [Item("a", "1+1", "2"), {"id": "b", "input": [1]}]}})

    assert [item.id for item in fake.asked[0].experiment.dataset.inline.items] == ["a", "b"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"scorer": []}, "scorer: unknown key; did you mean scorers?"),
        ({"limits": {"timeout": 60}}, "limits.timeout: must be a length of time such as 60s or 5m, not 60"),
        ({"limits": {"timeout": "60 seconds"}}, "limits.timeout: must be a length of time"),
        ({"limits": {"retry": 1}}, "limits.retry: unknown key; did you mean retries?"),
        ({"scorers": [{"use": "a", "threshold": "high"}]}, "scorers[0].threshold: must be a finite number, not 'high'"),
        ({"scorers": [{"use": "a", "threshold": float("nan")}]}, "scorers[0].threshold: must be a finite number"),
        ({"scorers": [{}]}, "scorers[0]: needs exactly one of use, command and address"),
        ({"scorers": {"use": "a"}}, "scorers: must be a list, not dict"),
        ({"target": "support"}, "target: must be a mapping, not str"),
        ({"dataset": {"path": "items.jsonl"}}, "dataset.path: a client does not read files; upload the items"),
        ({"dataset": {"records": [{"id": "a", "inptu": 1}]}}, "dataset.records[0]: got an unexpected keyword"),
        (
            {"dataset": {"records": [{"id": "a", "output": {"contnt": 1}}]}},
            "dataset.records[0]: got an unexpected keyword",
        ),
        (
            {"dataset": {"records": [{"id": "a", "output": {"content": "x", "tool_calls": [{"name": "t"}]}}]}},
            "dataset.records[0]: 'dict' object has no attribute 'name'; build its parts with the classes of evalbus",
        ),
        ({"criteria": [{"metric": "mean", "severity": "bad"}]}, "criteria[0].severity: must be error or warn"),
        ({"metadata": {"when": object()}}, "metadata: has no form in JSON"),
        ({"tags": [1]}, "tags[0]: must be text, not int"),
        ({"epochs": True}, "epochs.count: must be a whole number, not True"),
    ],
)
async def test_a_slip_in_an_experiment_is_said_before_anything_is_sent(more: dict[str, Any], message: str) -> None:
    fake = Fake()
    async with talking(fake) as client:
        with pytest.raises(CallFailed) as caught:
            await client.start({**SMALL, **more})

    assert caught.value.reason == "EXPERIMENT_INVALID"
    assert str(caught.value).startswith(message)
    assert fake.asked == []


async def test_records_may_have_their_outputs_and_messages_as_plain_data() -> None:
    fake = Fake()
    messages = [{"role": "user", "content": "a?"}]
    records = [
        {"id": "a", "input": "a?", "output": "text", "messages": messages},
        {"id": "b", "input": "b?", "output": {"content": [1], "answer": "x"}},
        {"id": "c", "input": "c?", "output": Output(7)},
        {"id": "d", "input": "d?", "output": [1]},
    ]
    fake.answer = lambda _: run_pb2.StartRunResponse(plan=run_pb2.Plan())
    async with talking(fake) as client:
        await client.plan({**SMALL, "dataset": {"records": records}})

    first, *others = [wire.item_from_proto(item) for item in fake.asked[0].experiment.dataset.inline.items]
    assert (first.output, first.messages) == (Output("text"), (Message("user", "a?"),))
    assert [item.output for item in others] == [Output([1], answer="x"), Output(7), Output([1])]


async def test_a_plan_is_asked_for_without_starting() -> None:
    fake = Fake()
    fake.answer = lambda _: run_pb2.StartRunResponse(plan=run_pb2.Plan(items=2, epochs=3, trials=6, scores=["a"]))
    async with talking(fake) as client:
        plan = await client.plan(SMALL)

    assert fake.asked[0].validate_only
    assert (plan.items, plan.trials, plan.scores) == (2, 6, ("a",))


# --- watching ---------------------------------------------------------------------------------------------------


async def test_watching_yields_frozen_values_until_the_server_ends_the_stream() -> None:
    fake = Fake()
    trials = run_pb2.TrialsEnded(
        trials=[run_pb2.TrialEnded(trial_id=7, outcome=run_pb2.OUTCOME_FAILED)],
        counts=run_pb2.Counts(planned=3, failed=1, pending=2),
    )
    fake.watch = lambda _: [
        snapshot(4),
        run_pb2.WatchRunResponse(event=run_pb2.Event(sequence=5, trials=trials)),
        run_pb2.WatchRunResponse(idle=run_pb2.Idle(last_sequence=5)),
        state(6, RunState.COMPLETED),
    ]
    async with talking(fake) as client:
        news = await listed(client.handle("r1").watch())

    assert not fake.asked[0].HasField("after_sequence")
    first, second, third, fourth = news
    assert isinstance(first, Snapshot) and first.run.last_sequence == 4
    assert isinstance(second, Event)
    assert second.fact == TrialsEnded(((7, Outcome.FAILED),), Counts(planned=3, failed=1, pending=2))
    assert third == Idle(5)
    assert isinstance(fourth, Event) and isinstance(fourth.fact, StateChanged)
    assert fourth.fact.state is RunState.COMPLETED


async def test_a_watcher_whose_stream_breaks_comes_back_with_its_last_number() -> None:
    fake = Fake()
    fake.watch = _steps(
        [state(1, RunState.QUEUED), state(2, RunState.RUNNING), GONE], [GONE], [state(4, RunState.COMPLETED)]
    )
    async with talking(fake) as client:
        assert sequences(await listed(client.watch("r1", after=0))) == [1, 2, 4]

    assert [request.after_sequence for request in fake.asked] == [0, 2, 2]


async def test_a_watcher_whose_stream_is_cut_by_a_server_that_ends_comes_back() -> None:
    fake = Fake()
    cut = refusal(grpc.StatusCode.CANCELLED, "CANCELLED", "the server ends")
    fake.watch = _steps([state(1, RunState.QUEUED), cut], [state(2, RunState.COMPLETED)])
    async with talking(fake) as client:
        assert sequences(await listed(client.watch("r1", after=0))) == [1, 2]


async def test_a_snapshot_counts_as_seen() -> None:
    fake = Fake()
    fake.watch = _steps([snapshot(9), GONE], [state(10, RunState.COMPLETED)])
    async with talking(fake) as client:
        news = await listed(client.watch("r1"))

    assert [request.after_sequence for request in fake.asked[1:]] == [9]
    assert [type(entry).__name__ for entry in news] == ["Snapshot", "Event"]


async def test_a_server_that_does_not_come_back_is_given_up() -> None:
    fake = Fake()
    fake.watch = lambda request: [state(1, RunState.QUEUED), GONE] if request.after_sequence == 0 else [GONE]
    async with talking(fake) as client:
        begun = time.monotonic()
        with pytest.raises(CallFailed) as caught:
            await listed(client.watch("r1", after=0, patience=2.0))

    assert caught.value.code == "UNAVAILABLE"
    assert time.monotonic() - begun >= 2.0
    assert len(fake.asked) > 2


async def test_an_error_that_no_second_try_helps_is_raised() -> None:
    fake = Fake()
    lost = refusal(grpc.StatusCode.OUT_OF_RANGE, "SEQUENCE_OUT_OF_RANGE", "the last event is 1")
    fake.watch = _steps([state(1, RunState.QUEUED), state(2, RunState.RUNNING), GONE], [lost])
    async with talking(fake) as client:
        with pytest.raises(CallFailed) as caught:
            await listed(client.watch("r1", after=0))

    assert caught.value.reason == "SEQUENCE_OUT_OF_RANGE"


async def test_news_of_a_later_server_is_left_out_and_its_number_is_kept() -> None:
    fake = Fake()
    unknown = run_pb2.WatchRunResponse(event=run_pb2.Event(sequence=8))
    fake.watch = _steps([run_pb2.WatchRunResponse(), unknown, GONE], [state(9, RunState.COMPLETED)])
    async with talking(fake) as client:
        news = await listed(client.watch("r1", after=0))

    assert sequences(news) == [8, 9]
    assert [request.after_sequence for request in fake.asked] == [0, 8]


async def test_who_stops_listening_ends_the_call() -> None:
    fake = Fake()
    fake.watch = lambda _: [state(1, RunState.QUEUED), 60.0]
    async with talking(fake) as client:
        async with aclosing(client.watch("r1", after=0)) as news:
            async for _ in news:
                break
        # The client's own work on its channel is no task; what is left would be the stream's.
        async with asyncio.timeout(60):
            while any("watch" in repr(task.get_coro()).lower() for task in asyncio.all_tasks()):
                await asyncio.sleep(0.01)


def _steps(*connections: list[Any]) -> Callable[[Any], list[Any]]:
    """What each connection gets, one after the other."""
    left = list(connections)
    return lambda _: left.pop(0)


# --- reading ----------------------------------------------------------------------------------------------------


async def test_results_are_read_page_by_page() -> None:
    fake = Fake()
    pages = {
        "": run_pb2.ListResultsResponse(results=[_result("a"), _result("b")], next_page_token="two"),
        "two": run_pb2.ListResultsResponse(results=[_result("c")]),
    }
    fake.answer = lambda request: pages[request.page_token]
    async with talking(fake) as client:
        found = [result.item.id async for result in client.handle("r1").results(outcomes=[Outcome.ERRORED], item="a*")]

    assert found == ["a", "b", "c"]
    assert list(fake.asked[1].outcomes) == [run_pb2.OUTCOME_ERRORED]


def _result(id: str) -> run_pb2.TrialResult:
    item = item_pb2.Item(id=id)
    item.input.text = "x"
    return run_pb2.TrialResult(item=item, outcome=run_pb2.OUTCOME_ERRORED)


async def test_numbers_without_a_value_are_none_and_zero_is_zero() -> None:
    fake = Fake()
    score = run_pb2.ScoreSummary(key="exact_match", n=0, mean=0.0)
    fake.answer = lambda _: run_pb2.GetSummaryResponse(
        summary=run_pb2.Summary(run=run_pb2.Run(id="r1", verdict=run_pb2.VERDICT_FAIL), scores=[score], pass_rate=0.0)
    )
    async with talking(fake) as client:
        summary = await client.summary("r1")

    assert summary.run.verdict is Verdict.FAIL
    assert (summary.pass_rate, summary.coverage, summary.latency) == (0.0, None, None)
    assert (summary.score("exact_match").mean, summary.score("exact_match").std) == (0.0, None)
    with pytest.raises(KeyError, match="exact_match"):
        summary.score("tone")


# --- uploading --------------------------------------------------------------------------------------------------


def uploaded(fake: Fake) -> list[Any]:
    (requests,) = fake.asked
    assert requests[0].header.name == "d"
    return [request.items.items for request in requests[1:]]


async def upload(fake: Fake, items: Any) -> Any:
    fake.answer = lambda _: dataset_pb2.UploadDatasetResponse(dataset=dataset_pb2.Dataset(name="d"), changed=True)
    async with talking(fake) as client:
        return await client.upload_dataset("d", items)


async def test_items_go_out_in_batches_of_256() -> None:
    fake = Fake()
    result = await upload(fake, (Item(str(number), "x") for number in range(600)))

    assert [len(batch) for batch in uploaded(fake)] == [256, 256, 88]
    assert (result.dataset.name, result.changed) == ("d", True)


async def test_items_go_out_in_batches_of_1_mib() -> None:
    fake = Fake()
    await upload(fake, [Item(str(number), "x" * 400_000) for number in range(5)])

    assert [len(batch) for batch in uploaded(fake)] == [2, 2, 1]


async def test_items_may_come_as_they_are_made() -> None:
    async def made() -> AsyncIterator[Item]:
        for number in range(3):
            await asyncio.sleep(0)
            yield Item(str(number), "x")

    fake = Fake()
    await upload(fake, made())

    assert [len(batch) for batch in uploaded(fake)] == [3]


async def test_whoever_is_not_let_in_learns_it_though_grpc_has_lost_what_the_server_said() -> None:
    fake = Fake()
    unknown = refusal(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", "the token is missing or wrong")
    lost = refusal(grpc.StatusCode.INTERNAL, "", "Internal error from Core")
    fake.answer = lambda request: lost if isinstance(request, list) else unknown
    async with talking(fake) as client:
        with pytest.raises(CallFailed) as caught:
            await client.upload_dataset("d", [Item("a", "x")])

    assert (caught.value.reason, caught.value.code) == ("UNAUTHENTICATED", "UNAUTHENTICATED")


async def test_a_broken_upload_of_someone_who_is_let_in_is_an_unreachable_server() -> None:
    fake = Fake()
    lost = refusal(grpc.StatusCode.INTERNAL, "", "Internal error from Core")
    fake.answer = lambda request: lost if isinstance(request, list) else dataset_pb2.ListDatasetsResponse()
    async with talking(fake) as client:
        with pytest.raises(CallFailed) as caught:
            await client.upload_dataset("d", [Item("a", "x")])

    assert (caught.value.reason, caught.value.code) == ("SERVER_UNREACHABLE", "UNAVAILABLE")


async def test_an_item_that_is_too_large_is_named_and_nothing_is_kept() -> None:
    fake = Fake()
    with pytest.raises(CallFailed) as caught:
        await upload(fake, [Item("a", "x"), Item("big", "x" * (1 << 20))])

    assert caught.value.reason == "ITEM_TOO_LARGE"
    assert "item 2 ('big')" in str(caught.value)
    assert fake.asked == []


async def test_an_exception_of_the_source_of_items_ends_the_upload() -> None:
    def broken() -> Any:
        yield Item("a", "x")
        raise OSError("disk on fire")

    fake = Fake()
    with pytest.raises(OSError, match="disk on fire"):
        await upload(fake, broken())

    assert fake.asked == []


async def test_an_item_without_a_form_on_the_wire_is_named() -> None:
    with pytest.raises(CallFailed) as caught:
        await upload(Fake(), [Item("a\ud800", "x")])

    assert caught.value.reason == "DATASET_INVALID"
