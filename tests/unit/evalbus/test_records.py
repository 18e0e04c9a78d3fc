"""Answers packed into messages: by number and by size, and none of them spoiling the others."""

import pytest

from evalbus import Failure, FailureCategory, Item, Message, Output, Score, ScoreTask, Trial, Usage, wire
from evalbus._plugin import Answer, ProgressKind, Ready, ScoreAnswer, TrialProgress
from evalbus._records import BYTES, RECORD_BYTES, SCORER, TARGET


def unpack(messages: list[bytes]) -> list[list[Answer]]:
    parsed = [TARGET.response.FromString(data).answers.answers for data in messages]
    return [
        [Answer(one.trial_id, one.attempt, wire.answer_result_from_proto(one)) for one in batch] for batch in parsed
    ]


def test_small_answers_share_a_message() -> None:
    answers = [Answer(n, 1, Output(f"answer {n}")) for n in range(256)]

    assert unpack(TARGET.pack(answers)) == [answers]


def test_large_answers_are_split_by_size() -> None:
    answers = [Answer(n, 1, Output("x" * 300_000)) for n in range(10)]

    messages = TARGET.pack(answers)
    assert [one for batch in unpack(messages) for one in batch] == answers
    assert [len(batch) for batch in unpack(messages)] == [3, 3, 3, 1]
    assert max(map(len, messages)) <= BYTES


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_answer_above_the_limit_of_a_message_travels_alone(place: int) -> None:
    answers = [Answer(n, 1, Output("x")) for n in range(3)]
    answers[place] = Answer(place, 1, Output("x" * 1_500_000))

    batches = unpack(TARGET.pack(answers))
    assert [one for batch in batches for one in batch] == answers
    assert [answers[place]] in batches


def test_an_answer_above_the_limit_of_a_record_fails_alone() -> None:
    messages = TARGET.pack([Answer(1, 1, Output("x" * (RECORD_BYTES + 1))), Answer(2, 1, Output("x"))])

    ((first, second),) = unpack(messages)
    assert isinstance(first.result, Failure)
    assert (first.result.category, first.result.reason) == (FailureCategory.INVALID, "MESSAGE_TOO_LARGE")
    assert "2,097,1" in first.result.message
    assert second.result == Output("x")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (Output("\ud800"), "NOT_UNICODE"),
        (Output("x", metadata={"a": 1}, trace_ids=["\udfff"]), "NOT_UNICODE"),
        (Output("x", usage=Usage(2**70)), "RESULT_INVALID"),
        (Output("x", usage=Usage("many")), "RESULT_INVALID"),  # type: ignore[arg-type]
        (Output("x", messages=["hello"]), "RESULT_INVALID"),  # type: ignore[list-item]
        (Output("x", messages=[Message("user", "hi")], trace_ids=[7]), "RESULT_INVALID"),  # type: ignore[list-item]
    ],
)
def test_an_answer_that_has_no_form_fails_alone(output: Output, reason: str) -> None:
    ((before, odd, after),) = unpack(
        TARGET.pack([Answer(1, 1, Output("x")), Answer(2, 1, output), Answer(3, 1, Output("y"))])
    )

    assert isinstance(odd.result, Failure)
    assert (odd.trial_id, odd.result.category, odd.result.reason) == (2, FailureCategory.INTERNAL, reason)
    assert (before.result, after.result) == (Output("x"), Output("y"))


def test_a_scorer_packs_scores() -> None:
    answers = [ScoreAnswer(1, 1, (Score.scored(1),)), ScoreAnswer(2, 1, Failure(FailureCategory.INTERNAL, "x", "X"))]

    (data,) = SCORER.pack(answers)
    parsed = SCORER.response.FromString(data).answers.answers
    assert [wire.score_answer_result_from_proto(one) for one in parsed] == [answer.result for answer in answers]


def test_news_that_has_no_form_is_still_news() -> None:
    data = TARGET.progress([TrialProgress(1, 1, ProgressKind.STARTED, note="\ud800"), TrialProgress(2, 1, note="fine")])

    trials = TARGET.response.FromString(data).progress.trials
    assert [(one.trial_id, one.kind, one.note) for one in trials] == [(1, 1, ""), (2, 2, "fine")]


def test_a_batch_is_read_record_by_record() -> None:
    request = TARGET.request()
    wire.fill_trial(request.trials.trials.add(), Trial(1, 1, Item("q", "x")))
    request.trials.trials.add(trial_id=2, attempt=7)

    good, bad = TARGET.read(request)
    assert good == [Trial(1, 1, Item("q", "x"))]
    assert [(one.trial_id, one.attempt, one.result.reason) for one in bad] == [(2, 7, "CONTRACT_BROKEN")]


def test_a_batch_of_tasks_is_read_too() -> None:
    request = SCORER.request()
    wire.fill_task(request.tasks.tasks.add(), ScoreTask(1, 1, Item("q", "x"), Output("y")))

    assert SCORER.read(request) == ([ScoreTask(1, 1, Item("q", "x"), Output("y"))], [])


def test_the_first_message_says_ready_or_refused() -> None:
    ready = TARGET.response.FromString(TARGET.ready(Ready(7)))
    refused = TARGET.response.FromString(TARGET.refused(Failure(FailureCategory.INVALID, "no", "NO")))

    assert ready.ready.max_in_flight == 7
    assert refused.refused.failure.reason == "NO"


def test_answers_can_be_checked_as_if_they_had_travelled() -> None:
    fine = [Answer(1, 1, Output("x", answer=2)), Answer(2, 1, Failure(FailureCategory.INTERNAL, "no", "NO"), Usage(1))]
    odd = [Answer(3, 1, Output()), Answer(4, 1, Output("x", metadata="{")), Answer(5, 1, Output("\ud800"))]

    arrived = TARGET.travelled([*fine, *odd])
    assert arrived[:2] == fine
    assert [one.result.reason for one in arrived[2:]] == ["CONTRACT_BROKEN", "CONTRACT_BROKEN", "NOT_UNICODE"]
