"""What a run's criteria say of its numbers (G1 to G5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalbus_server.aggregate.metrics import (
    OVER_ITEMS,
    Metrics,
    Number,
    is_made,
    leaves_errored_out,
    read_metric,
    unknown_metric,
)
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.bounds import Criterion
from evalbus_server.model.faults import in_per_cent, suggestion
from evalbus_server.model.plugin_use import ScorerUse
from evalbus_server.model.reducers import RUN_METRICS
from evalbus_server.model.run import Run, RunState, ScoreKey, Verdict
from evalbus_server.model.summary import CriterionResult

TOLERANCE = 1e-9
"""A number that misses its bound by no more than this meets it (N6)."""


def check_criteria(
    criteria: Sequence[Criterion], keys: Sequence[ScoreKey], epochs: int, scorers: Sequence[ScorerUse] = ()
) -> None:
    """Refuse, before the run, what could never be decided (G4). Whether a baseline exists the caller knows.

    *scorers* are those that give the keys, as the experiment has them.

    Raises:
        Invalid: a metric or a scorer is unknown, or a k is more than there are epochs.
    """
    for place, criterion in enumerate(criteria):
        if is_made(criterion.metric):
            _check_made(place, criterion, keys, scorers)
            continue
        try:
            _, reducer = read_metric(criterion.metric)
        except ValueError as error:
            raise _invalid(place, "metric", str(error)) from None
        if reducer is not None and reducer.k is not None and reducer.k > epochs:
            raise _invalid(place, "metric", f"{reducer} needs {reducer.k} epochs, but there are {epochs}")
        if criterion.scorer is None:
            continue
        if criterion.metric in RUN_METRICS:
            raise _invalid(place, "scorer", f"{criterion.metric} is a number of the run; leave scorer out")
        if criterion.scorer not in {key.key for key in keys}:
            raise _invalid(place, "scorer", _unknown(criterion.scorer, [key.key for key in keys]))
        if criterion.metric in OVER_ITEMS:
            _refuse_hopeless(place, criterion, next(key for key in keys if key.key == criterion.scorer))


def _refuse_hopeless(place: int, criterion: Criterion, key: ScoreKey) -> None:
    """Refuse a bound that no value in the declared range meets, nor 0 or 1, which some reducers make of values.

    It is mostly one in per cent.
    """
    low, high = key.declaration.minimum, key.declaration.maximum
    if criterion.min is not None and high is not None and criterion.min > max(high, 1.0):
        raise _invalid(
            place,
            "min",
            f"{criterion.min:g} can never be reached: {key.key} is never above {high:g}{in_per_cent(criterion.min, high)}",
        )
    if criterion.max is not None and low is not None and criterion.max < min(low, 0.0):
        raise _invalid(place, "max", f"{criterion.max:g} can never be kept: {key.key} is never below {low:g}")


def _check_made(place: int, criterion: Criterion, keys: Sequence[ScoreKey], scorers: Sequence[ScorerUse]) -> None:
    """A number that a scorer's entry asks for is one of a score whose scorer is asked for it."""
    having = [
        key.key
        for key in keys
        if key.scorer < len(scorers) and criterion.metric in {each.called for each in scorers[key.scorer].metrics}
    ]
    if not having:
        made = {each.called for scorer in scorers for each in scorer.metrics}
        raise _invalid(place, "metric", unknown_metric(criterion.metric, made))
    if criterion.scorer is None and len(having) > 1:
        raise _invalid(place, "scorer", f"several scores have {criterion.metric}; name one of {', '.join(having)}")
    if criterion.scorer is not None and criterion.scorer not in having:
        if criterion.scorer not in {key.key for key in keys}:
            raise _invalid(place, "scorer", _unknown(criterion.scorer, [key.key for key in keys]))
        raise _invalid(
            place, "scorer", f"{criterion.scorer} has no {criterion.metric}; that is one of {', '.join(having)}"
        )


def judge_criteria(
    criteria: Sequence[Criterion], metrics: Metrics, run: Run, baselines: Mapping[str, Metrics] | None = None
) -> tuple[CriterionResult, ...]:
    """What each criterion says. *baselines* are the numbers of the runs that criteria name, by the name they use."""
    unfinished = _unfinished(run)
    results = []
    for place, criterion in enumerate(criteria):
        number = metrics.number(criterion.metric, criterion.scorer)
        outcome, explanation = _judge(criterion, number, metrics, baselines or {})
        if unfinished:
            outcome, explanation = Verdict.INCONCLUSIVE, "; ".join(filter(None, [unfinished, explanation]))
        results.append(CriterionResult(place, number.value, outcome, explanation))
    return tuple(results)


def verdict_of(criteria: Sequence[Criterion], results: Sequence[CriterionResult], run: Run) -> Verdict:
    """The verdict (G2, G3, G5): FAIL beats INCONCLUSIVE beats PASS; a criterion that only warns changes nothing."""
    counts = run.counts
    if _unfinished(run):
        return Verdict.INCONCLUSIVE
    said = {result.outcome for result in results if criteria[result.criterion].severity == "error"}
    if not said:
        if counts.failed:
            return Verdict.FAIL
        return Verdict.INCONCLUSIVE if counts.errored or not counts.passed else Verdict.PASS
    return next(verdict for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS) if verdict in said)


def verdict_without_numbers(criteria: Sequence[Criterion], run: Run) -> Verdict | None:
    """The verdict where it follows from the run's state and counts alone; None where a criterion has to be judged."""
    return None if criteria and not _unfinished(run) else verdict_of(criteria, (), run)


def _judge(
    criterion: Criterion, number: Number, metrics: Metrics, baselines: Mapping[str, Metrics]
) -> tuple[Verdict, str]:
    name = _named(criterion)
    if number.value is None:
        return Verdict.INCONCLUSIVE, f"{name} has no value: {number.reason}"
    misses = _misses(criterion, number)
    doubts = _doubts(criterion, number, metrics)
    if criterion.baseline is not None:
        miss, doubt = _against(criterion, number, baselines.get(criterion.baseline))
        misses += miss
        doubts += doubt
    explanation = "; ".join([f"{name} is {_text(number.value)}, {each}" for each in misses] + doubts)
    if misses:
        return Verdict.FAIL, explanation
    return (Verdict.INCONCLUSIVE if doubts else Verdict.PASS), explanation


def _named(criterion: Criterion) -> str:
    return criterion.metric if criterion.scorer is None else f"{criterion.metric} of {criterion.scorer}"


def _misses(criterion: Criterion, number: Number) -> list[str]:
    misses = []
    value = number.value or 0.0
    if criterion.min is not None and value < criterion.min - TOLERANCE and not number.at_least:
        misses.append(f"below {_text(criterion.min)}")
    if criterion.max is not None and value > criterion.max + TOLERANCE:
        misses.append(f"above {_text(criterion.max)}")
    return misses


def _doubts(criterion: Criterion, number: Number, metrics: Metrics) -> list[str]:
    """Why a number that meets its bounds still proves nothing."""
    doubts = []
    if leaves_errored_out(criterion.metric):
        coverage = metrics.coverage(criterion.scorer)
        if coverage is None or coverage < criterion.min_coverage - TOLERANCE:
            found = "none" if coverage is None else _text(coverage)
            doubts.append(f"the coverage of {_named(criterion)} is {found}, below {_text(criterion.min_coverage)}")
    if number.at_least:
        doubts.append(number.reason)
    return doubts


def _against(criterion: Criterion, number: Number, baseline: Metrics | None) -> tuple[list[str], list[str]]:
    """The misses and the doubts of a number beside that of the baseline."""
    if baseline is None:
        return [], [f"the baseline {criterion.baseline} is not there"]
    before = baseline.number(criterion.metric, criterion.scorer)
    if before.value is None or number.value is None or before.at_least:
        return [], [f"the baseline {criterion.baseline} has no whole value: {before.reason}"]
    drop = number.value - before.value if number.lower_is_better else before.value - number.value
    allowed = criterion.max_drop or 0.0
    if drop <= allowed + TOLERANCE:
        return [], []
    worse = (
        f"worse by {_text(drop)} than {_text(before.value)} of {criterion.baseline}, where {_text(allowed)} is allowed"
    )
    return [worse], []


def _unfinished(run: Run) -> str:
    """Why the numbers are not the whole run's (G5); "" if they are, or may still become it."""
    if run.state not in (RunState.CANCELLED, RunState.INTERRUPTED, RunState.ABORTED) and not run.partial:
        return ""
    return f"the run is {run.state.name} with results for {run.counts.done} of {run.counts.planned} trials"


def _unknown(scorer: str, known: list[str]) -> str:
    if not known:
        return f"there is no score {scorer!r}; the experiment has no scorer"
    parts = [key for key in known if key.startswith(f"{scorer}.")]
    if parts:
        return f"{scorer!r} gives several scores; name one of {', '.join(parts)}"
    return f"there is no score {scorer!r}{suggestion(scorer, known, known)}"


def _invalid(place: int, field: str, message: str) -> Invalid:
    path = f"criteria[{place}].{field}"
    return Invalid(Reason.EXPERIMENT_INVALID, f"{path}: {message}", field=path)


def _text(value: float) -> str:
    return f"{value:.10g}"
