"""A budget over processes that are killed with -9: it holds in every session, and what is stored is counted once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.test_crash import CONCURRENCY, PLUGINS, Desk, ended

BUDGET = 900
A_CALL = 3
"""Tokens that every attempt takes, failed ones too."""
RESUME = ("runs", "resume", "latest", "--json")


def stored(desk: Desk) -> int:
    """Tokens of all attempts that are stored."""
    return sum(
        desk.rows(f"SELECT coalesce(sum(input_tokens), 0) FROM {table}")[0][0] for table in ("output", "attempt")
    )


def test_a_budget_holds_over_kills_and_resumes(tmp_path: Path):
    """What a session asks and what was stored before it are never more than the budget and one call."""
    desk = Desk(tmp_path)
    command = ["python", str(PLUGINS / "priced.py"), str(desk.log("target")), str(A_CALL)]
    experiment = {
        "name": "priced",
        "dataset": {"path": "items.jsonl"},
        "target": {"command": command},
        "limits": {"concurrency": CONCURRENCY, "tokens": BUDGET, "retries": 10},
    }
    (tmp_path / "crash.json").write_text(json.dumps(experiment))
    words: tuple[str, ...] = ()
    for _ in range(3):
        asked, before = len(desk.lines("target")), stored(desk) if words else 0
        process = desk.start(*words)
        desk.wait_for_lines("target", asked + 20)
        process.kill()
        ended(process)
        words = RESUME
        assert before + A_CALL * (len(desk.lines("target")) - asked) <= BUDGET + A_CALL

    asked, before = len(desk.lines("target")), stored(desk)
    last = desk.evalbus(*RESUME)

    took = A_CALL * (len(desk.lines("target")) - asked)
    assert last.code == 4
    assert "BUDGET" in last.reason
    assert stored(desk) - before == took
    assert BUDGET - A_CALL <= stored(desk) <= BUDGET + A_CALL
    results = desk.evalbus("runs", "results", "latest", "--jsonl").documents
    told = sum(result["usage"]["input_tokens"] for result in results if "usage" in result)
    waiting = """
        SELECT coalesce(sum(input_tokens), 0) FROM attempt a WHERE NOT EXISTS (SELECT 1 FROM output o WHERE o.trial = a.trial)
        AND NOT EXISTS (SELECT 1 FROM result r WHERE r.position = a.trial)
    """
    assert told + desk.rows(waiting)[0][0] == stored(desk)
