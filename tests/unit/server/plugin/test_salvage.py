"""What plugins send that nobody can read, or that is too much: one answer's fault stays that answer's."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import Failure, FailureCategory, Output, wire
from evalbus.v1 import failure_pb2, plugin_pb2, score_pb2, scorer_pb2, target_pb2
from evalbus.wire.framing import fields
from evalbus_server.plugin.codec import ScorerCodec, TargetCodec
from evalbus_server.plugin.port import ConversationLost
from evalbus_server.plugin.salvage import Unreadable, readable

MARK, NOT_UTF8 = b"MARKED", b"MA\xff\xfeED"


def answers(*texts: str) -> target_pb2.AnswerResponse:
    response = target_pb2.AnswerResponse()
    for place, text in enumerate(texts):
        answer = response.answers.answers.add(trial_id=place, attempt=1001)
        answer.output.content.text = text
    return response


def arrived(response: target_pb2.AnswerResponse | scorer_pb2.ScoreResponse) -> Any:
    """A response as it comes from the stream, with bytes that are not UTF-8 wherever MARKED stands."""
    return readable(type(response))(response.SerializeToString().replace(MARK, NOT_UTF8))


def failure_in(result: object) -> Failure:
    assert isinstance(result, Failure)
    return result


def test_one_answer_that_is_not_unicode_harms_none_beside_it():
    """It is INVALID for its own trial, and the others are read."""
    received = TargetCodec().read(arrived(answers("one", "MARKED", "three")))

    assert [answer[:2] for answer in received.answers] == [(0, 1001), (1, 1001), (2, 1001)]
    assert [received.answers[place][2] for place in (0, 2)] == [Output("one"), Output("three")]
    failure = failure_in(received.answers[1][2])
    assert (failure.category, failure.reason) == (FailureCategory.INVALID, "NOT_UNICODE")
    assert failure.retryable is False


def test_scores_that_are_not_unicode_are_the_failure_of_their_task():
    """The same for scorers."""
    response = scorer_pb2.ScoreResponse()
    for place, text in enumerate(("fine", "MARKED")):
        answer = response.answers.answers.add(trial_id=place, attempt=2001)
        answer.scores.add(status=score_pb2.SCORE_STATUS_SCORED, value=1, explanation=text)

    received = ScorerCodec().read(arrived(response))

    assert isinstance(received.answers[0][2], tuple)
    assert failure_in(received.answers[1][2]).reason == "NOT_UNICODE"
    assert received.answers[1][:2] == (1, 2001)


def test_news_that_is_not_unicode_is_no_news():
    """Nobody is harmed by a note that cannot be read."""
    news = plugin_pb2.Progress(trials=[plugin_pb2.TrialProgress(trial_id=1, note="MARKED")])

    received = TargetCodec().read(arrived(target_pb2.AnswerResponse(progress=news)))

    assert (received.answers, received.news) == ([], ())


@pytest.mark.parametrize("encoded", [b"\xff" * 30, b"\x1a\x05\x0a", b"\x0b", b"\x1a\x02\x0a\x05", b"\x08\xff"])
def test_what_is_no_message_loses_the_conversation(encoded: bytes):
    """There is nothing to be saved from it, not even whom it is about."""
    with pytest.raises(ConversationLost, match="no message of the contract"):
        TargetCodec().read(Unreadable(encoded, "corrupt"))


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_lost_and_never_raises_anything_else(encoded: bytes):
    """Bytes of all kinds, also inside of a batch."""
    for candidate in (encoded, b"\x1a" + bytes([len(encoded) % 128]) + encoded):
        for codec, response in ((TargetCodec(), target_pb2.AnswerResponse), (ScorerCodec(), scorer_pb2.ScoreResponse)):
            try:
                codec.read(readable(response)(candidate))
            except ConversationLost:
                continue


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(codec="utf-8"), max_size=20))))
def test_fields_are_found_as_protobuf_wrote_them(rows: list[tuple[int, str]]):
    """Numbers and texts of every size."""
    for number, text in rows:
        message = plugin_pb2.TrialProgress(trial_id=number, note=text)

        found = dict(fields(message.SerializeToString()))

        assert found.get(1, 0) == number % 2**64
        assert found.get(7, b"") == text.encode()


def test_a_failure_is_one_line_within_the_limit_with_a_constant_as_reason():
    """What failure.proto promises of it, whatever the plugin sent; also inside of a score."""
    long = failure_pb2.Failure(reason="no such thing! " * 20, message="first\nsecond " + "é" * 9000)
    target = target_pb2.AnswerResponse()
    target.answers.answers.add(trial_id=1, attempt=1).failure.CopyFrom(long)
    scorer = scorer_pb2.ScoreResponse()
    scorer.answers.answers.add(trial_id=1, attempt=1).failure.CopyFrom(long)
    scorer.answers.answers.add(trial_id=2, attempt=1).scores.add(status=score_pb2.SCORE_STATUS_ERRORED, failure=long)

    whole = [TargetCodec().read(target).answers[0][2], ScorerCodec().read(scorer).answers[0][2]]
    scores = ScorerCodec().read(scorer).answers[1][2]

    assert isinstance(scores, tuple)
    for failure in map(failure_in, [*whole, scores[0].failure]):
        assert failure.message.startswith("first second éé") and failure.message.endswith("…")
        assert len(failure.message.encode()) <= wire.LONGEST_FAILURE_MESSAGE
        assert failure.reason.startswith("NO_SUCH_THING_") and len(failure.reason) == 64


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "cached_tokens", "calls", "micros"])
def test_more_than_anything_consumes_breaks_the_contract(field: str):
    """Else sums over attempts and trials would no longer fit the store, which would end the whole run."""
    for most, fits in ((wire.LARGEST_COUNT, True), (wire.LARGEST_COUNT + 1, False)):
        response = answers("fine")
        usage = response.answers.answers[0].output.usage
        setattr(usage.cost if field == "micros" else usage, field, most)

        result = TargetCodec().read(response).answers[0][2]

        assert isinstance(result, Output) is fits
