"""Following: what is stored comes first, then what is new, from any number on; live and late are one path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from evalbus_server.model.event import Event, StateChanged, TrialsEnded
from evalbus_server.model.run import Counts, DatasetVersion, Outcome, Run, RunState, Selection
from evalbus_server.watch import follow as following
from evalbus_server.watch.bell import Bell
from evalbus_server.watch.follow import Followed, Idle, Notice, follow

RUN = Run(
    id="r1",
    name="x",
    state=RunState.RUNNING,
    created_at=0.0,
    dataset=DatasetVersion("d", 1, 1, "", 0.0),
    selection=Selection(False, 1, 0),
    epochs=1,
    experiment_json="{}",
    digest="",
    score_keys=(),
    counts=Counts(planned=1000),
)


class Log:
    """Stored events of one run; a commit rings the bell, as the store's writer does."""

    def __init__(self) -> None:
        self.run = RUN
        self.stored: list[Event] = []
        self.bell = Bell()
        self.reads = 0
        self.on_read: Callable[[], None] = lambda: None

    def add(self, *, gap: int = 0, state: RunState | None = None) -> None:
        sequence = self.run.last_sequence + 1 + gap
        counts = Counts(planned=1000, passed=len(self.stored))
        fact = TrialsEnded(((sequence, Outcome.PASSED),), counts) if state is None else StateChanged(state, counts)
        self.stored.append(Event(sequence, 0.0, fact))
        self.run = replace(self.run, last_sequence=sequence, state=state or self.run.state)
        if state is None:
            self.bell.ring_softly("r1")
        else:
            self.bell.ring("r1")

    def events(self, run_id: str, after: int, limit: int) -> list[Event]:
        self.reads += 1
        found = [event for event in self.stored if event.sequence > after][:limit]
        self.on_read()
        return found

    def source(self, progress: object = None) -> Followed:
        return Followed(self.events, lambda _: self.run, lambda _: progress, self.bell)


async def collected(source: Followed, after: int = 0) -> list[int]:
    async with asyncio.timeout(60):
        return [entry.sequence async for entry in follow(source, "r1", after) if isinstance(entry, Event)]


async def test_a_finished_run_is_told_whole_and_ends() -> None:
    log = Log()
    for _ in range(700):
        log.add()
    log.add(state=RunState.COMPLETED)

    assert await collected(log.source()) == list(range(1, 702))


@pytest.mark.parametrize("after", [0, 1, 255, 256, 257, 300, 301])
async def test_from_any_number_on_come_exactly_the_events_above_it(after: int) -> None:
    log = Log()
    for _ in range(300):
        log.add()
    log.add(state=RunState.CANCELLED)

    assert await collected(log.source(), after) == list(range(after + 1, 302))


async def test_a_gap_that_a_crash_left_is_stepped_over() -> None:
    log = Log()
    log.add()
    log.add(gap=1000)
    log.add(state=RunState.INTERRUPTED)

    assert await collected(log.source()) == [1, 1002, 1003]


async def test_new_events_come_as_they_are_stored() -> None:
    log = Log()
    watching = asyncio.create_task(collected(log.source()))
    for _ in range(50):
        await asyncio.sleep(0)
        log.add()
    log.add(state=RunState.COMPLETED)

    assert await watching == list(range(1, 52))


async def test_an_event_that_is_stored_while_the_watcher_reads_is_not_missed() -> None:
    log = Log()
    left = [RunState.COMPLETED, None, None]
    log.on_read = lambda: log.add(state=left.pop()) if left else None

    assert await collected(log.source()) == [1, 2, 3]


async def test_a_run_that_halts_is_followed_on() -> None:
    log = Log()
    log.add(state=RunState.PAUSED)
    watching = asyncio.create_task(collected(log.source()))
    await asyncio.sleep(0.01)
    assert not watching.done()
    log.add(state=RunState.COMPLETED)

    assert await watching == [1, 2]


async def test_a_silenced_bell_ends_a_watcher_of_a_run_that_goes_on() -> None:
    log = Log()
    log.add()
    watching = asyncio.create_task(collected(log.source()))
    await asyncio.sleep(0.01)
    log.bell.silence()

    assert await watching == [1]


async def test_a_waiting_watcher_does_not_read_until_the_bell_rings() -> None:
    log = Log()
    watching = asyncio.create_task(collected(log.source()))
    await asyncio.sleep(0.05)
    reads = log.reads
    await asyncio.sleep(0.1)

    assert log.reads == reads == 1
    log.add(state=RunState.COMPLETED)
    await watching


async def test_quiet_is_told_from_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "IDLE_AFTER", 0.02)
    log = Log()
    log.add()
    seen = []
    async with asyncio.timeout(60):
        async for entry in follow(log.source(), "r1", 0):
            seen.append(entry)
            if seen.count(Idle(1)) == 3:
                log.add(state=RunState.COMPLETED)

    assert [entry.sequence for entry in seen if isinstance(entry, Event)] == [1, 2]


async def test_progress_comes_between_events_and_not_more_often_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PROGRESS_EVERY", 0.05)
    log = Log()

    async def watch() -> list[Event | Notice | Idle]:
        return [entry async for entry in follow(log.source(progress="going well"), "r1", 0)]

    begun = time.monotonic()
    watching = asyncio.create_task(watch())
    for _ in range(100):
        await asyncio.sleep(0.002)
        log.add()
    log.add(state=RunState.COMPLETED)
    entries = await watching

    notices = [entry for entry in entries if isinstance(entry, Notice)]
    assert 1 <= len(notices) <= 1 + (time.monotonic() - begun) / 0.05
    assert [entry.sequence for entry in entries if isinstance(entry, Event)] == list(range(1, 102))


async def test_a_watcher_that_is_left_keeps_nothing_open() -> None:
    log = Log()
    log.add()
    watcher = follow(log.source(), "r1", 0)
    await anext(watcher)
    await watcher.aclose()  # type: ignore[attr-defined]

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_results_that_come_fast_are_read_together_and_the_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the bell rings, a watcher looks eight times more in so long; nobody waits so long for the end."""
    monkeypatch.setattr(following, "READS_IN", 3600.0)
    log = Log()
    reader = asyncio.ensure_future(collected(log.source()))
    for _ in range(300):
        log.add()
        for _ in range(4):
            await asyncio.sleep(0)
    reads = log.reads
    log.add(state=RunState.COMPLETED)

    assert await reader == list(range(1, 302))
    assert reads <= following.READS + 1
