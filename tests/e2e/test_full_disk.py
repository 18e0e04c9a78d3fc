"""A server whose files cannot grow for a while: its runs end, say why, and go on when there is room again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
from collections.abc import Iterator
from pathlib import Path

from evalbus.client import Client, RunState
from tests.e2e.service import Process, echoing, experiment, items

LIMIT = 150.0


@contextlib.contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """No file of the process can grow."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


async def test_a_run_whose_end_cannot_be_stored_ends_once_there_is_room(tmp_path: Path) -> None:
    gate = asyncio.Event()
    settings = json.dumps({"listen": "127.0.0.1:0", "db": "runs.db"})
    async with echoing(gate) as target:
        with Process(tmp_path, settings) as server:
            async with Client(server.address) as client, asyncio.timeout(LIMIT):
                await client.upload_dataset("d", items(20))
                run = await client.start(experiment(target))
                while (await run.get()).state is not RunState.RUNNING:
                    await asyncio.sleep(0.01)
                with full_disk(server.process.pid):
                    gate.set()
                    assert server.process.stderr is not None
                    said = await asyncio.to_thread(server.process.stderr.readline)
                    assert "the end of the run could not be stored" in said
                    assert (await run.get()).state is RunState.RUNNING  # as far as anybody could write down
                ended = await run.wait()
                assert ended.state is RunState.ABORTED
                assert ended.reason.startswith("DATABASE_FULL")
                assert ended.counts.pending > 0

                await run.resume()
                assert (await run.wait()).counts.pending == 0


async def test_a_run_that_could_not_be_ended_can_be_resumed_at_once(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with echoing(gate) as target:
        with Process(tmp_path, json.dumps({"listen": "127.0.0.1:0", "db": "runs.db"})) as server:
            async with Client(server.address) as client, asyncio.timeout(LIMIT):
                await client.upload_dataset("d", items(20))
                run = await client.start(experiment(target))
                while (await run.get()).state is not RunState.RUNNING:
                    await asyncio.sleep(0.01)
                with full_disk(server.process.pid):
                    gate.set()
                    assert server.process.stderr is not None
                    await asyncio.to_thread(server.process.stderr.readline)
                await run.resume()
                assert (await run.wait()).state is RunState.COMPLETED
