"""One process writes a file: it holds `F.lock`. The kernel lets go of the lock when the process ends, however it does."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from evalbus_server.errors import Reason, StoreTrouble

_TRIES = 5  # A reader that looks who holds the lock holds it itself, for some microseconds.


class Lock:
    """The right to write a file."""

    def __init__(self, path: Path) -> None:
        """Take the lock of the database at *path*.

        Raises:
            StoreTrouble: DATABASE_LOCKED, naming the process that has it; DATABASE_READ_ONLY.
        """
        self._path = lock_path(path)
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreTrouble(
                Reason.DATABASE_READ_ONLY, f"{path} cannot be written: {self._path}: {error.strerror}"
            ) from error
        try:
            self._take(path)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(self._file)
            raise

    def release(self) -> None:
        """Let go. The lock file stays: deleting it would let two processes lock two files of one name."""
        os.close(self._file)

    def _take(self, path: Path) -> None:
        for last in range(_TRIES - 1, -1, -1):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if not last:
                    raise StoreTrouble(
                        Reason.DATABASE_LOCKED,
                        f"{path} is being written by {_named(self._file)}; wait until it has ended, or take another file with --db",
                    ) from error
            time.sleep(0.02)


def lock_path(path: Path) -> Path:
    """Where the lock of a database lies."""
    return path.with_name(path.name + ".lock")


def is_held(path: Path) -> bool:
    """Whether some process writes the database at *path*."""
    try:
        file = os.open(lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # Nobody can tell: then nothing is said to be dead.
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _named(file: int) -> str:
    pid = os.pread(file, 20, 0).decode("ascii", "replace").strip()
    return f"process {pid}" if pid.isdigit() else "another process"
