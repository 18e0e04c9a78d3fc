"""A served server as the chaos suite starts it: the product's own, over a disk that may be slow.

server.py CONFIG FOLDER SLOWNESS      SLOWNESS: seconds that a commit takes longer at most; 0: as it is
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

from evalbus_server import logs
from evalbus_server.app import serve
from evalbus_server.errors import ServerError
from evalbus_server.settings import Serving, Settings


class SlowConnection(sqlite3.Connection):
    """Commits as every connection does, only later, and holds whoever waits for it as a slow disk would."""

    slowness = 0.0

    def execute(self, sql: str, *more: object) -> sqlite3.Cursor:
        """Execute; a COMMIT takes its time first."""
        if sql == "COMMIT":
            time.sleep(random.random() ** 3 * self.slowness)
        return super().execute(sql, *more)  # type: ignore[arg-type]


async def served(serving: Serving, tasks: str) -> None:
    """Serve, and tell the number of tasks to whoever asks for it."""

    def tell() -> None:
        partial = Path(f"{tasks}.partial")
        partial.write_text(str(len(asyncio.all_tasks())))
        partial.rename(tasks)

    if tasks:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
    await serve(serving)


def main(config: str, folder: str, slowness: float, tasks: str = "") -> None:
    """Serve until the process is asked to end."""
    logs.set_up("warning")
    if slowness:
        SlowConnection.slowness = slowness
        sqlite3.connect = functools.partial(sqlite3.connect, factory=SlowConnection)  # type: ignore[assignment]
    try:
        asyncio.run(served(Serving(Settings.parse(json.loads(config)), Path(folder), os.environ), tasks))
    except ServerError as error:
        sys.exit(f"{error.reason}: {error}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), *sys.argv[4:])
