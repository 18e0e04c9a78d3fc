"""How fast datasets are: import, first pages, differences, beside what SQLite can do with bare rows.

    python scripts/bench/datasets.py [ITEMS]

Each part runs in a process of its own, whose peak memory stands beside it.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from evalbus_server.dataset.importing import REMEMBERED
from evalbus_server.dataset.read import ReadOptions, read_file
from evalbus_server.runner.datasets import Datasets
from evalbus_server.store import open_reader, open_store

NAME = "bench"
PAGE = 50
BATCH = 256


def write(path: Path, count: int, changed: int = 0) -> None:
    """A file of short items, the last *changed* of which are others than in a file without."""
    with path.open("w") as file:
        for n in range(count):
            answer = 2 * n if n < count - changed else n
            row = {"id": f"i{n}", "input": f"What is {n} plus {n}?", "expected": str(answer)}
            file.write(json.dumps(row) + "\n")


def bare(folder: Path, count: int) -> str:
    """The rows alone, in batches of 256, with the indexes of ours."""
    raw = sqlite3.connect(folder / "bare.db", isolation_level=None)
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute("PRAGMA synchronous = NORMAL")
    raw.execute(
        "CREATE TABLE item (n INTEGER PRIMARY KEY, d INT, position INT, first INT, id TEXT, input TEXT, expected TEXT)"
    )
    raw.execute("CREATE UNIQUE INDEX item_order ON item (d, position, first)")
    raw.execute("CREATE INDEX item_id ON item (d, id)")
    begun = time.perf_counter()
    for first in range(0, count, BATCH):
        rows = [
            (1, n, 1, f"i{n}", f"What is {n} plus {n}?", str(2 * n)) for n in range(first, min(first + BATCH, count))
        ]
        raw.execute("BEGIN")
        raw.executemany("INSERT INTO item (d, position, first, id, input, expected) VALUES (?, ?, ?, ?, ?, ?)", rows)
        raw.execute("COMMIT")
    took = time.perf_counter() - begun
    raw.close()
    return f"{count / took:,.0f} items/s"


def bring_in(folder: Path, file: str) -> str:
    """An import as the command line does it."""
    begun, worked = time.perf_counter(), time.process_time()
    with open_store(folder / "bench.db") as store:
        options = ReadOptions(remembered=REMEMBERED)
        done = asyncio.run(Datasets(store).bring_in(NAME, read_file(folder / file, options), source=file))
    took, cpu = time.perf_counter() - begun, time.process_time() - worked
    items = done.dataset.items
    return f"{items / took:,.0f} items/s ({items / cpu:,.0f} a second of CPU), {done.tally.changed:,} changed"


def pages(folder: Path) -> str:
    """The first page of each version, after opening the file anew."""
    told = []
    for version in (1, 2):
        begun = time.perf_counter()
        with open_reader(folder / "bench.db") as reader:
            reader.dataset(NAME, version)
            page = [stored.item for stored in reader.items(NAME, version, limit=PAGE)]
        told.append(f"{(time.perf_counter() - begun) * 1000:.1f} ms")
        assert len(page) == PAGE
    return " and ".join(told)


def differences(folder: Path) -> str:
    """All that differs between the two versions."""
    begun = time.perf_counter()
    longest, count = 0.0, 0
    with open_reader(folder / "bench.db") as reader:
        at = time.perf_counter()
        for _, changes in reader.dataset_changes(NAME, 1, 2):
            count += len(changes)
            longest, at = max(longest, time.perf_counter() - at), time.perf_counter()
    return f"{time.perf_counter() - begun:.1f} s for {count:,} changes; the longest step {longest * 1000:.0f} ms"


def one_more(folder: Path) -> str:
    """One item changed in the large dataset."""
    with open_store(folder / "bench.db") as store:
        item = store.item(NAME, 2, "i5").item
        changed = type(item)(item.id, "another", item.expected)
        begun = time.perf_counter()
        store.update_items(NAME, [changed])
        return f"{(time.perf_counter() - begun) * 1000:.1f} ms"


def measured(part: Callable[..., str], *arguments: object) -> str:
    """What a part says, with the peak memory of its process."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_tell, args=(queue, part, arguments))
    process.start()
    said = str(queue.get())
    process.join()
    return said


def _tell(queue: multiprocessing.Queue[str], part: Callable[..., str], arguments: Iterable[object]) -> None:
    said = part(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    queue.put(f"{said}; {peak:.0f} MB")


def main(count: int) -> None:
    """Measure everything over *count* items."""
    with tempfile.TemporaryDirectory(prefix="evalbus-bench-") as made:
        folder = Path(made)
        write(folder / "first.jsonl", count)
        write(folder / "second.jsonl", count, changed=count // 10)
        print(f"{count:,} items; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"bare executemany     {measured(bare, folder, count)}")
        print(f"import, new          {measured(bring_in, folder, 'first.jsonl')}")
        print(f"import, next version {measured(bring_in, folder, 'second.jsonl')}")
        print(f"first page           {measured(pages, folder)}")
        print(f"difference           {measured(differences, folder)}")
        print(f"one item changed     {measured(one_more, folder)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
