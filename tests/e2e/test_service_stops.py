"""A server that is asked to end while calls are open: they undo their work and hear why, before the database is closed."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from structlog.testing import capture_logs

from evalbus import Item
from evalbus.client import CallFailed, Client
from evalbus.v1 import dataset_pb2
from evalbus_server.api import server as api
from evalbus_server.store import Store, Upload, open_reader, open_store

from .service import Process, Served, failure, items, serving, stubs, until
from .test_service_datasets import batch, header, reason_of

LOCAL = '{"listen": "127.0.0.1:0", "db": "runs.db", "limits": {"grace": "300ms"}}'
TEXT = '{"type": "string"}'


async def busy(client: Client, name: str = "d") -> None:
    """Wait until an upload holds a dataset."""
    async with asyncio.timeout(60):
        while await _reason(client.delete_items(name, ["none"])) != "DATASET_BUSY":
            await asyncio.sleep(0.01)


async def _reason(call: Any) -> str:
    try:
        await call
    except CallFailed as failed:
        return failed.reason
    return ""


def staged(path: Path) -> list[Any]:
    """What is left of a version that was not finished."""
    with open_reader(path) as reader:
        return reader._connection.rows("SELECT name FROM dataset WHERE staging") + reader._connection.rows(
            "SELECT i.id FROM item i JOIN dataset d ON d.n = i.dataset WHERE i.first_version > d.version"
        )


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nobody says anything that a person would have to look at: neither the server, nor gRPC, nor asyncio."""
    with capture_logs() as logs, caplog.at_level(logging.WARNING):
        yield
    assert [entry for entry in logs if entry["log_level"] in ("warning", "error")] == []
    assert caplog.messages == []


@pytest.mark.parametrize("asked", [1, 2])
async def test_an_upload_that_is_under_way_is_taken_back_and_its_caller_hears_why(tmp_path: Path, asked: int) -> None:
    with Process(tmp_path, LOCAL) as process:
        async with Client(process.address) as client, grpc.aio.insecure_channel(process.address) as channel:
            await client.upload_dataset("d", items(5))
            upload = stubs(channel)[1].UploadDataset()
            await upload.write(header())
            for n in range(20):
                await upload.write(batch(*(Item(f"{n}-{each}", "x") for each in range(256))))
            await busy(client)
            code, out, err = await asyncio.to_thread(process.end, *[signal.SIGTERM] * asked)
            error = await failure(upload)

    assert (code, out, err) == (0, "", "")
    assert (error.code(), reason_of(error)) == (grpc.StatusCode.UNAVAILABLE, "SERVER_STOPPING")
    assert staged(tmp_path / "runs.db") == []
    with open_reader(tmp_path / "runs.db") as reader:
        assert reader.dataset("d").items == 5


async def test_the_client_says_that_the_server_stops(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def slowly() -> AsyncIterator[Item]:
        for item in items(1000):
            yield item
        await ended.wait()
        for n in range(1000):
            yield Item(f"late-{n}", "x")

    with Process(tmp_path, LOCAL) as process:
        async with Client(process.address) as client:
            await client.upload_dataset("d", items(5))
            uploading = asyncio.create_task(client.upload_dataset("d", slowly()))
            await busy(client)
            code, _, err = await asyncio.to_thread(process.end, signal.SIGTERM)
            ended.set()
            with pytest.raises(CallFailed) as caught:
                await uploading

    assert (code, err) == (0, "")
    assert (caught.value.reason, str(caught.value)) == ("SERVER_STOPPING", "the server stops; ask again later")


async def test_a_schema_check_that_is_under_way_ends_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    checked = asyncio.Event()
    whole = Store.items

    def endless(store: Store, name: str, version: int, **_: Any) -> Any:
        checked.set()
        return whole(store, name, version, limit=256)

    async with serving(tmp_path) as served:
        await served.client.upload_dataset("d", items(300))
        monkeypatch.setattr(Store, "items", endless)
        changing = asyncio.create_task(served.client.update_dataset("d", input_schema=TEXT))
        await asyncio.wait_for(checked.wait(), 60)
        await served.server.stop(grace=0.0)
        with pytest.raises(CallFailed) as caught:
            await changing
        assert len(served.server._guard.at_work) == 0

    assert (caught.value.reason, caught.value.code) == ("SERVER_STOPPING", "UNAVAILABLE")
    with open_reader(tmp_path / "runs.db") as reader:
        assert reader.dataset_info("d").input_schema == ""


async def test_a_call_that_ends_within_its_grace_is_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    monkeypatch.setattr(api, "LAST_GRACE", 3600.0)
    async with serving(tmp_path) as served, served.channel() as channel:
        upload, stopping = await held(served, channel)
        await upload.done_writing()
        assert (await upload).dataset.items == 1
        await stopping


async def test_whoever_calls_meanwhile_hears_that_the_server_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    monkeypatch.setattr(api, "LAST_GRACE", 3600.0)
    async with serving(tmp_path) as served, served.channel() as channel:
        upload, stopping = await held(served, channel)
        reasons = [
            await _reason(served.client.get_dataset("d")),
            await _reason(served.client.upload_dataset("e", items(3))),
            await _reason(anext(served.client.items("d"))),
        ]
        upload.cancel()
        await stopping

    assert reasons == ["SERVER_STOPPING"] * 3


async def held(served: Served, channel: grpc.aio.Channel) -> tuple[Any, asyncio.Task[None]]:
    """A server that stops, and the upload that holds it."""
    upload = stubs(channel)[1].UploadDataset()
    await upload.write(header("u"))
    await upload.write(batch(Item("a", "x")))
    await until(lambda: served.parts.store._uploads)
    stopping = asyncio.create_task(served.server.stop(grace=0.0))
    await until(lambda: served.server._guard.at_work.is_over)
    return upload, stopping


async def test_what_takes_long_to_undo_is_undone_at_once_when_nobody_can_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    def endless(_: Upload) -> Iterator[None]:
        while True:
            yield

    monkeypatch.setattr(Upload, "undo", endless)
    monkeypatch.setattr(api, "UNDOING", 0.1)
    async with serving(tmp_path) as served, served.channel() as channel:
        upload, stopping = await held(served, channel)
        await stopping
        error = await failure(upload)
        assert len(served.server._guard.at_work) == 0

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert staged(tmp_path / "runs.db") == []
    open_store(tmp_path / "runs.db").close()


async def test_a_caller_who_does_not_read_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    monkeypatch.setattr(api, "UNDOING", 0.1)
    async with serving(tmp_path) as served, served.channel() as channel:
        await served.client.upload_dataset("d", (Item(str(n), "x" * 500_000) for n in range(100)))
        exporting = stubs(channel)[1].ExportDataset(dataset_pb2.ExportDatasetRequest(name="d"))
        await exporting.read()
        await served.server.stop(grace=0.0)
        assert len(served.server._guard.at_work) == 0
        exporting.cancel()
