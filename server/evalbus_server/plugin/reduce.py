"""Numbers over a run from a scorer in a process of its own: rows go out in batches, one answer comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import grpc
import grpc.aio

from evalbus import wire
from evalbus._reduce import Reduction, Row
from evalbus.v1 import scorer_pb2
from evalbus_server.errors import Reason, Unreachable
from evalbus_server.plugin.port import Batches, Reduced

RECORDS = 256
BYTES_A_MESSAGE = 1024 * 1024


async def reduce_over(
    channel: grpc.aio.Channel, metadata: Any, asked: Reduction, batches: Batches, limit: float
) -> Reduced:
    """What the scorer makes of the rows, within *limit* seconds.

    Raises:
        Unreachable: the call broke, or took too long.
    """
    method: grpc.aio.StreamUnaryMultiCallable[bytes, scorer_pb2.ReduceResponse] = channel.stream_unary(
        "/evalbus.v1.Scorer/Reduce",
        request_serializer=None,
        response_deserializer=scorer_pb2.ReduceResponse.FromString,
    )
    try:
        response = await method(_requests(asked, batches), timeout=limit, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise Unreachable(Reason.PLUGIN_UNREACHABLE, f"no answer to Reduce within {limit:g} s") from None
        told = " ".join((error.details() or "").split())
        raise Unreachable(Reason.PLUGIN_UNREACHABLE, f"Reduce ended with {error.code().name}: {told}") from None
    return wire.reduced_from_proto(response)


async def _requests(asked: Reduction, batches: Batches) -> AsyncIterator[bytes]:
    yield scorer_pb2.ReduceRequest(open=wire.reduction_to_proto(asked)).SerializeToString()
    async for rows in batches:
        for data in _messages(rows):
            yield data


def _messages(rows: Sequence[Row]) -> Iterator[bytes]:
    request = scorer_pb2.ReduceRequest()
    size = 0
    for row in rows:
        message = scorer_pb2.ScoreRow()
        wire.fill_row(message, row)
        length = message.ByteSize()
        if size and (size + length > BYTES_A_MESSAGE or len(request.rows.rows) == RECORDS):
            yield request.SerializeToString()
            request, size = scorer_pb2.ReduceRequest(), 0
        request.rows.rows.append(message)
        size += length + 8
    if size:
        yield request.SerializeToString()
