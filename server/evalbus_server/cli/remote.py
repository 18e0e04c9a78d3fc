"""The work of `evalbus run --server`: the server carries the run out, this command only watches it."""

from __future__ import annotations

import asyncio
import os

from evalbus_server import logs
from evalbus_server.cli.client import Remote
from evalbus_server.cli.ends import conclude
from evalbus_server.cli.exits import Ending, ExitCode
from evalbus_server.cli.reading import Place, follow_to_the_end
from evalbus_server.cli.report import print_json
from evalbus_server.cli.running import Asked, print_plan
from evalbus_server.model.run import Run
from evalbus_server.runner.runs import Plan
from evalbus_server.wire.jsonform import run_document


def run(asked: Asked, place: Place, *, detach: bool) -> int:
    """Start a run at a server, and watch it unless *detach*. Ctrl-C stops the watching only."""
    logs.set_up("warning")
    started: list[Run] = []
    try:
        return asyncio.run(_run(asked, place, started, detach=detach))
    except KeyboardInterrupt:
        if not started:
            raise
        run_id = started[0].id
        message = f"run {run_id} goes on; watch it again with evalbus runs watch {run_id}{place.options}"
        raise Ending(ExitCode.INTERRUPTED, "INTERRUPTED", message) from None


async def _run(asked: Asked, place: Place, started: list[Run], *, detach: bool) -> int:
    experiment = asked.experiment
    async with Remote(place.server or "", os.environ) as server:
        run = await server.start(experiment)
        started.append(run)
        if detach:
            if asked.as_json:
                print_json(run_document(run))
            else:
                print(run.id)
            return ExitCode.PASS
        await follow_to_the_end(server, run, events=False)
        summary = await server.summary(await server.run(run.id))
    return conclude(summary, place.options, as_json=asked.as_json, own=False)


def plan(asked: Asked, place: Place) -> int:
    """Let a server check all that a run would check, and say what it would do."""
    logs.set_up("warning")
    experiment = asked.experiment

    async def ask() -> Plan:
        async with Remote(place.server or "", os.environ) as server:
            return await server.plan(experiment)

    print_plan(experiment, asyncio.run(ask()), as_json=asked.as_json)
    return ExitCode.PASS
