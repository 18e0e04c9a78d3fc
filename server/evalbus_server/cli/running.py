"""The work of `evalbus run` without a server: one run in this process, over a database of one's own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from evalbus_server import logs
from evalbus_server.app import embedded, items_of, planning
from evalbus_server.cli.causes import cause_in
from evalbus_server.cli.display import Display
from evalbus_server.cli.ends import conclude
from evalbus_server.cli.exits import ExitCode
from evalbus_server.cli.files import NO_FILES, Files
from evalbus_server.cli.planning import print_plan
from evalbus_server.cli.reading import Place, write_files
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Run
from evalbus_server.runner.end import GRACE
from evalbus_server.runner.experiment_file import load
from evalbus_server.runner.plan import Plan
from evalbus_server.runner.runs import Runs

LOOKED_EVERY = 0.1
"""Seconds between two looks at how the run goes, while they are shown."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    file: Path
    overrides: tuple[str, ...]
    tags: tuple[str, ...]
    db: Path
    as_json: bool
    files: Files = NO_FILES

    @property
    def experiment(self) -> Experiment:
        """The experiment of the file, with what the command line sets in it."""
        return load(self.file, self.overrides, self.tags)


def run(asked: Asked) -> int:
    """Run an experiment; the exit code says how it went."""
    logs.set_up("warning")
    return asyncio.run(_run(asked))


async def _run(asked: Asked) -> int:
    experiment = asked.experiment
    async with embedded(asked.db) as app:
        with Display(experiment.name) as display:
            started = await app.runs.start(await app.publish(experiment))
            async with Interrupts(app.runs, started, display):
                await follow(app.runs, started, display)
        summary = await app.runs.summary(started.id)
    place = Place(asked.db, None)
    await write_files(asked.files, place, summary)
    cause = await cause_in(place, summary)
    return conclude(summary, place.options, as_json=asked.as_json, cause=cause)


async def follow(runs: Runs, run: Run, display: Display) -> None:
    """Show how a run goes until it is over."""
    over = asyncio.ensure_future(runs.wait(run.id))
    try:
        while display.shown and not over.done():
            progress = runs.progress(run.id)
            if progress is not None:
                display.show(progress)
            await asyncio.wait({over}, timeout=LOOKED_EVERY)
        await over
    finally:
        over.cancel()


class Interrupts:
    """What Ctrl-C and SIGTERM do while a run is at work: the first stops it in order, the second leaves at once."""

    def __init__(self, runs: Runs, run: Run, display: Display) -> None:
        """Nobody has interrupted yet."""
        self._runs = runs
        self._run = run
        self._display = display
        self._stopping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        """Take the signals."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._asked)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)
        if self._stopping is not None:
            await self._stopping

    def _asked(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._runs.stop(self._run.id))
            self._display.notice(f"stopping: trials in flight get {GRACE:g} s; Ctrl-C again leaves at once")
            return
        self._display.__exit__(None, None, None)  # or the terminal is left without a cursor
        with suppress(OSError):
            print(f"evalbus: left at once; run {self._run.id} keeps what is stored", file=sys.stderr, flush=True)
        os._exit(ExitCode.INTERRUPTED)  # the guards of the plugins end them, the database is whole at any moment


# --- a dry run --------------------------------------------------------------------------------------------------


def plan(asked: Asked) -> int:
    """Check all that a run would check, and say what it would do."""
    logs.set_up("warning")
    experiment = asked.experiment
    print_plan(experiment, asyncio.run(_plan(experiment, asked.db)), as_json=asked.as_json)
    return ExitCode.PASS


async def _plan(experiment: Experiment, db: Path) -> Plan:
    with planning(db) as runs:
        return await runs.plan(experiment, items_of(experiment))
