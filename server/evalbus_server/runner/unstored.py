"""Ends of runs that could not be stored, because the disk was full or another program wrote: stored once that is possible.

Without this a run would stay RUNNING for everybody, though nobody works on it, until the server is started anew.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import structlog

from evalbus_server.errors import NotFound, StoreTrouble
from evalbus_server.model.run import RunState, Verdict
from evalbus_server.store import Store
from evalbus_server.watch.bell import Bell

AGAIN = 1.0
"""Seconds between two tries."""

_log = structlog.get_logger("evalbus.run")


class End(NamedTuple):
    """How a run has ended."""

    state: RunState
    reason: str
    verdict: Verdict | None


class UnstoredEnds:
    """The ends that are still to be stored, by run."""

    def __init__(self, store: Store, bell: Bell) -> None:
        """None yet."""
        self._store = store
        self._bell = bell
        self._ends: dict[str, End] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many there are."""
        return len(self._ends)

    def keep(self, run_id: str, end: End) -> None:
        """Store this end as soon as it is possible."""
        self._ends[run_id] = end
        self._try_later()

    def store(self) -> None:
        """Store what can be stored now."""
        for run_id, end in list(self._ends.items()):
            try:
                self._store.change_state(run_id, end.state, reason=end.reason, verdict=end.verdict)
            except StoreTrouble:
                continue
            except NotFound:
                pass
            else:
                _log.info("run ended", run=run_id, state=end.state.name, reason=end.reason.partition(":")[0])
            del self._ends[run_id]
            self._bell.ring(run_id)

    def close(self) -> None:
        """Try a last time: what is not stored then, shows as INTERRUPTED when the file is opened again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.store()

    def _try_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(AGAIN, self._again)

    def _again(self) -> None:
        self._timer = None
        self.store()
        if self._ends:
            self._try_later()
