"""A long run through one server: several runs side by side, with flat memory, file descriptors, threads and tasks.

After a short run that warms everything up, the server rests: what it holds then is what it must hold after the long
one. During the long one its memory must not grow once it has settled.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from evalbus import Item
from evalbus.client import CallFailed, Client, Event, RunHandle, RunState
from tests.chaos import ledger
from tests.chaos.world import NOISE

HERE = Path(__file__).parent
EPOCHS = 5
EVERY = 0.5
"""Seconds between two samples."""
PATIENCE = 120.0
SETTLES = 20.0
"""Seconds in which a server that has nothing more to do comes to rest."""
MORE_MEMORY = 1.15
"""The last quarter of the samples may hold so many times the memory of the second one."""
SPARE_MEMORY = 12.0
"""Megabytes that it may grow all the same: what the allocator keeps."""


class Sample(NamedTuple):
    """What a server holds at one moment."""

    seconds: float
    done: int
    megabytes: float
    descriptors: int
    threads: int
    tasks: int
    processes: int

    @property
    def rest(self) -> tuple[int, int, int, int]:
        """What must be the same whenever nothing is at work."""
        return self.descriptors, self.threads, self.tasks, self.processes


class Soak:
    """A server, and what it holds."""

    def __init__(self, folder: Path) -> None:
        """Start the server and a target that listens at an address."""
        self.folder = folder
        self.db = folder / "soak.db"
        self.address = f"unix:{folder}/server"
        self.samples: list[Sample] = []
        self._tasks = folder / "tasks"
        self._began = time.monotonic()
        self._command = ["python", str(HERE / "soak_plugin.py")]
        config = {"listen": self.address, "db": str(self.db), "commands": [self._command]}
        own = {name: value for name, value in os.environ.items() if not name.startswith("EVALBUS_")}
        self._errors = open(folder / "errors", "wb")  # noqa: SIM115  # closed in close
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "server.py"), json.dumps(config), str(folder), "0", str(self._tasks)],
            env=own, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors,
        )  # fmt: skip
        self._target = subprocess.Popen(
            [sys.executable, str(HERE / "soak_plugin.py")], env={**own, "EVALBUS_ADDRESS": f"unix:{folder}/target"},
            stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors,
        )  # fmt: skip
        self._process = psutil.Process(self._server.pid)

    def close(self) -> int:
        """End both, and return how the server ended."""
        for process in (self._server, self._target):
            process.terminate()
        for process in (self._server, self._target):
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._errors.close()
        return self._server.returncode

    def experiment(self, place: int, **limits: Any) -> dict[str, Any]:
        """The experiment of a run: every other one asks the target that all share."""
        target = {"command": self._command} if place % 2 else {"address": f"unix:{self.folder}/target"}
        return {
            "name": f"soak {place}",
            "dataset": {"name": "soak"},
            "target": {**target, "plugin": "soak-target"},
            "scorers": [
                {"use": "exact_match", "threshold": 1.0},
                {"command": self._command, "plugin": "soak-scorer", "name": "echoed", "concurrency": 256},
            ],
            "epochs": EPOCHS,
            "limits": {"concurrency": 256, **limits},
        }

    async def sample(self, done: int = 0) -> Sample:
        """What the server holds now."""
        self._tasks.unlink(missing_ok=True)
        self._server.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(PATIENCE):
            while not self._tasks.exists():
                await asyncio.sleep(0.005)
        return Sample(
            time.monotonic() - self._began,
            done,
            self._process.memory_info().rss / 1e6,
            self._process.num_fds(),
            self._process.num_threads(),
            int(self._tasks.read_text()),
            len(self._process.children(recursive=True)),
        )

    async def at_rest(self, expected: Sample | None = None) -> Sample:
        """What the server holds once nothing changes any more, or once it is what is expected."""
        until = time.monotonic() + SETTLES
        before = await self.sample()
        while True:
            await asyncio.sleep(0.5)
            now = await self.sample()
            settled = now.rest == before.rest if expected is None else _no_more(now, expected)
            if settled or time.monotonic() > until:
                return now
            before = now

    @asynccontextmanager
    async def client(self) -> Any:
        """A client, once the server answers."""
        async with Client(self.address) as client:
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        await client.get("none")
                    except CallFailed as failed:
                        if failed.reason == "RUN_NOT_FOUND":
                            break
                    await asyncio.sleep(0.05)
            yield client

    async def prepare(self, items: int) -> None:
        """Store the dataset, in pieces that a message holds."""
        async with self.client() as client:
            await client.upload_dataset("soak", (Item(f"i{n}", f"text {n}", f"text {n}") for n in range(items)))

    async def run(self, runs: int, *, cancel: bool = False) -> None:
        """Carry runs out side by side, each with a watcher, and take samples meanwhile."""
        async with self.client() as client:
            handles = [await client.start(self.experiment(place)) for place in range(runs)]
            watchers = [asyncio.create_task(_watch(handle)) for handle in handles]
            if cancel:
                await asyncio.gather(*(handle.cancel() for handle in handles))
            states = [RunState.QUEUED]
            while any(state in (RunState.QUEUED, RunState.RUNNING) for state in states):
                found = [await handle.get() for handle in handles]
                states = [run.state for run in found]
                done = sum(run.counts.planned - run.counts.pending for run in found)
                self.samples.append(await self.sample(done))
                await asyncio.sleep(EVERY)
            await asyncio.gather(*watchers)
            wanted = RunState.CANCELLED if cancel else RunState.COMPLETED
            assert all(state in (wanted, RunState.COMPLETED) for state in states), states


async def _watch(handle: RunHandle) -> int:
    return sum([isinstance(news, Event) async for news in handle.watch()])


def _no_more(now: Sample, before: Sample) -> bool:
    return all(one <= other for one, other in zip(now.rest, before.rest, strict=True))


async def soak(folder: Path, trials: int, runs: int) -> tuple[Soak, list[str]]:
    """Soak a server; returns the samples in it, and what grew."""
    faults: list[str] = []
    here = Soak(folder)
    try:
        await here.prepare(max(trials // runs // EPOCHS, 1))
        for cancel in (False, True):
            await here.run(min(runs, 2), cancel=cancel)
        before = await here.at_rest()
        here.samples = [before]
        here._began = time.monotonic()
        await here.run(runs)
        at_work = here.samples[1:]
        await here.run(runs, cancel=True)
        after = await here.at_rest(before)
        here.samples.append(after)
        if not _no_more(after, before):
            faults.append(f"descriptors, threads, tasks, processes at rest: {before.rest} before, {after.rest} after")
        faults += _grown(at_work)
    finally:
        code = here.close()
    if code != 0:
        faults.append(f"the server ended with exit code {code}")
    faults += await asyncio.to_thread(ledger.faults, here.db)
    said = (folder / "errors").read_text().splitlines()
    faults += [line for line in said if any(sign in line for sign in NOISE)]
    with closing(ledger.Ledger(here.db)) as stored:
        done = stored.rows("SELECT count(*) FROM result")[0][0]
        if done < trials:
            faults.append(f"{done} results are stored; there should be {trials} and more")
    return here, faults


def _grown(samples: Sequence[Sample]) -> list[str]:
    """Whether memory, descriptors or threads were more in the last quarter of the work than in the second one."""
    quarter = len(samples) // 4
    if quarter < 2:
        return []
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    faults = []
    for name, factor, spare in (("megabytes", MORE_MEMORY, SPARE_MEMORY), ("descriptors", 1.0, 4), ("tasks", 1.0, 20)):
        was = statistics.median(getattr(sample, name) for sample in early)
        grew_to = statistics.median(getattr(sample, name) for sample in late)
        if grew_to > was * factor + spare:
            faults.append(f"{name} grew from {was:g} to {grew_to:g} while the runs were at work")
    return faults


def main(trials: int, runs: int) -> int:
    """Soak, print a table, and return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    here, faults = asyncio.run(soak(folder, trials, runs))
    work = here.samples[1:-1]
    print(
        f"{trials} trials in {runs} runs, {max(sample.done for sample in work)} done at once in {work[-1].seconds:.0f} s"
    )
    print("seconds    done   MB  descriptors  threads  tasks  processes")
    step = max(len(work) // 20, 1)
    for sample in [here.samples[0], *work[::step], here.samples[-1]]:
        print(
            f"{sample.seconds:7.1f} {sample.done:7d} {sample.megabytes:4.0f} {sample.descriptors:12d} "
            f"{sample.threads:8d} {sample.tasks:6d} {sample.processes:10d}"
        )
    for fault in faults:
        print(f"FAIL {fault}")
    if not faults:
        print("flat")
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if faults else 0
