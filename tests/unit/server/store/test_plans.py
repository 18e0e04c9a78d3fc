"""How SQLite goes about our reads: none sorts, none walks through the rows of other runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evalbus import ScoreStatus
from evalbus_server.model.bounds import Keep
from evalbus_server.model.result_filter import ResultFilter, ScoreFilter
from evalbus_server.model.run import Outcome, Run, RunState, Selection
from evalbus_server.store import Extent, RunFilter, Store
from tests.unit.server.store.making import dataset, failed_attempt, run_of, started, whole

NOTHING_KEPT = Extent(Keep(outputs=False, scores=False), single_scores=True, unjudged=True)
READS: dict[str, Callable[[Store, Run], object]] = {
    "dataset": lambda store, run: store.dataset("support"),
    "datasets": lambda store, run: store.datasets(10, "a"),
    "items": lambda store, run: store.items("support", 1, after=3, limit=5),
    "items with tags": lambda store, run: store.items_with("support", 1, ["a"], after=3, limit=5),
    "outlines": lambda store, run: store.outlines("support", 1, after=3, limit=5),
    "upload": lambda store, run: dataset(store, 12),
    "run": lambda store, run: store.run(run.id),
    "run by prefix": lambda store, run: store.run("02othe"),
    "runs": lambda store, run: store.runs(),
    "filtered runs": lambda store, run: store.runs(
        RunFilter("nightly", "support", "x", RunState.QUEUED), before=run.id
    ),
    "open items, fresh": lambda store, run: store.open_items(run, 1, after=2, limit=5, fresh=True),
    "open items": lambda store, run: store.open_items(run, 2, after=2, limit=5, fresh=False),
    "selected items": lambda store, run: store.open_items(
        Run(**{**fields(run), "selection": Selection(True, 10, 9)}), 2, after=2, limit=5, fresh=False
    ),
    "unscored": lambda store, run: store.unscored(run, 1, after=2, limit=5),
    "unjudged": lambda store, run: store.unjudged(run, after=2, limit=5),
    "earlier": lambda store, run: store.earlier(run, [0, 1]),
    "failed attempts": lambda store, run: store.has_failed_attempts(run),
    "retries left": lambda store, run: store.retries_left(run),
    "queue a retry": lambda store, run: store.queue_retry(run.id, "RETRIED"),
    "last position": lambda store, run: store.last_position("support", 1),
    "run of a request": lambda store, run: store.run_of_request("r1"),
    "output count": lambda store, run: store.output_count(run),
    "counts": lambda store, run: store.counts(run),
    "events": lambda store, run: store.events(run.id, after=1, limit=5),
    "last sequence": lambda store, run: store.last_sequence(run.id),
    "results": lambda store, run: store.results(run, outcomes=[Outcome.PASSED], item_glob="q*", after=(2, 1)),
    "numbers": lambda store, run: store.numbers(run),
    "rescored": lambda store, run: store.create_run(run_of(run.dataset, id="03again", source=run.id)),
    "filtered results": lambda store, run: store.result_page(
        run,
        ResultFilter(
            (Outcome.PASSED,),
            "q*",
            ("x", "y"),
            (
                ScoreFilter(run.score_keys[0].key, ScoreStatus.SCORED, above=0, at_most=1),
                ScoreFilter(run.score_keys[1].key, missing=True),
            ),
        ),
        after=(0, 1),
    ),
    "searched results": lambda store, run: store.result_page(run, ResultFilter(text="said")),
    "results of trials": lambda store, run: store.results_of(run, [0, 1]),
    "scrub": lambda store, run: list(store.scrub_run(run.id, NOTHING_KEPT)),
    "scrub words": lambda store, run: list(store.scrub_run(run.id, Extent(Keep(outputs=False)))),
    "kept summary": lambda store, run: store.kept_summary(run),
    "delete": lambda store, run: list(store.delete_run(run.id)),
    "commit": lambda store, run: store.commit(run.id, whole([5])),
    "repeated commit": lambda store, run: store.commit(
        run.id, whole([0, 0])._replace(attempts=[failed_attempt(0), failed_attempt(0)])
    ),
}


def fields(run: Run) -> dict:
    return {name: getattr(run, name) for name in run.__dataclass_fields__}


@pytest.fixture
def run(store: Store) -> Run:
    run = started(store, 10, epochs=2)
    other = store.create_run(run_of(run.dataset, id="02other"))
    for which in (run, other):
        store.commit(which.id, whole([0, 1, 2]))
    return run


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_no_read_sorts_or_scans(store: Store, run: Run, read: Callable[[Store, Run], object]) -> None:
    raw = store._connection.raw
    statements: list[str] = []
    raw.set_trace_callback(statements.append)
    read(store, run)
    raw.set_trace_callback(None)

    asked = [sql for sql in statements if sql.split()[0] in ("SELECT", "UPDATE", "DELETE", "INSERT")]
    steps = [(step[3], sql) for sql in asked for step in raw.execute(f"EXPLAIN QUERY PLAN {sql}")]

    assert asked
    assert [step for step in steps if "TEMP B-TREE" in step[0]] == []
    assert [step for step in steps if step[0].startswith("SCAN") and "VIRTUAL TABLE" not in step[0]] == []
