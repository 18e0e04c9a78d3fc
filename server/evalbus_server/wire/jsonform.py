"""The JSON that scripts read (rules, part 10), as plain dictionaries made of the server's values.

Enums are upper-case words. A number without a value is null; content that is absent is left out, since JSON null is a
value of its own. JSON values stand there as they are; integers keep every digit.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from evalbus import Failure, Output, Score, ScoreStep
from evalbus_server.model.bounds import Criterion
from evalbus_server.model.event import ContentPurged, Event, LimitsChanged, StateChanged
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Counts, DatasetVersion, Run, ScoreKey, Verdict
from evalbus_server.model.summary import CriterionResult, Distribution, Latency, ScoreSummary, Summary
from evalbus_server.model.trial import StoredResult, StoredScore, epoch_of, position_of
from evalbus_server.wire.contentform import Document, output_document, put, usage_document, value_data
from evalbus_server.wire.settings import settings_document

# --- runs -------------------------------------------------------------------------------------------------------


def run_document(run: Run) -> Document:
    """A run as it stands, without the numbers that must be computed."""
    took = run.ended_at - run.started_at if run.ended_at is not None and run.started_at is not None else None
    return {
        "run": run.id,
        "name": run.name,
        "state": run.state.name,
        "reason": run.reason or None,
        "verdict": _verdict(run.verdict),
        "partial": run.partial,
        "counts": counts_document(run.counts),
        "dataset": {"name": run.dataset.name, "version": run.dataset.version, "digest": run.dataset.digest},
        "digest": run.digest,
        "tags": list(run.tags),
        "source": run.source or None,
        "changed_limits": run.changed_limits,
        "created_at": time_text(run.created_at),
        "started_at": time_text(run.started_at),
        "ended_at": time_text(run.ended_at),
        "duration_s": took,
        "work_s": run.worked if run.started_at is not None and run.session_began_at is None else None,
    }


def summary_document(summary: Summary) -> Document:
    """A run with its numbers: what `run` and `runs show` print."""
    run = run_document(summary.run)
    criteria = Experiment.from_json(summary.run.experiment_json).criteria if summary.criteria else ()
    usage = usage_document(summary.usage)
    usage["priced_share"] = summary.priced_share
    head = ("run", "name", "state", "reason", "verdict", "partial", "counts")
    return {
        **{key: run[key] for key in head},
        "pass_rate": summary.pass_rate,
        "coverage": summary.coverage,
        "weighted": summary.weighted,
        "scores": {score.key: _score_document(score) for score in summary.scores},
        "criteria": [_criterion_document(criteria[result.criterion], result) for result in summary.criteria],
        "latency_ms": _latency_document(summary.latency),
        "usage": usage,
        "attempts": summary.attempts,
        "cached": summary.cached,
        "failures": {category.name: count for category, count in summary.failures},
        "protocol_faults": summary.run.protocol_faults,
        "warnings": list(summary.warnings),
        **{key: value for key, value in run.items() if key not in head},
        "duration_s": summary.wall_time,
        "work_s": summary.work_time,
        "experiment": settings_document(summary.run),
    }


def counts_document(counts: Counts) -> Document:
    """How the trials of a run stand."""
    return {
        "planned": counts.planned,
        "passed": counts.passed,
        "failed": counts.failed,
        "errored": counts.errored,
        "skipped": counts.skipped,
        "pending": counts.pending,
    }


def dataset_document(dataset: DatasetVersion) -> Document:
    """A dataset at a version."""
    return {
        "dataset": dataset.name,
        "version": dataset.version,
        "items": dataset.items,
        "digest": dataset.digest,
        "created_at": time_text(dataset.created_at),
    }


def _score_document(score: ScoreSummary) -> Document:
    return {
        "n": score.n,
        "n_trials": score.n_trials,
        "mean": score.mean,
        "median": score.median,
        "min": score.min,
        "max": score.max,
        "sum": score.sum,
        "std": score.std,
        "stderr": score.stderr,
        "interval": None if score.interval is None else [score.interval.low, score.interval.high],
        "pass_rate": score.pass_rate,
        "coverage": score.coverage,
        "threshold": score.threshold,
        "errored": score.errored,
        "skipped": score.skipped,
        "distribution": _distribution_document(score.distribution),
        "metrics": {each.name: {"value": each.value, "explanation": each.explanation} for each in score.metrics},
    }


def _distribution_document(distribution: Distribution) -> Document:
    return {
        "values": [{"value": each.value, "count": each.count, "share": each.share} for each in distribution.values],
        "other": distribution.other,
        "histogram": [{"low": each.low, "high": each.high, "count": each.count} for each in distribution.histogram],
    }


def _criterion_document(criterion: Criterion, result: CriterionResult) -> Document:
    document = {
        "label": criterion.label or None,
        "metric": criterion.metric,
        "scorer": criterion.scorer,
        "value": result.value,
        "min": criterion.min,
        "max": criterion.max,
        "severity": criterion.severity,
        "outcome": result.outcome.name,
        "explanation": result.explanation or None,
        "min_coverage": criterion.min_coverage,
    }
    if criterion.baseline is not None:
        document |= {"baseline": criterion.baseline, "max_drop": criterion.max_drop}
    return document


def _latency_document(latency: Latency | None) -> Document | None:
    if latency is None:
        return None
    return {name: getattr(latency, name) for name in ("mean", "p50", "p90", "p95", "p99")}


def _verdict(verdict: Verdict | None) -> str | None:
    return None if verdict is None else verdict.name


def time_text(seconds: float | None) -> str | None:
    """A point in time in UTC, as RFC 3339 writes it; None stays None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- results ----------------------------------------------------------------------------------------------------


def result_document(result: StoredResult, run: Run) -> Document:
    """The result of one trial: a line of `runs results --jsonl`."""
    document: Document = {
        "item": result.item.id,
        "epoch": epoch_of(result.trial_id),
        "outcome": result.outcome.name,
        "input": value_data(result.item.input),
    }
    put(document, "expected", result.item.expected)
    if result.item.metadata_json:
        document["metadata"] = result.item.metadata
    if result.item.tags:
        document["tags"] = list(result.item.tags)
    if result.output is not None:
        document |= _answer_parts(result.output)
    if result.usage is not None:
        document["usage"] = usage_document(result.usage)
    document["scores"] = {
        run.score_keys[place].key: score_document(stored, run.score_keys[place])
        for place, stored in sorted(result.scores.items())
    }
    document["weighted"] = result.weighted
    if result.failure is not None:
        document["failure"] = failure_document(result.failure)
    document["attempts"] = result.attempts
    if result.cached:
        document["cached"] = True
    document["latency_ms"] = None if result.latency is None else result.latency * 1000
    if result.output is not None and result.output.trace_ids:
        document["trace_ids"] = list(result.output.trace_ids)
    return document


_IN_A_RESULT = {"content": "output", "metadata": "output_metadata"}
"""What keys of an output are called where its item stands beside it."""
_OF_THE_RESULT = ("usage", "trace_ids")
"""Keys of an output that the result has for the whole trial."""


def _answer_parts(output: Output) -> Document:
    parts = output_document(output).items()
    return {_IN_A_RESULT.get(key, key): part for key, part in parts if key not in _OF_THE_RESULT}


def score_document(stored: StoredScore, key: ScoreKey) -> Document:
    """One score of a result."""
    score = stored.score
    document: Document = {
        "status": score.status.name,
        "value": score.value,
        "label": score.label or None,
        "explanation": score.explanation or None,
        "threshold": key.threshold,
        "passed": stored.passed,
    }
    put(document, "answer", score.answer)
    if score.failure is not None:
        document["failure"] = failure_document(score.failure)
    return document | score_extras(score)


def score_extras(score: Score) -> Document:
    """What a scorer tells besides its judgement: metadata, steps, usage and trace ids, where there are some."""
    document: Document = {}
    if score.metadata_json:
        document["metadata"] = score.metadata
    if score.steps:
        document["steps"] = [_step_document(step) for step in score.steps]
    if score.usage is not None:
        document["usage"] = usage_document(score.usage)
    if score.trace_ids:
        document["trace_ids"] = list(score.trace_ids)
    return document


def _step_document(step: ScoreStep) -> Document:
    document: Document = {"name": step.name}
    put(document, "result", step.result)
    if step.duration is not None:
        document["duration"] = step.duration
    return document


def failure_document(failure: Failure) -> Document:
    """Why something could not be done."""
    document: Document = {
        "origin": failure.origin.name,
        "category": failure.category.name,
        "reason": failure.reason or failure.category.name,
        "message": failure.message,
    }
    if failure.field:
        document["field"] = failure.field
    if failure.details_json:
        document["details"] = failure.details
    return document


# --- events -----------------------------------------------------------------------------------------------------


def event_document(event: Event) -> Document:
    """A stored event: a line of `runs watch --json`."""
    fact = event.fact
    document: Document = {"sequence": event.sequence, "time": time_text(event.time)}
    if isinstance(fact, StateChanged):
        document |= {
            "kind": "state",
            "state": fact.state.name,
            "reason": fact.reason or None,
            "verdict": _verdict(fact.verdict),
        }
    elif isinstance(fact, LimitsChanged):
        document |= {"kind": "limits", "limits": {path: json.loads(value) for path, value in fact.settings}}
    elif isinstance(fact, ContentPurged):
        document |= {"kind": "purge", "trials": [_trial_document(trial_id) for trial_id in fact.trials]}
    else:
        trials = [{**_trial_document(trial_id), "outcome": outcome.name} for trial_id, outcome in fact.trials]
        document |= {"kind": "trials", "trials": trials}
    document["counts"] = counts_document(fact.counts)
    return document


def _trial_document(trial_id: int) -> Document:
    return {"trial": trial_id, "position": position_of(trial_id), "epoch": epoch_of(trial_id)}
