"""The SDK's plugins as a server meets them: a real process, a real socket."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from evalbus import Failure, FailureCategory, Item, Output, ScoreTask, Usage, wire
from evalbus._plugin import ProgressKind, Ready
from evalbus.v1 import plugin_pb2, scorer_pb2_grpc, target_pb2_grpc

from .sdk_client import ROOT, Process, Talk, connected, start

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    """One process for all tests that leave it as it was; at the end it stops without a word of complaint."""
    process = start(tmp_path_factory.mktemp("plugins") / "s")
    yield process
    code, out, err = process.stop()
    assert (code, out) == (0, "noise on stdout\n")
    assert "Traceback" not in err, err


@pytest.fixture
def own(tmp_path: Path):
    """Start processes that are this test's alone."""
    started: list[Process] = []

    def run(**environment: Any) -> Process:
        started.append(start(tmp_path / f"s{len(started)}", **environment))
        return started[-1]

    yield run
    for process in started:
        if process.process.poll() is None:
            process.process.kill()
            process.wait()


def health(channel: grpc.aio.Channel) -> Any:
    return health_pb2_grpc.HealthStub(channel)  # whose types do not know its calls


@pytest.fixture
async def channel(shared: Process):
    async with connected(shared.address) as open_channel:
        yield open_channel


# --- what a plugin says of itself -------------------------------------------------------------------------------


async def test_describe_lists_the_plugins_of_the_kind_that_is_asked(channel) -> None:
    targets = await target_pb2_grpc.TargetStub(channel).Describe(plugin_pb2.DescribeRequest())
    scorers = await scorer_pb2_grpc.ScorerStub(channel).Describe(plugin_pb2.DescribeRequest())

    infos = {plugin.name: wire.plugin_info_from_proto(plugin) for plugin in (*targets.plugins, *scorers.plugins)}
    assert [plugin.name for plugin in targets.plugins] == ["echo", "polite", "moody", "sleeper", "unready"]
    assert [plugin.name for plugin in scorers.plugins] == ["number", "rubric"]
    assert (infos["echo"].version, infos["echo"].description) == ("1.2.3", "Says what it is told.")
    assert infos["echo"].capabilities == {"cancel", "progress", "health", "reflection", "keepalive"}
    assert '"greeting":{"type":"string","default":"hello"}' in infos["polite"].settings_schema
    assert infos["echo"].digest == infos["polite"].digest != ""


async def test_health_is_serving_for_the_process_and_each_service(channel) -> None:
    stub = health(channel)

    for service in ("", "evalbus.v1.Target", "evalbus.v1.Scorer"):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == SERVING


async def test_reflection_knows_the_services(shared: Process) -> None:
    def ask() -> list[str]:
        with grpc.insecure_channel(shared.address) as sync_channel:
            database = ProtoReflectionDescriptorDatabase(sync_channel)
            assert database.FindFileContainingSymbol("evalbus.v1.Target").package == "evalbus.v1"
            return list(database.get_services())

    assert {"evalbus.v1.Target", "evalbus.v1.Scorer", "grpc.health.v1.Health"} <= set(await asyncio.to_thread(ask))


# --- opening ----------------------------------------------------------------------------------------------------


async def test_ready_says_the_limit_and_the_effective_scores(channel) -> None:
    assert await Talk(channel).open("echo") == Ready(256)

    ready = await Talk(channel, "scorer").open("rubric", settings_json='{"criteria": ["clear", "kind"]}')
    assert [declaration.name for declaration in ready.scores] == ["clear", "kind"]


@pytest.mark.parametrize(
    ("opening", "reason", "field", "text"),
    [
        ({"plugin": "ecko"}, "PLUGIN_UNKNOWN", "plugin", "there is echo, moody, polite, sleeper, unready"),
        ({"plugin": ""}, "PLUGIN_UNKNOWN", "plugin", "say which of echo"),
        ({"plugin": "echo", "revision": 7}, "PROTOCOL_MISMATCH", "revision", "upgrade the plugin"),
        ({"plugin": "echo", "revision": 0}, "PROTOCOL_MISMATCH", "revision", "upgrade the server"),
        (
            {"plugin": "polite", "settings_json": '{"greting": "x"}'},
            "SETTINGS_INVALID",
            "settings.greting",
            "'greeting'",
        ),
        ({"plugin": "polite", "settings_json": '{"times": "x"}'}, "SETTINGS_INVALID", "settings.times", "an integer"),
        ({"plugin": "echo", "settings_json": '{"x": 1}'}, "SETTINGS_INVALID", "settings.x", "no settings"),
        ({"plugin": "echo", "settings_json": "[1]"}, "CONTRACT_BROKEN", "", "not a JSON object"),
        ({"plugin": "unready"}, "SETUP_FAILED", "", "ZeroDivisionError"),
    ],
)
async def test_an_opening_that_does_not_fit_is_refused(channel, opening, reason, field, text) -> None:
    talk = Talk(channel)

    refused = await talk.open(**opening)
    assert isinstance(refused, Failure)
    assert (refused.reason, refused.field) == (reason, field)
    assert text in refused.message
    assert await talk.end() is grpc.StatusCode.OK


async def test_a_first_message_that_is_not_open_is_refused(channel) -> None:
    talk = Talk(channel)
    await talk.ask("hello")

    refused = await talk.opened()
    assert (refused.category, refused.reason) == (FailureCategory.INVALID, "CONTRACT_BROKEN")


# --- answering --------------------------------------------------------------------------------------------------


async def test_settings_reach_the_function(channel) -> None:
    talk = Talk(channel)
    await talk.open("polite", settings_json='{"greeting": "hi", "times": 2}')
    await talk.ask("you")

    assert (await talk.until(1))[0] == Output("hi hi you")


async def test_answers_share_messages_under_load_and_all_come_before_the_end(channel) -> None:
    talk = Talk(channel)
    await talk.open("echo")
    for first in range(0, 2000, 250):
        await talk.ask(*(f"trial {first + n}" for n in range(250)), first=first)

    assert await talk.end() is grpc.StatusCode.OK
    assert {n: output.text for n, output in talk.results.items()} == {n: f"trial {n}" for n in range(2000)}
    assert len(talk.messages) < 500


async def test_scores_are_matched_by_id_when_tasks_overlap(channel) -> None:
    """Case PL-13."""
    talk = Talk(channel, "scorer")
    await talk.open("number")
    await talk.send([ScoreTask(n, 1, Item(f"q{n}", "?"), Output(str(n))) for n in range(200)])

    results = await talk.until(200)
    assert {n: (score.value, score.explanation) for n, (score,) in results.items()} == {
        n: (float(n), f"of q{n}") for n in range(200)
    }


async def test_a_lone_answer_leaves_at_once(channel) -> None:
    talk = Talk(channel)
    await talk.open("echo")
    took = []
    for n in range(20):
        before = time.perf_counter()
        await talk.ask("hello", first=n)
        await talk.until(n + 1)
        took.append(time.perf_counter() - before)

    assert sorted(took)[10] < 2


async def test_a_handler_that_raises_cancelled_error_is_a_failure_and_no_hang(channel) -> None:
    """Case PL-01."""
    talk = Talk(channel)
    await talk.open("moody")
    await talk.ask("cancel itself", "hello")

    results = await asyncio.wait_for(talk.until(2), 60)
    assert (results[0].category, results[0].reason) == (FailureCategory.INTERNAL, "CANCELLED_ERROR")
    assert results[1] == Output("hello")


async def test_a_trial_that_calls_exit_harms_no_other(channel) -> None:
    talk = Talk(channel)
    await talk.open("moody")
    await talk.ask("sleep 0.1", "exit", "hello")

    results = await talk.until(3)
    assert (results[0], results[2]) == (Output("slept"), Output("hello"))
    assert results[1].reason == "SYSTEM_EXIT"


async def test_the_time_left_reaches_the_plugin_and_so_does_its_end(channel, shared: Process) -> None:
    """Case PL-19."""
    talk = Talk(channel)
    await talk.open("moody")
    before = time.monotonic()
    await talk.ask("sleep 3000", first=1, remaining=1.0)
    await talk.ask("remaining", remaining=1000.0)

    results = await talk.until(2)
    assert 900.0 < results[0].content.data <= 1000.0
    assert results[1].category is FailureCategory.TIMEOUT
    assert 0.9 < time.monotonic() - before < 60


async def test_a_cancel_is_answered_and_ends_the_work(channel) -> None:
    talk = Talk(channel)
    await talk.open("moody")
    await talk.ask("sleep 30", "sleep 30", "sleep 0.2")
    await talk.cancel(0, 1, 77)

    results = await asyncio.wait_for(talk.until(3), 60)
    assert [results[n].category for n in (0, 1)] == [FailureCategory.CANCELLED] * 2
    assert results[2] == Output("slept")


async def test_a_cancel_reaches_a_thread(channel) -> None:
    talk = Talk(channel)
    await talk.open("sleeper")
    await talk.ask("3000")
    while not talk.news:  # that it has begun
        assert await talk.read()
    await talk.cancel(0)

    results = await asyncio.wait_for(talk.until(1), 60)
    assert results[0] == Output("cancelled: True")


async def test_an_answer_that_was_quicker_than_its_cancel_stands(channel) -> None:
    talk = Talk(channel)
    await talk.open("echo")
    await talk.ask("hello")
    await talk.until(1)
    await talk.cancel(0)

    assert await talk.end() is grpc.StatusCode.OK
    assert talk.results == {0: Output("hello")}


async def test_news_of_long_trials_comes_and_goes_on(channel) -> None:
    talk = Talk(channel)
    await talk.open("moody", silence=0.4)
    await talk.ask("sleep 4", "report", "hello")
    await talk.until(3)

    of_sleeper = [news.kind for news in talk.news if news.trial_id == 0]
    report = next(news for news in talk.news if news.trial_id == 1)
    assert of_sleeper[0] is ProgressKind.STARTED
    assert len(of_sleeper) >= 4
    assert set(of_sleeper[1:]) == {ProgressKind.HEARTBEAT}
    assert (report.steps, report.messages, report.usage, report.note) == (3, 7, Usage(calls=2), "half way")
    assert not [news for news in talk.news if news.trial_id == 2]


async def test_stdout_of_a_plugin_is_its_own(channel) -> None:
    talk = Talk(channel)
    await talk.open("moody")
    await talk.ask("print")

    assert (await talk.until(1))[0] == Output("printed")


# --- answers that cannot travel ---------------------------------------------------------------------------------


async def test_answers_are_split_by_size_and_an_oversize_one_fails_alone(channel) -> None:
    talk = Talk(channel)
    await talk.open("moody")
    await talk.ask("big 3000000", *["big 400000"] * 8, "big 1500000")

    results = await talk.until(10)
    assert (results[0].category, results[0].reason) == (FailureCategory.INVALID, "MESSAGE_TOO_LARGE")
    assert "3,000,0" in results[0].message
    assert "2,097,152" in results[0].message
    assert [len(results[n].text) for n in range(1, 10)] == [400000] * 8 + [1500000]
    assert max(talk.messages) < 2 * 1024 * 1024


async def test_an_answer_that_is_no_unicode_fails_alone(channel) -> None:
    talk = Talk(channel)
    await talk.open("moody")
    await talk.ask("surrogate", "hello")

    results = await talk.until(2)
    assert (results[0].category, results[0].reason) == (FailureCategory.INTERNAL, "NOT_UNICODE")
    assert results[1] == Output("hello")


# --- the other side misbehaves ----------------------------------------------------------------------------------


async def test_a_trial_that_breaks_the_contract_is_answered_and_the_others_too(channel) -> None:
    talk = Talk(channel)
    await talk.open("echo")
    request = talk.Request()
    for n in range(3):
        request.trials.trials.add(trial_id=n, attempt=1).item.id = f"q{n}"
    request.trials.trials[1].item.input.text = "hello"
    await talk.call.write(request)

    results = await talk.until(3)
    assert results[1] == Output("hello")
    assert [(results[n].category, results[n].reason) for n in (0, 2)] == [
        (FailureCategory.INVALID, "CONTRACT_BROKEN")
    ] * 2


async def test_random_bytes_end_their_stream_at_most(channel, shared: Process) -> None:
    bystander = Talk(channel)
    await bystander.open("moody")
    await bystander.ask("sleep 2")
    chance = random.Random(7)
    raw = {
        kind: channel.stream_stream(f"/evalbus.v1.{kind}") for kind in ("Target/Answer", "Scorer/Score", "Target/None")
    }
    opening = wire.open_to_proto(wire.open_from_proto(plugin_pb2.Open(plugin="echo", revision=1)))

    async def attack(kind: str, opened: bool) -> grpc.StatusCode:
        call = raw[kind]()
        try:
            if opened:
                await call.write(Talk(channel).Request(open=opening).SerializeToString())
                await call.read()
            for _ in range(chance.randrange(1, 5)):
                await call.write(chance.randbytes(chance.choice([0, 1, 20, 3000])))
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream ended while we wrote
        return await call.code()

    kinds = [chance.choice(list(raw)) for _ in range(100)]
    codes = await asyncio.gather(*[attack(kind, chance.random() < 0.5) for kind in kinds])

    allowed = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED}
    assert set(codes) <= allowed | {grpc.StatusCode.INTERNAL}  # gRPC's own, when a stream ends while it is written to
    assert (await bystander.until(1))[0] == Output("slept")
    assert shared.process.poll() is None


async def test_messages_nobody_expects_are_ignored(channel) -> None:
    talk = Talk(channel)
    await talk.open("echo")
    await talk.call.write(talk.Request())
    await talk.call.write(talk.Request(open=plugin_pb2.Open(plugin="polite", revision=1)))
    await talk.call.write(talk.Request(cancel=plugin_pb2.Cancel()))
    await talk.ask("hello")

    assert await talk.until(1) == {0: Output("hello")}
    assert await talk.end() is grpc.StatusCode.OK


async def test_a_caller_that_goes_away_harms_nobody(shared: Process) -> None:
    for _ in range(5):
        async with connected(shared.address) as passing:
            talk = Talk(passing)
            await talk.open("moody")
            await talk.ask(*["sleep 30"] * 20, *["big 100000"] * 20, "stubborn")
            await asyncio.sleep(random.random() / 20)
            talk.call.cancel()
    async with connected(shared.address) as channel:
        talk = Talk(channel)
        await talk.open("echo")
        await talk.ask("hello")
        assert await talk.until(1) == {0: Output("hello")}


async def test_half_a_stream_without_a_word_ends_with_ok(channel) -> None:
    assert await Talk(channel).end() is grpc.StatusCode.OK


# --- tokens, addresses, the end ---------------------------------------------------------------------------------


async def test_without_the_token_nothing_is_answered(own) -> None:
    process = own(EVALBUS_TOKEN="a secret")
    async with connected(process.address) as channel:
        describe = target_pb2_grpc.TargetStub(channel).Describe
        for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", "a secret"),)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await describe(plugin_pb2.DescribeRequest(), metadata=metadata)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert b"UNAUTHENTICATED" in dict(refused.value.trailing_metadata() or ())["grpc-status-details-bin"]
            talk = Talk(channel, metadata=metadata)
            assert not await talk.read()
            assert await talk.call.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError):
            await health(channel).Check(health_pb2.HealthCheckRequest())

        right = (("authorization", "Bearer a secret"),)
        assert (await describe(plugin_pb2.DescribeRequest(), metadata=right)).plugins
        assert await Talk(channel, metadata=right).open("echo") == Ready(256)
    assert process.stop()[0] == 0


async def test_it_says_in_one_line_where_it_listens() -> None:
    process = start(None, ONLY_ECHO="1")
    line = await asyncio.to_thread(process.first_line)
    address = line.split()[-1]
    async with connected(address) as channel:
        talk = Talk(channel)
        assert await talk.open() == Ready(256)  # the only one needs no name

    assert line == f"evalbus: serving echo at {address}\n"
    assert address.startswith("127.0.0.1:")
    assert process.stop() == (0, "", "")


async def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    first = start(None)
    address = (await asyncio.to_thread(first.first_line)).split()[-1]
    second = start(None, EVALBUS_ADDRESS=address)

    code, out, err = await asyncio.to_thread(second.wait)
    assert (code, out) == (4, "")
    assert err == f"evalbus: cannot listen on {address}: Address already in use\n"
    assert first.stop()[0] == 0


def test_a_socket_somebody_listens_on_is_not_taken_away(own) -> None:
    first = own()
    assert first.address in first.first_line()
    second = start(None, EVALBUS_SOCKET=first.address.removeprefix("unix:"))

    code, _, err = second.wait()
    assert code == 4
    assert err == f"evalbus: cannot listen on {first.address}: somebody listens there already\n"


def test_beyond_this_machine_it_wants_a_token() -> None:
    code, _, err = start(None, EVALBUS_ADDRESS="0.0.0.0:0").wait()

    assert code == 2
    assert err.count("\n") == 1
    assert "EVALBUS_TOKEN" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_asked_to_end_it_lets_trials_finish_and_tells_health(own, number) -> None:
    process = own()
    async with connected(process.address) as channel:
        watch = health(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        talk = Talk(channel)
        await talk.open("moody")
        await talk.ask("sleep 1", "hello")
        await talk.until(1)
        process.process.send_signal(number)
        assert (await watch.read()).status == NOT_SERVING
        results = await talk.until(2)
        assert not await talk.read()
        assert await talk.call.code() is grpc.StatusCode.UNAVAILABLE
        watch.cancel()

    code, out, err = await asyncio.to_thread(process.wait)
    assert results[0] == Output("slept")
    assert (code, out) == (0, "")
    assert err.splitlines()[1:] == []


async def test_asked_to_end_it_does_not_wait_forever(own) -> None:
    process = own()
    async with connected(process.address) as channel:
        talk = Talk(channel)
        await talk.open("moody")
        await talk.ask("sleep 6000", "stubborn")
        blocked = Talk(channel)
        await blocked.open("sleeper")
        await blocked.ask("6000")
        await asyncio.sleep(0.2)
        process.process.terminate()
        while await talk.read():
            pass
        assert await talk.call.code() is grpc.StatusCode.UNAVAILABLE
        code, _, err = await asyncio.to_thread(process.wait, 100)

    assert code == 0
    assert "Traceback" not in err
    assert "destroyed" not in err


def test_it_ends_when_the_process_that_started_it_is_gone(tmp_path: Path) -> None:
    starter = textwrap.dedent("""
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, sys.argv[1]], stderr=subprocess.PIPE, text=True)
        child.stderr.readline()
        print(child.pid, flush=True)
        time.sleep(60)
    """)
    environment = os.environ | {"EVALBUS_SOCKET": str(tmp_path / "s")}
    command = [sys.executable, "-c", starter, str(Path(__file__).with_name("sdk_plugins.py"))]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()

    assert child.wait(60) is None or not child.is_running()
