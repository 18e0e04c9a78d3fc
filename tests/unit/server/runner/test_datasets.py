"""Use cases around datasets: they let others run meanwhile, and leave nothing behind when they are broken off."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item
from evalbus_server.dataset.read import ReadOptions, read_file
from evalbus_server.dataset.refusal import DatasetInvalid, Refusal
from evalbus_server.model.dataset import InfoChange, ItemsInvalid
from evalbus_server.runner.datasets import Datasets
from evalbus_server.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path):
    with open_store(tmp_path / "d.db") as made:
        yield made


def file(folder: Path, count: int) -> Path:
    path = folder / f"{count}.jsonl"
    path.write_text("".join(json.dumps({"id": f"i{n}", "input": f"q{n}"}) + "\n" for n in range(count)))
    return path


@dataclass
class Turns:
    """What was done between two turns of the loop: counted, since a slow machine takes longer for the same."""

    turns: int
    rows: int
    """Rows changed in one go, at most."""
    steps: int
    """Steps of SQLite's machine in one go, at most; a row takes some hundred."""


async def watched(store: Store, work: Coroutine[Any, Any, Any]) -> Turns:
    """How the work was divided."""
    raw = store._connection.raw
    turns, steps, most_rows, most_steps = 0, 0, 0, 0

    def step() -> None:
        nonlocal steps
        steps += 1_000

    async def tick() -> None:
        nonlocal turns, steps, most_rows, most_steps
        while True:
            before, steps = raw.total_changes, 0
            await asyncio.sleep(0)
            turns += 1
            most_rows = max(most_rows, raw.total_changes - before)
            most_steps = max(most_steps, steps)

    raw.set_progress_handler(step, 1_000)
    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    await work
    ticking.cancel()
    raw.set_progress_handler(None, 0)
    return Turns(turns, most_rows, most_steps)


async def test_others_run_during_an_import_a_change_and_a_deletion(store: Store, tmp_path: Path) -> None:
    datasets = Datasets(store)
    options = ReadOptions(remembered=0)
    path = file(tmp_path, 20_000)
    store.publish("d", [[Item(f"old{n}", "x") for n in range(20_000)]])

    all_turns = [
        await watched(store, datasets.bring_in("d", read_file(path, options), source="x")),
        await watched(store, datasets.restore("d", 1)),
        await watched(store, datasets.change("d", InfoChange(input_schema='{"type":"string"}'))),
        await watched(store, datasets.purge("d", [f"i{n}" for n in range(1_000)])),
        await watched(store, datasets.remove("d")),
    ]

    for each in all_turns:
        assert each.turns >= 20, all_turns
        assert each.rows <= 4_000, all_turns
        assert each.steps <= 500_000, all_turns


async def test_who_breaks_an_import_off_leaves_nothing(store: Store, tmp_path: Path) -> None:
    work = asyncio.create_task(Datasets(store).bring_in("d", read_file(file(tmp_path, 50_000)), source="x"))
    await asyncio.sleep(0.1)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    assert store.datasets() == []
    assert store._connection.rows("SELECT count(*) FROM item") == [(0,)]
    store.upload("d").abort()


async def test_rows_that_do_not_fit_the_schema_are_refused_by_their_lines(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id":"a","input":"x"}\n\n{"id":"b","input":5}\n{"id":"c","input":"y"}\n')
    datasets = Datasets(store)
    datasets.create("d", InfoChange(input_schema='{"type":"string"}'))

    with pytest.raises(DatasetInvalid, match="line 3: input: 5 is not of type 'string'"):
        await datasets.bring_in("d", read_file(path), source="rows.jsonl")
    refused: list[Refusal] = []
    done = await datasets.bring_in("d", read_file(path), source="rows.jsonl", refused=refused.append)

    assert done.dataset.items == 2
    assert [(each.line, each.kind) for each in refused] == [(3, "schema")]
    with pytest.raises(ItemsInvalid):
        datasets.add("d", [Item("e", 5)])


async def test_an_import_of_which_nothing_is_left_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id":"a"}\n')

    with pytest.raises(DatasetInvalid, match=r"holds no items|no item is left"):
        options = ReadOptions(refused=lambda refusal: None)
        await Datasets(store).bring_in("d", read_file(path, options), source="x", refused=lambda refusal: None)
    assert store.datasets() == []


_IMPORT = """
import asyncio, resource, sys
from pathlib import Path
from evalbus_server.dataset.read import ReadOptions, read_file
from evalbus_server.runner.datasets import Datasets
from evalbus_server.store import open_store

with open_store(Path(sys.argv[1])) as store:
    asyncio.run(Datasets(store).bring_in("d", read_file(sys.argv[2], ReadOptions(remembered=1000)), source="x"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_number_of_items(tmp_path: Path) -> None:
    peaks = []
    for count in (5_000, 80_000):
        words = [sys.executable, "-c", _IMPORT, str(tmp_path / f"{count}.db"), str(file(tmp_path, count))]
        peaks.append(int(subprocess.run(words, capture_output=True, text=True, check=True).stdout) / 1024)

    assert peaks[1] - peaks[0] < 15, peaks
