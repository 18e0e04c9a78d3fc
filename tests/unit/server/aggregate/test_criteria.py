"""What criteria say of a run's numbers."""

from __future__ import annotations

import re
from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import Money, Usage
from evalbus_server.aggregate.criteria import check_criteria, verdict_without_numbers
from evalbus_server.aggregate.summary import summarise
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.bounds import Criterion
from evalbus_server.model.numbers import RunNumbers
from evalbus_server.model.reducers import SHARES
from evalbus_server.model.run import Counts, RunState, Verdict
from tests.unit.server.aggregate.runs import ERROR, SKIP, key, lower, numbers_of, run_of

PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def judged(numbers: RunNumbers, metric: str, **more):
    """The value, outcome and explanation of one criterion, and the verdict."""
    baselines = more.pop("baselines", None)
    found = summarise(numbers, [Criterion(metric=metric, **more)], baselines=baselines)
    [result] = found.criteria
    return result.value, result.outcome, result.explanation, found.verdict


class TestOneCriterion:
    def test_it_holds_at_its_bounds(self):
        numbers = numbers_of({key(): [0.4, 0.6]})
        assert judged(numbers, "mean", scorer="score", min=0.5, max=0.5) == (0.5, PASS, "", PASS)

    def test_below_its_minimum_it_fails_and_says_so(self):
        found = judged(numbers_of({key(): [0.4, 0.6]}), "mean", scorer="score", min=0.51)
        assert found == (0.5, FAIL, "mean of score is 0.5, below 0.51", FAIL)

    def test_above_its_maximum_it_fails_and_says_so(self):
        found = judged(numbers_of({key(): [0.4, 0.6]}), "max", scorer="score", max=0.5)
        assert found == (0.6, FAIL, "max of score is 0.6, above 0.5", FAIL)

    def test_a_billionth_is_forgiven_and_no_more(self):
        numbers = numbers_of({key(): [0.5]})
        assert judged(numbers, "mean", scorer="score", min=0.5 + 9e-10)[1] is PASS
        assert judged(numbers, "mean", scorer="score", min=0.5 + 2e-9)[1] is FAIL

    def test_no_value_is_inconclusive_and_says_why(self):
        value, outcome, why, verdict = judged(numbers_of({key(): [SKIP]}), "mean", scorer="score", min=0.0)
        assert (value, outcome, verdict) == (None, INCONCLUSIVE, INCONCLUSIVE)
        assert why == "mean of score has no value: no trial has a value"

    def test_no_value_where_trials_errored_tells_how_many(self):
        why = judged(numbers_of({key(): [ERROR, ERROR, SKIP]}), "mean", scorer="score", min=0.0)[2]
        assert why == "mean of score has no value: no trial has a value, and 2 of 3 trials errored"

    def test_a_reducers_reason_is_told(self):
        numbers = numbers_of({key(): [[0, 0, ERROR, ERROR]]})
        value, outcome, why, _ = judged(numbers, "pass_at(3)", scorer="score", min=0.0)
        assert (value, outcome) == (None, INCONCLUSIVE)
        assert "2 of 3 needed trials scored" in why

    def test_a_warning_is_shown_and_changes_nothing(self):
        found = judged(numbers_of({key(): [0.5]}), "mean", scorer="score", min=0.9, severity="warn")
        assert found[1] is FAIL
        assert found[3] is PASS


class TestCoverage:
    @pytest.mark.parametrize("metric", ["mean", "median", "min", "max", "pass_at(1)", "weighted"])
    def test_an_errored_trial_makes_a_number_that_leaves_it_out_inconclusive(self, metric):
        scorer = {} if metric == "weighted" else {"scorer": "score"}
        value, outcome, why, _ = judged(numbers_of({key(): [1, 1, 1, ERROR]}), metric, min=0.5, **scorer)
        assert (value, outcome) == (1.0, INCONCLUSIVE)
        named = metric if metric == "weighted" else f"{metric} of score"
        assert why == f"the coverage of {named} is 0.75, below 1"

    @pytest.mark.parametrize(("min_coverage", "outcome"), [(0.75, PASS), (0.76, INCONCLUSIVE), (0.0, PASS)])
    def test_as_much_as_is_asked_for_is_enough(self, min_coverage, outcome):
        numbers = numbers_of({key(): [1, 1, 1, ERROR]})
        assert judged(numbers, "mean", scorer="score", min=0.5, min_coverage=min_coverage)[1] is outcome

    def test_a_miss_with_too_little_coverage_is_still_a_miss(self):
        _, outcome, why, _ = judged(numbers_of({key(): [0, 0, 0, ERROR]}), "mean", scorer="score", min=0.5)
        assert outcome is FAIL
        assert why == "mean of score is 0, below 0.5; the coverage of mean of score is 0.75, below 1"

    def test_skipped_trials_leave_the_coverage_whole(self):
        assert judged(numbers_of({key(): [1, SKIP]}), "mean", scorer="score", min=0.5)[1] is PASS

    def test_another_scorers_errors_are_not_the_named_ones(self):
        numbers = numbers_of({key("a"): [1, 1], key("b"): [1, ERROR]})
        assert judged(numbers, "mean", scorer="a", min=0.5)[1] is PASS
        assert judged(numbers, "mean", scorer="b", min=0.5)[1] is INCONCLUSIVE
        assert judged(numbers, "mean", min=0.5)[1] is INCONCLUSIVE

    @pytest.mark.parametrize("metric", ["pass_rate", "error_rate", "coverage"])
    def test_numbers_that_count_errored_trials_need_none(self, metric):
        assert judged(numbers_of({key(threshold=0.5): [1, 1, ERROR]}), metric, min=0.0)[1] is PASS


class TestMetrics:
    @pytest.mark.parametrize(
        ("metric", "scorer", "value"),
        [
            ("mean", "a", 0.5),
            ("median", "a", 0.5),
            ("min", "a", 0.0),
            ("max", "a", 1.0),
            ("pass_rate", "a", 1 / 3),
            ("coverage", "a", 2 / 3),
            ("error_rate", "a", 1 / 3),
            ("pass_at(1)", "a", 0.5),
            ("mean", None, 0.525),
            ("max", None, 1.0),
            ("pass_rate", None, 1 / 3),
            ("coverage", None, 2 / 3),
            ("error_rate", None, 1 / 3),
            ("weighted", None, 0.525),
            ("p95_latency_ms", None, 95.5),
            ("cost", None, 1.25),
        ],
    )
    def test_each_metric_of_the_same_run(self, metric, scorer, value):
        numbers = replace(
            numbers_of({key("a", threshold=1.0): [1, 0, ERROR, SKIP], key("b"): [0.5, 0.6, ERROR, SKIP]}),
            latencies_ms=array("d", [10.0, 100.0]),
            usage=Usage(cost=Money(1_250_000)),
            priced=2,
            with_usage=2,
        )
        assert judged(
            numbers, metric, scorer=scorer, **({"min": 0.0} if metric in SHARES or "(" in metric else {"max": 1000.0})
        )[0] == pytest.approx(value)

    def test_epochs_are_reduced_by_item_before_the_least_is_taken(self):
        assert judged(numbers_of({key(): [[0, 1], [1, 1]]}), "min", scorer="score", min=0.5)[0] == 0.5

    def test_a_reducer_as_metric_works_beside_another_one_for_the_run(self):
        assert judged(numbers_of({key(): [[0, 1], [0, 0]]}), "pass_at(2)", scorer="score", min=0.5)[0] == 0.5

    def test_scores_of_different_scale_have_no_common_mean(self):
        value, outcome, why, _ = judged(numbers_of({key("a"): [1], lower("b"): [7]}), "mean", min=0.5)
        assert (value, outcome) == (None, INCONCLUSIVE)
        assert "name a scorer" in why

    def test_but_they_have_a_common_share_of_passes(self):
        numbers = numbers_of({key("a", threshold=0.5): [1], lower("b", threshold=3.0): [7]})
        assert judged(numbers, "pass_at(1)", min=0.5)[0] == 0.5

    def test_a_score_without_threshold_has_no_pass_rate(self):
        value, outcome, why, _ = judged(numbers_of({key(): [1]}), "pass_rate", scorer="score", min=0.5)
        assert (value, outcome) == (None, INCONCLUSIVE)
        assert "score has no threshold" in why

    @pytest.mark.parametrize("metric", ["cost", "p95_latency_ms", "weighted"])
    def test_what_nobody_measured_has_no_value(self, metric):
        numbers = RunNumbers(run_of([], Counts(planned=1, passed=1)))
        assert judged(numbers, metric, max=5.0)[:2] == (None, INCONCLUSIVE)


class TestCost:
    def cost(self, micros: int | None, priced: int, with_usage: int, **bounds):
        usage = Usage(cost=None if micros is None else Money(micros))
        numbers = replace(numbers_of({key(): [1]}), usage=usage, priced=priced, with_usage=with_usage)
        return judged(numbers, "cost", **bounds)[:3]

    def test_prices_that_are_not_known_are_no_zeros(self):
        value, outcome, why = self.cost(1_000_000, 1, 3, max=5.0)
        assert (value, outcome) == (1.0, INCONCLUSIVE)
        assert why == "the price of 2 of 3 trials is not known"

    def test_what_is_known_may_already_be_too_much(self):
        assert self.cost(6_000_000, 1, 3, max=5.0)[1] is FAIL

    def test_what_is_not_known_may_still_make_it_enough(self):
        assert self.cost(1_000_000, 1, 3, min=5.0)[1] is INCONCLUSIVE

    def test_several_currencies_have_no_sum(self):
        assert self.cost(None, 3, 3, max=5.0)[:2] == (None, INCONCLUSIVE)

    def test_no_known_price_is_no_value(self):
        assert self.cost(None, 0, 3, max=5.0)[:2] == (None, INCONCLUSIVE)


class TestBaseline:
    def against(self, now, before, metric="mean", max_drop=0.1, **more):
        return judged(now, metric, baseline="main", max_drop=max_drop, baselines={"main": before}, **more)[1:3]

    @pytest.mark.parametrize(("now", "outcome"), [(0.9, PASS), (0.8, PASS), (0.7, PASS), (0.69, FAIL)])
    def test_a_number_may_drop_as_far_as_is_allowed(self, now, outcome):
        assert self.against(numbers_of({key(): [now]}), numbers_of({key(): [0.8]}), scorer="score")[0] is outcome

    @pytest.mark.parametrize(("now", "outcome"), [(1, PASS), (3, PASS), (3.1, PASS), (3.2, FAIL)])
    def test_where_lower_is_better_a_rise_is_the_drop(self, now, outcome):
        found = self.against(numbers_of({lower(): [now]}), numbers_of({lower(): [3]}), scorer="steps")
        assert found[0] is outcome

    def test_more_errors_are_worse(self):
        before, now = numbers_of({key(): [1, 1, 1, 1]}), numbers_of({key(): [1, 1, 1, ERROR]})
        assert self.against(now, before, metric="error_rate") == (
            FAIL,
            "error_rate is 0.25, worse by 0.25 than 0 of main, where 0.1 is allowed",
        )

    def test_scores_are_found_by_name_wherever_they_stand(self):
        before = numbers_of({key("other"): [0], key("score"): [0.8]})
        assert self.against(numbers_of({key(): [0.5]}), before, scorer="score")[0] is FAIL

    def test_a_baseline_without_that_score_is_inconclusive(self):
        outcome, why = self.against(numbers_of({key(): [1]}), numbers_of({key("other"): [1]}), scorer="score")
        assert outcome is INCONCLUSIVE
        assert "no score 'score'" in why

    def test_a_baseline_that_is_not_there_is_inconclusive(self):
        found = judged(numbers_of({key(): [1]}), "mean", baseline="gone", max_drop=0.0)
        assert found[1:3] == (INCONCLUSIVE, "the baseline gone is not there")

    def test_other_bounds_hold_beside_it(self):
        same = numbers_of({key(): [0.5]})
        assert self.against(same, same, min=0.9)[0] is FAIL


class TestVerdict:
    @pytest.mark.parametrize(
        ("said", "verdict"),
        [
            ([1, 1], PASS),
            ([1, 0], FAIL),
            ([1, ERROR], INCONCLUSIVE),
            ([0, ERROR], FAIL),
            ([SKIP, SKIP], INCONCLUSIVE),
            ([1, SKIP], PASS),
            ([ERROR, ERROR], INCONCLUSIVE),
        ],
    )
    def test_without_criteria_the_outcomes_decide(self, said, verdict):
        assert summarise(numbers_of({key(threshold=0.5): said})).verdict is verdict

    def test_criteria_that_only_warn_leave_it_to_the_outcomes(self):
        numbers = numbers_of({key(threshold=0.5): [1, 0]})
        assert judged(numbers, "mean", min=0.0, severity="warn")[3] is FAIL

    def test_criteria_that_hold_pass_a_run_with_failed_trials(self):
        assert judged(numbers_of({key(threshold=0.5): [1, 0]}), "pass_rate", min=0.5)[3] is PASS

    @pytest.mark.parametrize(
        ("minimums", "verdict"),
        [([0.1], PASS), ([0.1, 0.9], FAIL), ([0.1, None], INCONCLUSIVE), ([0.9, None], FAIL), ([None, 0.9, 0.1], FAIL)],
    )
    def test_fail_beats_inconclusive_beats_pass(self, minimums, verdict):
        criteria = [
            Criterion(metric="p95_latency_ms", max=1.0) if each is None else Criterion(metric="mean", min=each)
            for each in minimums
        ]
        assert summarise(numbers_of({key(): [0.5]}), criteria).verdict is verdict

    @pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.INTERRUPTED, RunState.ABORTED, RunState.PAUSED])
    def test_a_run_that_stopped_half_way_is_inconclusive(self, state):
        numbers = numbers_of({key(): [0.5]}, planned=3, state=state)
        value, outcome, why, verdict = judged(numbers, "mean", min=0.4)
        assert (value, outcome, verdict) == (0.5, INCONCLUSIVE, INCONCLUSIVE)
        assert why == f"the run is {state.name} with results for 1 of 3 trials"

    def test_a_run_that_is_running_is_judged_by_what_it_has(self):
        numbers = numbers_of({key(): [0.5]}, planned=3, state=RunState.RUNNING)
        assert judged(numbers, "mean", min=0.4)[3] is PASS

    @given(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, ERROR, SKIP]), min_size=1),
        st.sampled_from(["mean", "min", "median", "weighted", "pass_at(1)", "pass_rate", "error_rate"]),
        st.floats(0, 1),
    )
    def test_a_run_in_which_every_trial_errored_never_passes_by_its_scores(self, said, metric, minimum):
        errored = [ERROR for _ in said]
        _, outcome, _, verdict = judged(numbers_of({key(threshold=0.5): errored}), metric, min=minimum)
        if metric not in ("error_rate", "pass_rate"):
            assert outcome is verdict is INCONCLUSIVE
        assert summarise(numbers_of({key(threshold=0.5): errored})).verdict is INCONCLUSIVE


class TestCheckBeforeTheRun:
    KEYS = (key("exact_match"), key("tone.warmth"), key("tone.clarity"))

    def refused(self, criterion: Criterion, says: str, *, keys=KEYS, epochs: int = 2) -> str:
        with pytest.raises(Invalid, match=re.escape(says)) as error:
            check_criteria([Criterion(metric="cost", max=1.0), criterion], keys, epochs)
        assert error.value.reason is Reason.EXPERIMENT_INVALID
        return error.value.field

    def test_what_is_known_is_accepted(self):
        criteria = [
            Criterion(metric="mean", scorer="exact_match", min=0.5),
            Criterion(metric="pass_at(2)", scorer="tone.warmth", min=0.5),
            Criterion(metric="weighted", min=0.5),
        ]
        check_criteria(criteria, self.KEYS, 2)

    def test_an_unknown_scorer_is_refused_with_a_suggestion(self):
        criterion = Criterion(metric="mean", scorer="exact_mach", min=0.5)
        assert self.refused(criterion, "did you mean exact_match?") == "criteria[1].scorer"

    def test_a_scorer_of_several_scores_is_refused_with_their_names(self):
        self.refused(Criterion(metric="mean", scorer="tone", min=0.5), "tone.warmth, tone.clarity")

    def test_without_scorers_there_is_nothing_to_name(self):
        self.refused(Criterion(metric="mean", scorer="x", min=0.5), "has no scorer", keys=())

    def test_a_k_beyond_the_epochs_is_refused(self):
        criterion = Criterion(metric="pass_hat(3)", scorer="exact_match", min=0.5)
        assert self.refused(criterion, "needs 3 epochs, but there are 2") == "criteria[1].metric"

    def test_an_unknown_metric_is_refused_with_a_suggestion(self):
        criterion = Criterion.model_construct(metric="pass_rat", scorer=None, min=0.5)
        assert self.refused(criterion, "did you mean pass_rate?") == "criteria[1].metric"

    def test_a_number_of_the_run_is_refused_for_one_score(self):
        criterion = Criterion.model_construct(metric="cost", scorer="exact_match", max=0.5)
        assert self.refused(criterion, "leave scorer out") == "criteria[1].scorer"


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"metric": "mean", "min": 80}, "criteria[0].min: 80 can never be reached: score is never above 1"),
        ({"metric": "median", "max": -0.5}, "criteria[0].max: -0.5 can never be kept: score is never below 0"),
    ],
)
def test_a_bound_that_no_value_meets_is_refused(bounds, why):
    with pytest.raises(Invalid, match=re.escape(why)):
        check_criteria([Criterion(scorer="score", **bounds)], [key()], 1)
    check_criteria([Criterion(scorer="score", metric=bounds["metric"], min=1, max=1)], [key()], 1)


@pytest.mark.parametrize("metric", ["pass_rate", "coverage", "error_rate", "pass_at(1)"])
def test_a_share_in_per_cent_is_refused_with_how_to_write_it(metric):
    with pytest.raises(ValueError, match=re.escape(f"min 95: {metric} is a share, from 0 to 1; write 0.95 for 95 %")):
        Criterion(metric=metric, min=95)
    with pytest.raises(ValueError, match="is a share, from 0 to 1"):
        Criterion(metric=metric, max=-1)


@given(
    said=st.lists(st.sampled_from([0.0, 1.0, ERROR, SKIP]), min_size=1, max_size=5),
    pending=st.integers(0, 2),
    state=st.sampled_from(RunState),
    severity=st.sampled_from(["error", "warn", None]),
)
def test_a_verdict_made_without_numbers_is_the_one_of_the_summary(said, pending, state, severity):
    """At the end of a run its numbers are made only where a criterion asks for them."""
    numbers = numbers_of({key(threshold=0.5): said}, planned=len(said) + pending, state=state)
    criteria = [] if severity is None else [Criterion(metric="mean", scorer="score", min=0.5, severity=severity)]

    found = verdict_without_numbers(criteria, numbers.run)

    assert found is not None or (criteria and not numbers.run.partial)
    assert found in (None, summarise(numbers, criteria).verdict)
