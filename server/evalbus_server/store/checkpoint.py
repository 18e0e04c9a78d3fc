"""Moves the write-ahead log into the database file: a thread with a connection of its own.

SQLite would do it inside the commit that makes the log too long, and hold the event loop for up to 20 ms. One call into
SQLite needs the interpreter twice, so this thread does not starve behind a busy loop.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from pathlib import Path

_EVERY = 0.25
"""Seconds between two rounds."""
_IDLE_ROUNDS = 4
"""Rounds without a commit after which the log is cut to nothing."""
_LONG = 32 * 1024 * 1024
"""A log of more bytes is started anew even while commits go on: they wait some milliseconds."""


class Checkpointer:
    """The thread. It sleeps until it hears of a commit."""

    def __init__(self, path: Path) -> None:
        """Start it for the database at *path*."""
        self._path = path
        self._log = f"{path}-wal"
        self._written = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evalbus-checkpoint", daemon=True)
        self._thread.start()

    def note_commit(self) -> None:
        """Something was written."""
        if not self._written.is_set():
            self._written.set()

    def close(self) -> None:
        """End the thread; its round is finished first."""
        self._ending.set()
        self._written.set()
        self._thread.join()

    def _work(self) -> None:
        raw = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        with contextlib.closing(raw):
            while not self._ending.is_set():
                self._written.wait()
                self._follow(raw)

    def _follow(self, raw: sqlite3.Connection) -> None:
        """Keep the log short until nothing has been written for a while."""
        quiet = 0
        while quiet < _IDLE_ROUNDS:
            quiet = 0 if self._written.is_set() else quiet + 1
            self._written.clear()
            if self._ending.wait(_EVERY):
                return
            self._round(raw, "PASSIVE")
            if self._log_bytes() > _LONG:
                self._round(raw, "RESTART")
        self._round(raw, "TRUNCATE")

    def _round(self, raw: sqlite3.Connection, how: str) -> None:
        # What keeps a round from its work (a full disk, a reader that holds a transaction) may be over at the next one;
        # meanwhile everything is safe in the log, and commits meet the trouble themselves.
        with contextlib.suppress(sqlite3.Error):
            raw.execute(f"PRAGMA wal_checkpoint({how})").fetchall()

    def _log_bytes(self) -> int:
        try:
            return os.stat(self._log).st_size
        except OSError:
            return 0
