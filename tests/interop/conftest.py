"""Other libraries and real models, each in an environment of its own; without it, its tests are skipped."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command_line import Desk, Ended

ROOT = Path(__file__).parents[2]


def interpreter(name: str) -> Path:
    """The Python of an environment that `scripts/interop` makes."""
    python = ROOT / f".venv-interop-{name}/bin/python"
    if not python.exists():
        text = f"there is no {python.parent.parent.name}: run scripts/interop, which makes it"
        if os.environ.get("EVALBUS_INTEROP"):
            pytest.fail(text)
        pytest.skip(text)
    return python


@dataclass(frozen=True)
class Judged:
    """What a run with scorers of a library has said."""

    ended: Ended
    results: dict[str, Any]
    """By item."""

    def score(self, key: str, item: str = "i0") -> Any:
        """A score as the command line tells it."""
        return self.results[item]["scores"][key]

    def value(self, key: str, item: str = "i0") -> float | None:
        """Its value, which it must have."""
        score = self.score(key, item)
        assert score["status"] == "SCORED", score
        value: float | None = score["value"]
        return value


@dataclass(frozen=True)
class Bench:
    """Runs of items that bring their outputs along, through scorers in another environment."""

    desk: Desk
    python: Path

    def judge(self, scorers: list[dict[str, Any]], *items: dict[str, Any], **limits: Any) -> Judged:
        """Run to the end; items are rows without ids."""
        rows = [{"id": f"i{place}", "input": "?", **row} for place, row in enumerate(items)]
        self.desk.write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        experiment = {
            "name": "interop",
            "dataset": {"path": "rows.jsonl"},
            "target": "none",
            "scorers": [{"python": str(self.python), "start_limit": "2m", **each} for each in scorers],
            "limits": {"timeout": "2m", "retries": 0, **limits},
        }
        self.desk.write("interop.json", json.dumps(experiment))
        ended = self.desk.run("run", "interop.json", "--json", timeout=170)
        if ended.code not in (0, 1, 3):
            return Judged(ended, {})
        told = self.desk.run("runs", "results", "latest", "--jsonl").documents
        return Judged(ended, {result["item"]: result for result in told})

    def ask(self, program: str, *arguments: str) -> Any:
        """What a program that runs in the other environment prints, as JSON."""
        command = [str(self.python), "-c", program, *arguments]
        ended = subprocess.run(command, cwd=self.desk.folder, capture_output=True, text=True, timeout=170)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[str], Bench]]:
    """A bench for the environment that is named."""

    def make(name: str) -> Bench:
        return Bench(Desk(tmp_path), interpreter(name))

    yield make
