"""The frozen values: how they are built, and what they say."""

import copy
import dataclasses
import pickle

import pytest

from evalbus import (
    NULL,
    Failure,
    FailureCategory,
    FailureOrigin,
    Item,
    Message,
    Money,
    Output,
    Score,
    ScoreStatus,
    Span,
    ToolCall,
    TrialFailed,
    Usage,
    Value,
)
from evalbus._output import output_with


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("text", Value("text")),
        ("", Value("")),
        (None, NULL),
        (True, Value("true", "json")),
        (3, Value("3", "json")),
        (1.5, Value("1.5", "json")),
        ([1, "é"], Value('[1,"é"]', "json")),
        ({"a": None}, Value('{"a":null}', "json")),
        (Value("as it is"), Value("as it is")),
    ],
)
def test_python_objects_become_values(content: object, value: Value) -> None:
    assert Value.of(content) == value


@pytest.mark.parametrize("content", [float("nan"), [float("inf")], {"a": "\ud800"}])
def test_what_is_not_json_is_refused(content: object) -> None:
    with pytest.raises(ValueError, match=r"JSON|surrogate|compliant"):
        Value.of(content)


def test_what_json_has_no_form_for_is_refused() -> None:
    with pytest.raises(TypeError):
        Value.of(object())


def test_a_document_that_is_a_string_is_a_text() -> None:
    assert Value.json(' "hello" ') == Value("hello")
    assert Value.json(" [1.0] ") == Value("[1.0]", "json")


def test_bytes_have_a_media_type_and_no_text() -> None:
    blob = Value.blob(b"\x89PNG", "image/png")

    assert (blob.data, str(blob)) == (b"\x89PNG", "<4 bytes of image/png>")
    with pytest.raises(TypeError, match="image/png has no text"):
        _ = blob.text
    with pytest.raises(ValueError, match="media type"):
        Value.blob(b"", "")


def test_an_item_lists_the_answers_that_will_do() -> None:
    assert Item("q", "?").accepted == ()
    assert Item("q", "?", "a").accepted == (Value("a"),)
    assert Item("q", "?", ["a", 2, None]).accepted == (Value("a"), Value("2", "json"), NULL)
    assert Item("q", "?", []).accepted == ()
    assert Item("q", "?", [["a"]]).accepted == (Value('["a"]', "json"),)


def test_metadata_is_a_mapping_or_text() -> None:
    assert Item("q", metadata={"a": 1}).metadata_json == '{"a":1}'
    assert Item("q", metadata='{"a": 1.0}').metadata == {"a": 1.0}
    assert Item("q").metadata == {}
    assert Output("x", metadata={}).metadata_json == ""


def test_the_text_of_an_output_is_its_content_or_its_last_message() -> None:
    spoken = [Message("user", "hi"), Message("assistant", [Value("hel"), Value("lo"), NULL])]

    assert Output("x", messages=spoken).text == "x"
    assert Output(messages=spoken).text == "hello"
    assert Output().text == ""


def test_parts_of_outputs_have_objects_beside_their_text() -> None:
    assert ToolCall("search", {"q": "x"}).arguments == {"q": "x"}
    assert ToolCall("search").arguments == {}
    assert Span("1", "call", attributes={"a": 1}).attributes == {"a": 1}
    assert Failure(FailureCategory.INTERNAL, "", details_json='{"a":1}').details == {"a": 1}


def test_usage_adds_up_and_costs_only_in_one_currency() -> None:
    dollar, euro = Usage(1, 2, 3, 4, Money(5)), Usage(cost=Money(7, "EUR"))

    assert dollar + dollar == Usage(2, 4, 6, 8, Money(10))
    assert (dollar + Usage()).cost == Money(5)
    assert (dollar + euro).cost is None


def test_scores_have_a_constructor_for_each_status() -> None:
    scored = Score.scored(True, "because", name="n", label="l")

    assert (scored.status, scored.value, scored.explanation, scored.name) == (ScoreStatus.SCORED, 1.0, "because", "n")
    assert Score.scored(1) == Score(ScoreStatus.SCORED, 1.0)
    assert Score.skipped("why").value is None
    assert Score.errored("why").failure == Failure(
        FailureCategory.INTERNAL, "why", origin=FailureOrigin.SCORER, retryable=False
    )


def test_what_is_made_quickly_is_the_same_as_what_is_made_slowly() -> None:
    """The quick way fills a draft field by field: one that is forgotten would raise here."""
    assert output_with(Value("x")) == Output("x")
    assert Score.scored(0.5, "why") == Score(ScoreStatus.SCORED, 0.5, explanation="why")
    assert repr(output_with(Value("x"))) == repr(Output("x"))


@pytest.mark.parametrize("value", [Output("x"), output_with(Value("x")), Score.scored(1), Item("q"), Value("x")])
def test_values_are_frozen_and_can_be_copied_compared_and_sent(value: object) -> None:
    name = dataclasses.fields(value)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, None)
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
    assert not isinstance(value, Value) or dataclasses.replace(value) == value
    assert hash(value) == hash(copy.copy(value))


@pytest.mark.parametrize(
    ("made", "category"),
    [
        (TrialFailed("x"), FailureCategory.INTERNAL),
        (TrialFailed.rate_limited(retry_after=2.0), FailureCategory.RATE_LIMITED),
        (TrialFailed.unavailable("x"), FailureCategory.UNAVAILABLE),
        (TrialFailed.refused("x"), FailureCategory.REFUSED),
        (TrialFailed.invalid("x"), FailureCategory.INVALID),
    ],
)
def test_an_error_of_plugin_code_carries_a_failure(made: TrialFailed, category: FailureCategory) -> None:
    assert made.failure.category is category
    assert made.failure.message == str(made)
