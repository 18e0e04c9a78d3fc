"""The server as a process: who gets in, where it listens, and how it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from evalbus.client import CallFailed, Client, Event, RunState, Tls
from evalbus_server.store import open_reader

from .service import Gate, Process, echoing, experiment, failure, items, serving, stubs, until

TLS = Path(__file__).parents[1] / "data" / "tls"
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
LOCAL = '{"listen": "127.0.0.1:0", "db": "runs.db", "limits": {"grace": "300ms"}}'


async def refused(awaitable: Any) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await awaitable
    return caught.value


async def test_a_database_that_is_gone_is_noticed_without_a_run_and_health_says_so(tmp_path: Path) -> None:
    """ST-07."""
    async with serving(tmp_path) as served, served.channel() as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)  # whose types do not know its calls

        async def status(service: str) -> int:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
            return int(answer.status)

        assert await status("evalbus.v1.RunService") == health_pb2.HealthCheckResponse.SERVING
        (tmp_path / "runs.db").unlink()
        async with asyncio.timeout(60):
            while await status("evalbus.v1.RunService") != NOT_SERVING:
                await asyncio.sleep(0.1)
        assert await status("") == NOT_SERVING


# --- the beginning ----------------------------------------------------------------------------------------------


def test_it_says_where_it_listens_in_one_line_on_stderr_and_nothing_on_stdout(tmp_path: Path) -> None:
    with Process(tmp_path, LOCAL) as process:
        assert process.first_line == f"evalbus: serving at {process.address}\n"
        assert process.end(signal.SIGTERM) == (0, "", "")


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_without_token_or_tls_it_does_not_listen_beyond_this_machine(tmp_path: Path, listen: str) -> None:
    with Process(tmp_path, json.dumps({"listen": listen})) as process:
        code, out, err = process.end()

    assert (code, out, err) == (1, "", "")
    assert process.first_line.startswith(f"LISTEN_REFUSED: {listen} can be reached from other machines;")


def test_with_a_token_it_does(tmp_path: Path) -> None:
    with Process(tmp_path, '{"listen": "0.0.0.0:0"}', EVALBUS_TOKEN="s3cret") as process:
        assert process.first_line.startswith("evalbus: serving at 0.0.0.0:")
        assert process.end(signal.SIGTERM)[0] == 0


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with Process(tmp_path, json.dumps({"listen": address})) as process:
            code, _, err = process.end()

    assert (code, err) == (1, "")
    assert process.first_line.startswith("ADDRESS_IN_USE: ")


def test_a_second_server_over_the_same_database_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with Process(tmp_path, LOCAL) as first, Process(tmp_path, LOCAL) as second:
        code, _, err = second.end()
        assert (code, err) == (1, "")
        assert second.first_line.startswith("DATABASE_LOCKED: ")
        assert str(first.process.pid) in second.first_line
        assert first.end(signal.SIGTERM)[0] == 0


# --- who gets in ------------------------------------------------------------------------------------------------


async def test_every_call_needs_the_token_but_health(tmp_path: Path) -> None:
    async with serving(tmp_path, token="s3cret") as served:
        async with Client(served.address) as stranger:
            error = await refused(stranger.get("r1"))
            assert (error.reason, error.code) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
            assert (await refused(stranger.upload_dataset("d", items(3)))).reason == "UNAUTHENTICATED"
            with pytest.raises(CallFailed):
                _ = [each async for each in stranger.watch("r1")]
        async with served.channel() as channel:
            answer = await health(channel).Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            assert (await failure(reflected(channel))).code() is grpc.StatusCode.UNAUTHENTICATED
        await served.client.upload_dataset("d", items(3))


async def test_with_tls_the_way_is_encrypted_and_the_server_is_known(tmp_path: Path) -> None:
    settings = {
        "listen": "127.0.0.1:0",
        "tls": {"certificate": str(TLS / "server.pem"), "key": str(TLS / "server.key")},
    }
    with Process(tmp_path, json.dumps(settings)) as process:
        async with Client(process.address, tls=Tls(TLS / "server.pem")) as client:
            await client.upload_dataset("d", items(3))
        async with Client(process.address) as plain:
            assert (await refused(plain.get("r1"))).reason == "SERVER_UNREACHABLE"
        async with Client(process.address, tls=True) as distrustful:
            error = await refused(distrustful.get("r1"))
            assert error.reason == "SERVER_UNREACHABLE"
            assert "its certificate is not trusted; name the one that signed it" in str(error)
        assert process.end(signal.SIGTERM)[0] == 0


def test_a_certificate_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("nothing")
    settings = {"listen": "127.0.0.1:0", "tls": {"certificate": "none.pem", "key": "none.pem"}}
    with Process(tmp_path, json.dumps(settings)) as process:
        code, _, err = process.end()

    assert code == 1
    assert "Traceback" not in process.first_line + err


# --- health and reflection --------------------------------------------------------------------------------------


def health(channel: grpc.aio.Channel) -> Any:
    return health_pb2_grpc.HealthStub(channel)  # whose types do not know its calls


async def reflected(channel: grpc.aio.Channel) -> list[str]:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]  # typed for the other grpc
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    return [each.name async for answer in call for each in answer.list_services_response.service]


async def test_it_says_what_it_serves_and_that_it_is_well(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.channel() as channel:
        services = ["evalbus.v1.RunService", "evalbus.v1.DatasetService"]
        assert {*services, "grpc.health.v1.Health"} <= set(await reflected(channel))
        for service in ["", *services]:
            answer = await health(channel).Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_health_answers_while_a_run_is_at_full_speed(tmp_path: Path) -> None:
    with Process(tmp_path, LOCAL) as process:
        async with (
            Client(process.address) as client,
            grpc.aio.insecure_channel(process.address) as channel,
            echoing() as address,
        ):
            await client.upload_dataset("d", items(5000))
            run = await client.start(experiment(address, limits={"concurrency": 500}))
            waiting = asyncio.create_task(run.wait())
            answered = 0
            while not waiting.done():
                await health(channel).Check(health_pb2.HealthCheckRequest())
                answered += 1
                await asyncio.sleep(0.01)

    assert answered > 5  # were the loop held by the run's work, it would be one or two


# --- the end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_asked_to_end_while_runs_and_streams_are_open_it_ends_cleanly(tmp_path: Path, number: int) -> None:
    """PL-18: exit code 0, no traceback; runs are interrupted, watchers hear of it."""
    with Process(tmp_path, LOCAL) as process:
        async with echoing(asyncio.Event()) as address, Client(process.address) as client:
            await client.upload_dataset("d", items(50))
            runs = [await client.start(experiment(address)) for _ in range(10)]  # more than work at the same time
            began = [asyncio.Event() for _ in range(3 * len(runs))]
            watchers = [
                asyncio.create_task(_last(client, run.id, begun)) for run, begun in zip(3 * runs, began, strict=True)
            ]
            async with grpc.aio.insecure_channel(process.address) as channel:
                watching_health = health(channel).Watch(health_pb2.HealthCheckRequest())
                await watching_health.read()
                upload = stubs(channel)[1].UploadDataset()
                async with asyncio.timeout(60):
                    await asyncio.gather(*(begun.wait() for begun in began))
                code, out, err = await asyncio.to_thread(process.end, number)
                upload.cancel()
            seen = await asyncio.gather(*watchers)

    assert (code, out) == (0, "")
    assert "Traceback" not in err and "never retrieved" not in err and "Error" not in err, err
    assert set(seen) == {RunState.INTERRUPTED}
    with open_reader(tmp_path / "runs.db") as reader:
        assert {run.state.name for run in reader.runs()} == {"INTERRUPTED"}


async def _last(client: Client, run_id: str, begun: asyncio.Event) -> RunState | None:
    last = None
    async for news in client.watch(run_id, after=0):
        begun.set()
        if isinstance(news, Event):
            last = getattr(news.fact, "state", None)
    return last


async def test_asked_twice_it_gives_trials_in_flight_no_more_time(tmp_path: Path) -> None:
    settings = '{"listen": "127.0.0.1:0", "db": "runs.db", "limits": {"grace": "1h"}}'
    with Process(tmp_path, settings) as process:
        gate = Gate()
        async with echoing(gate) as address, Client(process.address) as client:
            await client.upload_dataset("d", items(5))
            await client.start(experiment(address))
            await until(lambda: gate.asked == 5)
            process.process.send_signal(signal.SIGTERM)
            async with grpc.aio.insecure_channel(process.address) as channel, asyncio.timeout(60):
                while (await health(channel).Check(health_pb2.HealthCheckRequest())).status != NOT_SERVING:
                    await asyncio.sleep(0.01)
            assert process.process.poll() is None
            code, _, err = await asyncio.to_thread(process.end, signal.SIGTERM)

    assert (code, "Traceback" in err) == (0, False)


async def test_while_it_ends_it_starts_nothing_more(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(tmp_path) as served, echoing(gate) as address:
        await served.client.upload_dataset("d", items(5))
        run = await served.client.start(experiment(address))
        await until(lambda: gate.asked == 5)
        ending = asyncio.create_task(served.server.stop(grace=60.0))
        await asyncio.sleep(0.05)
        for ask in (served.client.start, served.client.plan):
            error = await refused(ask(experiment(address)))
            assert (error.reason, error.code) == ("SERVER_STOPPING", "UNAVAILABLE")
        async with served.channel() as channel:
            answer = await health(channel).Check(health_pb2.HealthCheckRequest())
            assert answer.status == NOT_SERVING
        gate.set()  # trials in flight get their grace: what they answer is kept for a resume
        await ending
        assert served.parts.store.output_count(served.parts.store.run(run.id)) == 5


async def test_a_run_that_is_starting_when_the_server_ends_is_not_left_at_work(tmp_path: Path) -> None:
    """A plugin that takes its time at `Describe` holds a start for a while."""
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen()
    silent.setblocking(False)
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    async with serving(tmp_path) as served:
        await served.client.upload_dataset("d", items(5))
        starting = asyncio.create_task(served.client.start(experiment(address)))
        async with asyncio.timeout(60):
            asking, _ = await asyncio.get_running_loop().sock_accept(silent)
        await served.server.stop(grace=0.0)
        error = await refused(starting)
        assert error.code in ("UNAVAILABLE", "CANCELLED")
        assert served.parts.runs.working == ()
        assert len(served.server._guard.at_work) == 0
    asking.close()
    silent.close()


async def test_when_its_callers_are_killed_it_goes_on(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from evalbus.client import Client\n"
        "async def main():\n"
        "    async with Client(sys.argv[1]) as client:\n"
        "        async for news in client.watch(sys.argv[2], after=0):\n"
        "            print(news, flush=True)\n"
        "asyncio.run(main())\n"
    )
    import sys

    gate = asyncio.Event()
    with Process(tmp_path, LOCAL) as process:
        async with echoing(gate) as address, Client(process.address) as client:
            await client.upload_dataset("d", items(5))
            run = await client.start(experiment(address))
            callers = [
                subprocess.Popen([sys.executable, "-c", script, process.address, run.id], stdout=subprocess.PIPE)
                for _ in range(3)
            ]
            for caller in callers:
                assert caller.stdout is not None
                await asyncio.to_thread(caller.stdout.readline)
                caller.kill()
                caller.communicate()
            gate.set()
            assert (await run.wait()).state is RunState.COMPLETED
        code, _, err = process.end(signal.SIGTERM)

    assert (code, err) == (0, "")
