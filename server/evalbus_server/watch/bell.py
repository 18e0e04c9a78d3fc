"""The bell of the runs: rung after a commit, it wakes whoever waits. It carries no news, so none can be lost in it."""

from __future__ import annotations

import asyncio


class Bell:
    """One ring a run; a watcher takes the next ring before it reads, and waits for it after."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._rings: dict[str, asyncio.Event] = {}
        self.silenced = False
        """Set when the server stops: followers end by themselves."""

    def next_ring(self, run_id: str) -> asyncio.Event:
        """What is set at the next ring of this run."""
        ring = self._rings.get(run_id)
        if ring is None:
            ring = self._rings[run_id] = asyncio.Event()
            if self.silenced:
                ring.set()
        return ring

    def ring(self, run_id: str) -> None:
        """Wake everybody who waits for this run."""
        ring = self._rings.pop(run_id, None)
        if ring is not None:
            ring.set()

    def silence(self) -> None:
        """Wake everybody for good."""
        self.silenced = True
        for run_id in list(self._rings):
            self.ring(run_id)
