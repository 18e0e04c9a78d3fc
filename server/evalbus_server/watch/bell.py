"""The bell of the runs: rung after a commit, it wakes whoever waits. It carries no news, so none can be lost in it."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class Bell:
    """One ring a run; a watcher takes the next ring before it reads, and waits for it after.

    Results are rung for softly, since they come many times a second: that wakes nobody who has looked often enough.
    """

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._rings: dict[str, asyncio.Event] = {}
        self._loud: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
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

    def next_loud(self, run_id: str) -> asyncio.Event:
        """What is set at the next ring of this run that is not a soft one."""
        ring = self._loud.get(run_id)
        if ring is None:
            ring = self._loud[run_id] = asyncio.Event()
            if self.silenced:
                ring.set()
        return ring

    def ring(self, run_id: str) -> None:
        """Wake everybody who waits for this run."""
        self.ring_softly(run_id)
        loud = self._loud.pop(run_id, None)
        if loud is not None:
            loud.set()

    def ring_softly(self, run_id: str) -> None:
        """Wake those who wait for any ring of this run."""
        ring = self._rings.pop(run_id, None)
        if ring is not None:
            ring.set()

    def silence(self) -> None:
        """Wake everybody for good."""
        self.silenced = True
        for run_id in [*self._rings, *self._loud]:
            self.ring(run_id)
