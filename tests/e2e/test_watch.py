"""Watching over a real socket: whoever is dropped comes back and misses nothing; whoever is slow disturbs nobody."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest

from evalbus import Item, Output, _connection
from evalbus.client import (
    CallFailed,
    Client,
    Counts,
    Event,
    Idle,
    News,
    Outcome,
    RunProgress,
    RunState,
    Snapshot,
    StateChanged,
    TrialsEnded,
    Verdict,
)
from evalbus.v1 import run_pb2
from evalbus_server.watch import follow as following

from .service import Process, Served, echoing, experiment, failure, items, serving, stubs, until


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as made:
        yield made


@dataclass
class Seen:
    """The state that a watcher builds from what it is told."""

    state: RunState | None = None
    verdict: Verdict | None = None
    reason: str = ""
    counts: Counts | None = None
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    sequences: list[int] = field(default_factory=list)

    def take(self, news: News) -> None:
        if isinstance(news, Event):
            self.sequences.append(news.sequence)
            fact = news.fact
            assert fact is not None
            self.counts = fact.counts
            if isinstance(fact, StateChanged):
                self.state, self.verdict, self.reason = fact.state, fact.verdict, fact.reason
            elif isinstance(fact, TrialsEnded):
                for trial_id, outcome in fact.trials:
                    assert trial_id not in self.outcomes, "told twice"
                    self.outcomes[trial_id] = outcome


async def never_dropped(client: Client, run_id: str) -> Seen:
    seen = Seen()
    async for news in client.watch(run_id, after=0):
        seen.take(news)
    return seen


async def dropped_at_every_event(client: Client, run_id: str) -> Seen:
    """Reads one event, hangs up, comes back with its number."""
    seen = Seen()
    while True:
        after = seen.sequences[-1] if seen.sequences else 0
        async with aclosing(client.watch(run_id, after=after)) as news:
            async for each in news:
                if isinstance(each, Event):
                    seen.take(each)
                    break
            else:
                return seen


class Line:
    """A wire between client and server that can be cut."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._open: set[asyncio.Transport] = set()
        self.cuts = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Reset every connection."""
        self.cuts += 1
        for transport in list(self._open):
            transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        ends: list[Any] = [writer.transport, far_writer.transport]
        self._open.update(ends)
        with contextlib.suppress(OSError):
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer), return_exceptions=True)
        for end in ends:
            end.abort()
            self._open.discard(end)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()


async def trickle(gate: asyncio.Semaphore, number: int) -> None:
    """Let trials through a few at a time, so that there are many commits."""
    for _ in range(number):
        gate.release()
        await asyncio.sleep(0.003)


class Gate:
    """Opens for one trial at a time."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(0)

    async def wait(self) -> None:
        await self.places.acquire()


# --- dropped and reconnected ------------------------------------------------------------------------------------


async def test_a_watcher_dropped_at_every_event_rebuilds_the_state_of_one_never_dropped(served: Served) -> None:
    """Live: while the run goes on, by hanging up after each event."""
    gate = Gate()
    async with echoing(gate) as address:  # type: ignore[arg-type]
        await served.client.upload_dataset("d", items(120, fail=7))
        run = await served.client.start(experiment(address, criteria=[{"metric": "pass_rate", "min": 0.5}]))
        _, steady, dropped, late = await asyncio.gather(
            trickle(gate.places, 120),
            never_dropped(served.client, run.id),
            dropped_at_every_event(served.client, run.id),
            dropped_at_every_event(served.client, run.id),
        )

    assert len(steady.sequences) > 20
    assert (steady.state, steady.verdict) == (RunState.COMPLETED, Verdict.PASS)
    assert dropped == steady == late
    stored = {result.trial_id: result.outcome async for result in run.results()}
    assert steady.outcomes == stored


async def test_a_watcher_whose_connection_is_cut_at_every_event_rebuilds_the_same_state(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client finds its way back by itself; nobody above it notices."""
    monkeypatch.setattr(_connection, "_FIRST_PAUSE", 0.01)
    gate = Gate()
    line = Line(served.address)
    async with echoing(gate) as address, line as detour, Client(detour) as far:  # type: ignore[arg-type]
        await served.client.upload_dataset("d", items(60, fail=7))
        run = await served.client.start(experiment(address))

        async def cut_off() -> Seen:
            seen = Seen()
            async for news in far.watch(run.id, after=0):
                seen.take(news)
                if isinstance(news, Event):
                    line.cut()
            return seen

        _, steady, dropped = await asyncio.gather(
            trickle(gate.places, 60), never_dropped(served.client, run.id), cut_off()
        )

    assert dropped == steady
    assert line.cuts > 10


async def test_a_late_watcher_dropped_at_every_event_rebuilds_the_same_state(served: Served) -> None:
    async with echoing() as address:
        await served.client.upload_dataset("d", items(3000, fail=7))
        run = await served.client.start(experiment(address))
        live = await never_dropped(served.client, run.id)

    assert await never_dropped(served.client, run.id) == live
    assert await dropped_at_every_event(served.client, run.id) == live


async def test_from_any_number_on_come_exactly_the_events_above_it(served: Served) -> None:
    async with echoing() as address:
        await served.client.upload_dataset("d", items(1000))
        run = await served.client.start(experiment(address))
        whole = (await never_dropped(served.client, run.id)).sequences

    assert whole == list(range(1, len(whole) + 1))
    for after in range(len(whole) + 1):
        news = [each async for each in served.client.watch(run.id, after=after)]
        assert [each.sequence for each in news if isinstance(each, Event)] == whole[after:]
        assert not any(isinstance(each, Snapshot) for each in news)


async def test_a_snapshot_and_what_follows_it_make_the_whole(served: Served) -> None:
    gate = Gate()
    async with echoing(gate) as address:  # type: ignore[arg-type]
        await served.client.upload_dataset("d", items(60))
        run = await served.client.start(experiment(address))
        steady = asyncio.create_task(never_dropped(served.client, run.id))
        await trickle(gate.places, 30)
        seen = Seen()
        async with aclosing(run.watch()) as news:
            first = await anext(news)
            assert isinstance(first, Snapshot)
            await trickle(gate.places, 30)
            async for each in news:
                seen.take(each)
        whole = await steady

    assert seen.sequences == whole.sequences[first.run.last_sequence :]
    assert first.run.counts.pending == len(seen.outcomes) > 0
    assert (seen.state, seen.counts) == (whole.state, whole.counts)


async def test_a_server_that_was_killed_and_started_again_is_found_by_its_watchers(tmp_path: Path) -> None:
    settings = '{"listen": "127.0.0.1:%s", "db": "runs.db"}'
    async with echoing(asyncio.Event()) as address:
        with Process(tmp_path, settings % 0) as first:
            port = first.address.rpartition(":")[2]
            async with Client(first.address) as client:
                await client.upload_dataset("d", items(5))
                run = await client.start(experiment(address))
                seen = Seen()
                async with aclosing(run.watch(after=0)) as news, asyncio.timeout(120):
                    async for each in news:
                        seen.take(each)
                        if seen.state is RunState.RUNNING:
                            first.process.kill()
                            first.process.communicate()
                            break_off = Process(tmp_path, settings % port)
                    with break_off:
                        pass

    assert seen.state is RunState.INTERRUPTED
    assert seen.sequences[:2] == [1, 2]
    assert seen.sequences[2] > 1000  # numbers that a power cut may have taken are left out


# --- slow and gone ----------------------------------------------------------------------------------------------


def with_outputs(number: int) -> list[Item]:
    return [Item(f"i{index}", "question", "a", output=Output("a")) for index in range(number)]


OUTPUTS_ONLY: dict[str, Any] = {"target": "none", "limits": {"concurrency": 1000}}


async def test_slow_watchers_neither_slow_the_run_nor_make_the_server_grow(tmp_path: Path) -> None:
    """Each reads one message and sleeps; what it has not read waits in the store, and not in memory (PL-05)."""
    with Process(tmp_path, '{"listen": "127.0.0.1:0", "db": "runs.db"}') as process:
        memory = psutil.Process(process.process.pid).memory_info
        async with Client(process.address) as client:
            await client.upload_dataset("d", with_outputs(15_000))

            async def timed(number: int) -> tuple[float, list[AsyncGenerator[News, None]]]:
                begun = time.monotonic()
                run = await client.start(experiment("", **OUTPUTS_ONLY))
                watchers = [client.watch(run.id, after=0) for _ in range(number)]
                for watcher in watchers:
                    await anext(watcher)
                await run.wait()
                return time.monotonic() - begun, watchers

            await timed(0)  # warms up
            alone, _ = await timed(0)
            before = memory().rss
            beside, watchers = await timed(20)
            grown = memory().rss - before
            last = [each async for each in watchers[0] if isinstance(each, Event)][-1]
            assert isinstance(last.fact, StateChanged) and last.fact.state is RunState.COMPLETED
            for watcher in watchers:
                await watcher.aclose()

    assert beside < 10 * alone + 30.0
    assert grown < 20 * 2 * 1024 * 1024


async def test_100_watchers_that_go_away_leave_nothing_behind(served: Served) -> None:
    gate = asyncio.Event()
    async with echoing(gate) as address:
        await served.client.upload_dataset("d", items(5))
        run = await served.client.start(experiment(address))
        async with aclosing(run.watch(after=0)) as news:
            await anext(news)
        await until(lambda: not served.server._guard.at_work)
        tasks, files = len(asyncio.all_tasks()), psutil.Process().num_fds()

        channels = [served.channel() for _ in range(100)]
        calls = [stubs(each)[0].WatchRun(run_pb2.WatchRunRequest(run_id=run.id, after_sequence=0)) for each in channels]
        await asyncio.gather(*(call.read() for call in calls))
        assert len(served.server._guard.at_work) == 100
        await asyncio.gather(*(channel.close() for channel in channels))
        await until(lambda: not served.server._guard.at_work)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        await until(lambda: psutil.Process().num_fds() <= files + 5)

        gate.set()
        assert (await run.wait()).counts.passed == 5


WATCHERS = """
import sys

import grpc

from evalbus.v1 import run_pb2, run_pb2_grpc

address, run, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
request = run_pb2.WatchRunRequest(run_id=run)
calls = []
for _ in range(number):
    channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
    calls.append((channel, run_pb2_grpc.RunServiceStub(channel).WatchRun(request)))
for _, call in calls:
    next(call)
print("all watch", flush=True)
sys.stdin.read()
"""
"""A process whose watchers have a connection each, and have all got their first news."""


async def test_100_watchers_that_are_killed_leave_nothing_behind_and_the_run_goes_on(served: Served) -> None:
    """RC-04: three processes full of them, one after the other, each killed with no time for a farewell."""
    gate = asyncio.Event()
    async with echoing(gate) as address:
        await served.client.upload_dataset("d", items(5))
        run = await served.client.start(experiment(address))
        await until(lambda: (going := served.parts.runs.progress(run.id)) is not None and going.in_flight == 5)
        await until(lambda: not served.server._guard.at_work)
        me = psutil.Process()
        memory = []
        tasks, files = len(asyncio.all_tasks()), me.num_fds()
        for number in (100, 100, 100):
            words = [sys.executable, "-c", WATCHERS, served.address, run.id, str(number)]
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            assert process.stdout is not None
            async with asyncio.timeout(60):
                assert await process.stdout.readline() == b"all watch\n"
            assert len(served.server._guard.at_work) == number
            process.kill()
            await process.wait()
            await until(lambda: not served.server._guard.at_work)
            await until(lambda: len(asyncio.all_tasks()) <= tasks + 5)
            await until(lambda: me.num_fds() <= files + 10)
            memory.append(me.memory_info().rss)
        assert memory[-1] - memory[0] < 100 * 256 * 1024  # of the last two hundred

        async with aclosing(run.watch()) as news:
            assert isinstance(await anext(news), Snapshot)
        gate.set()
        assert (await run.wait()).counts.passed == 5


async def test_500_times_a_stream_is_opened_and_cancelled_leave_nothing_open(served: Served) -> None:
    """PL-18."""
    gate = asyncio.Event()
    async with echoing(gate) as address:
        await served.client.upload_dataset("d", items(5))
        run = await served.client.start(experiment(address))
        files = psutil.Process().num_fds()
        for _ in range(500):
            async with served.channel(options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                call = stubs(channel)[0].WatchRun(run_pb2.WatchRunRequest(run_id=run.id, after_sequence=0))
                await call.read()
                call.cancel()
        await until(lambda: psutil.Process().num_fds() <= files + 5)
        gate.set()


# --- between the events -----------------------------------------------------------------------------------------


async def test_progress_comes_between_events_and_idle_when_nothing_happens(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "IDLE_AFTER", 0.05)
    gate = asyncio.Event()
    async with echoing(gate) as address:
        await served.client.upload_dataset("d", items(5))
        run = await served.client.start(experiment(address))
        progress: list[RunProgress] = []
        idle: list[Idle] = []
        async for news in run.watch():
            if isinstance(news, RunProgress):
                progress.append(news)
            if isinstance(news, Idle):
                idle.append(news)
            if [each.last_sequence for each in idle].count(2) >= 3 and any(each.in_flight == 5 for each in progress):
                gate.set()

    assert {each.last_sequence for each in idle[:3]} <= {1, 2}  # it may be quiet before it begins
    assert (progress[0].counts.planned, progress[0].counts.pending) == (5, 5)
    assert any(each.in_flight == 5 for each in progress)


# --- refusals and the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "code"), [(10**9, "OUT_OF_RANGE"), (-1, "OUT_OF_RANGE")])
async def test_a_number_that_no_event_has_is_out_of_range(served: Served, after: int, code: str) -> None:
    async with echoing() as address:
        await served.client.upload_dataset("d", items(1))
        run = await served.client.start(experiment(address))
        await run.wait()
        with pytest.raises(CallFailed) as caught:
            _ = [each async for each in run.watch(after=after)]

    assert (caught.value.reason, caught.value.code) == ("SEQUENCE_OUT_OF_RANGE", code)


async def test_watching_after_the_last_event_of_a_finished_run_just_ends(served: Served) -> None:
    async with echoing() as address:
        await served.client.upload_dataset("d", items(1))
        run = await served.client.start(experiment(address))
        ended = await run.wait()

    assert [each async for each in run.watch(after=ended.last_sequence)] == []


async def test_when_the_server_stops_its_watchers_hear_how_the_run_ended(served: Served) -> None:
    async with echoing(asyncio.Event()) as address:
        await served.client.upload_dataset("d", items(5))
        run = await served.client.start(experiment(address))
        watchers = [asyncio.create_task(never_dropped(served.client, run.id)) for _ in range(20)]
        await until(lambda: len(served.server._guard.at_work) == 20)
        await served.server.stop(grace=0.0)
        seen = await asyncio.gather(*watchers)

    assert {each.state for each in seen} == {RunState.INTERRUPTED}


async def test_a_watcher_of_a_run_that_is_not_over_is_told_to_come_back(served: Served) -> None:
    gate = asyncio.Event()
    async with echoing(gate) as address, served.channel() as channel:
        await served.client.upload_dataset("d", items(5))
        run = await served.client.start(experiment(address))
        call = stubs(channel)[0].WatchRun(run_pb2.WatchRunRequest(run_id=run.id, after_sequence=0))
        await call.read()
        served.parts.bell.silence()
        error = await failure(_read_all(call))
        gate.set()
        await served.parts.runs.wait(run.id)

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert error.details() == "the server stops; watch again after event 2"


async def _read_all(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass
