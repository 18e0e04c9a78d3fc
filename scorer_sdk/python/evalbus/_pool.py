"""Threads that run sync plugin functions, as many as the work turns out to need.

A future for each trial would cost more than a cheap function. Here, threads of our own pull single trials from one
deque and put what comes of them into another. One thread begins. While work waits and the threads compute little, so
they block on something, the number that may run doubles every few milliseconds; while work waits and nothing
at all gets done, it grows slowly, since threads that compute only get into each other's way.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from evalbus._context import Ticket

TICK = 0.005
"""Seconds between two looks at whether more threads would help."""
_IDLE_SHARE = 0.7
"""Threads that computed for less of the time than this were waiting for something."""
_STUCK_TICKS = 10
"""After so many looks in which nothing got done, one more thread runs even if the process is busy."""
_CHEAP = 0.0005
"""Seconds: after a trial shorter than this, a thread goes on to the next before it wakes the loop …"""
_WAKE_EVERY = 0.002
"""… but wakes it at least this often."""


class Pool:
    """Runs trials in daemon threads and hands back (ticket, result) pairs on the event loop."""

    def __init__(
        self,
        run: Callable[[Ticket], Any],
        done: Callable[[list[tuple[Ticket, Any]]], None],
        limit: int,
    ) -> None:
        """*run* is called in a thread and never raises; *done* is called on the loop."""
        self._loop = asyncio.get_running_loop()
        self._run = run
        self._done = done
        self._limit = limit
        self._waiting: deque[Ticket] = deque()
        self._finished: deque[tuple[Ticket, Any]] = deque()
        self._woken = False
        self._wake_at = 0.0
        self._lock = threading.Condition()  # guards _threads and _idle; the deques need no guard
        self._threads = 0
        self._idle = 0
        self._width = 1
        """How many threads proved useful: so many are woken for a new batch."""
        self._completed = 0
        self._closed = False
        self._tick: asyncio.TimerHandle | None = None
        self._stuck = 0

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Let trials wait for a thread."""
        self._waiting.extend(tickets)
        self._engage(min(self._width, len(tickets)))
        if self._tick is None:
            self._look_again()

    def withdraw(self, tickets: Collection[Ticket]) -> list[Ticket]:
        """Take back those of *tickets* that no thread has begun."""
        taken: list[Ticket] = []
        kept: list[Ticket] = []
        while self._waiting:
            try:
                ticket = self._waiting.popleft()
            except IndexError:  # a thread was quicker
                break
            (taken if ticket in tickets else kept).append(ticket)
        self._waiting.extendleft(reversed(kept))
        if kept:
            self._engage(min(self._width, len(kept)))
        return taken

    def collect(self) -> None:
        """Hand over what has been finished."""
        self._woken = False  # before the deque is emptied, or a result put in between would wake nobody
        finished = []
        while self._finished:
            finished.append(self._finished.popleft())
        if finished:
            self._completed += len(finished)
            self._done(finished)

    def close(self) -> None:
        """Let the threads end: the idle ones now, the others when their function returns."""
        self._closed = True
        self._waiting.clear()
        if self._tick is not None:
            self._tick.cancel()
        with self._lock:
            self._lock.notify_all()

    def _engage(self, wanted: int) -> None:
        """Have *wanted* more threads look for work, up to the limit."""
        with self._lock:
            awake = min(wanted, self._idle)
            self._idle -= awake
            self._lock.notify(awake)
            fresh = min(wanted - awake, self._limit - self._threads)
            # A thread that is awake anyway will find the work: the first batch needs one, not one a submission.
            if self._threads - self._idle - awake > 0:
                fresh = min(fresh, max(self._width - self._threads, 0))
            self._threads += fresh
        for _ in range(fresh):
            threading.Thread(target=self._work, name="evalbus-plugin", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                ticket = self._waiting.popleft()
            except IndexError:
                if not self._rest():
                    return
                continue
            ticket.begun = began = time.monotonic()
            self._finished.append((ticket, self._run(ticket)))
            if self._closed:
                return
            if not self._woken:
                ended = time.monotonic()
                if not self._waiting or ended - began > _CHEAP or ended > self._wake_at:
                    self._wake_at = ended + _WAKE_EVERY
                    self._wake()

    def _rest(self) -> bool:
        """Wait for work; False when there will be none."""
        if self._finished and not self._woken:
            self._wake()
        with self._lock:
            if self._closed:
                self._threads -= 1
                return False
            if not self._waiting:
                self._idle += 1
                self._lock.wait()
        return not self._closed

    def _wake(self) -> None:
        self._woken = True
        try:
            self._loop.call_soon_threadsafe(self.collect)
        except RuntimeError:  # the loop is closed: nobody is interested any more
            self._closed = True

    def _look_again(self) -> None:
        self._before = (time.monotonic(), _used_elsewhere(), self._completed)
        self._tick = self._loop.call_later(TICK, self._look)

    def _look(self) -> None:
        """Give out what is finished, and more threads if work waits that they would speed up."""
        self._tick = None
        self.collect()
        if not self._waiting or self._closed:
            return
        began, used, completed = self._before
        passed = time.monotonic() - began
        done = self._completed - completed
        self._stuck = self._stuck + 1 if done == 0 else 0
        cheap = done * _CHEAP > passed * (
            self._threads - self._idle
        )  # and one thread after the other is the quickest way
        if not cheap and _used_elsewhere() - used < _IDLE_SHARE * passed:
            self._widen(self._width)
        elif self._stuck >= _STUCK_TICKS:
            self._stuck = 0
            self._widen(1)
        elif self._width > _CORES:
            self._width = _CORES  # they compute: no more of them for the next batch
        self._look_again()

    def _widen(self, by: int) -> None:
        self._width = min(self._width + by, self._limit)
        self._engage(max(self._width - (self._threads - self._idle), 0))


def _used_elsewhere() -> float:
    """Seconds of processor time that all threads but this one, which runs the loop, have used."""
    return time.process_time() - time.thread_time()


_CORES = (os.cpu_count() or 1) + 1
