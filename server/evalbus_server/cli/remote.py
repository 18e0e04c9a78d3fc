"""The work of `evalbus run --server`: the server carries the run out, this command only watches it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from evalbus_server import logs
from evalbus_server.cli.causes import cause_of
from evalbus_server.cli.client import Remote
from evalbus_server.cli.ends import conclude
from evalbus_server.cli.exits import Ending, ExitCode
from evalbus_server.cli.files import NO_FILES, Files
from evalbus_server.cli.planning import print_plan
from evalbus_server.cli.reading import Place, follow_to_the_end, numbers_at_the_end
from evalbus_server.cli.report import print_json
from evalbus_server.cli.running import Asked
from evalbus_server.model.run import Run
from evalbus_server.runner.plan import Plan
from evalbus_server.wire.jsonform import run_document


def run(asked: Asked, place: Place, *, detach: bool) -> int:
    """Start a run at a server, and watch it unless *detach*. Ctrl-C stops the watching only."""
    experiment = asked.experiment
    return carried(
        place, lambda server: server.start(experiment), as_json=asked.as_json, detach=detach, files=asked.files
    )


def carried(
    place: Place,
    begin: Callable[[Remote], Awaitable[Run]],
    *,
    as_json: bool,
    detach: bool,
    files: Files = NO_FILES,
) -> int:
    """Let a server *begin* to work on a run, and watch it unless *detach*. Ctrl-C stops the watching only."""
    logs.set_up("warning")
    begun: list[Run] = []

    async def work() -> int:
        async with Remote(place.server or "", os.environ) as server:
            run = await begin(server)
            begun.append(run)
            if detach:
                if as_json:
                    print_json(run_document(run))
                else:
                    print(run.id)
                return ExitCode.PASS
            await follow_to_the_end(server, run, events=False)
            summary = await numbers_at_the_end(server, run, place)
            await files.write(server, summary)
            cause = await cause_of(server, summary)
        return conclude(summary, place.options, as_json=as_json, own=False, cause=cause)

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        if not begun:
            raise
        run_id = begun[0].id
        message = f"run {run_id} goes on; watch it again with evalbus runs watch {run_id}{place.options}"
        raise Ending(ExitCode.INTERRUPTED, "INTERRUPTED", message) from None


def plan(asked: Asked, place: Place) -> int:
    """Let a server check all that a run would check, and say what it would do."""
    logs.set_up("warning")
    experiment = asked.experiment

    async def ask() -> Plan:
        async with Remote(place.server or "", os.environ) as server:
            return await server.plan(experiment)

    print_plan(experiment, asyncio.run(ask()), as_json=asked.as_json)
    return ExitCode.PASS
