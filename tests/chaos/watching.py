"""Watchers: they follow runs through everything, and what they were told is held against what is stored."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from evalbus.client import CallFailed, Client, Event
from tests.chaos import ledger
from tests.chaos.world import PATIENCE

EXPECTED = frozenset(
    [
        "CANCELLED",
        "RUN_NOT_RESUMABLE",
        "RUN_AT_WORK",
        "RUN_NOT_HERE",
        "RUN_NOT_FOUND",
        "NOTHING_TO_RUN",
        "SERVER_UNREACHABLE",
        "UNAVAILABLE",
        "DATABASE_LOCKED",
        "DATABASE_FULL",
        "DEADLINE_EXCEEDED",
        "PLUGIN_UNREACHABLE",
        "PLUGIN_START_FAILED",
        "SERVER_STOPPING",
        "RUN_IN_USE",
        "DATASET_BUSY",
    ]
)
"""Reasons with which calls may fail while blows fall; any other is a fault."""


class Watcher:
    """Follows a run through everything, and remembers the numbers of the events it was told."""

    def __init__(self, address: str, run_id: str, faults: list[str], *, results: bool) -> None:
        """Watch from the first event on, with the *results* or without."""
        self._results = results
        self._address = address
        self._run_id = run_id
        self._faults = faults
        self._seen: list[tuple[int, str]] = []
        self._task = asyncio.create_task(self._watch())

    async def begin_again(self) -> None:
        """Break off, and go on from the last number."""
        await self.close()
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Break off."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, CallFailed):
            await self._task

    async def _watch(self) -> None:
        async with Client(self._address) as client:
            while True:  # a run that has halted may go on
                after = self._seen[-1][0] if self._seen else 0
                try:
                    async for news in client.watch(self._run_id, after, results=self._results, patience=PATIENCE):
                        if isinstance(news, Event):
                            self._seen.append((news.sequence, type(news.fact).__name__))
                except CallFailed as failed:
                    if failed.reason not in EXPECTED:
                        self._faults.append(f"watching: {failed.reason}: {failed}")
                await asyncio.sleep(0.1)

    def against(self, path: Path) -> list[str]:
        """What it was told against what is stored: each event once, in order, and none that is not stored."""
        with contextlib.closing(ledger.Ledger(path)) as stored:
            kinds = {
                "state": "StateChanged",
                "trials": "TrialsEnded",
                "limits": "LimitsChanged",
                "purge": "ContentPurged",
            }
            rows = stored.rows(
                "SELECT e.sequence, e.kind FROM event e JOIN run r ON r.n = e.run WHERE r.id = ? ORDER BY 1",
                self._run_id,
            )
        if not rows:
            return []  # it was deleted
        known = [(row["sequence"], kinds[row["kind"]]) for row in rows]
        return (
            []
            if self._seen == known[: len(self._seen)]
            else [f"run {self._run_id}: a watcher was told {self._seen[:20]}…, stored is {known[:20]}…"]
        )
