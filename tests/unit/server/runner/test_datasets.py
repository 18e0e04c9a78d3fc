"""Use cases around datasets: they let others run meanwhile, and leave nothing behind when they are broken off."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

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


async def watched(work) -> float:
    """The longest time in which nobody else ran."""
    gaps: list[float] = []

    async def tick() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            gaps.append(now - last)
            last = now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    await work
    ticking.cancel()
    return max(gaps)


async def test_others_run_during_an_import_a_change_and_a_deletion(store: Store, tmp_path: Path) -> None:
    datasets = Datasets(store)
    options = ReadOptions(remembered=0)
    path = file(tmp_path, 20_000)
    store.publish("d", [[Item(f"old{n}", "x") for n in range(20_000)]])

    longest = [
        await watched(datasets.bring_in("d", read_file(path, options), source="x")),
        await watched(datasets.restore("d", 1)),
        await watched(datasets.change("d", InfoChange(input_schema='{"type":"string"}'))),
        await watched(datasets.remove("d")),
    ]

    assert max(longest) < 0.1, longest


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
