"""A database opened for writing: the lock of the one process that does, the file under it, and what is left on the disk."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from evalbus_server.errors import Reason, StoreTrouble
from evalbus_server.store import traces
from evalbus_server.store.checkpoint import Checkpointer
from evalbus_server.store.connection import check_place, connect_writing
from evalbus_server.store.lock import Lock
from evalbus_server.store.reader import Reader

_TRIES = 50
_BETWEEN_TRIES = 0.01
"""Seconds between two tries to wipe, while a reader, or the thread that moves the log, is at it."""


class Writer(Reader):
    """Holds the lock of a database, and the thread that keeps its log short, until it is closed."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Open it; see open_store."""
        check_place(path)
        self._lock = Lock(path)
        try:
            super().__init__(connect_writing(path))
        except BaseException:
            self._lock.release()
            raise
        self._clock = clock
        self._era = self._begin_era()
        self._files = _identities(path)
        self._looked = time.monotonic()
        self._lost = False
        self._closed = False
        self._checkpointer = Checkpointer(path)
        self._connection.note_commit = self._checkpointer.note_commit
        self._checkpointer.note_commit()  # What was written before, and by those before.

    def close(self) -> None:
        """Close the database in order, and let go of it; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        self._checkpointer.close()
        try:
            if not self._lost:
                with self._connection.transaction(durable=True):
                    self._connection.execute("UPDATE recovery SET clean = 1")
        except StoreTrouble:
            pass  # Then the next one to open it takes the careful way.
        finally:
            super().close()
            self._lock.release()

    def check(self) -> None:
        """See whether what is written still lands in the file that has its name.

        Raises:
            StoreTrouble: DATABASE_LOST: it was deleted or replaced.
        """
        self._looked = time.monotonic()
        if not self._lost:
            self._lost = _identities(self.path) != self._files
        if self._lost:
            raise StoreTrouble(
                Reason.DATABASE_LOST, f"{self.path} was deleted or replaced while it was open: nothing more is stored"
            )

    def cut_log(self) -> bool:
        """Let nothing of what was overwritten be left in the log; False: a reader needs it just now."""
        cut = self._connection.cut_log()
        if cut:
            self._checkpointer.note_all_moved()
        return cut

    def wipe(self) -> Iterator[bool]:
        """Overwrite what may be left in the file of rows that were moved before they were overwritten; see traces.py.

        Step by step; each says whether it could be done, or has to wait for a reader.

        Raises:
            StoreTrouble: the file cannot be written.
        """
        self.check()
        return traces.wipe(self._connection, self.cut_log)

    @property
    def excludes_commits(self) -> bool:
        """Whether a commit would wait now, and hold the event loop, instead of a moment later."""
        return self._checkpointer.excludes_commits

    def _clear_disk(self) -> None:
        """Let nothing be left on the disk of what was overwritten before anybody works here, unless somebody reads it."""
        tries = _TRIES
        with contextlib.suppress(StoreTrouble):
            for wiped in self.wipe():
                if not wiped:
                    tries -= 1
                    if not tries:
                        return
                    time.sleep(_BETWEEN_TRIES)

    def _begin_era(self) -> int:
        with self._connection.transaction(durable=True):
            self._connection.execute("UPDATE recovery SET era = era + 1 - clean, clean = 0")
            found = self._connection.row("SELECT era FROM recovery")
        assert found is not None
        return int(found[0])

    def _is_attended(self) -> bool:
        return True


def _identities(path: Path) -> list[tuple[int, int] | None]:
    """Which files have the names of the database and of its log."""
    found: list[tuple[int, int] | None] = []
    for name in (path, f"{path}-wal"):
        try:
            status = os.stat(name)
            found.append((status.st_dev, status.st_ino))
        except OSError:
            found.append(None)
    return found
