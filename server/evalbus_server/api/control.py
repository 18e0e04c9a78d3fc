"""The control socket of a database, `F.sock`: other commands of the same user reach the runs that this process works on.

One connection asks one thing: a line of JSON in, `{"do": "pause", "run": ID}`, and a line out, `{"run": {…}}` or
`{"error": {"reason", "message"}}`. Whoever holds `F.lock` may listen there, so a socket that is found is a dead one's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import structlog

from evalbus_server.errors import Invalid, Reason, ServerError
from evalbus_server.model.run import Run
from evalbus_server.runner.runs import Runs
from evalbus_server.wire.jsonform import run_document

LONGEST_LINE = 64 * 1024
PATIENCE = 5.0
"""Seconds for a caller to say what it wants."""
LONGEST_ADDRESS = 100
"""Bytes of a path that every system takes as the address of a socket."""

_log = structlog.get_logger("evalbus.api")


def socket_path(database: Path) -> Path:
    """Where the control socket of a database lies."""
    return database.with_name(database.name + ".sock")


class Control:
    """Listens at the control socket while it is entered. Where there can be no socket, nothing listens."""

    def __init__(self, runs: Runs, database: Path) -> None:
        """Not listening yet; the caller holds the lock of *database*."""
        self._path = socket_path(database)
        self._runs = runs
        self._doing: dict[str, Callable[[dict[str, Any]], Run]] = {
            "cancel": lambda asked: runs.cancel(_run_of(asked)),
            "pause": lambda asked: runs.pause(_run_of(asked)),
            "set": lambda asked: runs.change_limits(_run_of(asked), dict(asked.get("settings") or {})),
        }
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Control:
        """Listen."""
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(self._path.lstat().st_mode):
                self._path.unlink()
        try:
            listening = _bind(self._path)
        except OSError as error:
            _log.info("there is no control socket", path=str(self._path), error=str(error))
        else:
            self._server = await asyncio.start_unix_server(self._talk, sock=listening, limit=LONGEST_LINE)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Listen no more, and leave nothing behind."""
        if self._server is None:
            return
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        with contextlib.suppress(OSError):
            self._path.unlink()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            async with asyncio.timeout(PATIENCE):
                line = await reader.readline()
            answer = await self._answer(line)
            async with asyncio.timeout(PATIENCE):
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # the caller has gone, or says nothing that is a line
        finally:
            writer.close()
            self._talks.discard(task)

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = _asked(line)
            if asked.get("do") == "delete":
                run = self._runs.get(_run_of(asked))
                await self._runs.delete(run.id)
                return {"run": run_document(run)}
            do = self._doing.get(str(asked.get("do")))
            if do is None:
                raise Invalid(Reason.REQUEST_INVALID, f"this process does not know how to {asked.get('do')!r} a run")
            return {"run": run_document(do(asked))}
        except ServerError as error:
            return {"error": {"reason": error.reason.value, "message": str(error)}}


def ask(database: Path, asked: dict[str, Any], *, patience: float = PATIENCE) -> dict[str, Any] | None:
    """What the process says that works on a database, within *patience* seconds; None if none listens.

    Raises:
        OSError: it does not answer.
    """
    with socket.socket(socket.AF_UNIX) as talking:
        talking.settimeout(patience)
        try:
            with _address(socket_path(database)) as address:
                talking.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        talking.sendall(json.dumps(asked).encode() + b"\n")
        with talking.makefile("rb") as answer:
            line = answer.readline()
    if not line:
        raise OSError("the process that works on the database ends just now; look again")
    found: dict[str, Any] = json.loads(line)
    return found


def _bind(path: Path) -> socket.socket:
    """A bound socket that only this user may connect to: nobody can before it listens, so the mode is in time."""
    bound = socket.socket(socket.AF_UNIX)
    try:
        with _address(path) as address:
            bound.bind(address)
        path.chmod(0o600)
    except BaseException:
        bound.close()
        raise
    return bound


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """A path as an address: a long one by way of its folder, where the system knows open folders by name."""
    if len(os.fsencode(path)) <= LONGEST_ADDRESS:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _asked(line: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(line)
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        raise Invalid(Reason.REQUEST_INVALID, "one JSON object on a line is asked for")
    return asked


def _run_of(asked: dict[str, Any]) -> str:
    run = asked.get("run")
    if not isinstance(run, str):
        raise Invalid(Reason.REQUEST_INVALID, "there is no run in the request", field="run")
    return run
