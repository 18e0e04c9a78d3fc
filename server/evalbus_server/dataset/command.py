"""The output of a command that prints a dataset. It runs in the experiment's folder and in a process group of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.secrets import Secrets, named_so

TIME_LIMIT = 600.0
"""Seconds after which a command is ended."""
TAIL = 10
"""So many last lines of its stderr stand in an error."""
SHOWN = 300
"""So many characters of each."""


class CommandOutput:
    """What a running command prints."""

    def __init__(self, argv: Sequence[str], process: subprocess.Popen[bytes], limit: float) -> None:
        """Follow a process; it is ended after *limit* seconds."""
        assert process.stdout is not None
        self.file: BinaryIO = process.stdout  # type: ignore[assignment]  # a BufferedReader, since bufsize is not 0
        self._argv = argv
        self._process = process
        self._limit = limit
        self._late = False
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._ending = threading.Lock()
        self._timer = threading.Timer(limit, self._end_late)
        self._timer.daemon = True
        self._timer.start()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def finish(self) -> None:
        """Wait for its end.

        Raises:
            Invalid: it did not end well, or not in time.
        """
        if self.file.read(1):
            return  # Reading ended early, at refused rows: how the command would have ended says nothing.
        code = self._end()
        if self._late:
            raise self._failed(f"did not end within {self._limit:g} s")
        if code:
            raise self._failed(f"ended with {_exit(code)}")

    def close(self) -> None:
        """End whatever still runs."""
        self._kill()
        self._end()
        self.file.close()

    def _end(self) -> int:
        """Wait for the process, then end what it started and left behind."""
        if self._process.returncode is None:
            # Its number stays its own until it is waited for, so no foreign group can be hit.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            self._timer.cancel()
            self._kill()
            with self._ending:
                self._process.wait()
        self._reader.join(timeout=1)
        return self._process.returncode

    def _failed(self, how: str) -> Invalid:
        said = Secrets(named_so(os.environ)).hide(" | ".join(self._tail))
        return Invalid(Reason.DATASET_INVALID, f"{' '.join(self._argv)}: {how}" + (f": {said}" if said else ""))

    def _end_late(self) -> None:
        self._late = True
        self._kill()

    def _kill(self) -> None:
        with self._ending, contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            while line := errors.readline(4096):
                text = line.decode("utf-8", "replace").strip()
                if text:
                    shown = "".join(character if character.isprintable() else " " for character in text)
                    self._tail.append(shown if len(shown) <= SHOWN else shown[:SHOWN] + "…")


@contextlib.contextmanager
def command_output(argv: Sequence[str], folder: str, limit: float = TIME_LIMIT) -> Iterator[CommandOutput]:
    """Start a command in a folder; `python` stands for this interpreter. Whatever still runs at the end is ended.

    Raises:
        Invalid: it cannot be started.
    """
    program = sys.executable if argv[0] == "python" else argv[0]
    try:
        process = subprocess.Popen(
            [program, *argv[1:]],
            cwd=folder or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Invalid(Reason.DATASET_INVALID, f"{' '.join(argv)}: cannot be started: {reason}") from None
    output = CommandOutput(argv, process, limit)
    try:
        yield output
    finally:
        output.close()


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
