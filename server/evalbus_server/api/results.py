"""A page of results: put together in small pieces, so that a long one does not hold the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from evalbus.v1 import run_pb2
from evalbus_server.api.pages import Tokens, page_size
from evalbus_server.model.event import TrialsEnded
from evalbus_server.model.result_filter import check_filter
from evalbus_server.model.run import Run
from evalbus_server.model.trial import epoch_of, position_of
from evalbus_server.store import Store
from evalbus_server.wire.result import result_to_proto
from evalbus_server.wire.result_filter import filter_from_proto

PAGE = 100
LONGEST_PAGE = 1000
BYTES = 2 * 1024 * 1024
"""A page ends at about this size; a larger result is alone on its page."""
AT_ONCE = 32
"""Results read between two turns of the event loop."""


async def result_page(store: Store, request: run_pb2.ListResultsRequest) -> run_pb2.ListResultsResponse:
    """The page that a request asks for.

    Raises:
        NotFound: there is no such run.
        Invalid: PAGE_TOKEN_INVALID; REQUEST_INVALID: the filter does not fit the run.
    """
    run = store.run(request.run_id)
    filter = filter_from_proto(request)
    check_filter(filter, run.score_keys)
    tokens = Tokens("results", run.id, repr(filter))
    place = tokens.place(request.page_token, [int, int])
    after: tuple[int, int] | None = None if place is None else (place[0], place[1])
    size = page_size(request.page_size, default=PAGE, most=LONGEST_PAGE)
    response = run_pb2.ListResultsResponse()
    results, length = response.results, 0
    while True:
        found = store.result_page(run, filter, after=after, limit=AT_ONCE, max_bytes=BYTES)
        for result in found.results:
            message = result_to_proto(result, run.score_keys)
            length += message.ByteSize()
            if results and (len(results) == size or length > BYTES):
                assert after is not None
                response.next_page_token = tokens.after(*after)
                return response
            results.append(message)
            after = (position_of(result.trial_id), epoch_of(result.trial_id))
        if found.place is None:
            return response
        after = found.place
        await asyncio.sleep(0)


async def result_messages(store: Store, run: Run, ended: TrialsEnded) -> AsyncIterator[run_pb2.Results]:
    """The results that an event tells of, in messages of a bearable size."""
    message, length = run_pb2.Results(), 0
    trial_ids = [trial_id for trial_id, _ in ended.trials]
    for first in range(0, len(trial_ids), AT_ONCE):
        for result in store.results_of(run, trial_ids[first : first + AT_ONCE]):
            each = result_to_proto(result, run.score_keys)
            length += each.ByteSize()
            if message.results and length > BYTES:
                yield message
                message, length = run_pb2.Results(), each.ByteSize()
            message.results.append(each)
        await asyncio.sleep(0)
    if message.results:
        yield message
