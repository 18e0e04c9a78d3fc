"""The numbers of a run, read in pages that are small enough for the event loop."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import chain

from evalbus import FailureCategory, Money, ScoreStatus, Usage
from evalbus_server.model.numbers import RunNumbers
from evalbus_server.model.run import Outcome
from evalbus_server.model.trial import trial_id_of
from evalbus_server.store import rows
from evalbus_server.store.connection import Row
from evalbus_server.store.runs import OfRun

_AT_ONCE = 1_000

PAGE_OF_SCORES = """
    SELECT trial, key, status, value, passed FROM score
    WHERE run = :run AND (trial, key) > (:trial, :key) ORDER BY trial, key LIMIT :limit
"""
PAGE_OF_LATENCIES = """
    SELECT trial, latency FROM output WHERE run = :run AND trial > :after ORDER BY trial LIMIT :limit
"""
PAGE_OF_OUTCOMES = f"""
    SELECT position, epoch, outcome, weighted, attempts, category,
        outcome = {Outcome.ERRORED.value}
        AND NOT EXISTS (SELECT 1 FROM output o WHERE o.run = r.run AND o.trial = ((r.epoch - 1) << 32) + r.position),
        {rows.USAGE}
    FROM result r WHERE run = :run AND (position, epoch) > (:position, :epoch) ORDER BY position, epoch LIMIT :limit
"""


def read(of: OfRun) -> Generator[None, None, RunNumbers]:
    """Read the numbers of a run; lets the caller do something else after every page."""
    numbers = RunNumbers(of.run)
    yield from _scores(of, numbers)
    latencies_ms = yield from _latencies_ms(of)
    rest = yield from _outcomes(of, numbers)
    for key in range(len(of.run.score_keys)):
        numbers.errored[key] = numbers.errored.get(key, 0) + rest.unanswered
    return RunNumbers(
        run=of.run,
        values=numbers.values,
        passed=numbers.passed,
        errored=numbers.errored,
        skipped=numbers.skipped,
        latencies_ms=latencies_ms,
        weighted=list(chain.from_iterable(rest.weighted[epoch] for epoch in sorted(rest.weighted))),
        usage=rest.usage(),
        priced=rest.priced,
        with_usage=rest.with_usage,
        failures=numbers.failures,
        attempts=rest.attempts,
    )


@dataclass(slots=True)
class _Sums:
    """Sums over results; integers of Python, which do not overflow."""

    attempts: int = 0
    unanswered: int = 0
    with_usage: int = 0
    priced: int = 0
    tokens: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    costs: dict[str, int] = field(default_factory=dict)
    weighted: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """By epoch, in dataset order: one after the other they are in the order of trial ids, and need no sorting."""

    def add(self, columns: Row) -> None:
        """Add the columns of what one trial consumed."""
        if columns[0] is None:
            return
        self.with_usage += 1
        for i in range(4):
            self.tokens[i] += columns[i]
        micros, currency = columns[4:]
        if micros is not None:
            self.priced += 1
            self.costs[currency] = self.costs.get(currency, 0) + micros

    def usage(self) -> Usage:
        """All together; no cost if the currencies differ, whatever the order of the trials."""
        cost = None
        if len(self.costs) == 1:
            [(currency, micros)] = self.costs.items()
            cost = Money(micros, currency)
        input_tokens, output_tokens, cached_tokens, calls = self.tokens
        return Usage(input_tokens, output_tokens, cached_tokens, calls, cost)


def _scores(of: OfRun, numbers: RunNumbers) -> Generator[None, None, None]:
    trial, key = -1, -1
    while True:
        page = of.connection.rows(PAGE_OF_SCORES, {"run": of.number, "trial": trial, "key": key, "limit": _AT_ONCE})
        for trial, key, status, value, passed in page:
            if status == ScoreStatus.SCORED:
                numbers.values.setdefault(key, []).append((trial, value))
                if passed:
                    numbers.passed[key] = numbers.passed.get(key, 0) + 1
            else:
                tally = numbers.errored if status == ScoreStatus.ERRORED else numbers.skipped
                tally[key] = tally.get(key, 0) + 1
        if len(page) < _AT_ONCE:
            return
        yield


def _latencies_ms(of: OfRun) -> Generator[None, None, list[float]]:
    after = -1
    found: list[float] = []
    while True:
        page = of.connection.rows(PAGE_OF_LATENCIES, {"run": of.number, "after": after, "limit": _AT_ONCE})
        found += [latency * 1000 for _, latency in page if latency is not None]
        if len(page) < _AT_ONCE:
            return found
        after = page[-1][0]
        yield


def _outcomes(of: OfRun, numbers: RunNumbers) -> Generator[None, None, _Sums]:
    position, epoch = -1, 0
    sums = _Sums()
    while True:
        page = of.connection.rows(
            PAGE_OF_OUTCOMES, {"run": of.number, "position": position, "epoch": epoch, "limit": _AT_ONCE}
        )
        for position, epoch, outcome, weighted, attempts, category, unanswered, *usage in page:
            sums.attempts += attempts
            sums.unanswered += unanswered
            sums.add(tuple(usage))
            if weighted is not None:
                sums.weighted.setdefault(epoch, []).append((trial_id_of(position, epoch), weighted))
            if outcome == Outcome.ERRORED and category is not None:
                kind = FailureCategory(category)
                numbers.failures[kind] = numbers.failures.get(kind, 0) + 1
        if len(page) < _AT_ONCE:
            return sums
        yield
