"""Where the datasets are that `evalbus dataset` works on: in a database, or at a server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from evalbus import Item
from evalbus_server import logs
from evalbus_server.dataset.read import Batch
from evalbus_server.dataset.refusal import Refusal
from evalbus_server.model.dataset import DatasetInfo, Edited, InfoChange, ItemChange, ItemVersion, Purged, VersionInfo
from evalbus_server.model.run import DatasetVersion
from evalbus_server.runner.datasets import Imported
from evalbus_server.settings import database_path

T_ = TypeVar("T_")


@dataclass(frozen=True, slots=True)
class Where:
    """Where datasets are, as the options say it."""

    db: Path | None
    server: str | None


class Source(Protocol):
    """What datasets are read from and changed in."""

    async def bring_in(
        self,
        name: str,
        batches: Iterable[Batch],
        source: str,
        refused: Callable[[Refusal], None] | None,
        told: Callable[[int], None],
    ) -> Imported: ...
    async def datasets(self) -> list[DatasetVersion]: ...
    async def info(self, name: str) -> DatasetInfo: ...
    async def dataset(self, name: str, version: int | None) -> DatasetVersion: ...
    def items(self, name: str, version: int, tags: Sequence[str]) -> AsyncIterator[list[Item]]: ...
    async def item(self, name: str, version: int | None, id: str) -> Item: ...
    async def create(self, name: str, change: InfoChange) -> DatasetInfo: ...
    async def change(self, name: str, change: InfoChange) -> DatasetInfo: ...
    async def add(self, name: str, items: Sequence[Item]) -> Edited: ...
    async def update(self, name: str, items: Sequence[Item]) -> Edited: ...
    async def delete(self, name: str, ids: Sequence[str]) -> Edited: ...
    async def remove(self, name: str) -> None: ...
    async def versions(self, name: str, limit: int) -> list[VersionInfo]: ...
    def differences(self, name: str, a: int, b: int) -> AsyncIterator[list[ItemChange]]: ...
    async def history(self, name: str, id: str) -> list[ItemVersion]: ...
    async def restore(self, name: str, version: int) -> Imported: ...
    async def purge(self, name: str, ids: Sequence[str]) -> Purged: ...


def work(where: Where, do: Callable[[Source], Awaitable[T_]], *, writing: bool = False) -> T_:
    """Do some work at a place."""
    logs.set_up("warning")

    async def opened() -> T_:
        async with _open(where, writing) as source:
            return await do(source)

    return asyncio.run(opened())


def _open(where: Where, writing: bool) -> AbstractAsyncContextManager[Source]:
    if where.server is not None:
        from evalbus_server.cli.datasets_remote import RemoteDatasets

        return RemoteDatasets(where.server, os.environ)
    from evalbus_server.cli.datasets_local import LocalDatasets

    return LocalDatasets(database_path(where.db, os.environ), writing=writing)
