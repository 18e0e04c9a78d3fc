"""Sync functions for an async scorer: in daemon threads, as many as the work needs, and none once the run is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from evalbus._pool import Pool


class _Job:
    """A function to be called; has what the pool asks of a ticket."""

    __slots__ = ("begun", "call", "done")

    def __init__(self, call: Callable[[], Any], done: asyncio.Future[Any]) -> None:
        self.call = call
        self.done = done
        self.begun: float | None = None


class Threads:
    """Calls functions in threads and waits for them on the loop."""

    def __init__(self, limit: int) -> None:
        """At most *limit* of them at a time; there are none before the first call."""
        self._limit = limit
        self._pool: Pool | None = None

    async def run(self, call: Callable[[], Any]) -> Any:
        """What a function returns; what it raises is raised here."""
        if self._pool is None:
            self._pool = Pool(_called, _settle, self._limit)
        done = asyncio.get_running_loop().create_future()
        self._pool.submit([_Job(call, done)])  # type: ignore[list-item]
        returned, error = await done
        if error is not None:
            raise error
        return returned

    def close(self) -> None:
        """Let the threads end."""
        if self._pool is not None:
            self._pool.close()


def _called(job: Any) -> tuple[Any, BaseException | None]:
    if job.done.cancelled():
        return None, None  # nobody waits for it any more
    try:
        return job.call(), None
    # Everything is caught, also SystemExit: it is raised again where somebody waits for it.
    except BaseException as error:
        return None, error


def _settle(finished: list[tuple[Any, Any]]) -> None:
    for job, outcome in finished:
        if not job.done.done():
            job.done.set_result(outcome)
