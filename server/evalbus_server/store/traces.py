"""Traces of rows: copies that SQLite leaves in the unused middle of a page when it moves rows to another one.

`secure_delete` overwrites what is deleted, where it stands then. A row that was moved before, when pages were split or
joined, may still be where it was, and its deletion does not reach that. Nothing reads the middle of a page, and it is
used up in time; whoever was promised that something is gone cannot wait for that.

Wiping happens in the file, behind SQLite: the log has to be empty, nobody may write meanwhile, and no page that is to be
written later may be remembered as it was. The process that does it is in wiper.py.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from evalbus_server.errors import Reason, StoreTrouble
from evalbus_server.store.connection import Connection

PAGES_AT_ONCE = 2048
"""So many pages are looked at in one step, which holds the event loop: some milliseconds."""

_WIPER = Path(__file__).with_name("wiper.py")


def wipe(connection: Connection, cut_log: Callable[[], bool]) -> Iterator[bool]:
    """Wipe all pages, a step at a time; each says whether it could be done, or has to wait for a reader of the log.

    *cut_log* cuts the log to nothing, if nobody prevents it just now, and says whether it has.

    Raises:
        StoreTrouble: the file cannot be written.
    """
    pages = int(connection.rows("PRAGMA page_count")[0][0])
    with _wiper(connection.path) as wiper:
        first = 0
        while first < pages:
            empty = cut_log()
            if empty:
                _step(connection, wiper, first)
                first += PAGES_AT_ONCE
            yield empty


def _step(connection: Connection, wiper: subprocess.Popen[str], first: int) -> None:
    with connection.transaction():  # The log was cut in this turn of the loop, so nobody but this process writes.
        connection.execute("PRAGMA shrink_memory")
        assert wiper.stdin is not None
        assert wiper.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            wiper.stdin.write(f"{first} {PAGES_AT_ONCE}\n")
            wiper.stdin.flush()
        answer = wiper.stdout.readline().strip()
    if not answer.isdecimal():
        reason = answer.removeprefix("- ") or "the process that does it has died"
        raise StoreTrouble(Reason.DATABASE_FULL, f"{connection.path}: traces of rows cannot be overwritten: {reason}")


@contextlib.contextmanager
def _wiper(path: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-I", "-S", str(_WIPER), str(path.absolute())]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as wiper:
        try:
            yield wiper
        finally:
            assert wiper.stdin is not None
            with contextlib.suppress(OSError):
                wiper.stdin.close()
