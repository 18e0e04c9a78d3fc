"""What a function returned or raised, as an answer."""

import asyncio
import enum
import json
from typing import Any

import pytest

from evalbus import Failure, FailureCategory, Output, Score, TrialFailed, Value
from evalbus._results import ResultInvalid, cut, failure_of, one_line, output_of, scores_of, upper_snake
from evalbus._score import plain_scores


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        (Output("x"), Output("x")),
        ("x", Output("x")),
        ("", Output("")),
        (Colour.RED, Output("red")),
        (Value("[1]", "json"), Output(Value("[1]", "json"))),
        ({"a": [1]}, Output(Value('{"a":[1]}', "json"))),
        ([], Output(Value("[]", "json"))),
        (0, Output(Value("0", "json"))),
        (False, Output(Value("false", "json"))),
        (1.5, Output(Value("1.5", "json"))),
    ],
)
def test_a_target_may_return_these(returned: object, output: Output) -> None:
    assert output_of(returned) == output


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "returned None; return an Output"),
        (object(), "returned a value of type object; return an Output"),
        (b"x", "returned a value of type bytes"),
        (Score.scored(1), "returned a value of type Score"),
        ({"a": float("nan")}, "returned a dict that is not JSON"),
        ([object()], "returned a list that is not JSON"),
    ],
)
def test_a_target_may_not_return_these(returned: object, text: str) -> None:
    with pytest.raises(ResultInvalid, match=text):
        output_of(returned)


class Number:
    """Like the numbers of numpy."""

    def __float__(self) -> float:
        return 0.25


@pytest.mark.parametrize(
    ("returned", "scores"),
    [
        (Score.skipped("no"), (Score.skipped("no"),)),
        (True, (Score.scored(1.0),)),
        (0, (Score.scored(0.0),)),
        (0.5, (Score.scored(0.5),)),
        (Number(), (Score.scored(0.25),)),
        (
            [Score.scored(1, name="a"), Score.scored(0, name="b")],
            (Score.scored(1, name="a"), Score.scored(0, name="b")),
        ),
        ((Score.scored(1),), (Score.scored(1),)),
    ],
)
def test_a_scorer_may_return_these(returned: object, scores: tuple[Score, ...]) -> None:
    assert scores_of(returned) == scores


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "returned None; return a Score"),
        ("1", "returned a value of type str"),
        ([], "returned no score at all"),
        ([0.5], "returned a list with a value of type float in it"),
        (10**400, "that is no number"),
    ],
)
def test_a_scorer_may_not_return_these(returned: object, text: str) -> None:
    with pytest.raises(ResultInvalid, match=text):
        scores_of(returned)


def test_a_forgotten_await_is_named() -> None:
    async def late() -> None: ...

    with pytest.raises(ResultInvalid, match="returned a coroutine: declare the function with `async def`"):
        output_of(late())


def test_an_error_on_purpose_is_its_failure() -> None:
    error = TrialFailed.rate_limited("slow\ndown", retry_after=3.0)

    assert failure_of(error, "f") == Failure(FailureCategory.RATE_LIMITED, "slow down", retry_after=3.0)


def test_an_error_whose_class_forgot_its_failure_is_one_all_the_same() -> None:
    class Careless(TrialFailed):
        def __init__(self) -> None:
            Exception.__init__(self, "oops")

    assert failure_of(Careless(), "f") == Failure(FailureCategory.INTERNAL, "oops")


def raised(error: BaseException) -> Failure:
    try:
        raise error
    except BaseException as caught:
        return failure_of(caught, "f")


def test_any_other_error_is_internal_and_says_where() -> None:
    failure = raised(ValueError("first\nsecond \ud800"))

    assert (failure.category, failure.reason) == (FailureCategory.INTERNAL, "VALUE_ERROR")
    assert failure.message == "ValueError: first second ?"
    assert "test_results.py" in failure.details["traceback"]


def test_an_error_without_a_text_has_no_colon() -> None:
    assert raised(KeyboardInterrupt()).message == "KeyboardInterrupt"


def test_a_cancellation_of_its_own_making_is_explained() -> None:
    failure = raised(asyncio.CancelledError())

    assert failure.reason == "CANCELLED_ERROR"
    assert failure.message == "CancelledError: raised by f itself, nobody had cancelled the trial"


def test_texts_are_cut_where_they_get_long() -> None:
    def deep(n: int) -> Any:
        return deep(n - 1) if n else 1 / 0

    failure = raised(ValueError("é" * 100_000))
    assert len(failure.message.encode()) <= 2048
    assert failure.message.endswith("…")
    with pytest.raises(ZeroDivisionError) as caught:
        deep(900)
    trace = failure_of(caught.value, "f").details["traceback"]
    assert len(trace.encode()) <= 8192
    assert trace.endswith("ZeroDivisionError: division by zero\n")


def test_an_error_whose_text_cannot_be_made_is_a_failure_too() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    failure = raised(Broken())
    assert failure.message == "Broken: (its text could not be made)"
    json.loads(failure.details_json or "{}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ValueError", "VALUE_ERROR"),
        ("HTTPError", "HTTP_ERROR"),
        ("JSONDecodeError", "JSON_DECODE_ERROR"),
        ("error", "ERROR"),
        ("Err2XX", "ERR2_XX"),
        ("Ünüsüal", "N_S_AL"),
        ("", "INTERNAL"),
        ("A" * 100, "A" * 64),
    ],
)
def test_a_class_becomes_a_reason(name: str, reason: str) -> None:
    assert upper_snake(name) == reason


def test_lines_are_joined_and_cut_by_bytes() -> None:
    assert one_line(" a\r\n\tb\0 ") == "a b\N{REPLACEMENT CHARACTER}"
    assert cut("é" * 10, 20) == "é" * 10
    assert cut("é" * 11, 20) == "é" * 8 + "…"


def test_equal_values_share_a_score_and_not_more_are_remembered_than_fit() -> None:
    assert scores_of(0.25) is scores_of(0.25)
    assert str(scores_of(-0.0)[0].value) == str(scores_of(0.0)[0].value) == "0.0"
    first = plain_scores(0.125)
    for n in range(10_000):
        assert plain_scores(float(n)) == (Score.scored(float(n)),)
    assert plain_scores(0.125) == first
