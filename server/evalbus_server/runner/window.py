"""The window of a run: open trials come in page by page, as many as may be on their way, and leave once they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from evalbus_server.model.run import Run
from evalbus_server.model.trial import Changes, OpenTrial, StoredItem, trial_id_of

PAGE = 256
CACHED_PAGE = 32
"""Items at once where outputs may be read along with them, which are larger."""
LEAST_WINDOW = 2048
WINDOW_BYTES = 64 * 1024 * 1024

OpenPage = Callable[[int, int, int], tuple[list[StoredItem], int]]
"""(epoch, after, limit) -> open items of the run by position, and the last position that was looked at."""


def window_for(concurrency: int) -> int:
    """How many trials may be on their way: more than this gains nothing."""
    return max(4 * concurrency, LEAST_WINDOW)


class Window:
    """Counts trials from their admission to the commit of their output, or of their result if they have none."""

    def __init__(self, run: Run, open_page: OpenPage) -> None:
        """Nobody is on the way."""
        self.page = PAGE
        """Items that are read at once."""
        self._run = run
        self._open_page = open_page
        self._most = LEAST_WINDOW
        self._open: dict[int, OpenTrial] = {}
        self._bytes = 0
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()

    def widen(self, concurrency: int) -> None:
        """The target may be asked so many trials at the same time."""
        self._most = window_for(concurrency)
        self._room.set()

    def stop(self) -> None:
        """Let nobody in any more."""
        self._stopping.set()
        self._room.set()

    async def admit(
        self, elsewhere: Callable[[int], Awaitable[None]], let_in: Callable[[list[OpenTrial]], None]
    ) -> None:
        """Hand all open trials to *let_in*, page by page and epoch by epoch, as there is room; returns when stopped, too.

        *elsewhere* waits until so many may be on their way behind the window.
        """
        for epoch in range(1, self._run.epochs + 1):
            after = -1
            while after < self._run.selection.last and not self._stopping.is_set():
                while len(self._open) + PAGE > self._most or self._bytes > WINDOW_BYTES:
                    self._room.clear()
                    await self._room.wait()
                    if self._stopping.is_set():
                        return
                await elsewhere(len(self._open) + PAGE)
                page, after = self._open_page(epoch, after, self.page)
                if page:
                    let_in(self._enter(page, epoch))
                await asyncio.sleep(0)

    def _enter(self, page: list[StoredItem], epoch: int) -> list[OpenTrial]:
        opened = self._open
        trials = []
        for stored in page:
            trial = OpenTrial(trial_id_of(stored.position, epoch), stored)
            opened[trial.trial_id] = trial
            trials.append(trial)
            self._bytes += stored.size
        return trials

    def grow(self, size: int) -> None:
        """What is on the way takes so many bytes more, or less."""
        self._bytes += size

    def leave(self, changes: Changes) -> list[OpenTrial]:
        """A commit was made: whom it stored has left; returns the trials whose outputs it stored."""
        opened = self._open
        before = len(opened)
        stored: list[OpenTrial] = []
        for record in changes.outputs:
            trial = opened.pop(record.trial_id, None)
            if trial is not None:
                self._bytes -= trial.size
                stored.append(trial)
        for result in changes.results:
            trial = opened.pop(result.trial_id, None)
            if trial is not None:
                self._bytes -= trial.size
        if len(opened) < before:
            self._room.set()
        return stored
