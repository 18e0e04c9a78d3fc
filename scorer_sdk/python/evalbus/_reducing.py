"""The Reduce call of served scorers: rows come in, numbers go out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from evalbus import wire
from evalbus._definition import Plugin, Scorer
from evalbus._errors import ContractBroken
from evalbus._failure import Failure, FailureCategory
from evalbus._reduce import Reduction, Row, reduce
from evalbus._results import one_line
from evalbus.v1 import scorer_pb2


async def reduced(plugins: Mapping[str, Plugin[Any, Any]], requests: AsyncIterator[bytes]) -> scorer_pb2.ReduceResponse:
    """The answer to a whole call. What goes wrong is a failure in it."""
    asked: Reduction | None = None
    rows: list[Row] = []
    try:
        async for data in requests:
            request = scorer_pb2.ReduceRequest.FromString(data)
            if asked is None:
                if not request.HasField("open"):
                    raise ContractBroken("the first message is not `open`")
                asked = wire.reduction_from_proto(request.open)
            else:
                rows += [wire.row_from_proto(row) for row in request.rows.rows]
        if asked is None:
            raise ContractBroken("nothing was sent")
    except (DecodeError, ContractBroken) as error:
        return wire.reduced_to_proto(Failure(FailureCategory.INVALID, one_line(str(error)), "CONTRACT_BROKEN"))
    name = asked.opening.plugin
    scorer = plugins.get(name) if name else next(iter(plugins.values()))
    if not isinstance(scorer, Scorer) or (not name and len(plugins) > 1):
        known = ", ".join(sorted(plugins))
        text = f"no scorer {name!r} is served here; there is {known}"
        return wire.reduced_to_proto(Failure(FailureCategory.INVALID, text, "PLUGIN_UNKNOWN", field="plugin"))
    return wire.reduced_to_proto(await reduce(scorer, asked, rows))
