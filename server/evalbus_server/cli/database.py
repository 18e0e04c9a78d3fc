"""A database as the commands that read ask it: in the way of `cli/client.py`, whoever writes it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from types import TracebackType

from evalbus_server.app import read_summary
from evalbus_server.errors import NotFound, Reason
from evalbus_server.model.event import Event
from evalbus_server.model.result_filter import EVERYTHING, ResultFilter, check_filter
from evalbus_server.model.run import Run
from evalbus_server.model.summary import Summary
from evalbus_server.model.trial import StoredResult
from evalbus_server.runner.line import Progress
from evalbus_server.store import RunFilter, open_reader
from evalbus_server.watch.bell import Bell
from evalbus_server.watch.follow import Followed, Idle, Notice, follow

POLL = 0.25
"""Seconds between two looks whether somebody has written."""
ATTENDED = 2.0
"""Seconds between two looks whether a run still has somebody who works on it: nothing is written when he dies."""
PAGE = 256
LATEST = ("latest", "last")


class Database:
    """A database that is only read: no call holds up the process that writes it."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            StoreTrouble: it is no database, or newer than this program.
        """
        self._reader = open_reader(path)

    async def __aenter__(self) -> Database:
        """The database itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close it."""
        self._reader.close()

    async def run(self, run_id: str) -> Run:
        """A run by its id, the beginning of it, or `latest`.

        Raises:
            NotFound: there is none.
        """
        if run_id not in LATEST:
            return self._reader.run(run_id)
        newest = self._reader.runs(limit=1)
        if not newest:
            message = f"{self._reader.path} holds no run; start one with evalbus run FILE"
            raise NotFound(Reason.RUN_NOT_FOUND, message)
        return newest[0]

    async def runs(self, wanted: RunFilter, limit: int) -> list[Run]:
        """Runs, the newest first, so many at most."""
        return self._reader.runs(wanted, limit)

    async def watch(self, run_id: str, after: int = 0) -> AsyncGenerator[Event | Progress | Idle, None]:
        """Follow a run to its end, from any event on."""
        bell = Bell()
        ringing = asyncio.create_task(self._ring(run_id, bell))
        source = Followed(
            events=lambda run_id, after, limit: self._reader.events(run_id, after=after, limit=limit),
            run=self._reader.run,
            progress=lambda _: None,  # only the process that carries the run out knows
            bell=bell,
            poll=ATTENDED,
        )
        try:
            async for news in follow(source, run_id, after):
                if not isinstance(news, Notice):
                    yield news
        finally:
            ringing.cancel()
            await asyncio.gather(ringing, return_exceptions=True)

    async def _ring(self, run_id: str, bell: Bell) -> None:
        """Ring whenever another process has written."""
        seen = self._reader.data_version()
        while True:
            await asyncio.sleep(POLL)
            version = self._reader.data_version()
            if version != seen:
                seen = version
                bell.ring(run_id)

    async def results(
        self, run: Run, filter: ResultFilter = EVERYTHING
    ) -> AsyncGenerator[tuple[StoredResult, Run], None]:
        """Results in dataset order, then epoch, each with its run; read a page at a time."""
        check_filter(filter, run.score_keys)
        after: tuple[int, int] | None = None
        while True:
            page = self._reader.result_page(run, filter, after=after, limit=PAGE)
            for result in page.results:
                yield result, run
            after = page.place
            if after is None:
                return

    async def summary(self, run: Run) -> Summary:
        """The numbers of a run, computed from what is stored."""
        return read_summary(self._reader, run)
