"""What a run has consumed so far: its results, and its trials that have no result yet."""

from __future__ import annotations

from collections.abc import Generator

from evalbus_server.model.spent import Spent
from evalbus_server.store import rows
from evalbus_server.store.numbers import PAGE_OF_USAGE, pages_of_results
from evalbus_server.store.runs import OfRun
from evalbus_server.store.trials import unfinished

PAGE = 256
ATTEMPTS_ALONE = f"""
    SELECT {rows.qualified("a", rows.USAGE)} FROM attempt a
    WHERE a.run = :run AND a.input_tokens IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM output o WHERE o.run = :outputs AND o.trial = a.trial)
    AND NOT EXISTS (SELECT 1 FROM result r
        WHERE r.run = :run AND r.position = a.trial & 4294967295 AND r.epoch = (a.trial >> 32) + 1)
"""


def read(of: OfRun, currency: str) -> Generator[None, None, Spent]:
    """Add everything up, in a currency; lets the caller do something else after every page."""
    spent = Spent()
    for page in pages_of_results(of):
        found = of.connection.rows(PAGE_OF_USAGE, page)
        spent = spent.plus((usage for row in found if (usage := rows.read_usage(row)) is not None), currency)
        yield
    after = 0
    while True:
        trials, looked_at = unfinished(of, after=after, limit=PAGE)
        spent = spent.plus((trial.usage for trial in trials if trial.usage is not None), currency)
        if looked_at == after:
            break
        after = looked_at
        yield
    alone = of.connection.rows(ATTEMPTS_ALONE, {"run": of.number, "outputs": of.outputs})
    return spent.plus((usage for row in alone if (usage := rows.read_usage(row)) is not None), currency)
