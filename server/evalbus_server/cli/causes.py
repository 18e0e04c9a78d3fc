"""Why trials of a run errored, for the line with which a command ends."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing

from evalbus import Failure
from evalbus_server.cli.files import ResultSource
from evalbus_server.cli.reading import Place
from evalbus_server.model.result_filter import ResultFilter
from evalbus_server.model.run import Outcome, RunState, Verdict
from evalbus_server.model.summary import Summary
from evalbus_server.model.trial import StoredResult

LOOKED_AT = 100
"""So many of the errored trials are looked at."""


async def cause_in(place: Place, summary: Summary) -> str:
    """The same, with a reader of its own."""
    if not _matters(summary):
        return ""
    async with place.open() as source:
        return await cause_of(source, summary)


async def cause_of(source: ResultSource, summary: Summary) -> str:
    """What most of the errored trials of an inconclusive run say; "" where there are none, or it passed or failed."""
    if not _matters(summary):
        return ""
    seen: Counter[str] = Counter()
    async with aclosing(source.results(summary.run, ResultFilter((Outcome.ERRORED,)))) as found:
        async for result, _ in found:
            failure = _failure(result)
            if failure is not None:
                seen[_said(failure)] += 1
            if seen.total() >= LOOKED_AT:
                break
    counts = summary.run.counts
    if not seen:
        return ""
    often = "most often" if len(seen) > 1 else "as in" if counts.errored > LOOKED_AT else "each with"
    return f"{counts.errored:,} of {counts.planned:,} trials errored, {often} {seen.most_common(1)[0][0]}"


def _matters(summary: Summary) -> bool:
    run = summary.run
    return run.state is RunState.COMPLETED and summary.verdict is Verdict.INCONCLUSIVE and run.counts.errored > 0


def _failure(result: StoredResult) -> Failure | None:
    """Of the target, else of the first scorer that has one."""
    if result.failure is not None:
        return result.failure
    return next((each.score.failure for each in result.scores.values() if each.score.failure is not None), None)


def _said(failure: Failure) -> str:
    """Its reason alone: a message may quote what was asked and answered, and this line lands in the logs of CI."""
    return failure.reason or failure.category.name
