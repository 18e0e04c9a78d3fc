"""The command line as a user has it: real processes in a folder with an experiment, a target and a scorer."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLUGINS = """
import os
import time
from dataclasses import dataclass

from evalbus import Item, Output, Score, TrialFailed, scorer, serve, target


@dataclass(frozen=True)
class Settings:
    off_by: int = 0
    delay: float = 0.0
    broken: bool = False
    dies_at: str = ""
    gate: str = ""
    free: int = 0


@target("adder", version="1.0.0")
def adder(item: Item, settings: Settings) -> Output:
    \"\"\"Adds two numbers; of those after the first few once a file lies there, if it is to wait for one.\"\"\"
    time.sleep(settings.delay)
    while settings.gate and int(item.id[1:]) >= settings.free and not os.path.exists(settings.gate):
        time.sleep(0.02)
    if settings.broken:
        raise TrialFailed.refused("out of order")
    if item.id == settings.dies_at:
        print("no more memory", flush=True)
        os._exit(3)
    return Output(sum(int(part) for part in item.input.text.split("+")) + settings.off_by)


@scorer("close", version="1.0.0")
def close(item: Item, output: Output) -> Score:
    \"\"\"How close a number is to the expected one.\"\"\"
    off = abs(output.content.data - item.expected.data)
    return Score.scored(1 / (1 + off), f"off by {off}")


serve(adder, close)
"""

EXPERIMENT = """
name: sums
dataset: {path: items.jsonl}
target: {command: [python, plugins.py]}
scorers:
  - {use: exact_match, threshold: 1.0}
  - {command: [python, plugins.py], name: close}
criteria:
  - {metric: mean, scorer: exact_match, min: 0.9, label: nearly all right}
tags: [small]
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        """The JSON documents on stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def reason(self) -> str:
        """The last line on stderr."""
        return self.err.splitlines()[-1] if self.err else ""


class Desk:
    """A folder to work in."""

    def __init__(self, folder: Path, items: int = 20) -> None:
        self.folder = folder
        self.write("plugins.py", PLUGINS)
        self.write("sums.yaml", EXPERIMENT)
        rows = [{"id": f"i{n:03}", "input": f"{n}+{n}", "expected": 2 * n} for n in range(items)]
        self.write("items.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(self, *words: str, env: Mapping[str, str] | None = None, timeout: float = 100) -> Ended:
        """Run a command to its end."""
        ended = subprocess.run(
            command(words),
            cwd=self.folder,
            env=environment(env),
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def gated(self, free: int) -> tuple[str, ...]:
        """Options of a run that has answers to the first few items; to the others once the gate is open."""
        settings = (f"target.settings.gate={self.folder}/gate", f"target.settings.free={free}", "limits.timeout=10m")
        return tuple(word for setting in settings for word in ("--set", setting))

    def open_gate(self) -> None:
        self.write("gate", "")

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, stderr: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        return subprocess.Popen(
            command(words),
            cwd=self.folder,
            env=environment(env),
            stdout=subprocess.PIPE,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    @contextlib.contextmanager
    def listening(self, script: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
        """A plugin that listens at an address already."""
        process = subprocess.Popen(
            [sys.executable, script],
            cwd=self.folder,
            env=environment({"EVALBUS_ADDRESS": "127.0.0.1:0", **(env or {})}),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            yield process.stderr.readline().split()[-1]
        finally:
            process.terminate()
            process.communicate(timeout=60)


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """What a condition gives once it holds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come to that")


def command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "evalbus_server", *words]


def environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a user who has set nothing of ours."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("EVALBUS_")}
    return {**own, **(more or {})}


@contextlib.contextmanager
def serving(
    desk: Desk, *words: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and where it listens."""
    process = desk.start("serve", "--listen", "127.0.0.1:0", *words, env=env)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("evalbus: serving at "), line + process.stderr.read()
        yield process, line.split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=60)
