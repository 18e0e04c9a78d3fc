"""A time that jumps: where an event loop would sleep, its clock moves on instead.

So a test of what comes after seconds takes none of them, and how busy the machine is changes nothing: the order of
things is that of their times alone. It is for code that waits for nothing outside of its loop: no thread, no process,
no socket, since the clock would jump over these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Clock:
    """The time of a loop, and how often the loop has turned."""

    def __init__(self, loop: Any) -> None:
        self.turns = 0
        self._now = loop.time()
        self._select = loop._selector.select

    def time(self) -> float:
        """Seconds, which pass in sleep alone."""
        return self._now

    def select(self, timeout: float | None = None) -> Any:
        """What is ready; a wait of so many seconds is over at once."""
        self.turns += 1
        if timeout is None:
            return self._select(None)
        ready = self._select(0)
        if not ready:
            self._now += max(timeout, 0.0)
        return ready

    async def turns_during(self, seconds: float) -> int:
        """The turns that pass in so many seconds."""
        before = self.turns
        await asyncio.sleep(seconds)
        return self.turns - before


@contextmanager
def jumping() -> Iterator[Clock]:
    """Give the running loop a time that jumps."""
    loop: Any = asyncio.get_running_loop()
    clock = Clock(loop)
    selector, select = loop._selector, loop._selector.select
    loop.time, selector.select = clock.time, clock.select
    try:
        yield clock
    finally:
        del loop.time
        selector.select = select
