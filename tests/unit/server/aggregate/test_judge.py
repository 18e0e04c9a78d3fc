"""A scorer's answer is checked against what it declared, and scores become an outcome."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import Direction, Failure, FailureCategory, FailureOrigin, Score, ScoreDeclaration, ScoreStatus
from evalbus_server.aggregate.judge import check_scores, judge
from evalbus_server.model.run import Outcome, ScoreKey

TIMEOUT = Failure(FailureCategory.TIMEOUT, "no answer within 60 s", origin=FailureOrigin.SCORER)


def key(name: str = "", *, threshold: float | None = None, weight: float | None = None, **declared) -> ScoreKey:
    return ScoreKey(name or "scorer", 0, ScoreDeclaration(name=name, **declared), threshold, weight)


def keys_of(*keys: ScoreKey) -> list[tuple[int, ScoreKey]]:
    return list(enumerate(keys, start=4))


def broken(checked: Score) -> str:
    """The message of a score that breaks the contract."""
    assert checked.status is ScoreStatus.ERRORED
    assert checked.value is None
    assert checked.failure is not None
    assert checked.failure.category is FailureCategory.INVALID
    assert checked.failure.origin is FailureOrigin.SCORER
    assert checked.failure.reason == "CONTRACT_BROKEN"
    return checked.failure.message


class TestCheckScores:
    def test_a_value_in_range_stays_the_very_same_score(self):
        score = Score.scored(0.5, "half")
        [(position, checked)] = check_scores([score], keys_of(key()))
        assert position == 4
        assert checked is score

    @pytest.mark.parametrize("value", [0.0, 1.0])
    def test_both_ends_of_the_range_belong_to_it(self, value):
        [(_, checked)] = check_scores((Score.scored(value),), keys_of(key()))
        assert checked.value == value

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("ends", [(0.0, 1.0), (None, None)])
    def test_a_value_that_is_not_finite_is_errored_and_quoted(self, value, ends):
        [(_, checked)] = check_scores([Score.scored(value)], keys_of(key(minimum=ends[0], maximum=ends[1])))
        assert repr(value) in broken(checked)

    @pytest.mark.parametrize(
        ("value", "end"), [(-0.1, "minimum 0.0"), (1.0000000000000002, "maximum 1.0"), (7, "maximum")]
    )
    def test_a_value_out_of_range_is_errored_and_quoted(self, value, end):
        [(_, checked)] = check_scores([Score.scored(value)], keys_of(key()))
        message = broken(checked)
        assert repr(float(value)) in message
        assert end in message

    def test_an_absent_end_bounds_nothing(self):
        [(_, checked)] = check_scores([Score.scored(-1e300)], keys_of(key(minimum=None)))
        assert checked.value == -1e300

    @pytest.mark.parametrize("ends", [(0.0, 1.0), (None, None)])
    def test_minus_zero_becomes_zero(self, ends):
        [(_, checked)] = check_scores([Score.scored(-0.0, "nothing")], keys_of(key(minimum=ends[0], maximum=ends[1])))
        assert math.copysign(1.0, checked.value or 0.0) == 1.0
        assert checked.value == 0.0
        assert checked.explanation == "nothing"

    def test_an_out_of_range_score_keeps_what_it_says_beside_the_value(self):
        score = Score.scored(2, "because", label="B", answer="42", metadata={"a": 1}, trace_ids=["t"])
        [(_, checked)] = check_scores([score], keys_of(key()))
        assert (checked.explanation, checked.label, checked.trace_ids) == ("because", "B", ("t",))
        assert checked.answer == score.answer
        assert checked.metadata == {"a": 1}

    def test_a_skipped_score_is_kept(self):
        score = Score.skipped("no expected answer")
        assert check_scores([score], keys_of(key())) == [(4, score)]

    def test_an_errored_score_is_kept(self):
        score = Score.errored(TIMEOUT)
        assert check_scores([score], keys_of(key())) == [(4, score)]

    def test_a_failure_is_the_failure_of_every_key(self):
        checked = check_scores(TIMEOUT, keys_of(key("tone"), key("facts")))
        assert [(position, score.name, score.failure) for position, score in checked] == [
            (4, "tone", TIMEOUT),
            (5, "facts", TIMEOUT),
        ]
        assert {score.status for _, score in checked} == {ScoreStatus.ERRORED}

    def test_scores_in_any_order_find_their_keys(self):
        tone, facts = Score.scored(0.1, name="tone"), Score.scored(0.2, name="facts")
        assert check_scores([facts, tone], keys_of(key("tone"), key("facts"))) == [(4, tone), (5, facts)]

    def test_the_only_score_may_leave_its_name_empty(self):
        score = Score.scored(0.5)
        assert check_scores([score], keys_of(key("tone"))) == [(4, score)]

    def test_a_missing_score_is_errored_and_the_others_stand(self):
        tone = Score.scored(0.1, name="tone")
        [(_, first), (_, second)] = check_scores([tone], keys_of(key("tone"), key("facts")))
        assert first is tone
        assert "'facts' is missing" in broken(second)
        assert second.name == "facts"

    def test_an_empty_answer_errors_every_key(self):
        checked = check_scores([], keys_of(key("tone"), key("facts")))
        assert all("is missing" in broken(score) for _, score in checked)

    def test_an_undeclared_name_errors_the_whole_answer(self):
        answer = [Score.scored(0.1, name="tone"), Score.scored(0.2, name="mood")]
        checked = check_scores(answer, keys_of(key("tone")))
        assert "'mood'" in broken(checked[0][1])
        assert "declared: 'tone'" in broken(checked[0][1])

    def test_a_name_given_to_the_only_unnamed_score_errors_it(self):
        [(_, checked)] = check_scores([Score.scored(0.5, name="mood")], keys_of(key()))
        assert "'mood'" in broken(checked)

    def test_a_doubled_name_errors_the_whole_answer(self):
        answer = [Score.scored(0.1, name="tone"), Score.scored(0.2, name="tone")]
        checked = check_scores(answer, keys_of(key("tone"), key("facts")))
        assert all("gives scores twice: 'tone'" in broken(score) for _, score in checked)

    def test_two_unnamed_scores_of_a_scorer_with_one_are_doubled(self):
        [(_, checked)] = check_scores([Score.scored(0.1), Score.scored(0.1)], keys_of(key("tone")))
        assert "gives scores twice" in broken(checked)

    def test_an_unnamed_score_of_a_scorer_with_two_is_undeclared(self):
        checked = check_scores([Score.scored(0.1), Score.scored(0.1, name="tone")], keys_of(key("tone"), key("facts")))
        assert all("did not declare: ''" in broken(score) for _, score in checked)

    def test_thousands_of_undeclared_names_make_a_short_message(self):
        answer = [Score.scored(0.1, name=f"{n}" * 1000) for n in range(1000)]
        [(_, checked)] = check_scores(answer, keys_of(key()))
        assert len(broken(checked)) < 1000
        assert "and 995 more" in broken(checked)

    def test_a_scored_score_without_value_is_errored(self):
        [(_, checked)] = check_scores([Score(ScoreStatus.SCORED)], keys_of(key()))
        assert "without a value" in broken(checked)

    def test_an_errored_score_without_failure_gets_one(self):
        [(_, checked)] = check_scores([Score(ScoreStatus.ERRORED)], keys_of(key()))
        assert "without a failure" in broken(checked)

    def test_a_skipped_score_with_a_value_is_errored(self):
        [(_, checked)] = check_scores([Score(ScoreStatus.SKIPPED, 0.5)], keys_of(key()))
        assert "0.5" in broken(checked)

    @given(
        values=st.lists(st.one_of(st.none(), st.floats(), st.sampled_from([-0.0, 0.0, 1.0])), min_size=0, max_size=4),
        names=st.lists(st.sampled_from(["", "a", "b"]), min_size=4, max_size=4),
        declared=st.lists(st.sampled_from(["a", "b"]), unique=True, min_size=1, max_size=2),
    )
    def test_whatever_comes_each_key_gets_one_score_that_keeps_the_contract(self, values, names, declared):
        answer = [Score(ScoreStatus.SCORED, value, name=name) for value, name in zip(values, names, strict=False)]
        checked = check_scores(answer, keys_of(*map(key, declared)))
        assert [position for position, _ in checked] == list(range(4, 4 + len(declared)))
        for _, score in checked:
            if score.status is ScoreStatus.SCORED:
                assert score.value is not None
                assert 0.0 <= score.value <= 1.0
                assert math.copysign(1.0, score.value) == 1.0
            else:
                assert broken(score)


class TestJudge:
    def test_a_target_failure_errors_the_trial_whatever_was_scored(self):
        assert judge({0: Score.scored(1)}, [key(threshold=0.5)], TIMEOUT) == (Outcome.ERRORED, None, TIMEOUT)

    def test_no_scorer_passes(self):
        assert judge({}, []) == (Outcome.PASSED, None, None)

    def test_a_score_without_threshold_passes_with_any_value(self):
        assert judge({0: Score.scored(0)}, [key()]) == (Outcome.PASSED, 0.0, None)

    @pytest.mark.parametrize(("value", "outcome"), [(0.7, Outcome.PASSED), (0.6999, Outcome.FAILED)])
    def test_a_threshold_passes_at_the_value_and_above(self, value, outcome):
        assert judge({0: Score.scored(value)}, [key(threshold=0.7)])[0] is outcome

    @pytest.mark.parametrize(("value", "outcome"), [(0.7, Outcome.PASSED), (0.7001, Outcome.FAILED)])
    def test_where_lower_is_better_it_passes_at_the_value_and_below(self, value, outcome):
        lower = key(threshold=0.7, direction=Direction.LOWER_IS_BETTER)
        assert judge({0: Score.scored(value)}, [lower])[0] is outcome

    def test_zero_is_a_threshold(self):
        negative = key(threshold=0.0, minimum=-1.0)
        assert judge({0: Score.scored(-0.5)}, [negative])[0] is Outcome.FAILED
        assert judge({0: Score.scored(0)}, [negative])[0] is Outcome.PASSED

    def test_one_missed_threshold_fails_the_trial(self):
        scores = {0: Score.scored(1), 1: Score.scored(0)}
        assert judge(scores, [key("a", threshold=0.5), key("b", threshold=0.5)]) == (Outcome.FAILED, 0.5, None)

    def test_an_errored_score_comes_before_a_missed_threshold(self):
        scores = {0: Score.scored(0), 1: Score.errored(TIMEOUT)}
        assert judge(scores, [key("a", threshold=0.5), key("b")]) == (Outcome.ERRORED, None, TIMEOUT)

    def test_a_missing_score_errors_the_trial(self):
        outcome, weighted, failure = judge({0: Score.scored(1)}, [key("a"), key("b")])
        assert (outcome, weighted) == (Outcome.ERRORED, None)
        assert failure is not None
        assert "'b' is missing" in failure.message

    def test_a_skipped_score_takes_no_part(self):
        scores = {0: Score.skipped("no expected answer"), 1: Score.scored(0.6)}
        assert judge(scores, [key("a", threshold=1.0), key("b", threshold=0.5)]) == (Outcome.PASSED, 0.6, None)

    def test_nothing_but_skipped_scores_is_skipped(self):
        scores = {0: Score.skipped("no"), 1: Score.skipped("no")}
        assert judge(scores, [key("a", threshold=1.0), key("b", weight=2.0)]) == (Outcome.SKIPPED, None, None)

    @given(
        statuses=st.lists(st.sampled_from([*ScoreStatus, None]), min_size=1, max_size=4),
        values=st.lists(st.floats(0, 1), min_size=4, max_size=4),
        threshold=st.none() | st.floats(0, 1),
    )
    def test_it_never_passes_an_errored_or_a_missing_score(self, statuses, values, threshold):
        scores = {
            position: Score(status, value if status is ScoreStatus.SCORED else None, failure=TIMEOUT)
            for position, (status, value) in enumerate(zip(statuses, values, strict=False))
            if status is not None
        }
        outcome, weighted, failure = judge(scores, [key(f"k{n}", threshold=threshold) for n in range(len(statuses))])
        broke = None in statuses or ScoreStatus.ERRORED in statuses
        assert (outcome is Outcome.ERRORED) == broke
        assert (failure is not None) == broke
        assert weighted is None or 0.0 <= weighted <= 1.0


class TestWeighted:
    def test_weights_weigh(self):
        scores = {0: Score.scored(1), 1: Score.scored(0.5)}
        assert judge(scores, [key("a", weight=1.0), key("b", weight=3.0)])[1] == 0.625

    def test_without_weights_it_is_the_plain_mean(self):
        assert judge({0: Score.scored(1), 1: Score.scored(0.5)}, [key("a"), key("b")])[1] == 0.75

    def test_a_score_without_a_weight_beside_one_with_weighs_one(self):
        scores = {0: Score.scored(1), 1: Score.scored(0.5)}
        assert judge(scores, [key("a"), key("b", weight=3.0)])[1] == 0.625

    def test_a_skipped_scores_weight_leaves_the_denominator(self):
        scores = {0: Score.skipped("no"), 1: Score.scored(0.5)}
        assert judge(scores, [key("a", weight=9.0), key("b", weight=1.0)])[1] == 0.5

    def test_a_weight_of_zero_takes_no_part(self):
        scores = {0: Score.scored(0), 1: Score.scored(0.5)}
        assert judge(scores, [key("a", weight=0.0), key("b", weight=1.0)])[1] == 0.5

    def test_with_every_weight_gone_there_is_no_weighted_score(self):
        scores = {0: Score.scored(1), 1: Score.skipped("no")}
        assert judge(scores, [key("a", weight=0.0), key("b", weight=1.0)]) == (Outcome.PASSED, None, None)

    def test_a_weight_on_a_skipped_score_still_counts_as_weights(self):
        scores = {0: Score.skipped("no"), 1: Score.scored(0.5)}
        assert judge(scores, [key("a", weight=2.0), key("b", weight=0.0)])[1] is None
