"""A server with real sockets for tests: in this process, or in one of its own; and targets that do as they are told."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import grpc
import grpc.aio

from evalbus import Item, Output, TrialFailed, start_server, target
from evalbus.client import Client
from evalbus.v1 import dataset_pb2_grpc, run_pb2_grpc
from evalbus_server.api.listening import Listening
from evalbus_server.api.rules import Allowed
from evalbus_server.api.server import Parts, Server
from evalbus_server.app import plugin_maker
from evalbus_server.runner.crew import Means
from evalbus_server.runner.runs import Runs
from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.store import open_store
from evalbus_server.watch.bell import Bell

NOTHING_SPECIAL = Allowed()


@dataclass
class Served:
    """A server in this process."""

    address: str
    client: Client
    parts: Parts
    server: Server

    def channel(self, **more: Any) -> grpc.aio.Channel:
        """A connection without the client, for what the client does not do."""
        return grpc.aio.insecure_channel(self.address, **more)


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    allowed: Allowed = NOTHING_SPECIAL,
    token: str = "",
    listen: str = "127.0.0.1:0",
    resume: bool = False,
    most_open: int | None = None,
) -> AsyncIterator[Served]:
    """A server over the database of a folder."""
    store = open_store(folder / "runs.db")
    store.interrupt_orphans()
    bell = Bell()
    commands = frozenset(command.argv for command in allowed.commands)
    parts = Parts(store, Runs(store, Means(plugin_maker(), BUILTINS, commands), bell, most_open=most_open), bell)
    server = Server(parts, Listening(listen, tokens=(token,) if token else ()), allowed, resume=resume)
    try:
        await server.start()
        try:
            async with Client(server.address, token or None) as client:
                yield Served(server.address, client, parts, server)
        finally:
            await server.stop(grace=0.0)
    finally:
        store.close()


def stubs(channel: grpc.aio.Channel) -> tuple[run_pb2_grpc.RunServiceStub, dataset_pb2_grpc.DatasetServiceStub]:
    """The raw services."""
    return run_pb2_grpc.RunServiceStub(channel), dataset_pb2_grpc.DatasetServiceStub(channel)


@asynccontextmanager
async def echoing(gate: asyncio.Event | None = None) -> AsyncIterator[str]:
    """The address of a target that answers with its input, once the gate is open; `fail …` fails."""

    @target("echo")
    async def echo(item: Item) -> Output:
        if gate is not None:
            await gate.wait()
        if item.input.text.startswith("fail"):
            raise TrialFailed.refused("told to fail")
        return Output(item.input)

    server = await start_server(echo)
    try:
        yield server.address
    finally:
        await server.stop(0.0)


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until something is so that nobody tells of."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


class Gate(asyncio.Event):
    """A gate that knows how many have come to it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def wait(self) -> Literal[True]:
        """Wait until it is open."""
        self.asked += 1
        return await super().wait()


def items(number: int, *, wrong: int = 10, fail: int = 0) -> list[Item]:
    """Items of which every *wrong*-th is answered wrongly and every *fail*-th fails."""
    made = []
    for index in range(number):
        text = f"fail {index}" if fail and index % fail == fail - 1 else f"text {index}"
        made.append(Item(f"i{index}", text, "other" if index % wrong == wrong - 1 else text))
    return made


def experiment(address: str, dataset: str = "d", **more: Any) -> dict[str, Any]:
    """One that asks the target at an address."""
    return {
        "name": "x",
        "dataset": {"name": dataset},
        "target": {"address": address},
        "scorers": [{"use": "exact_match", "threshold": 1}],
        **more,
    }


async def failure(awaitable: Any) -> grpc.aio.AioRpcError:
    """The status that a raw call ends with."""
    try:
        await awaitable
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call did not fail")


# --- processes --------------------------------------------------------------------------------------------------

_MAIN = """
import asyncio, json, os, sys
from pathlib import Path
from evalbus_server import logs
from evalbus_server.app import serve
from evalbus_server.errors import ServerError
from evalbus_server.settings import Serving, Settings

logs.set_up("warning")
try:
    asyncio.run(serve(Serving(Settings.parse(json.loads(sys.argv[1])), Path(sys.argv[2]), os.environ)))
except ServerError as error:
    sys.exit(f"{error.reason}: {error}")
"""


class Process:
    """A server in a process of its own."""

    def __init__(self, folder: Path, settings: str, **environment: str) -> None:
        """Start it and wait until it has said where it listens, or has ended."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_MAIN), settings, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": "", **environment},
            cwd=folder,
        )
        assert self.process.stderr is not None
        self.first_line = self.process.stderr.readline()
        self.address = self.first_line.rpartition(" ")[2].strip()

    def end(self, *signals: int, limit: float = 60.0) -> tuple[int, str, str]:
        """Send signals, and wait: exit code, stdout, the rest of stderr."""
        for number in signals:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=limit)
        return self.process.returncode, out, err

    def __enter__(self) -> Process:
        """The process itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()


def ids(found: Sequence[Any]) -> list[str]:
    """The ids of runs."""
    return [run.id for run in found]
