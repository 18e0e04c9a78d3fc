"""The numbers of a run, read in pages that are small enough for the event loop.

A page is a range of the primary key. Every column that is fetched costs a third of what its row costs, so a query fetches
what it must, and what is rare has a query of its own.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from evalbus import FailureCategory, Money, ScoreStatus, Usage
from evalbus_server.model.experiment import caches
from evalbus_server.model.numbers import Column, RunMetric, RunNumbers, Values, no_values
from evalbus_server.model.run import Outcome
from evalbus_server.model.trial import CACHED, EPOCH_BITS
from evalbus_server.store import rows
from evalbus_server.store.connection import Connection, Row
from evalbus_server.store.runs import OfRun
from evalbus_server.store.trials import assigned

_AT_ONCE = 2_000
"""About so many rows are read at once."""

Page: TypeAlias = dict[str, int]
"""What the queries of a page are asked with: the run, and the first key and the end of the range."""

_SCORES = "FROM score WHERE run = :run AND trial >= :first AND trial < :end"
NEXT_SCORE = "SELECT trial FROM score WHERE run = :run AND trial >= :first ORDER BY trial LIMIT 1"
PAGE_OF_VALUES = f"SELECT value {_SCORES} AND value IS NOT NULL ORDER BY trial, key"
PAGE_OF_VALUES_BY_KEY = f"SELECT value, key {_SCORES} AND value IS NOT NULL ORDER BY trial, key"
PAGE_OF_VALUES_BY_TRIAL = f"SELECT value, key, trial {_SCORES} AND value IS NOT NULL ORDER BY trial, key"
PAGE_WITHOUT_VALUES = f"SELECT key, status {_SCORES} AND value IS NULL"

NEXT_OUTPUT = "SELECT id FROM output WHERE id >= :first AND id < :beyond ORDER BY id LIMIT 1"
PAGE_OF_LATENCIES = (
    "SELECT latency * 1000 FROM output WHERE id >= :first AND id < min(:end, :beyond) AND latency IS NOT NULL"
)

PAGE_OF_CACHED = f"SELECT count(*) FROM output WHERE id >= :first AND id < min(:end, :beyond) AND attempt = {CACHED}"

_RESULTS = "FROM result r WHERE run = :run AND position >= :first AND position < :end"
NEXT_RESULT = "SELECT position FROM result WHERE run = :run AND position >= :first ORDER BY position LIMIT 1"
PAGE_OF_WEIGHTED = f"SELECT weighted {_RESULTS} AND weighted IS NOT NULL ORDER BY position, epoch"
PAGE_OF_WEIGHTED_BY_TRIAL = f"""
    SELECT weighted, ((epoch - 1) << {EPOCH_BITS}) + position {_RESULTS} AND weighted IS NOT NULL
    ORDER BY position, epoch
"""
_ERRORED = f"outcome = {Outcome.ERRORED.value}"
PAGE_OF_COUNTS = f"SELECT sum(attempts), count(input_tokens), count(*) FILTER (WHERE {_ERRORED}) {_RESULTS}"
PAGE_OF_ERRORED = f"""
    SELECT category, NOT EXISTS (
        SELECT 1 FROM output o WHERE o.run = :outputs AND o.trial = ((r.epoch - 1) << {EPOCH_BITS}) + r.position
    ) {_RESULTS} AND {_ERRORED}
"""
PAGE_OF_UNANSWERED = f"""
    SELECT ((epoch - 1) << {EPOCH_BITS}) + position {_RESULTS} AND {_ERRORED} AND NOT EXISTS (
        SELECT 1 FROM output o WHERE o.run = :outputs AND o.trial = ((r.epoch - 1) << {EPOCH_BITS}) + r.position
    )
"""
PAGE_OF_USAGE = f"SELECT {rows.USAGE} {_RESULTS} AND input_tokens IS NOT NULL"


METRICS = "SELECT key, name, value, explanation, lower FROM metric WHERE run = :run ORDER BY key, place"


def read(of: OfRun) -> Generator[None, None, RunNumbers]:
    """Read the numbers of a run; lets the caller do something else after every page."""
    scores = yield from _scores(of)
    latencies, cached = yield from _outputs(of)
    results = yield from _results(of)
    sums = results.consumed
    return RunNumbers(
        run=of.run,
        values=dict(enumerate(scores.columns)),
        errored={
            place: scores.errored[place] + results.unanswered_by(key.scorer)
            for place, key in enumerate(of.run.score_keys)
        },
        skipped=dict(scores.skipped),
        metrics=_metrics(of),
        latencies_ms=latencies,
        weighted=results.weighted,
        usage=sums.usage(),
        priced=sums.priced,
        with_usage=sums.trials,
        failures={FailureCategory(category): count for category, count in results.failures.items()},
        attempts=results.attempts,
        cached=cached,
    )


def _metrics(of: OfRun) -> dict[int, tuple[RunMetric, ...]]:
    found: dict[int, list[RunMetric]] = {}
    for key, name, value, explanation, lower in of.connection.rows(METRICS, {"run": of.number}):
        found.setdefault(key, []).append(RunMetric(name, value, explanation, bool(lower)))
    return {key: tuple(metrics) for key, metrics in found.items()}


def write_metrics(connection: Connection, run: int, metrics: Mapping[int, Sequence[RunMetric]]) -> None:
    """Put numbers over all trials of score keys in the place of all that a run has."""
    connection.execute("DELETE FROM metric WHERE run = ?", (run,))
    connection.execute_many(
        "INSERT INTO metric (run, key, place, name, value, explanation, lower) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (run, key, place, each.name, each.value, each.explanation, int(each.lower_is_better))
            for key, made in metrics.items()
            for place, each in enumerate(made)
        ],
    )


class _Scores:
    """What the scores say."""

    def __init__(self, of: OfRun) -> None:
        """Nothing is read yet."""
        self._of = of
        self.columns = [Column() for _ in of.run.score_keys]
        """By score key, as the counts are."""
        self.errored: Counter[int] = Counter()
        self.skipped: Counter[int] = Counter()

    def add_whole(self, page: Page) -> bool:
        """Add a page in which every trial that can be there has a value for every key; whether it is such a page.

        In one of those the place of a value says whose it is, and nothing else need be read.
        """
        values = _packed(self._of.connection.rows(PAGE_OF_VALUES, page))
        trials = range(page["first"], page["end"])
        if len(values) != len(trials) * len(self.columns):
            return False
        for key, column in enumerate(self.columns):
            column.values.extend(values[key :: len(self.columns)])
            if self._of.run.epochs > 1:
                column.trials.extend(trials)
        return True

    def add(self, page: Page) -> bool:
        """Add any page; whether the other way would have done."""
        ask = self._of.connection.rows
        found: list[Row]
        if self._of.run.epochs == 1:
            found = ask(PAGE_OF_VALUES_BY_KEY, page)
            for value, key in found:
                self.columns[key].values.append(value)
        else:
            found = ask(PAGE_OF_VALUES_BY_TRIAL, page)
            for value, key, trial in found:
                self.columns[key].values.append(value)
                self.columns[key].trials.append(trial)
        for key, status in ask(PAGE_WITHOUT_VALUES, page):
            tally = self.errored if status == ScoreStatus.ERRORED else self.skipped
            tally[key] += 1
        return len(found) == (page["end"] - page["first"]) * len(self.columns)


def _scores(of: OfRun) -> Generator[None, None, _Scores]:
    scores = _Scores(of)
    whole = True
    for page in _pages(of, NEXT_SCORE, _AT_ONCE // (len(scores.columns) or 1)):
        if not (whole and scores.add_whole(page)):
            whole = scores.add(page)
        yield
    return scores


def _outputs(of: OfRun) -> Generator[None, None, tuple[Values, int]]:
    """The latencies of outputs, and how many outputs were remembered."""
    found, cached = no_values(), 0
    remembers = caches(of.run.experiment_json)
    for page in _pages(of, NEXT_OUTPUT, _AT_ONCE, first=of.number << rows.RUN_BITS):
        found += _packed(of.connection.rows(PAGE_OF_LATENCIES, page))
        if remembers:
            [(count,)] = of.connection.rows(PAGE_OF_CACHED, page)
            cached += count
        yield
    return found, cached


@dataclass(slots=True)
class _Consumed:
    """Sums over results; integers of Python, which do not overflow."""

    trials: int = 0
    priced: int = 0
    tokens: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    costs: Counter[str] = field(default_factory=Counter)

    def add(self, found: list[Row]) -> None:
        """Add what some trials consumed."""
        for row in found:
            for place in range(4):
                self.tokens[place] += row[place]
            micros, currency = row[4:]
            if micros is not None:
                self.priced += 1
                self.costs[currency] += micros
        self.trials += len(found)

    def usage(self) -> Usage:
        """All together; no cost if the currencies differ, whatever the order of the trials."""
        cost = None
        if len(self.costs) == 1:
            [(currency, micros)] = self.costs.items()
            cost = Money(micros, currency)
        input_tokens, output_tokens, cached_tokens, calls = self.tokens
        return Usage(input_tokens, output_tokens, cached_tokens, calls, cost)


@dataclass(slots=True)
class _Results:
    weighted: Column = field(default_factory=Column)
    attempts: int = 0
    unanswered: int = 0
    """Trials whose target failed."""
    assigned: Counter[int] | None = None
    """Of those, by scorer, where items say who judges them: trials that it was to judge."""
    failures: Counter[int] = field(default_factory=Counter)
    consumed: _Consumed = field(default_factory=_Consumed)

    def unanswered_by(self, scorer: int) -> int:
        """Trials that a scorer could not judge, since their target failed."""
        return self.unanswered if self.assigned is None else self.assigned[scorer]

    def add_errored(self, found: list[Row]) -> None:
        for category, unanswered in found:
            self.unanswered += unanswered
            if category is not None:
                self.failures[category] += 1


def pages_of_results(of: OfRun) -> Iterator[Page]:
    """Where the results of a run are, a page at a time."""
    return _pages(of, NEXT_RESULT, _AT_ONCE // of.run.epochs)


def _results(of: OfRun) -> Generator[None, None, _Results]:
    found = _Results(assigned=None if of.run.assignment is None else Counter())
    for page in pages_of_results(of):
        _add_weighted(of, page, found.weighted)
        [(attempts, with_usage, errored)] = of.connection.rows(PAGE_OF_COUNTS, page)
        found.attempts += attempts
        if with_usage:
            found.consumed.add(of.connection.rows(PAGE_OF_USAGE, page))
        if errored:
            found.add_errored(of.connection.rows(PAGE_OF_ERRORED, page))
            if found.assigned is not None:
                found.assigned += _unanswered(of, page)
        yield
    return found


def _unanswered(of: OfRun, page: Page) -> Counter[int]:
    """By scorer, the trials of a page that it was to judge, and whose target failed."""
    trials = [trial for (trial,) in of.connection.rows(PAGE_OF_UNANSWERED, page)]
    scorers = {key.scorer for key in of.run.score_keys}
    who = assigned(of, trials).values()
    return Counter(scorer for each in who for scorer in scorers if each.scorers >> scorer & 1)


def _add_weighted(of: OfRun, page: Page, column: Column) -> None:
    if of.run.epochs == 1:
        column.values.extend(_packed(of.connection.rows(PAGE_OF_WEIGHTED, page)))
        return
    for value, trial in of.connection.rows(PAGE_OF_WEIGHTED_BY_TRIAL, page):
        column.values.append(value)
        column.trials.append(trial)


def _packed(found: list[Row]) -> Values:
    """The only column of some rows."""
    return array("d", [value for (value,) in found])


def _pages(of: OfRun, next_one: str, size: int, first: int = 0) -> Iterator[Page]:
    """The ranges of keys, *size* or 1 wide, that have rows: each begins at a row, so gaps cost nothing."""
    place = {"run": of.number, "outputs": of.outputs, "first": first, "beyond": (of.number + 1) << rows.RUN_BITS}
    while (found := of.connection.row(next_one, place)) is not None:
        page = {**place, "first": found[0], "end": found[0] + max(size, 1)}
        yield page
        place["first"] = page["end"]
