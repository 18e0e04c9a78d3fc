"""Rows become items by their fields; nothing is guessed, nothing is dropped."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from evalbus import NULL, Item, Message, Money, Output, Span, Timing, ToolCall, ToolMock, Usage, Value
from evalbus_server.dataset.read import ReadOptions, inline, read_file, read_records
from evalbus_server.dataset.refusal import DatasetInvalid
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset_use import FieldSource


def mapped(record: dict[str, Any], **fields: Any) -> Item:
    sources = {field.replace("__", "."): FieldSource.model_validate(source) for field, source in fields.items()}
    return inline([record], sources)[0]


def refusal(record: dict[str, Any], **fields: Any) -> str:
    with pytest.raises(DatasetInvalid) as caught:
        mapped(record, **fields)
    return str(caught.value).removeprefix("dataset.records record 1: ").removeprefix("dataset.records: ")


def test_fields_have_their_own_names_unless_mapped():
    item = mapped(
        {
            "id": "a",
            "input": "q",
            "expected": ["x", "y"],
            "metadata": {"n": 2**70},
            "tags": ["t"],
            "choices": ["A", "B"],
            "scorers": [],
            "output": "o",
        }
    )

    assert item == Item(
        "a",
        "q",
        ["x", "y"],
        metadata={"n": 2**70},
        tags=["t"],
        choices=["A", "B"],
        scorers=[],
        output=Output("o"),
    )


def test_a_mapping_takes_columns_for_fields_and_the_rest_becomes_metadata():
    item = mapped(
        {"key": 7, "question": "q", "answer": "a", "cat": "c", "old": "o", "input": "not this"},
        id="key",
        input="question",
        expected="answer",
        metadata__topic="cat",
        output="old",
    )

    assert item == Item("7", "q", "a", metadata={"input": "not this", "topic": "c"}, output=Output("o"))


def test_a_column_that_is_mapped_is_not_also_the_field_of_its_name():
    item = mapped({"input": "q", "output": "a"}, expected="output")

    assert item.expected == Value("a")
    assert item.output is None


def test_a_list_of_paths_makes_an_object():
    item = mapped(
        {"q": "x", "doc": {"title": "t", "n": [1, 2]}, "id": "a"}, input=["q", "doc.title", "doc.n[1]", "q2"][:3]
    )

    assert item.input.data == {"q": "x", "doc.title": "t", "doc.n[1]": 2}
    assert item.metadata == {"doc": {"title": "t", "n": [1, 2]}}


def test_a_column_whose_name_looks_like_a_path_is_meant_first():
    assert mapped({"a.b": "x", "a": {"b": "y"}, "input": "q"}, expected="a.b").expected == Value("x")
    assert mapped({"odd": {"a.b": "x"}, "input": "q"}, expected='odd["a.b"]').expected == Value("x")
    assert mapped({"a..b": "x", "input": "q"}, expected="a..b").expected == Value("x")
    assert mapped({"a.b": "x", "input": "q"}, expected='["a.b"]').expected == Value("x")


def test_text_is_parsed_as_json_only_where_the_mapping_says_so():
    record = {"input": '{"a": 1.10}', "expected": "[1]"}

    assert mapped(record).input == Value('{"a": 1.10}')
    assert mapped(record, input={"from": "input", "as": "json"}).input == Value('{"a":1.10}', "json")
    assert mapped(record, expected={"from": "expected", "as": "json"}).expected == Value("[1]", "json")
    assert refusal({"input": "{"}, input={"from": "input", "as": "json"}).startswith(
        "'input' is mapped as JSON to input, but is not JSON"
    )


def test_null_is_an_answer_and_an_input_but_no_list():
    assert mapped({"input": None, "expected": None, "tags": None, "metadata": None}) == Item(
        mapped({"input": None, "expected": None}).id, NULL, NULL
    )


def test_an_id_is_made_from_the_content_and_counts_equal_rows():
    items = inline([{"input": "q"}, {"input": "q"}, {"input": "r"}, {"id": None, "input": "q"}])

    first = items[0].id
    assert len(first) == 16
    assert [item.id for item in items] == [first, f"{first}-2", items[2].id, f"{first}-3"]
    assert items[2].id != first


def test_an_id_is_made_from_the_position_when_asked():
    options = ReadOptions(ids="position")
    items = [item for batch in read_records([{"input": "q"}, {"input": "q"}], options) for item in batch]

    assert [item.id for item in items] == ["1", "2"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"question": "q", "answer": "a"},
         "no input; there is question, answer: say which with fields: {input: …}"),
        ({"input": "q", "id": ""}, "the id is empty; leave it out to have one made"),
        ({"input": "q", "id": "x" * 513}, "the id has 513 characters; 512 are allowed"),
        ({"input": "q", "id": "a\nb"}, "the id 'a\\nb' holds a control character"),
        ({"input": "q", "id": [1]}, "the id must be text or a number, not [1]"),
        ({"input": "q", "tags": "a"}, "tags must be a list of texts, not text; "
         "map it with {from: …, as: json} if the text is JSON"),
        ({"input": "q", "tags": ["a", 1]}, "tags[1] must be text; put it in quotes"),
        ({"input": "q", "tags": ["a", "a"]}, "tags hold one twice"),
        ({"input": "q", "tags": [str(n) for n in range(101)]}, "tags are 101; 100 are allowed"),
        ({"input": "q", "metadata": [1]}, "metadata must be a JSON object, not a list"),
        ({"input": "q", "metadata": {"n": 1}, "n": 2}, "metadata has 'n', and there is a column 'n' too"),
        ({"input": "q", "messages": [{"content": "x"}]}, "messages[0] has no role, such as user or assistant"),
        ({"input": "q", "messages": [{"role": "user", "contents": "x"}]},
         "messages[0] has the unknown key 'contents'; did you mean content?"),
        ({"input": "q", "messages": [{"role": "user", "tool_calls": [{"name": 3}]}]},
         "messages[0].tool_calls[0].name must be text, not a number"),
        ({"input": "q", "messages": {"role": "user"}}, "messages must be a list, not an object"),
        ({"input": "q", "tool_mocks": [{"output": 1}]}, "tool_mocks[0] has no tool"),
        ({"input": "q", "output": {"content": "x", "usage": {"calls": -1}}},
         "output.usage.calls must be a whole number of at least 0, not a number"),
        ({"input": "q", "output": {"content": "x", "tool_mocks": {"faults": [{"tool": "t", "kind": "ODD"}]}}},
         "output.tool_mocks.faults[0].kind must be one of MISMATCH, EXHAUSTED, NOT_DECLARED, not 'ODD'"),
        ({"input": {"media_type": "image/png", "base64": "?"}}, "input is no blob: "
         "Only base64 data is allowed"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_is_refused(record, message):
    assert refusal(record) == message


def test_a_mapped_id_that_is_empty_is_refused():
    assert refusal({"input": "q", "key": ""}, id="key") == "the id is empty; leave it out to have one made"


def test_a_mapped_column_that_no_row_has_is_an_error():
    line = refusal({"input": "q", "answer": "a"}, expected="anser")

    assert line == "fields maps expected to 'anser', but no row has it; the first row has input, answer"


def test_a_row_that_lacks_the_mapped_input_says_what_there_is():
    assert refusal({"a": "q"}, input="b") == "no input: 'b' is absent or empty; there is a"


def test_a_field_that_items_have_not_is_refused():
    with pytest.raises(Invalid) as caught:
        mapped({"input": "q"}, inptu="q")
    assert str(caught.value) == "dataset.fields: items have no field 'inptu'; did you mean input?"
    assert caught.value.reason is Reason.DATASET_INVALID


def test_bytes_are_an_object_of_media_type_and_base64():
    data = base64.b64encode(b"\0\1").decode()

    assert mapped({"input": {"media_type": "image/png", "base64": data}}).input == Value.blob(b"\0\1", "image/png")
    assert mapped({"input": {"media_type": "image/png", "base64": data, "more": 1}}).input.kind == "json"


def test_a_conversation_is_read_with_its_calls_and_parts():
    messages = [
        {"role": "system", "content": "be kind", "name": "s", "metadata": {"n": 1.50}},
        {"role": "user", "content": ["look", {"media_type": "image/png", "base64": ""}, {"x": [1]}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "name": "find", "arguments": {"q": "x"}, "result": None, "duration": 1},
                {"id": "c2", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": {"found": True}},
    ]

    item = mapped({"id": "a", "input": "q", "messages": messages})

    assert item.messages == (
        Message("system", "be kind", name="s", metadata='{"n":1.5}'),
        Message("user", (Value("look"), Value(b"", "blob", "image/png"), Value('{"x":[1]}', "json"))),
        Message(
            "assistant",
            (),
            tool_calls=[
                ToolCall("find", '{"q":"x"}', result=NULL, id="c1", duration=1),
                ToolCall("find", '{"q": 1}', id="c2"),
            ],
        ),
        Message("tool", Value('{"found":true}', "json"), tool_call_id="c1"),
    )


def test_prepared_tool_answers_are_read():
    mocks = [{"tool": "find", "arguments": {"q": 1}, "output": None}, {"tool": "find", "error": "gone"}]
    mocks.append({"tool": "find", "arguments": None})

    assert mapped({"input": "q", "tool_mocks": mocks}).tool_mocks == (
        ToolMock("find", '{"q":1}', NULL),
        ToolMock("find", None, None, "gone"),
        ToolMock("find"),  # null arguments are none: any will do
    )


def test_an_output_is_whole_if_it_has_the_keys_of_one_and_else_content():
    whole = {
        "content": "a",
        "answer": 1,
        "tool_calls": [{"name": "t"}],
        "spans": [{"id": "s", "name": "n", "started_at": 1.5, "attributes": {"a": 1}}],
        "usage": {"input_tokens": 1, "cost": {"micros": 5}},
        "trace_ids": ["x"],
        "metadata": {"m": 1},
        "timing": {"total": 0.5},
    }

    assert mapped({"input": "q", "output": whole}).output == Output(
        "a",
        answer=1,
        tool_calls=[ToolCall("t")],
        spans=[Span("s", "n", started_at=1.5, attributes={"a": 1})],
        usage=Usage(1, cost=Money(5)),
        trace_ids=["x"],
        metadata={"m": 1},
        timing=Timing(0.5),
    )
    assert mapped({"input": "q", "output": {"content": 1, "else": 2}}).output == Output({"content": 1, "else": 2})
    assert mapped({"input": "q", "output": None}).output == Output(NULL)


def test_metadata_keeps_every_digit(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text('{"input": "q", "metadata": {"a": 1.10}, "b": 1e2, "c": [0.30]}\n')

    ((item,),) = read_file(path)

    assert item.metadata_json == '{"a":1.10,"b":1e2,"c":[0.30]}'
    assert json.loads(item.metadata_json)
