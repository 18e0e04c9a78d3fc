"""Moves the write-ahead log into the database file: a thread with a connection of its own.

SQLite would do it inside the commit that makes the log too long, and hold the event loop for up to 20 ms. One call into
SQLite needs the interpreter twice, so this thread does not starve behind a busy loop.

A checkpoint never begins in the instant in which a commit begins the log anew: every SQLite before 3.51.3 may lose such
a commit (https://sqlite.org/wal.html, "the WAL-reset bug"). A commit does that when all of the log is moved, so then this
thread does it first, holding the lock of writers; and where readers prevent it, it waits until the log has grown again.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_EVERY = 0.25
"""Seconds between two rounds."""
_IDLE_ROUNDS = 4
"""Rounds without a commit after which the log is cut to nothing."""
_PAGE = 4096
_LONG = 16 << 20
"""A log that is still of more bytes after a round is begun anew, though commits go on."""
_WAIT = 0.02
"""Seconds for which beginning anew waits for readers."""
_AFTER_FAILURE = 1.0
"""Seconds after which it is tried again if a reader has prevented it."""
_STARVED = 0.05
"""Seconds after which this thread may be supposed to starve behind a busy loop: a commit that waits lets it run."""


class Checkpointer:
    """The thread. It sleeps until it hears of a commit."""

    def __init__(self, path: Path) -> None:
        """Start it for the database at *path*."""
        self._path = path
        self._excluding_since: float | None = None
        self._commits = 0
        self._moved_at: int | None = None
        """How many commits there were when all of the log was found moved; None: there is something to be moved."""
        self._written = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evalbus-checkpoint", daemon=True)
        self._thread.start()

    @property
    def excludes_commits(self) -> bool:
        """Whether a commit would wait now, and hold the event loop, instead of a moment later."""
        since = self._excluding_since
        return since is not None and time.monotonic() - since < _STARVED

    def note_commit(self) -> None:
        """Something was written, by the one thread that writes."""
        self._commits += 1
        if not self._written.is_set():
            self._written.set()

    def note_all_moved(self) -> None:
        """The thread that writes has moved all of the log itself."""
        self._moved_at = self._commits

    def close(self) -> None:
        """End the thread; its round is finished first."""
        self._ending.set()
        self._written.set()
        self._thread.join()

    def _work(self) -> None:
        raw = sqlite3.connect(self._path, isolation_level=None, timeout=_WAIT)
        with contextlib.closing(raw):
            with contextlib.suppress(sqlite3.Error):
                raw.execute("PRAGMA synchronous = NORMAL")
                raw.execute("PRAGMA wal_autocheckpoint = 0")
            while not self._ending.is_set():
                self._written.wait()
                self._follow(raw)

    def _follow(self, raw: sqlite3.Connection) -> None:
        """Keep the log short until nothing has been written for a while."""
        quiet = 0
        not_before = 0.0
        while quiet < _IDLE_ROUNDS:
            if self._ending.wait(_EVERY):
                return
            quiet = 0 if self._written.is_set() else quiet + 1
            self._written.clear()
            pages = self._move(raw)
            if (self._is_all_moved() or pages * _PAGE > _LONG) and not quiet and time.monotonic() >= not_before:
                not_before = time.monotonic() + (0 if self._begin_anew(raw) else _AFTER_FAILURE)
        while not self._written.is_set() and not self._cut(raw):
            if self._ending.wait(_AFTER_FAILURE):
                return

    def _move(self, raw: sqlite3.Connection) -> int:
        """Move what nobody needs in the log any more; returns how many pages the log has."""
        if self._is_all_moved():
            return 0
        done = _checkpoint(raw, "PASSIVE")
        self._note(done)
        return 0 if done is None else done[0]

    def _cut(self, raw: sqlite3.Connection) -> bool:
        """Cut the log to nothing; whether no reader prevented it."""
        with self._excluding_commits():
            done = _checkpoint(raw, "TRUNCATE")
            self._note(done)
        return done is not None

    def _begin_anew(self, raw: sqlite3.Connection) -> bool:
        """Write to the log's beginning again; whether no reader prevented it.

        The first who does waits for the disk: better this thread than the event loop.
        """
        with self._excluding_commits():
            done = _checkpoint(raw, "RESTART")
            self._note(done)
            if done is None:
                return False
            with contextlib.suppress(sqlite3.Error):
                raw.execute("UPDATE recovery SET clean = 0")
                self._moved_at = None
            return True

    def _note(self, done: tuple[int, int] | None) -> None:
        if done is not None:
            self._moved_at = self._commits if done[0] == done[1] else None

    def _is_all_moved(self) -> bool:
        """Whether all of the log may be moved. The second commit since then has come after it, for sure."""
        return self._moved_at is not None and self._commits - self._moved_at < 2

    @contextlib.contextmanager
    def _excluding_commits(self) -> Iterator[None]:
        self._excluding_since = time.monotonic()
        try:
            yield
        finally:
            self._excluding_since = None


def _checkpoint(raw: sqlite3.Connection, how: str) -> tuple[int, int] | None:
    """Pages in the log and pages of it that are moved; None if something kept it from its work.

    That (a full disk, a reader that holds a transaction) may be over at the next round; meanwhile everything is safe in
    the log, and commits meet the trouble themselves.
    """
    try:
        busy, pages, moved = raw.execute(f"PRAGMA wal_checkpoint({how})").fetchall()[0]
    except sqlite3.Error:
        return None
    return None if busy else (pages, moved)
