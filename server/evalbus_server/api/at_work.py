"""The calls that handlers are at work on, and how they end when the server does: told why, and with their work undone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import structlog

from evalbus_server.errors import Reason, Unreachable

STOPPING = "the server stops; ask again later"
_ROUNDS = 3
"""How often a handler is told to hurry that does not end."""

_log = structlog.get_logger("evalbus.api")


class AtWork:
    """The calls that are open, by the tasks of their handlers."""

    def __init__(self) -> None:
        """None is open yet."""
        self._methods: dict[asyncio.Task[Any], str] = {}
        self._dismissed: set[asyncio.Task[Any]] = set()
        self._over = False

    def __len__(self) -> int:
        """How many are open."""
        return len(self._methods)

    @contextlib.contextmanager
    def listed(self, method: str) -> Iterator[None]:
        """The call of this task is open within the block."""
        task = asyncio.current_task()
        assert task is not None
        self._methods[task] = method
        try:
            yield
        finally:
            del self._methods[task]
            self._dismissed.discard(task)

    def refuse_at_the_end(self) -> None:
        """See that calls are still taken.

        Raises:
            Unreachable: SERVER_STOPPING.
        """
        if self._over:
            raise Unreachable(Reason.SERVER_STOPPING, STOPPING)

    @property
    def is_over(self) -> bool:
        """Whether no more calls are taken."""
        return self._over

    @property
    def is_dismissed(self) -> bool:
        """Whether the call of this task was told to end."""
        return asyncio.current_task() in self._dismissed

    async def dismiss(self, limit: float, undoing: float) -> None:
        """Take no more calls, and end those that are open after *limit* seconds; they have *undoing* seconds for it."""
        self._over = True
        await self._wait(limit)
        for task in self._methods:
            self._dismissed.add(task)
            task.cancel()
        await self._wait(undoing)

    async def drain(self, limit: float) -> None:
        """Wait until no handler is at work any more, also of calls that gRPC has forgotten; those that undo their work
        are told every *limit* seconds that nobody can wait for them.
        """
        for _ in range(_ROUNDS):
            await self._wait(limit)
            for task in self._methods:
                task.cancel()
        await self._wait(limit)
        for method in self._methods.values():
            _log.error("a call does not end", method=method)

    async def _wait(self, limit: float) -> None:
        if self._methods:
            await asyncio.wait(set(self._methods), timeout=limit)
