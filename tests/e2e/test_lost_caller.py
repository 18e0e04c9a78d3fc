"""A caller whose machine is gone without a goodbye: what it held is free again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc.aio
import pytest

from evalbus.client import CallFailed, Client
from evalbus.v1 import dataset_pb2
from evalbus_server.api.listening import OPTIONS

from .service import items, serving, stubs, until

LIMIT = 60.0


class Wire:
    """A way to a server that can be cut, so that neither side hears of it."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._ways: list[asyncio.Task[None]] = []
        self._ends: list[asyncio.StreamWriter] = []
        self.whole = asyncio.Event()
        self.whole.set()

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes between a caller and the server."""
        there, back = await asyncio.open_connection(self._host, self._port)
        self._ends += [writer, back]
        self._ways += [asyncio.create_task(self._carry(*ends)) for ends in ((reader, back), (there, writer))]

    async def _carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65_536):
                await self.whole.wait()
                to.write(data)
                await to.drain()
        if self.whole.is_set():
            to.close()

    async def close(self) -> None:
        """End all of it."""
        for way in self._ways:
            way.cancel()
        await asyncio.gather(*self._ways, return_exceptions=True)
        for end in self._ends:
            end.close()
            with suppress(ConnectionError):
                await end.wait_closed()


@asynccontextmanager
async def wire_to(address: str) -> AsyncIterator[tuple[Wire, str]]:
    wire = Wire(address)
    relay = await asyncio.start_server(wire.join, "127.0.0.1", 0)
    try:
        yield wire, f"127.0.0.1:{relay.sockets[0].getsockname()[1]}"
    finally:
        relay.close()
        await wire.close()


async def test_an_upload_of_a_caller_that_is_gone_does_not_hold_the_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"grpc.keepalive_time_ms": 1_000, "grpc.http2.ping_timeout_ms": 1_000}
    options = tuple((name, quick.get(name, value)) for name, value in OPTIONS)
    assert quick.keys() < {name for name, _ in options}
    monkeypatch.setattr("evalbus_server.api.server.OPTIONS", options)
    async with serving(tmp_path) as served, wire_to(served.address) as (wire, address), asyncio.timeout(LIMIT):
        async with grpc.aio.insecure_channel(address) as channel:
            _, datasets = stubs(channel)
            upload = datasets.UploadDataset()
            await upload.write(dataset_pb2.UploadDatasetRequest(header=dataset_pb2.UploadHeader(name="d")))
            item = dataset_pb2.UploadDatasetRequest()
            item.items.items.add(id="a").input.text = "x"
            await upload.write(item)
            await until(lambda: served.parts.store._uploads)

            wire.whole.clear()
            while (made := await taken(served.client)) is not None:
                assert made == "DATASET_BUSY"
                await asyncio.sleep(0.1)
            upload.cancel()
        assert (await served.client.get_dataset("d")).items == 2


async def taken(client: Client) -> str | None:
    """Why the dataset cannot be uploaded now; None: it was."""
    try:
        await client.upload_dataset("d", items(2))
    except CallFailed as failed:
        return failed.reason
    return None
