"""Runs, events, results and numbers over the wire: nothing is lost, and what is not known yet breaks nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbus import FailureCategory, PluginInfo, ScoreDeclaration, ScorerInfo, TargetInfo
from evalbus.v1 import run_pb2
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.run import Counts, DatasetVersion, Outcome, RunState, ScoreKey, Verdict
from evalbus_server.model.summary import CriterionResult, Summary
from evalbus_server.model.trial import epoch_of
from evalbus_server.wire.dataset import dataset_from_proto, dataset_to_proto, item_size
from evalbus_server.wire.event import event_from_proto, event_to_proto, progress_to_proto, snapshot_to_proto
from evalbus_server.wire.jsonform import result_document, summary_document
from evalbus_server.wire.result import result_from_proto, result_to_proto
from evalbus_server.wire.run import (
    counts_from_proto,
    counts_to_proto,
    dataset_of_plan,
    outcomes_filter,
    plan_to_proto,
    planned_keys,
    run_from_proto,
    run_to_proto,
    state_filter,
)
from evalbus_server.wire.summary import summary_from_proto, summary_to_proto
from tests.unit.server.wire.samples import EXPERIMENT, RESULT, RUN, SUMMARY
from tests.unit.server.wire.strategies import (
    COUNTS,
    EVENTS,
    LATENCIES,
    LENGTH,
    MAYBE,
    NAME,
    RUNS,
    SCORE_SUMMARIES,
    TIME,
    USAGE,
    results,
)


@settings(deadline=None)
@given(RUNS)
def test_a_run_comes_back_as_it_went(run):
    assert run_from_proto(run_pb2.Run.FromString(run_to_proto(run).SerializeToString())) == run


@settings(deadline=None)
@given(COUNTS)
def test_counts_come_back_with_what_is_pending(counts):
    message = counts_to_proto(counts)

    assert counts_from_proto(message) == counts
    assert message.pending == counts.pending


@settings(deadline=None)
@given(EVENTS)
def test_an_event_comes_back_as_it_went(event):
    assert event_from_proto(run_pb2.Event.FromString(event_to_proto(event).SerializeToString())) == event


@settings(deadline=None)
@given(results())
def test_a_result_comes_back_as_it_went(drawn):
    result, keys = drawn
    message = run_pb2.TrialResult.FromString(result_to_proto(result, keys).SerializeToString())

    assert result_from_proto(message) == (result, keys)
    assert message.epoch == epoch_of(result.trial_id)


@settings(deadline=None)
@given(
    st.lists(SCORE_SUMMARIES, max_size=3),
    MAYBE,
    LATENCIES,
    USAGE,
    st.lists(st.tuples(st.sampled_from(FailureCategory), st.integers(0, 9)), max_size=3),
    LENGTH,
)
def test_the_numbers_of_a_run_come_back_as_they_went(scores, number, latency, usage, failures, wall_time):
    summary = Summary(
        run=replace(run_from_proto(run_to_proto(RUN), EXPERIMENT), protocol_faults=3),
        pass_rate=number,
        coverage=number,
        weighted=number,
        scores=tuple(scores),
        criteria=(CriterionResult(0, number, Verdict.FAIL, "why"), CriterionResult(1, None, Verdict.PASS)),
        verdict=Verdict.FAIL,
        latency=latency,
        usage=usage,
        priced_share=number,
        attempts=5,
        failures=tuple(failures),
        wall_time=wall_time,
        work_time=wall_time / 2,
    )

    assert summary_from_proto(summary_to_proto(summary), EXPERIMENT) == summary


@settings(deadline=None)
@given(st.builds(DatasetVersion, NAME, st.integers(1, 99), st.integers(0, 99), NAME, TIME))
def test_a_dataset_comes_back_as_it_went(dataset):
    assert dataset_from_proto(dataset_to_proto(dataset)) == dataset


def test_what_came_over_the_wire_gives_scripts_the_same_json():
    summary = summary_from_proto(summary_to_proto(SUMMARY), EXPERIMENT)
    result, keys = result_from_proto(result_to_proto(RESULT, RUN.score_keys))

    assert summary_document(summary) == summary_document(SUMMARY)
    assert result_document(result, replace(RUN, score_keys=keys)) == result_document(RESULT, RUN)


def test_each_criterion_travels_with_what_it_asked():
    message = summary_to_proto(SUMMARY)

    assert [(each.criterion.metric, each.criterion.scorer) for each in message.criteria] == [
        ("mean", "exact_match"),
        ("pass_rate", ""),
        ("cost", ""),
    ]
    assert not message.criteria[2].HasField("value")


def test_what_a_later_server_says_breaks_nothing():
    run = run_to_proto(RUN)
    run.state = 77  # type: ignore[assignment]
    run.verdict = 77  # type: ignore[assignment]
    result = result_to_proto(RESULT, RUN.score_keys)
    result.outcome = 77  # type: ignore[assignment]

    assert run_from_proto(run).state is RunState.QUEUED
    assert run_from_proto(run).verdict is None
    assert result_from_proto(result)[0].outcome is Outcome.ERRORED
    assert event_from_proto(run_pb2.Event(sequence=1)) is None


def test_a_result_that_breaks_the_contract_is_refused():
    message = result_to_proto(RESULT, RUN.score_keys)
    message.item.ClearField("input")

    with pytest.raises(Invalid, match=f"result of trial {RESULT.trial_id}: ") as caught:
        result_from_proto(message)
    assert caught.value.reason is Reason.REQUEST_INVALID


def test_filters_know_the_words_of_the_contract():
    assert state_filter(2) is RunState.RUNNING
    assert state_filter(0) is None
    assert state_filter(77) is None
    assert outcomes_filter([1, 3]) == [Outcome.PASSED, Outcome.ERRORED]
    with pytest.raises(Invalid) as caught:
        outcomes_filter([1, 0])
    assert str(caught.value) == "outcomes[1]: 0 is no outcome"
    assert caught.value.field == "outcomes[1]"


@dataclass(frozen=True)
class Plan:
    items: int = 10
    epochs: int = 3
    trials: int = 30
    plugins: tuple[PluginInfo, ...] = (
        PluginInfo("agent", TargetInfo()),
        PluginInfo("tone", ScorerInfo((ScoreDeclaration("warm"), ScoreDeclaration("calm")))),
    )
    keys: tuple[ScoreKey, ...] = RUN.score_keys
    has_target: bool = True
    scorer_calls: int = 60
    dataset: DatasetVersion | None = RUN.dataset
    first_items: tuple[str, ...] = ("a1", "b7")
    warnings: tuple[str, ...] = ("weighted mixes",)


def test_a_plan_says_how_many_calls_there_will_be():
    message = plan_to_proto(Plan())

    assert (message.items, message.epochs, message.trials) == (10, 3, 30)
    assert (message.target_calls, message.scorer_calls) == (30, 60)
    assert [plugin.name for plugin in message.plugins] == ["agent", "tone"]
    assert list(message.scores) == ["exact_match", "tone.warm"]
    assert plan_to_proto(Plan(has_target=False)).target_calls == 0


def test_a_plan_says_over_what_and_what_scores_mean():
    message = plan_to_proto(Plan())

    assert planned_keys(message) == RUN.score_keys
    assert (message.dataset.name, message.dataset.version) == (RUN.dataset.name, RUN.dataset.version)
    assert (list(message.first_items), list(message.warnings)) == (["a1", "b7"], ["weighted mixes"])
    assert dataset_of_plan(message) == replace(RUN.dataset, items=0, created_at=0.0)
    assert dataset_of_plan(plan_to_proto(Plan(dataset=None))) is None


@dataclass(frozen=True)
class Going:
    counts: Counts = RUN.counts
    answered: int = 4
    in_flight: int = 2
    means: tuple[tuple[str, int, float | None], ...] = (("exact_match", 3, 0.5), ("tone.warm", 0, None))


def test_progress_and_snapshots_have_running_numbers():
    progress = progress_to_proto(Going())
    snapshot = snapshot_to_proto(RUN, Going().means)

    assert (progress.answered, progress.in_flight, progress.counts.planned) == (4, 2, 4)
    assert [(each.key, each.n, each.mean if each.HasField("mean") else None) for each in progress.scores] == [
        ("exact_match", 3, 0.5),
        ("tone.warm", 0, None),
    ]
    assert snapshot.run.last_sequence == 7
    assert snapshot.scores == progress.scores


def test_the_size_of_an_item_is_that_of_its_message():
    assert item_size(RESULT.item) == len(result_to_proto(RESULT, RUN.score_keys).item.SerializeToString())
