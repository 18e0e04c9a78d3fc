"""JSON as text: strict, and losing nothing."""

import json

import pytest
from hypothesis import given

from evalbus import _json

from . import strategies as some


@given(some.documents)
def test_what_is_written_can_be_read(document: object) -> None:
    assert _json.loads(_json.dumps(document)) == document
    assert json.loads(_json.dumps(document)) == document


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "Expecting value"),
        ("{} {}", "Extra data"),
        ("{'a': 1}", "property name"),
        ("[1,]", "Expecting value|Illegal trailing comma"),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ('{"a": 1, "a": 2}', "'a' comes twice"),
        ('{"x": {"a": 1, "a": 1}}', "'a' comes twice"),
        ('"\\ud800"', "lone surrogate"),
        ('{"\\udc00": 1}', "lone surrogate"),
        ("[" * 101 + "]" * 101, "deeper than 100"),
        ("[" * 100_000 + "]" * 100_000, "deeper than 100"),
        ("9" * 5000, "4300|digits"),
    ],
)
def test_what_is_not_json_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        _json.loads(text)


def test_what_is_just_allowed_is_read() -> None:
    assert _json.loads("[" * 100 + "]" * 100)
    assert _json.loads('"' + "[{" * 200 + '\\""') == "[{" * 200 + '"'
    assert _json.loads('"\\ud83d\\ude00"') == "😀"
    assert _json.loads("9" * 4000) == int("9" * 4000)


def test_writing_refuses_what_has_no_form() -> None:
    for document in (float("nan"), ["\ud800"]):
        with pytest.raises(ValueError, match=r"JSON|surrogate|compliant"):
            _json.dumps(document)
    with pytest.raises(TypeError):
        _json.dumps({1, 2})
