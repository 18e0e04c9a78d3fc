"""Where a plugin is: an address, or a process that the server starts and whose whole group ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from evalbus_server.errors import Reason, Unreachable
from evalbus_server.plugin.last_words import quoted

TAIL = 4000
"""So many characters of what a process printed are kept for error messages."""
MOMENT = 0.5
"""Seconds that a process whose conversation broke gets to end by itself."""
GRACE = 3.0
"""Seconds between asking a process to end and killing its group; the guard keeps to it."""

_GUARD = Path(__file__).with_name("guard.py")
_log = structlog.get_logger("evalbus.plugin")


class FixedAddress:
    """A plugin that listens already."""

    hint = ": is it running there?"

    def __init__(self, address: str, token: str = "", *, limit: float = 10.0) -> None:
        """*limit* is in seconds."""
        self._address = address
        self.token = token
        self.token_hint = (
            "does not know the token that `token` gives"
            if token
            else "wants a token; give it beside the address, as in token: ${env:NAME}"
        )
        self.limit = limit

    def __str__(self) -> str:
        """Where it is."""
        return f"at {self._address}"

    async def address(self) -> str:
        """The address as it was given."""
        return self._address

    async def lost(self) -> str:
        """Never returns: nobody tells of a foreign process's end."""
        await asyncio.Event().wait()
        return ""

    async def end(self) -> None:
        """Nothing to end."""

    async def last_words(self) -> str:
        """Nothing is known of a foreign process."""
        return ""


class LaunchedProcess:
    """A plugin that is started by the server, in a process group of its own, under a guard.

    The guard holds the other end of a pipe. When the server closes it, or dies in whatever way, the guard ends the
    plugin's process group and every descendant of it.
    """

    hint = ""
    token_hint = "refuses the token that it was started with in EVALBUS_TOKEN"

    def __init__(
        self, argv: Sequence[str], folder: str, environment: Mapping[str, str], *, limit: float = 30.0
    ) -> None:
        """*argv* `python` as first word stands for this interpreter; *limit* (seconds) is for the start."""
        self._argv = [sys.executable, *argv[1:]] if argv[0] in ("python", "python3") else list(argv)
        self._written = argv
        self._folder = folder
        self._environment = dict(environment)
        self.limit = limit
        self.token = secrets.token_urlsafe(32)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._private: str | None = None
        self._tail = ""
        self._ended_as = ""

    def __str__(self) -> str:
        """What it is started as."""
        return f"started as {shlex.join(self._written)!r}"

    async def address(self) -> str:
        """The socket of the process, which is started if it does not run."""
        if self._process is None or self._process.returncode is not None:
            await self._start()
        return f"unix:{self._private}/s"

    async def _start(self) -> None:
        await self.end()
        self._private = tempfile.mkdtemp(prefix="evalbus-")  # only this user may enter
        self._tail = self._ended_as = ""
        environment = {
            **os.environ,
            **self._environment,
            "EVALBUS_SOCKET": f"{self._private}/s",
            "EVALBUS_TOKEN": self.token,
            "PYTHONUNBUFFERED": "1",
        }
        self._check()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(_GUARD),
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._folder or None,
            env=environment,
            start_new_session=True,
        )
        self._reader = asyncio.create_task(self._keep_tail(self._process, self._private))
        _log.info("process started", program=self._argv[0], pid=self._process.pid)

    def _check(self) -> None:
        """Say clearly what the guard could only say by an exit code."""
        if self._folder and not Path(self._folder).is_dir():
            raise Unreachable(Reason.PLUGIN_START_FAILED, f"cannot start {self._argv[0]}: no folder {self._folder}")
        program = self._argv[0]
        path = Path(self._folder or ".", program) if os.sep in program else shutil.which(program)
        if path is None or not Path(path).exists():
            raise Unreachable(Reason.PLUGIN_START_FAILED, f"cannot start {program}: no such program")
        if not os.access(path, os.X_OK) or Path(path).is_dir():
            raise Unreachable(Reason.PLUGIN_START_FAILED, f"cannot start {program}: permission denied (not executable)")

    async def _keep_tail(self, process: asyncio.subprocess.Process, private: str) -> None:
        """Read whatever the process prints, for ever, and keep the end of it. Nobody listens in its folder afterwards."""
        assert process.stdout is not None
        while chunk := await process.stdout.read(65536):
            said = self._tail + chunk[-TAIL:].decode("utf-8", "replace")
            self._tail = f"…{said[-TAIL:]}" if len(said) > TAIL or len(chunk) > TAIL else said
        await process.wait()
        shutil.rmtree(private, ignore_errors=True)  # a guard that was killed has not done that

    async def lost(self) -> str:
        """How the process ended, once it has."""
        if self._process is None:
            return "was not started"
        code = await self._process.wait()
        if self._reader is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._reader), 1.0)  # a grandchild may hold the pipe open
        self._ended_as = _how(code)
        hint = " (does it call serve()?)" if code == 0 else ""
        if "No module named 'evalbus" in self._tail:
            hint = f"; install evalbus there, as in {self._argv[0]} -m pip install evalbus"
        return f"ended before it answered: {self._ended_as}{hint}{self._quoted_tail()}"

    async def end(self) -> None:
        """Close the pipe, upon which the guard ends the group, and wait for it."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                assert process.stdin is not None
                process.stdin.close()
                try:
                    await asyncio.wait_for(process.wait(), GRACE + 2)
                except TimeoutError:
                    process.kill()
                    await process.wait()
            else:
                self._ended_as = self._ended_as or _how(process.returncode)
            if process.stdin is not None:
                process.stdin.close()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if process is not None:
            process._transport.close()  # type: ignore[attr-defined]  # or the pipes wait for the garbage collector
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
            self._private = None

    async def last_words(self) -> str:
        """How it ended, if it has within a moment, and the end of what it printed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MOMENT):
                await self.lost()
        code = None if self._process is None else self._process.returncode
        how = self._ended_as or ("" if code is None else _how(code))
        return f" ({how})" * bool(how) + self._quoted_tail()

    def _quoted_tail(self) -> str:
        said = quoted(self._tail, self._folder)
        return f"; it said last: {said}" if said else ""


def _how(code: int) -> str:
    """A process's end in words; the guard passes on signals as 128 + number, as shells do."""
    if code < 0:
        return f"signal {-code}"
    return f"exit code {code}, signal {code - 128}" if code > 128 else f"exit code {code}"
