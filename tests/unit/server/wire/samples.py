"""Values of the server that tests of the wire share: plain ones, and strategies for any."""

from __future__ import annotations

from evalbus import (
    Direction,
    Failure,
    FailureCategory,
    FailureOrigin,
    Item,
    Money,
    Output,
    Score,
    ScoreDeclaration,
    Usage,
    Value,
)
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Counts, DatasetVersion, Outcome, Run, RunState, ScoreKey, Selection, Verdict
from evalbus_server.model.summary import (
    Bin,
    CriterionResult,
    Distribution,
    Interval,
    Latency,
    ScoreSummary,
    Summary,
    ValueCount,
)
from evalbus_server.model.trial import StoredResult, StoredScore, trial_id_of

EXPERIMENT = Experiment.parse(
    {
        "name": "support-quality",
        "dataset": {"name": "support", "version": 3},
        "scorers": [{"use": "exact_match", "threshold": 1}, {"name": "tone", "use": "tone"}],
        "criteria": [
            {"metric": "mean", "scorer": "exact_match", "min": 0.7},
            {"metric": "pass_rate", "min": 0.95, "severity": "warn", "label": "nearly all"},
            {"metric": "cost", "max": 5, "baseline": "r0", "max_drop": 0.5},
        ],
    }
)
RUN = Run(
    id="r1",
    name="support-quality",
    state=RunState.COMPLETED,
    created_at=1_700_000_000.25,
    dataset=DatasetVersion("support", 3, 10, "d" * 64, 1_600_000_000.0),
    selection=Selection(True, 2, 1),
    epochs=2,
    experiment_json=EXPERIMENT.canonical_json(),
    digest=EXPERIMENT.digest(),
    score_keys=(
        ScoreKey("exact_match", 0, ScoreDeclaration(), 1.0),
        ScoreKey("tone.warm", 1, ScoreDeclaration("warm", 0, 10, Direction.LOWER_IS_BETTER), None, 2.0),
    ),
    counts=Counts(planned=4, passed=1, failed=1, errored=1, skipped=1),
    tags=("nightly",),
    verdict=Verdict.FAIL,
    started_at=1_700_000_001.0,
    ended_at=1_700_000_003.5,
    worked=1.5,
    limits_json='{"limits.concurrency": 4}',
    last_sequence=7,
    protocol_faults=1,
)
SUMMARY = Summary(
    run=RUN,
    pass_rate=1 / 3,
    coverage=2 / 3,
    weighted=None,
    scores=(
        ScoreSummary(
            "exact_match",
            n=2,
            n_trials=3,
            errored=1,
            skipped=0,
            mean=0.5,
            median=0.5,
            min=0.0,
            max=1.0,
            sum=1.0,
            std=0.7,
            stderr=0.5,
            interval=Interval(0.1, 0.9),
            pass_rate=0.5,
            coverage=0.75,
            threshold=1.0,
            distribution=Distribution((ValueCount(1.0, 2, 0.66), ValueCount(0.0, 1, 0.33)), 0, (Bin(0.0, 1.0, 3),)),
        ),
        ScoreSummary("tone.warm", n=0, n_trials=0, errored=0, skipped=4),
    ),
    criteria=(
        CriterionResult(0, 0.5, Verdict.FAIL, "0.5 is below 0.7"),
        CriterionResult(1, 1 / 3, Verdict.FAIL),
        CriterionResult(2, None, Verdict.INCONCLUSIVE, "no price is known"),
    ),
    verdict=Verdict.FAIL,
    latency=Latency(10.0, 9.0, 19.0, 19.5, 19.9),
    usage=Usage(10, 20, 3, 4, Money(1_250_000)),
    priced_share=0.5,
    attempts=5,
    failures=((FailureCategory.TIMEOUT, 1),),
    wall_time=2.5,
    work_time=1.5,
)
FAILURE = Failure(FailureCategory.TIMEOUT, "no answer within 60 s", "TIMEOUT", FailureOrigin.SERVER)
RESULT = StoredResult(
    trial_id_of(5, 2),
    Item("a1", {"n": 2**70}, None),
    Outcome.FAILED,
    Output("out", answer=Value("null", "json"), trace_ids=["t1"]),
    {
        0: StoredScore(Score.scored(0, "differs", label="wrong", answer="ou"), passed=False),
        1: StoredScore(Score.skipped("no tone", name="warm"), None),
    },
    0.0,
    None,
    1,
    0.25,
    Usage(1, 2),
)
ERRORED = StoredResult(trial_id_of(0, 1), Item("a0", "", ""), Outcome.ERRORED, None, {}, None, FAILURE, 3, None, None)
