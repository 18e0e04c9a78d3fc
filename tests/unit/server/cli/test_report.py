"""A run for people: numbers, criteria, verdict with its reason."""

import io

import pytest
from rich.console import Console

from evalbus_server.cli.report import notes_of, print_report, reason_of

COUNTS = {"planned": 252, "passed": 139, "failed": 113, "errored": 0, "skipped": 0, "pending": 0}
SCORE = {
    "n": 252,
    "n_trials": 252,
    "mean": 0.6865,
    "interval": {"low": 0.6268, "high": 0.7407},
    "pass_rate": 0.6865,
    "threshold": 1.0,
    "errored": 0,
    "skipped": 0,
}
CRITERION = {
    "label": "two in three understood",
    "metric": "mean",
    "scorer": "intent",
    "value": 0.6865,
    "min": 0.65,
    "max": None,
    "severity": "error",
    "outcome": "PASS",
    "explanation": "",
}


def document(**changes):
    return {
        "run": "r1a22c188099db870ca766",
        "name": "support-desk",
        "state": "COMPLETED",
        "reason": "",
        "verdict": "PASS",
        "partial": False,
        "counts": COUNTS,
        "pass_rate": 0.5516,
        "coverage": 1.0,
        "weighted": None,
        "scores": {"intent": SCORE},
        "criteria": [CRITERION],
        "latency_ms": {"mean": 3.2, "p50": 2.5, "p90": 5.0, "p95": 6.0, "p99": 8.0},
        "usage": None,
        "dataset": {"name": "support-desk", "version": 1, "digest": "ab"},
        "digest": "cd",
        "duration_s": 0.8,
        "work_s": 0.8,
        **changes,
    }


def printed(document) -> str:
    file = io.StringIO()
    print_report(Console(file=file, width=110), document)
    return file.getvalue()


def test_it_shows_every_number_beside_its_n():
    text = printed(document())
    for part in ("intent", "252", "0.6865", "0.6268 – 0.7407", "68.7 %", "139 passed", "113 failed", "0 errored"):
        assert part in text
    assert "two in three understood" in text and "≥ 0.65" in text
    assert "p95 6" in text
    assert "verdict  PASS" in text
    assert max(len(line) for line in text.splitlines()) <= 110


def test_the_time_of_a_run_that_rested_is_that_at_work_and_the_whole_beside():
    assert "time     800 ms\n" in printed(document())
    assert "time     12 s at work   2 h 00 min from start to end\n" in printed(document(work_s=12.2, duration_s=7212))


def test_a_number_without_a_value_is_a_dash():
    empty = {**SCORE, "n": 0, "mean": None, "interval": None, "pass_rate": None, "threshold": None, "errored": 3}
    text = printed(document(scores={"intent": empty}, latency_ms=None))
    assert "–" in text and "None" not in text and "nan" not in text
    assert "latency" not in text


def test_names_from_outside_are_no_markup():
    assert "[bold]x[/bold]" in printed(document(scores={"[bold]x[/bold]": SCORE}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        (
            {
                "verdict": "FAIL",
                "criteria": [{**CRITERION, "outcome": "FAIL", "explanation": "mean of intent is 0.6, below 0.65"}],
            },
            "FAIL: two in three understood: mean of intent is 0.6, below 0.65",
        ),
        ({"verdict": "FAIL", "criteria": []}, "FAIL: 113 of 252 trials missed a threshold"),
        (
            {"verdict": "INCONCLUSIVE", "criteria": [], "counts": {**COUNTS, "errored": 3}},
            "INCONCLUSIVE: 3 of 252 trials errored",
        ),
        (
            {
                "verdict": "INCONCLUSIVE",
                "state": "ABORTED",
                "reason": "MAX_ERRORS: 21 errors of target; the limit is 20",
                "counts": {**COUNTS, "passed": 39, "failed": 13, "pending": 200},
            },
            "run r1a22c188099db870ca766 is ABORTED: 21 errors of target; the limit is 20"
            " (52 of 252 trials have a result)",
        ),
    ],
)
def test_the_reason_is_one_line(changes, reason):
    assert reason_of(document(**changes)) == reason


def test_the_end_of_a_budget_says_what_is_left_to_be_scored():
    """Or the usage would be taken for all of it."""
    counts = {"planned": 10, "passed": 6, "failed": 0, "errored": 0, "skipped": 0, "pending": 4}
    spent = document(
        state="ABORTED",
        reason="BUDGET: 90 tokens are used; the limit is 90; 3 outputs are stored and not scored",
        verdict="INCONCLUSIVE",
        counts=counts,
    )

    (note,) = notes_of(spent)
    assert note.startswith("usage is that of trials with a result, without the outputs that are not scored")
    assert "`runs resume`" in note
    assert list(notes_of({**spent, "reason": "DEADLINE: over; 3 outputs are stored and not scored"})) == []
    assert list(notes_of({**spent, "reason": "BUDGET: 90 tokens are used; the limit is 90"})) == []
