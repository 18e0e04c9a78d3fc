"""The processes of a scenario: the server, plugins at an address, whoever the server started; and how they are hurt."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.scenario import Scenario

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PATIENCE = 60.0
"""Seconds that anything may take on a busy machine before it counts as hanging."""
NOISE = ("Traceback", "never retrieved", "never awaited", "was destroyed but", "run failed")
"""What a server must never print."""


class World:
    """A folder with a database, a server over it, and call logs."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        """Nothing runs yet."""
        self.folder = folder
        self.scenario = scenario
        self.db = folder / "chaos.db"
        self.address = f"unix:{folder}/server"
        self.shared = f"{folder}/target"
        self.server: subprocess.Popen[bytes] | None = None
        self.target: subprocess.Popen[bytes] | None = None
        self.kills = 0
        self._tmp = folder / "tmp"
        self._tmp.mkdir()
        self._threads: list[threading.Thread] = []

    # --- starting -----------------------------------------------------------------------------------------------

    def log(self, role: str) -> Path:
        """The call log of all plugins of a role."""
        return self.folder / f"{role}.log"

    def command(self, role: str) -> list[str]:
        """How the server starts a plugin."""
        return ["python", str(HERE / "plugin.py"), role]

    def start_server(self) -> None:
        """Start the server, if it does not run."""
        if self.server is not None and self.server.poll() is None:
            return
        self.server = self._start(self.address)
        # Through a pipe: what it says must not fail because no file can grow.
        copier = threading.Thread(target=self._copy, args=(self.server.stdout,))
        copier.start()
        self._threads.append(copier)

    def start_rival(self) -> subprocess.Popen[bytes]:
        """Start one more server over the same file, at an address of its own."""
        return self._start(f"unix:{self.folder}/rival")

    async def said_by(self, rival: subprocess.Popen[bytes]) -> str:
        """What a rival has said, once it has ended; one that does not end is killed."""
        try:
            said, _ = await asyncio.to_thread(rival.communicate, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            rival.kill()
            said, _ = rival.communicate()
            return f"it does not end; {said.decode(errors='replace')}"
        return said.decode(errors="replace")

    def _start(self, address: str) -> subprocess.Popen[bytes]:
        config = {
            "listen": address,
            "db": str(self.db),
            "resume": self.scenario.resume,
            "commands": [self.command(role) for role in ("target", "scorer")],
            "limits": {"grace": "500ms"},
        }
        words = [str(HERE / "server.py"), json.dumps(config), str(self.folder), str(self.scenario.slowness)]
        return subprocess.Popen(
            [sys.executable, *words], cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    async def keep_target_running(self) -> None:
        """Start the target that listens at an address, whenever it does not run, as whoever looks after it would."""
        while any(run.at_address for run in self.scenario.runs):
            if self.target is None or self.target.poll() is not None:
                self._start_target()
            await asyncio.sleep(0.05)

    def _start_target(self) -> None:
        with open(self.folder / "plugin.err", "ab") as errors:
            self.target = subprocess.Popen(
                [sys.executable, str(HERE / "plugin.py"), "target", self.shared],
                cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
            )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("EVALBUS_")}
        return {
            **own,
            "CHAOS_CAPABILITIES": self.scenario.capabilities,
            "TMPDIR": str(self._tmp),
            "PYTHONPATH": str(ROOT),
        }

    def _copy(self, said: Any) -> None:
        with said, open(self.folder / "server.err", "ab") as errors:
            while text := said.read1(65536):
                errors.write(text)
                errors.flush()

    # --- looking ------------------------------------------------------------------------------------------------

    def asked(self) -> int:
        """How many trials targets were asked so far."""
        try:
            return self.log("target").read_bytes().count(b"asked ")
        except FileNotFoundError:
            return 0

    def plugins(self, role: str) -> list[psutil.Process]:
        """The processes of a role that run now."""
        found = [self.target] if role == "target" and self.target is not None and self.target.poll() is None else []
        pids = [process.pid for process in found]
        return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)] + [
            process for process in self.family() if _is_plugin(process, role)
        ]

    def family(self, server: subprocess.Popen[bytes] | None = None) -> list[psutil.Process]:
        """Everything that the server, or another one, has started, and what that has."""
        server = server or self.server
        try:
            return [] if server is None else psutil.Process(server.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def noise(self) -> list[str]:
        """Lines of the server that say that something in it went wrong."""
        text = (self.folder / "server.err").read_text(errors="replace")
        return [line for line in text.splitlines() if any(sign in line for sign in NOISE)]

    def left_over(self) -> list[str]:
        """Files that the servers have left in the folder for temporary ones."""
        return sorted(str(path.relative_to(self._tmp)) for path in self._tmp.rglob("*"))

    # --- hurting ------------------------------------------------------------------------------------------------

    def kill_server(self) -> list[psutil.Process]:
        """Kill the server with -9; returns what it had started."""
        family = self.family()
        assert self.server is not None
        self.server.send_signal(signal.SIGCONT)
        self.server.kill()
        self.server.wait()
        self.kills += 1
        return family

    async def end_server(self) -> int:
        """Ask the server to end, and return its exit code.

        Raises:
            TimeoutError: it does not end.
        """
        assert self.server is not None
        self.server.send_signal(signal.SIGCONT)
        self.server.terminate()
        async with asyncio.timeout(PATIENCE):
            while self.server.poll() is None:
                await asyncio.sleep(0.01)
        return self.server.returncode

    async def halt(self, process: psutil.Process, seconds: float) -> None:
        """Stop a process for a while."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
            try:
                await asyncio.sleep(seconds)
            finally:
                process.resume()

    def lock_database(self, seconds: float) -> None:
        """Hold the right to write the database for a while, as another program would."""

        def hold() -> None:
            connection = sqlite3.connect(self.db, timeout=5.0, isolation_level=None)
            try:
                with contextlib.suppress(sqlite3.OperationalError):
                    connection.execute("BEGIN IMMEDIATE")
                    time.sleep(seconds)
                    connection.execute("ROLLBACK")
            finally:
                connection.close()

        locker = threading.Thread(target=hold)
        locker.start()
        self._threads.append(locker)

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """No file of the server can grow: what it writes fails, as on a disk that is full."""
        assert self.server is not None
        pid = self.server.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    def close(self) -> None:
        """End everything that was started here, however it stands."""
        family = self.family()
        for process in (self.server, self.target):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        for thread in self._threads:
            thread.join()


async def gone(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that are still there after a generous while."""
    until = time.monotonic() + PATIENCE / 2
    while time.monotonic() < until:
        processes = [process for process in processes if _runs(process)]
        if not processes:
            break
        await asyncio.sleep(0.05)
    return processes


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_plugin(process: psutil.Process, role: str) -> bool:
    try:
        words = process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
    return words[-2:] == [str(HERE / "plugin.py"), role] and "guard.py" not in " ".join(words)
