"""What is exported comes back just so, and the same bytes every time."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalbus import (
    NULL,
    Item,
    Message,
    Money,
    Output,
    Span,
    Timing,
    ToolCall,
    ToolMock,
    ToolMockFault,
    ToolMockFaultKind,
    ToolMockReport,
    Usage,
    Value,
)
from evalbus_server.dataset import exports
from evalbus_server.dataset.read import read_stream
from evalbus_server.dataset.refusal import DatasetInvalid
from evalbus_server.dataset.source import Format

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "=1+1", "'=1", "-2", "+x", "@a", "\ttab", "\rx", "a\r\nb", '"', ",", " x ", "\0", "\ufeff", "null", "é", "'"]
)
NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8) | st.sampled_from(["=1", "'-1"])
DOCUMENTS = st.sampled_from(
    [
        "null",
        "true",
        "-0",
        "-2",
        "1E400",
        "12345678901234567890123",
        '{"b":1.0,"a":[]}',
        "[]",
        '["x",null]',
        '{"é":"\\u0000"}',
        '{"media_type":"image/png","base64":"aGk="}',
        '{"base64":"aGk=","media_type":"image/png"}',
        '{"media_type":"image/png","base64":"no base64"}',
        '{"media_type":"application/json","json":{"media_type":"application/json","json":"x"}}',
        '{"media_type":"application/json","json":1}',
        '{"media_type":"x","json":1}',
    ]
)
OBJECTS = st.sampled_from(["", '{"a":1.0}', '{"b":[null,12345678901234567890123],"a":"é\\u0000"}'])
VALUES = (
    TEXT.map(Value)
    | DOCUMENTS.map(lambda text: Value(text, "json"))
    | st.builds(Value.blob, st.binary(max_size=5), st.just("image/png"))
)
ARGUMENTS = OBJECTS | st.sampled_from(['"bare"', '"1"', '""', '"{}"', "1", "[1]", "null"])
NUMBERS = st.none() | st.floats(0, 1e9)
CALLS = st.builds(
    ToolCall, NAME, ARGUMENTS, result=st.none() | VALUES, error=TEXT, id=TEXT, started_at=NUMBERS, duration=NUMBERS
)


def several(strategy):
    return st.lists(strategy, max_size=2).map(tuple)


MESSAGES = st.builds(
    Message, NAME, several(VALUES), tool_calls=several(CALLS), tool_call_id=TEXT, name=TEXT, metadata=OBJECTS
)
SPANS = st.builds(Span, TEXT, TEXT, parent_id=TEXT, kind=TEXT, started_at=NUMBERS, duration=NUMBERS, attributes=OBJECTS)
COUNT = st.integers(0, 2**62)
USAGES = st.builds(Usage, COUNT, COUNT, COUNT, COUNT, st.none() | st.builds(Money, COUNT, st.just("EUR")))
FAULTS = st.builds(ToolMockFault, NAME, st.sampled_from(ToolMockFaultKind), st.just('{"a":1}'))
REPORTS = st.builds(ToolMockReport, st.integers(0, 9), st.integers(0, 9), several(FAULTS))
OUTPUTS = st.builds(
    Output,
    VALUES,
    answer=st.none() | VALUES,
    messages=several(MESSAGES),
    tool_calls=several(CALLS),
    spans=several(SPANS),
    usage=st.none() | USAGES,
    trace_ids=several(TEXT),
    metadata=OBJECTS,
    timing=st.none() | st.builds(Timing, NUMBERS, NUMBERS),
    tool_mocks=st.none() | REPORTS,
)
ITEMS = st.builds(
    Item,
    NAME,
    VALUES,
    st.none() | VALUES,
    metadata=OBJECTS,
    tags=st.lists(NAME, max_size=2, unique=True),
    choices=several(TEXT),
    messages=several(MESSAGES),
    tool_mocks=several(st.builds(ToolMock, NAME, st.none() | ARGUMENTS.filter(bool), st.none() | VALUES, TEXT)),
    scorers=st.none() | several(TEXT),
    output=st.none() | OUTPUTS,
)
LISTS = st.lists(ITEMS, min_size=1, max_size=3, unique_by=lambda item: item.id)


def back(text: str, format: Format) -> list[Item]:
    return [item for batch in read_stream(io.BytesIO(text.encode()), format, name="export") for item in batch]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(items=LISTS)
def test_json_lines_bring_back_the_same_items(items):
    text = "".join(exports.json_lines(items))

    assert back(text, "jsonl") == items
    assert text.count("\n") == len(items)
    assert "".join(exports.json_lines(back(text, "jsonl"))) == text


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(items=LISTS, raw=st.booleans(), bom=st.booleans())
def test_csv_brings_back_the_same_items(items, raw, bom):
    text = "".join(exports.csv_lines(items, raw=raw, bom=bom))

    assert back(text, "csv") == items


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(items=LISTS)
def test_no_text_cell_looks_like_a_formula(items):
    """CE-05."""
    rows = list(csv.DictReader(io.StringIO("".join(exports.csv_lines(items)), newline="")))

    texts = [cell for row in rows for name, cell in row.items() if not name.endswith("_json")]
    assert [cell for cell in texts if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []


def test_objects_in_cells_are_json(tmp_path):
    """CE-07."""
    value = {"a": None, "b": [True, 1.0, "ü"]}
    item = Item("a", value, metadata=value, tags=["x", "y"])

    (row,) = csv.DictReader(io.StringIO("".join(exports.csv_lines([item]))))

    assert json.loads(row["input_json"]) == json.loads(row["metadata_json"]) == value
    assert json.loads(row["tags_json"]) == ["x", "y"]
    assert "ü" in row["input_json"]
    assert "None" not in row["input_json"]


def test_there_is_one_mark_at_the_start_and_only_when_asked(tmp_path):
    """CE-11."""
    item = Item("a", "\ufeffmarked")

    plain, marked = ("".join(exports.csv_lines([item], bom=bom)) for bom in (False, True))

    assert not plain.startswith("\ufeff")
    assert marked == "\ufeff" + plain
    assert back(marked, "csv") == back(plain, "csv") == [item]


def test_null_missing_and_empty_stay_three_things_in_csv():
    items = [Item("a", "x", NULL), Item("b", "x"), Item("c", "x", "")]

    assert back("".join(exports.csv_lines(items)), "csv") == items


def test_a_guard_is_taken_away_only_in_our_own_files():
    assert back("id,input\na,'=1\n", "csv") == [Item("a", "'=1")]


def test_numbers_stay_numbers():
    assert "".join(exports.csv_lines([Item("a", -2)])).splitlines()[1].split(",")[:3] == ["a", "", "-2"]


@pytest.mark.parametrize("broken", ["{", "nul", "1 2"])
def test_a_column_of_json_that_holds_none_is_refused(broken):
    text = "".join(exports.csv_lines([Item("a", 5)])).replace(",5,", f",{broken},")

    with pytest.raises(DatasetInvalid, match="a column of JSON does not hold JSON"):
        back(text, "csv")
