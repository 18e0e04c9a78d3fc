"""Every recorded value of other systems is among the tests' own vectors, or it is said here why not.

The recordings lie beside the project (../shared); where they do not, what is here is tested all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[3]
SHARED = TESTS.parents[1] / "shared"

pytestmark = pytest.mark.skipif(not (SHARED / "vectors").is_dir(), reason="there are no recordings in ../shared")

ELSEWHERE: dict[str, str] = {
    "cohen_kappa": "unit/server/scorer/test_metrics.py",
    "metric.krippendorff_alpha": "unit/server/scorer/test_metrics.py",
    "scorerPrecedence": "unit/server/runner/test_assigning.py",
    "value_to_float": "interop/test_libraries.py",
    "value_to_float(correct=5,incorrect=1,partial=3)": "interop/test_libraries.py",
}
"""Written out in a test of their own; the grades of inspect_ai are read by its own function, behind its adapter."""

NOT_OF_SCORERS: dict[str, tuple[str, ...]] = {
    "numbers over the values of a run, which tests/unit/server/aggregate holds against theirs where both have one": (
        *("metric.accuracy", "metric.frequency", "metric.grouped(accuracy)", "metric.aggregate('a',mean)"),
        *("metric.aggregate('a',mean,on_missing=skip)", "metric.aggregate('a',mean,on_missing=zero)"),
        *("reducer.collect", "round2", "epoch_pass", "aggregate.bucket_distribution", "computeScorerStats"),
    ),
    "how a run goes and ends": (
        *("runEvals", "e2e.sample_error", "e2e.unscored", "e2e.none_score", "e2e.all_unscored", "e2e.eval_retry"),
        *("e2e.reducer_k_gt_epochs", "e2e.limit", "e2e.score", "e2e.rescore", "e2e.eval_set", "e2e.eval_set.rerun"),
        *("e2e.eval_set.more_epochs", "e2e.log_members", "e2e.edit_score", "e2e.edit_score.new_without_value"),
        *("e2e.edit_score.new", "should_eval_fail", "expt_status_from_items", "experimentSummary"),
    ),
    "comparing runs": ("mcnemar", "isRegression", "compareExperiments", "publicCompareExperiments"),
    "tools, selection and search": ("toolMocks", "resolve_task_sample_ids", "filter.like_escape"),
}
"""What no scorer gives, by what it is about."""


def read(path: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, path.read_text("utf-8").splitlines())


def key_of(row: dict[str, Any]) -> str:
    """What was asked, and what came of it; notes and versions do not count."""
    return json.dumps([row.get("function") or row.get("scorer"), row.get("input"), row.get("expected")], sort_keys=True)


HERE = {key_of(row) for path in (TESTS / "data" / "vectors").glob("*.jsonl") for row in read(path)}


def recorded() -> list[tuple[str, bool]]:
    """Of each recorded row what it is of, and whether it is here."""
    rows = [row for path in sorted((SHARED / "vectors").glob("*.jsonl")) for row in read(path)]
    return [(row.get("function") or row["scorer"], key_of(row) in HERE) for row in rows]


def test_every_recorded_row_is_here_or_named():
    named = set(ELSEWHERE).union(*NOT_OF_SCORERS.values())
    assert {what for what, here in recorded() if not here} == named


def test_what_stands_elsewhere_stands_there():
    assert all((TESTS / path).is_file() for path in ELSEWHERE.values())


@pytest.mark.parametrize(("recordings", "ours"), [("sc_vectors", "scoring_cases"), ("sc11_text_scores", "text_scores")])
def test_every_row_of_a_scoring_case_is_here(recordings, ours):
    here = list(read(TESTS / "data" / "vectors" / f"{ours}.jsonl"))
    assert [row for row in read(SHARED / "cases" / "files" / f"{recordings}.jsonl") if row not in here] == []


def test_every_scoring_case_is_named_by_a_test():
    wanted = {row["id"] for row in read(SHARED / "cases" / "cases.jsonl") if row["kind"] == "scoring"}
    named = {row["case"] for row in read(TESTS / "data" / "vectors" / "scoring_cases.jsonl")}
    texts = [path.read_text("utf-8").lower() for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    named |= {each for each in wanted if any(each.lower().replace("-", "_") in text for text in texts)}
    named |= {each for each in wanted if any(each.lower() in text for text in texts)}
    assert wanted - named == set()
