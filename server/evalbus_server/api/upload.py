"""Items on their way into a dataset: all of them or none, a batch at a time, so that the event loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from types import TracebackType
from typing import Any

import grpc.aio

from evalbus import ContractBroken, Item, wire
from evalbus.v1 import dataset_pb2, item_pb2
from evalbus_server.dataset.normal import normal
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset import Origin, checked_name
from evalbus_server.model.run import DatasetVersion
from evalbus_server.runner.datasets import Datasets
from evalbus_server.store import Store
from evalbus_server.wire.dataset import origin_from_proto

LARGEST_ITEM = 1024 * 1024
"""Bytes of an encoded item, at most."""
MOST_ITEMS = 256
"""Items of a batch, at most."""
MOST_AT_ONCE = 1_000
"""Items or ids of a call that changes some."""


async def stored(store: Store, name: str, batches: AsyncIterable[list[Item]]) -> tuple[DatasetVersion, bool]:
    """Make items the newest version of a dataset; the version, and whether it is a new one. Raises as Datasets.upload."""
    done = await Datasets(store).upload(name, batches)
    return done.dataset, done.changed


class Incoming:
    """An upload as it comes over the wire.

    A caller that is refused before it has sent everything would often not learn why: gRPC loses the status of a call
    whose caller is writing. So what is left is read and thrown away first.
    """

    def __init__(
        self, requests: AsyncIterator[dataset_pb2.UploadDatasetRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Nothing is read yet."""
        self._requests = requests
        self._context = context
        self._count = 0

    async def header(self) -> tuple[str, Origin | None]:
        """The name in the header, which comes first, and where the items come from.

        Raises:
            Invalid: it does not come first, or is not acceptable.
        """
        first = await anext(self._requests, None)
        if first is None or not first.HasField("header"):
            raise Invalid(Reason.REQUEST_INVALID, "the first message of an upload is its header", field="header")
        return checked_name(first.header.name, "header.name"), origin_from_proto(first.header)

    async def batches(self) -> AsyncIterator[list[Item]]:
        """The items of each message after it.

        Raises:
            Invalid: one is not acceptable; the message says which.
        """
        async for request in self._requests:
            if not 0 < len(request.items.items) <= MOST_ITEMS:
                message = f"every message after the header holds 1 to {MOST_ITEMS} items"
                raise Invalid(Reason.REQUEST_INVALID, message, field="items")
            yield items_of(request.items.items, self._count)
            self._count += len(request.items.items)
        # A caller that is gone looks like one that has ended its side. Only this tells: it is cancelled here then, and
        # half a dataset is not taken for a whole one.
        await self._context.send_initial_metadata(())

    async def __aenter__(self) -> Incoming:
        """The upload itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Let the caller end its side before it is told what was wrong."""
        if isinstance(error, Exception):
            async for _ in self._requests:
                pass


def items_of(messages: Sequence[item_pb2.Item], before: int = 0) -> list[Item]:
    """The items of messages; *before* is how many came earlier.

    Raises:
        Invalid: DATASET_INVALID or ITEM_TOO_LARGE, with the number and the id of the item.
    """
    items = []
    for number, message in enumerate(messages, before + 1):
        size = message.ByteSize()
        if size > LARGEST_ITEM:
            text = f"item {number} ({message.id[:80]!r}) has {size:,} bytes, which is over the limit of {LARGEST_ITEM:,}; shorten it"
            raise Invalid(Reason.ITEM_TOO_LARGE, text, field=f"items[{number - 1}]")
        try:
            items.append(normal(wire.item_from_proto(message)))
        except ContractBroken as error:
            text = f"item {number} ({message.id[:80]!r}): {error}"
            raise Invalid(Reason.DATASET_INVALID, text, field=f"items[{number - 1}]") from None
    return items


def batch_of(messages: Sequence[item_pb2.Item]) -> list[Item]:
    """The items of one call.

    Raises:
        Invalid: there is none, or too many, or one is not acceptable.
    """
    if not 0 < len(messages) <= MOST_AT_ONCE:
        raise Invalid(Reason.REQUEST_INVALID, f"a call holds 1 to {MOST_AT_ONCE:,} items", field="items")
    return items_of(messages)


def ids_of(ids: Sequence[str]) -> list[str]:
    """The ids of one call.

    Raises:
        Invalid: there is none, or too many.
    """
    if not 0 < len(ids) <= MOST_AT_ONCE:
        raise Invalid(Reason.REQUEST_INVALID, f"a call holds 1 to {MOST_AT_ONCE:,} ids", field="ids")
    return list(ids)
