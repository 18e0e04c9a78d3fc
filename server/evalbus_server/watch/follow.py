"""Following a run from any event on: the stored ones first, then new ones as they come. Live and late are one path."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from evalbus_server.model.event import Event
from evalbus_server.model.run import Run
from evalbus_server.watch.bell import Bell

PAGE = 16
"""Events read at a time: what a slow watcher has not taken yet stays in memory."""
IDLE_AFTER = 10.0
"""Seconds of quiet after which a watcher is told that all is well."""
PROGRESS_EVERY = 0.2
"""Seconds between two progress notices to one watcher, at least."""
READS, READS_IN = 8, 0.16
"""So many looks of one watcher in so many seconds, at most: results that come faster are read together. A watcher that lags
does not wait, and nobody does for anything but results.
"""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing happened for a while."""

    last_sequence: int


@dataclass(frozen=True, slots=True)
class Notice:
    """How far the run is, between stored events; it has no number, and a slow watcher gets fewer."""

    progress: Any


@dataclass(frozen=True, slots=True)
class Followed:
    """What a follower needs of a run."""

    events: Callable[[str, int, int], list[Event]]
    """(run id, after, limit) -> stored events."""
    run: Callable[[str], Run]
    progress: Callable[[str], Any]
    """How a run that is at work here goes; None otherwise."""
    bell: Bell
    poll: float | None = None
    """Seconds between looks when another process carries the run out and rings no bell here."""


async def follow(source: Followed, run_id: str, after: int) -> AsyncIterator[Event | Notice | Idle]:
    """Yield the run's events with a sequence above *after*, and notices between them.

    It ends after the last stored event of a run that is over, or when the bell is silenced.
    """
    told_at = 0.0
    quiet_since = time.monotonic()
    looks: deque[float] = deque([float("-inf")] * READS, READS)
    while not source.bell.silenced:
        ring = source.bell.next_ring(run_id)  # before reading, or a commit in between is missed
        loud = source.bell.next_loud(run_id)
        run = source.run(run_id)  # before the events: what it has seen by then is in them
        events = source.events(run_id, after, PAGE)
        for event in events:
            yield event
            after = event.sequence
        if events:
            quiet_since = time.monotonic()
            if len(events) == PAGE:
                continue
        if run.state.over and after >= run.last_sequence:
            return
        progress = source.progress(run_id) if time.monotonic() - told_at >= PROGRESS_EVERY else None
        if progress is not None:
            told_at = time.monotonic()
            yield Notice(progress)
        patience = IDLE_AFTER - (time.monotonic() - quiet_since)
        if patience <= 0:
            quiet_since = time.monotonic()
            yield Idle(after)
            patience = IDLE_AFTER
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(patience, source.poll or patience)):
                await ring.wait()
        early = looks[0] + READS_IN - time.monotonic()
        if early > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(early):
                    await loud.wait()
        looks.append(time.monotonic())
