"""Input that is meant to do harm, or does by its size: names that leave the folder, streams without an end, bad rows by
the thousand. The server refuses it with a rule or keeps it as data, and goes on serving everybody.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from evalbus import Item
from evalbus.client import CallFailed, Client
from tests.e2e.command_line import Desk, command, environment
from tests.e2e.command_line import serving as serving_process
from tests.e2e.service import echoing, experiment, serving

NAMES = [
    "../../evalcase", "a/../../b", "..%2f..%2fb", "..\\..\\b", "/etc/hosts", "C:\\temp\\x", "nul\0byte", "CON", ".", "..",
    "~root", "x" * 300, "a#b?c", "line\nbreak", "\u202egnp.exe", "-rf",
]  # fmt: skip
"""Names that are paths, devices, options or tricks elsewhere."""


MEASURED = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, used = os.wait4(process.pid, 0)
open("used", "w").write(str(used.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Runs a command, and writes down the most memory that it has had, in KiB: started by the tests it would inherit theirs."""


def files_below(folder: Path) -> set[str]:
    """Every file and folder of a tree."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.name.endswith(("-shm", "-wal"))}


async def names_of(client: Client) -> list[str]:
    """All datasets of a server."""
    return [dataset.name async for dataset in client.datasets()]


async def test_case_se_01_a_name_is_data_or_refused_and_never_a_path(tmp_path: Path):
    """As the name of a dataset and of a run, and as an item's id."""
    home = tmp_path / "a" / "b" / "c"  # what climbs two folders up would still be found
    home.mkdir(parents=True)
    kept = refused = 0
    async with echoing() as target, serving(home) as served:
        for name in NAMES:
            try:
                await served.client.upload_dataset(name, [Item("i", "x", "x")])
                assert [item.id async for item in served.client.items(name)] == ["i"]
                kept += 1
            except CallFailed as error:
                assert (error.reason, "\n" in str(error)) == ("DATASET_INVALID", False)
                refused += 1
            try:
                run = await served.client.start(
                    {
                        **experiment(target),
                        "name": name,
                        "dataset": {"records": [{"id": "i", "input": "x"}]},
                    }
                )
                await run.wait()
                assert (await served.client.get(run.id)).name == name
                kept += 1
            except CallFailed as error:
                assert (error.reason, "\n" in str(error)) == ("EXPERIMENT_INVALID", False)
                refused += 1
            try:
                await served.client.upload_dataset("ids", [Item(name, "x", "x")])
                assert (await served.client.get_item("ids", name)).id == name
                kept += 1
            except CallFailed as error:
                assert (error.reason, "\n" in str(error)) == ("DATASET_INVALID", False)
                refused += 1
    assert kept >= 3 * 12
    assert refused >= 3 * 2  # control characters, and too long
    assert {name for name in files_below(tmp_path) if not name.startswith("a/b/c/runs.db")} == {"a", "a/b", "a/b/c"}


async def test_case_se_01_a_server_reads_no_path_for_a_caller(tmp_path: Path):
    """Neither a dataset's file nor what lies beside it."""
    secret = tmp_path / "secret.jsonl"
    secret.write_text('{"id": "i", "input": "x"}\n')
    async with echoing() as target, serving(tmp_path) as served:
        with pytest.raises(CallFailed) as caught:
            await served.client.start({**experiment(target), "dataset": {"path": str(secret)}})
    assert caught.value.reason == "EXPERIMENT_INVALID"


def test_case_se_01_files_are_written_only_where_the_command_line_says(tmp_path: Path):
    """A dataset, a run and an item whose names climb: what comes out is what somebody names by --out."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    desk = Desk(folder, items=1)
    desk.write("items.jsonl", json.dumps({"id": "../../up", "input": "1+1", "expected": 2}) + "\n")
    desk.write("sums.yaml", (folder / "sums.yaml").read_text().replace("name: sums", "name: ../../sums", 1))
    imported = desk.run("dataset", "import", "../../climber", "items.jsonl")
    ran = desk.run("run", "sums.yaml", "--json")
    before = files_below(tmp_path)
    exported = desk.run("dataset", "export", "../../climber")

    assert (imported.code, ran.code, exported.code) == (0, 0, 0), ran.err
    assert json.loads(exported.out)["id"] == "../../up"
    assert files_below(tmp_path) == before
    assert {path for path in before if not path.startswith("a/b/")} == {"a", "a/b"}


def test_case_pl_02_two_thousand_bad_rows_are_one_short_refusal(tmp_path: Path):
    """From the command line over the wire and back: the status arrives as it was meant, not as one about metadata."""
    desk = Desk(tmp_path, items=1)
    desk.write("schema.json", '{"type": "string", "maxLength": 3}')
    desk.write("bad.jsonl", "".join(json.dumps({"id": f"i{n}", "input": "too long " * 9}) + "\n" for n in range(2000)))
    desk.write("good.jsonl", json.dumps({"id": "i", "input": "ok"}) + "\n")
    with serving_process(desk, "--db", "served.db") as (_, address):
        assert desk.run("dataset", "import", "d", "good.jsonl", "--server", address).code == 0
        assert desk.run("dataset", "schema", "d", "--input", "schema.json", "--server", address).code == 0
        refused = desk.run("dataset", "import", "d", "bad.jsonl", "--server", address, "--json")
        versions = desk.run("dataset", "versions", "d", "--server", address, "--json")

    assert refused.code == 2
    error = json.loads(refused.reason)["error"]
    assert error["reason"] == "DATASET_INVALID", error
    assert error["message"].startswith("bad.jsonl lines 1, 2, 3, 4, 5: input: ")
    assert error["message"].endswith("; further rows were not looked at")
    assert len(error["message"]) < 4096
    assert len(versions.document["versions"]) == 1


async def test_case_pl_02_the_status_of_many_bad_items_is_invalid_argument(tmp_path: Path):
    async with serving(tmp_path) as served:
        await served.client.upload_dataset("d", [Item("i", "ok")])
        await served.client.update_dataset("d", input_schema='{"type": "string", "maxLength": 3}')
        with pytest.raises(CallFailed) as caught:
            await served.client.upload_dataset("d", [Item(f"i{n}", "too long " * 9) for n in range(2000)])
    assert (caught.value.reason, caught.value.code) == ("DATASET_INVALID", "INVALID_ARGUMENT")


# --- what eats the machine (SE-08) --------------------------------------------------------------------------------

MEGABYTE = 1 << 20
ROOM = 200 * MEGABYTE
"""A process needs no more for input of any size."""


async def test_case_se_08_an_import_without_an_end_fills_no_memory_and_keeps_nobody_waiting(tmp_path: Path):
    desk = Desk(tmp_path, items=1)
    sent = 0

    async def endless() -> AsyncIterator[Item]:
        nonlocal sent
        while True:
            sent += 1
            yield Item(f"i{sent}", "x" * 2000)

    with serving_process(desk, "--db", "served.db") as (process, address):
        async with Client(address) as client, Client(address) as other:
            server = psutil.Process(process.pid)
            upload = asyncio.ensure_future(client.upload_dataset("d", endless()))
            answers, filled = 0, [0, 0]
            for place, most in enumerate((60_000, 150_000)):  # 120 MB, and 180 more
                while sent < most:
                    await asyncio.wait_for(names_of(other), 60)
                    answers += 1
                    filled[place] = max(filled[place], server.memory_info().rss)
                    await asyncio.sleep(0.02)
            upload.cancel()
            await asyncio.gather(upload, return_exceptions=True)
            assert await names_of(other) == []
    assert filled[1] - filled[0] < 90 * MEGABYTE  # half of what was sent meanwhile, and it would go on
    assert answers > 2


def test_case_se_08_a_packed_file_that_unpacks_to_gigabytes_is_refused_by_its_line(tmp_path: Path):
    desk = Desk(tmp_path, items=1)
    with gzip.open(tmp_path / "bomb.jsonl.gz", "wb") as bomb:
        bomb.write(b'{"input": "a"}\n{"input": "')
        for _ in range(600):
            bomb.write(b"x" * MEGABYTE)
        bomb.write(b'"}\n')
    words = [sys.executable, "-c", MEASURED, *command(("dataset", "import", "d", "bomb.jsonl.gz"))]
    process = subprocess.run(words, cwd=desk.folder, env=environment(None), capture_output=True, text=True, check=False)

    said, used = process.stderr, int((tmp_path / "used").read_text())
    assert process.returncode == 2
    assert "line 2: " in said and "16" in said
    assert used * 1024 < ROOM


@pytest.mark.parametrize("where", ["item", "experiment"])
async def test_case_se_08_a_hundred_thousand_tags_are_refused_with_the_limit(tmp_path: Path, where: str):
    tags = tuple(f"t{number}" for number in range(100_000))  # of a million the message would be too large
    async with echoing() as target, serving(tmp_path) as served:
        with pytest.raises(CallFailed) as caught:
            if where == "item":
                await served.client.upload_dataset("d", [Item("i", "x", tags=tags)])
            else:
                records = {"records": [{"id": "i", "input": "x"}]}
                await served.client.start({**experiment(target), "dataset": records, "tags": list(tags)})
        assert caught.value.code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
        assert len(str(caught.value)) < 4096
        assert "100" in str(caught.value)
        assert await names_of(served.client) == []


async def test_case_se_08_no_more_runs_are_open_than_the_server_takes(tmp_path: Path):
    """Whoever asks for one more is told the limit and when to try again, and nothing is stored of it."""
    gate = asyncio.Event()
    async with echoing(gate) as target, serving(tmp_path, most_open=12) as served:
        client = served.client
        await client.upload_dataset("d", [Item("i", "x", "x")])
        asked = [client.start(experiment(target), request_id=f"r{number}") for number in range(60)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, CallFailed)]
        started = [(number, run.id) for number, run in enumerate(answers) if not isinstance(run, BaseException)]
        assert (len(started), len(refused)) == (12, 48)
        assert {(each.reason, each.code) for each in refused} == {("TOO_MANY_RUNS", "RESOURCE_EXHAUSTED")}
        assert "RUNNING: 12," in str(refused[0]) and "limits.runs" in str(refused[0])

        inline = {**experiment(target), "name": "mine", "dataset": {"records": [{"id": "i", "input": "x"}]}}
        with pytest.raises(CallFailed) as caught:
            await client.start(inline)
        assert caught.value.reason == "TOO_MANY_RUNS"
        assert await names_of(client) == ["d"]  # nor are its items stored
        assert len([run async for run in client.runs()]) == 12

        again = await client.start(experiment(target), request_id=f"r{started[-1][0]}")
        assert again.id == started[-1][1]  # what has its run is not refused
        assert (await client.plan(inline)).trials == 1
        await client.handle(again.id).cancel()
        await again.wait()
        mine = [client.start(inline, request_id="mine") for _ in range(5)]
        assert len({run.id for run in await asyncio.gather(*mine)}) == 1  # one place is enough for one run
        gate.set()
        ended = [await client.handle(run.id).wait() for run in [each async for each in client.runs()]]
        assert sorted(run.state.name for run in ended) == ["CANCELLED", *["COMPLETED"] * 12]
        await (await client.start(experiment(target))).wait()
