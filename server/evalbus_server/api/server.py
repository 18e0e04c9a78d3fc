"""The gRPC server: its services put together, and a clean end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

import grpc.aio
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from evalbus.v1 import dataset_pb2_grpc, run_pb2_grpc
from evalbus_server.api.datasets import DatasetService
from evalbus_server.api.guard import Guard
from evalbus_server.api.listening import OPTIONS, Listening, bind
from evalbus_server.api.rules import Allowed
from evalbus_server.api.runs import RunService
from evalbus_server.api.start import Starter
from evalbus_server.errors import StoreTrouble
from evalbus_server.runner.end import GRACE
from evalbus_server.runner.runs import Runs
from evalbus_server.store import Store
from evalbus_server.watch.bell import Bell

SERVICES = ("evalbus.v1.RunService", "evalbus.v1.DatasetService")
LOOKED_EVERY = 1.0
"""Seconds between two looks whether the database is still there."""
LAST_GRACE = 1.0
"""Seconds for calls that are still open when everything else has ended."""
UNDOING = 5.0
"""Seconds for those that are told to end, to take back what they have done so far."""

_log = structlog.get_logger("evalbus.api")


@dataclass(frozen=True, slots=True)
class Parts:
    """What is served."""

    store: Store
    runs: Runs
    bell: Bell


class Server:
    """Runs and datasets of one store, for other programs."""

    def __init__(self, parts: Parts, listening: Listening, allowed: Allowed, *, resume: bool = False) -> None:
        """Not listening yet. *resume*: what an earlier server left behind goes on by itself."""
        self.parts = parts
        """What is served."""
        self._listening = listening
        self._guard = Guard(listening.tokens)
        self._starter = Starter(parts.store, parts.runs, allowed)
        self._resume = resume
        self._resuming: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(interceptors=[self._guard], options=OPTIONS)
        run_pb2_grpc.add_RunServiceServicer_to_server(RunService(parts.store, parts.runs, self._starter), self._server)
        dataset_pb2_grpc.add_DatasetServiceServicer_to_server(
            DatasetService(parts.store, parts.bell.ring), self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection([*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        self.address = listening.address
        """With the port that was taken, once it listens."""

    async def start(self) -> None:
        """Listen.

        Raises:
            ServerError: the address cannot be listened on.
        """
        self.address = bind(self._server, self._listening)
        stopped = self._starter.take_up_stopped() if self._resume else ()  # before anybody can ask about them
        await self._server.start()
        if stopped:
            self._resuming = asyncio.create_task(self._starter.resume_stopped(stopped), name="resuming")
        for service in SERVICES:
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        self._looking = asyncio.create_task(self._look_after_the_database(), name="looking after the database")

    async def _look_after_the_database(self) -> None:
        """Say that nothing is served any more once the database has gone: runs end by themselves when they commit."""
        try:
            while True:
                await asyncio.sleep(LOOKED_EVERY)
                self.parts.store.check()
        except StoreTrouble as trouble:
            _log.error("the database is lost", reason=trouble.reason, why=str(trouble))
            for service in ("", *SERVICES):
                await self._health.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)

    async def stop(self, grace: float = GRACE) -> None:
        """End in order: start nothing more, interrupt the runs, let the watchers hear of it, then hang up."""
        runs, bell = self.parts.runs, self.parts.bell
        self._starter.stopping = True
        await self._health.enter_graceful_shutdown()
        for task in (self._looking, self._resuming):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await runs.close(grace=grace)
        bell.silence()  # watchers end by themselves: those that gRPC has to cancel leave tracebacks
        await self._guard.at_work.dismiss(LAST_GRACE, UNDOING)  # gRPC would tell callers nothing of why
        await self._server.stop(LAST_GRACE)
        await self._guard.at_work.drain(LAST_GRACE)  # the database is closed next
        await runs.close(grace=0.0)  # whatever was starting all the while


async def serve(server: Server, *, grace: float = GRACE, announce: Callable[[str], None] | None = None) -> None:
    """Serve until the process is asked to end (SIGTERM or Ctrl-C); asked again, trials in flight get no more time.

    The address is said in one line on stderr, or to *announce*.

    Raises:
        ServerError: the address cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    asked, urged = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (urged if asked.is_set() else asked).set())
    try:
        await server.start()
        (announce or _say)(f"evalbus: serving at {server.address}")
        await asked.wait()
        _log.info("server stops", address=server.address)
        await _end(server, grace, urged)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _end(server: Server, grace: float, urged: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as ending:
        hurry = ending.create_task(_hurry(server, urged))
        await server.stop(grace)
        hurry.cancel()


async def _hurry(server: Server, urged: asyncio.Event) -> None:
    await urged.wait()
    await server.parts.runs.close(grace=0.0)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
