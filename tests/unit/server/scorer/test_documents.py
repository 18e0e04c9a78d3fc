"""Parts of JSON documents, as they were written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import Value
from evalbus_server.scorer.documents import entries, find_in

DOCUMENT = Value(
    """ { "total" : 1.10, "a b": {"": [1, "two", null, [ ], {"deep" : true}]}, "caf\\u00e9": "x\\ny",
    "big": 123456789012345678901234567890, "list": [10, 20, 30]} """,
    "json",
)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        (("total",), Value("1.10", "json")),
        (("big",), Value("123456789012345678901234567890", "json")),
        (("a b", ""), Value('[1, "two", null, [ ], {"deep" : true}]', "json")),
        (("a b", "", 1), Value("two")),
        (("a b", "", 2), Value("null", "json")),
        (("a b", "", 3), Value("[ ]", "json")),
        (("a b", "", -1, "deep"), Value("true", "json")),
        (("café",), Value("x\ny")),
        (("list", 0), Value("10", "json")),
        (("list", -3), Value("10", "json")),
        ((), DOCUMENT),
        (("list", 3), None),
        (("list", -4), None),
        (("list", "0"), None),
        (("missing",), None),
        (("total", "deeper"), None),
        ((0,), None),
        (("a b", "", 3, 0), None),
    ],
)
def test_what_stands_where(steps, found):
    assert find_in(DOCUMENT, steps) == found


def test_a_text_or_bytes_hold_nothing_though_they_look_like_json():
    assert find_in(Value('{"a": 1}'), ["a"]) is None
    assert find_in(Value.blob(b'{"a": 1}', "application/json"), ["a"]) is None


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=20,
)


def places(document: Any, steps: tuple[str | int, ...] = ()):
    """Every place in a document with what stands there."""
    yield steps, document
    if isinstance(document, dict):
        for key, inner in document.items():
            yield from places(inner, (*steps, key))
    elif isinstance(document, list):
        for index, inner in enumerate(document):
            yield from places(inner, (*steps, index if index % 2 else index - len(document)))


@given(JSON, st.sampled_from([None, 0, 2]))
def test_every_place_of_every_document_is_found(document, indent):
    whole = Value.json(json.dumps(document, indent=indent))
    for steps, inner in places(document):
        found = find_in(whole, steps)
        assert found is not None
        assert found.data == inner


@given(st.lists(JSON, max_size=5), st.sampled_from([None, 0, 2]))
def test_entries_are_those_of_the_list(document, indent):
    assert [entry.data for entry in entries(json.dumps(document, indent=indent))] == document


def test_entries_stay_as_they_were_written():
    document = '[1.10, "a\\u00e9", {"b" : 1e5}, 123456789012345678901234567890 ]'
    expected = ["1.10", "aé", '{"b" : 1e5}', "123456789012345678901234567890"]
    assert [entry.text for entry in entries(document)] == expected


@given(
    st.lists(st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.none() | st.booleans())
)
def test_a_list_of_texts_and_numbers_is_read_at_once_as_it_is_entry_by_entry(found):
    document = json.dumps(found)
    assert entries(document) == [
        Value(entry) if isinstance(entry, str) else Value(json.dumps(entry), "json") for entry in found
    ]
    assert entries(json.dumps([*found, []])) == [*entries(document), Value("[]", "json")]


def test_numbers_of_a_list_keep_their_digits():
    assert entries("[1.50, 1E3, -0, 12345678901234567890.0]") == [
        Value(text, "json") for text in ("1.50", "1E3", "-0", "12345678901234567890.0")
    ]
