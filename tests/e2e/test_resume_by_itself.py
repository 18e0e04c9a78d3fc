"""A server that is asked to go on with what its end interrupted: after a kill -9, after an orderly end, or not at all."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog.testing

from evalbus import Item, Output, start_server, target
from evalbus.client import Client, Event, Run, RunState, StateChanged
from evalbus_server.store import open_reader
from tests.e2e.service import Process, Served, experiment, items, serving

LIMIT = 150.0


@dataclass
class Calls:
    """A target that counts what it is asked, and answers once its gate is open."""

    address: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def so_many(self, count: int) -> None:
        """Wait until it was asked about so many items."""
        async with asyncio.timeout(LIMIT):
            while len(self.asked) < count:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def counting(*, version: str = "1.0.0", listen: str = "127.0.0.1:0", pause: float = 0.0) -> AsyncIterator[Calls]:
    calls = Calls()

    @target("counting", version=version)
    async def count(item: Item) -> Output:
        calls.asked[item.id] += 1
        await calls.gate.wait()
        await asyncio.sleep(pause)
        return Output(item.input)

    server = await start_server(count, address=listen)
    calls.address = server.address
    try:
        yield calls
    finally:
        await server.stop(0.0)


async def started(served: Served, calls: Calls, number: int = 40) -> str:
    """A run that is at work, with its first answers stored."""
    await served.client.upload_dataset("d", items(number, wrong=10**6))
    run = await served.client.start(experiment(calls.address, limits={"concurrency": 4}))
    await calls.so_many(4)
    return run.id


async def ended(served: Served, run_id: str) -> Run:
    async with asyncio.timeout(LIMIT):
        return await served.client.handle(run_id).wait()


async def test_a_run_of_a_killed_server_goes_on_and_each_trial_has_one_result(tmp_path: Path):
    """Its watcher sees it to its end, over the restart, each event once; what is stored is not asked again."""
    settings = {"listen": "127.0.0.1:0", "db": "runs.db", "resume": True}
    async with counting(pause=0.02) as calls:
        calls.gate.set()
        seen: list[Event] = []

        async def watch(client: Client, run_id: str) -> None:
            async for news in client.handle(run_id).watch():
                seen.extend([news] if isinstance(news, Event) else [])

        with Process(tmp_path, json.dumps(settings)) as first:
            client = Client(first.address)
            async with client:
                await client.upload_dataset("d", items(200, wrong=10**6))
                run = await client.start(experiment(calls.address, limits={"concurrency": 8}))
                watching = asyncio.create_task(watch(client, run.id))
                await calls.so_many(60)
                first.end(signal.SIGKILL)
                with open_reader(tmp_path / "runs.db") as reader:
                    stored = {result.item.id for result in reader.results(reader.run(run.id), limit=1000)}
                before = Counter(calls.asked)
                with Process(tmp_path, json.dumps(settings | {"listen": first.address})):
                    async with asyncio.timeout(LIMIT):
                        await watching

    with open_reader(tmp_path / "runs.db") as reader:
        ran = reader.run(run.id)
        results = reader.results(ran, limit=1000)
    assert (ran.state.name, ran.counts.passed, ran.session) == ("COMPLETED", 200, 2)
    assert Counter(result.item.id for result in results) == Counter({f"i{n}": 1 for n in range(200)})
    assert stored
    assert not stored & {item for item, times in calls.asked.items() if times > before[item]}
    assert max(calls.asked.values()) <= 2
    numbers = [event.sequence for event in seen]
    assert numbers == sorted(set(numbers))
    facts = [event.fact for event in seen if isinstance(event.fact, StateChanged)]
    assert [fact.state.name for fact in facts[-4:]] == ["INTERRUPTED", "QUEUED", "RUNNING", "COMPLETED"]
    assert facts[-3].reason == "RESUMED: by itself, since the server is there again"


async def test_a_run_goes_on_after_an_orderly_end_and_one_that_somebody_halted_does_not(tmp_path: Path):
    async with counting() as calls:
        async with serving(tmp_path) as served:
            run_id = await started(served, calls)
            halted = await served.client.start(experiment(calls.address, limits={"concurrency": 4}))
            await halted.pause()
            left = await served.client.start(experiment(calls.address, limits={"concurrency": 4}))
            stopping = asyncio.create_task(served.parts.runs.stop(left.id, grace=0.0))  # as Ctrl-C of a command does
            await asyncio.sleep(0)
            calls.gate.set()
            await stopping
            async with asyncio.timeout(LIMIT):
                while (await served.client.get(halted.id)).state is not RunState.PAUSED:
                    await asyncio.sleep(0.01)
            calls.gate.clear()
            first = await served.client.start(experiment(calls.address, limits={"concurrency": 4}))
            await calls.so_many(4)
        async with serving(tmp_path) as served:
            interrupted = await served.client.get(first.id)
            assert interrupted.state is RunState.INTERRUPTED
            assert interrupted.reason == "STOPPED: the server ended before it was done"
            assert (await served.client.get(run_id)).state in (RunState.COMPLETED, RunState.INTERRUPTED)
        calls.gate.set()
        async with serving(tmp_path, resume=True) as served:
            assert (await ended(served, first.id)).state is RunState.COMPLETED
            assert (await ended(served, run_id)).state is RunState.COMPLETED
            assert (await served.client.get(halted.id)).state is RunState.PAUSED
            assert (await served.client.get(left.id)).state is RunState.INTERRUPTED


async def test_a_run_whose_plugin_is_gone_stays_interrupted_until_a_later_start(tmp_path: Path):
    """Its watchers hear that it does not go on, and the log says why."""
    async with counting() as calls:
        async with serving(tmp_path) as served:
            run_id = await started(served, calls)
        address = calls.address
    with structlog.testing.capture_logs() as lines:
        async with serving(tmp_path, resume=True) as served:
            run = await ended(served, run_id)
    assert run.state is RunState.INTERRUPTED
    (line,) = [line for line in lines if line["event"] == "the run does not go on by itself"]
    assert (line["run"], line["reason"], line["log_level"]) == (run_id, "PLUGIN_UNREACHABLE", "warning")
    assert address in line["error"]

    async with counting(listen=address) as calls:
        calls.gate.set()
        async with serving(tmp_path, resume=True) as served:
            assert (await ended(served, run_id)).state is RunState.COMPLETED


async def test_a_run_whose_plugin_has_changed_stays_interrupted(tmp_path: Path):
    async with counting() as calls, serving(tmp_path) as served:
        run_id = await started(served, calls)
        await served.server.stop(grace=0.0)
    with structlog.testing.capture_logs() as lines:
        async with counting(version="1.0.1", listen=calls.address) as other, serving(tmp_path, resume=True) as served:
            run = await ended(served, run_id)
    assert run.state is RunState.INTERRUPTED
    assert "PLUGIN_CHANGED" in [line.get("reason") for line in lines]
    assert not other.asked


async def test_a_run_that_is_about_to_go_on_can_be_cancelled(tmp_path: Path):
    """While its plugins are being reached, it is nobody's; it does not go on then."""
    async with counting() as calls:
        async with serving(tmp_path) as served:
            run_id = await started(served, calls)
        asked = Counter(calls.asked)
        calls.gate.set()
        async with serving(tmp_path) as served:
            runs = served.parts.runs
            stopped = runs.take_up_stopped()
            assert stopped == (run_id,)
            going_on = asyncio.create_task(runs.resume_stopped(stopped))
            await asyncio.sleep(0)
            cancelled = runs.cancel(run_id)
            again = runs.cancel(run_id)
            assert cancelled.state.name == "CANCELLED"
            assert (again.state, again.last_sequence) == (cancelled.state, cancelled.last_sequence)
            await going_on
            assert (await served.client.get(run_id)).state is RunState.CANCELLED
    assert calls.asked == asked
