"""A run that does not keep its outputs, at a server: its watcher has every result whole, also when the server dies."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

from evalbus import Item, Output, start_server, target
from evalbus.client import Client, Event, TrialResult, TrialsEnded
from evalbus_server.store import open_reader, open_store
from tests.e2e.service import Process, experiment, items, serving

SECRET = "blue-heron"
KEEP = {"outputs": False, "scores": False}


@target("talkative")
async def talkative(item: Item) -> Output:
    """Says the secret, and the item's id."""
    await asyncio.sleep(0.02)
    return Output(f"{SECRET} {item.id}.")


def stored(folder: Path) -> bytes:
    """All that the files of the database hold."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("runs.db*")) if path.is_file())


async def test_a_watcher_with_results_has_them_all_before_the_event_that_tells_of_them(tmp_path: Path):
    plugin = await start_server(talkative)
    async with serving(tmp_path) as served:
        await served.client.upload_dataset("d", items(300))
        run = await served.client.start(experiment(plugin.address, keep=KEEP, limits={"concurrency": 64}))
        texts: dict[int, str] = {}
        told: list[int] = []
        async for news in run.watch(0, results=True):
            if isinstance(news, TrialResult):
                assert news.output is not None and len(news.scores) == 1
                texts[news.trial_id] = news.output.text
            elif isinstance(news, Event) and isinstance(news.fact, TrialsEnded):
                told += [trial for trial, _ in news.fact.trials]
                assert set(told) == texts.keys()
        summary = await run.summary()
        kept = [result async for result in run.results()]
        watched = [news async for news in run.watch(0) if not isinstance(news, Event)]
        late = [news async for news in run.watch(0, results=True) if isinstance(news, TrialResult)]
    await plugin.stop(0.0)

    assert texts == {n: f"{SECRET} i{n}." for n in range(300)}
    assert sorted(told) == sorted(texts)
    assert (summary.scores[0].n, summary.run.counts.failed) == (300, 300)
    assert {result.output.text for result in kept if result.output} == {"[not kept]"}
    assert not any(isinstance(news, TrialResult) for news in watched)
    assert len(late) == 300
    assert SECRET.encode() not in stored(tmp_path)


async def test_a_killed_server_leaves_words_until_the_database_is_opened_and_the_run_goes_on_to_its_end(tmp_path: Path):
    """What was judged is emptied when the database is opened again; a watcher has each result once over the restart."""
    plugin = await start_server(talkative)
    settings = {"listen": "127.0.0.1:0", "db": "runs.db", "resume": True}
    seen: Counter[str] = Counter()

    async def watch(client: Client, run_id: str) -> None:
        async for news in client.watch(run_id, 0, results=True):
            if isinstance(news, TrialResult):
                assert news.output is not None
                seen[news.output.text] += 1

    with Process(tmp_path, json.dumps(settings)) as first:
        async with Client(first.address) as client:
            await client.upload_dataset("d", items(300))
            run = await client.start(experiment(plugin.address, keep=KEEP, limits={"concurrency": 8}))
            watching = asyncio.create_task(watch(client, run.id))
            async with asyncio.timeout(120):
                while len(seen) < 50:
                    await asyncio.sleep(0.01)
            first.end(signal.SIGKILL)
            assert SECRET.encode() in stored(tmp_path)
            with open_store(tmp_path / "runs.db") as store:
                store.interrupt_orphans()
                judged = [result.item.id for result in store.results(store.run(run.id), limit=1000)]
            files = stored(tmp_path)
            assert judged
            assert [item for item in judged if f"{SECRET} {item}.".encode() in files] == []
            with Process(tmp_path, json.dumps(settings | {"listen": first.address})) as second:
                async with asyncio.timeout(120):
                    await watching
                second.end(signal.SIGTERM)
    await plugin.stop(0.0)

    with open_reader(tmp_path / "runs.db") as reader:
        ended = reader.run(run.id)
    assert (ended.state.name, ended.counts.pending) == ("COMPLETED", 0)
    told = {text: times for text, times in seen.items() if text != "[not kept]"}
    assert max(told.values()) == 1
    assert sum(seen.values()) == 300
    assert SECRET.encode() not in stored(tmp_path)
