"""Filters of results <-> messages."""

from __future__ import annotations

from evalbus import ScoreStatus
from evalbus.v1 import run_pb2, score_pb2
from evalbus_server.model.result_filter import ResultFilter, ScoreFilter
from evalbus_server.wire.run import enum_of, optional, outcomes_filter


def filter_to_proto(filter: ResultFilter) -> run_pb2.ListResultsRequest:
    """A request for what a filter wants; whose results they are is still to be said."""
    return run_pb2.ListResultsRequest(
        outcomes=[run_pb2.Outcome.ValueType(outcome) for outcome in filter.outcomes],
        item=filter.item,
        tags=filter.tags,
        scores=[
            run_pb2.ScoreFilter(
                key=each.key,
                status=score_pb2.ScoreStatus.ValueType(each.status or 0),
                missing=each.missing,
                above=each.above,
                at_least=each.at_least,
                at_most=each.at_most,
                below=each.below,
            )
            for each in filter.scores
        ],
        text=filter.text,
    )


def filter_from_proto(message: run_pb2.ListResultsRequest) -> ResultFilter:
    """What a request wants."""
    return ResultFilter(
        tuple(sorted(set(outcomes_filter(message.outcomes)))),
        message.item,
        tuple(message.tags),
        tuple(_score_filter(each) for each in message.scores),
        message.text,
    )


def _score_filter(message: run_pb2.ScoreFilter) -> ScoreFilter:
    return ScoreFilter(
        message.key,
        enum_of(ScoreStatus, message.status, None),
        message.missing,
        *(optional(message, name) for name in ("above", "at_least", "at_most", "below")),
    )
