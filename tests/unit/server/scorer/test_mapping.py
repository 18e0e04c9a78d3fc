"""Paths into item, output and trial."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from evalbus import (
    NULL,
    Item,
    Message,
    Money,
    Output,
    Span,
    ToolCall,
    ToolMock,
    ToolMockFault,
    ToolMockFaultKind,
    ToolMockReport,
    Usage,
    Value,
)
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.trial import trial_id_of
from evalbus_server.scorer import mapping
from evalbus_server.scorer.mapping import parse_path

ITEM = Item(
    "q1",
    {"question": "How much?", "amounts": [1, 2]},
    {"intent": "refund"},
    metadata='{"topic": "billing", "odd.key": 1.10, "null": null}',
    tags=["a", "b"],
    choices=["yes", "no"],
    messages=[Message("user", "hello")],
    tool_mocks=[ToolMock("lookup", '{"id": 7}', Value("found"))],
    output=Output("old answer"),
)
OUTPUT = Output(
    '{"total": 3}',
    answer={"total": 3.10, "lines": ["x"]},
    messages=[
        Message("assistant", "one moment", tool_calls=[ToolCall("lookup", {"id": 7})]),
        Message("tool", [Value("a"), Value("b")], tool_call_id="c1"),
        Message("assistant", {"total": 3}),
        Message("assistant", [Value("see"), Value.blob(b"\x00", "image/png")]),
    ],
    tool_calls=[
        ToolCall("lookup", '{"id" : 7.0}', result={"name": "Ada"}, id="c1", duration=0.5),
        ToolCall("refund", error="not allowed"),
    ],
    spans=[Span("s1", "search", attributes={"k": 5})],
    usage=Usage(10, 20, cost=Money(1500)),
    trace_ids=["t1"],
    metadata={"model": "small"},
    tool_mocks=ToolMockReport(2, 1, (ToolMockFault("lookup", ToolMockFaultKind.MISMATCH, '{"id":8}'),)),
)
TRIAL = trial_id_of(position=5, epoch=2)


def found(path: str) -> Value | None:
    return parse_path(path).find(ITEM, OUTPUT, TRIAL)


def document(path: str):
    value = found(path)
    assert value is not None
    assert value.kind == "json"
    return value.data


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("item.id", Value("q1")),
        ("item.input", ITEM.input),
        ("item.input.question", Value("How much?")),
        ("item.input.amounts[-1]", Value("2", "json")),
        ("item.expected.intent", Value("refund")),
        ("item.metadata.topic", Value("billing")),
        ('item.metadata["odd.key"]', Value("1.10", "json")),
        ("item.metadata.null", NULL),
        ("item.tags[1]", Value("b")),
        ("item.choices[0]", Value("yes")),
        ("item.messages[0].content", Value("hello")),
        ("item.tool_mocks[0].arguments.id", Value("7", "json")),
        ("output.tool_mocks.unused", Value("1", "json")),
        ("output.tool_mocks.faults[0].kind", Value("MISMATCH")),
        ("output.tool_mocks.faults[0].arguments.id", Value("8", "json")),
        ("item.output.content", Value("old answer")),
        ("output.content", OUTPUT.content),
        ("output.answer.total", Value("3.1", "json")),
        ("output.answer.lines[0]", Value("x")),
        ("output.messages[0].role", Value("assistant")),
        ("output.messages[0].tool_calls[0].name", Value("lookup")),
        ("output.messages[1].content", Value("ab")),
        ("output.messages[1].content[1]", Value("b")),
        ("output.messages[2].content.total", Value("3", "json")),
        ("output.messages[2].content[0].total", Value("3", "json")),
        ("output.messages[-1].content[0]", Value("see")),
        ("output.messages[-1].content[1]", Value.blob(b"\x00", "image/png")),
        ("output.tool_calls[0].name", Value("lookup")),
        ("output.tool_calls[0].arguments", Value('{"id" : 7.0}', "json")),
        ("output.tool_calls[0].arguments.id", Value("7.0", "json")),
        ("output.tool_calls[0].result.name", Value("Ada")),
        ("output.tool_calls[0].duration", Value("0.5", "json")),
        ("output.tool_calls[-1].error", Value("not allowed")),
        ("output.tool_calls[1].arguments", Value("{}", "json")),
        ("output.spans[0].attributes.k", Value("5", "json")),
        ("output.usage.output_tokens", Value("20", "json")),
        ("output.usage.cost.micros", Value("1500", "json")),
        ("output.trace_ids[0]", Value("t1")),
        ("output.metadata.model", Value("small")),
        ("trial.id", Value(str(TRIAL), "json")),
        ("trial.epoch", Value("2", "json")),
        ("trial.position", Value("5", "json")),
    ],
)
def test_a_path_leads_to_a_value(path, value):
    assert found(path) == value


@pytest.mark.parametrize(
    "path",
    [
        "item.input.answer",
        "item.metadata.topic.deeper",
        "item.tags[2]",
        "output.content.total",  # a text, though it looks like JSON
        "output.content[0]",
        "output.tool_calls[2].name",
        "output.tool_calls[0].error",
        "output.tool_calls[1].result",
        "output.messages[1].content.total",
        "output.messages[9].content",
        "output.messages[0].name",
        "output.timing.total",
        "output.metadata.temperature",
    ],
)
def test_where_nothing_stands_there_is_no_value(path):
    assert found(path) is None


def test_an_absent_value_is_none_null_is_a_value_and_so_is_an_empty_text():
    item = Item("i", "")
    assert parse_path("item.expected").find(item, OUTPUT) is None
    assert parse_path("item.expected").find(Item("i", "", NULL), OUTPUT) == NULL
    assert parse_path("item.input").find(item, OUTPUT) == Value("")
    assert parse_path("item.output.content").find(item, OUTPUT) is None


def test_lists_and_objects_become_json_without_what_is_not_set():
    assert document("item.tags") == ["a", "b"]
    assert document("item.metadata") == ITEM.metadata
    assert document("output.messages")[0] == {
        "role": "assistant",
        "content": "one moment",
        "tool_calls": [{"name": "lookup", "arguments": {"id": 7}}],
    }
    assert document("output.messages[-1].content") == ["see", {"media_type": "image/png", "base64": "AA=="}]
    assert document("output.tool_calls[1]") == {"name": "refund", "error": "not allowed"}
    assert document("output.usage")["cost"] == {"micros": 1500, "currency": "USD"}
    assert document("item.output") == {"content": "old answer"}


def test_no_list_is_an_empty_list():
    assert parse_path("output.tool_calls").find(ITEM, Output("x")) == Value("[]", "json")


def test_digits_inside_of_what_becomes_json_are_kept():
    value = found("output.tool_calls")
    assert value is not None
    assert '"arguments":{"id" : 7.0}' in value.text
    json.loads(value.text)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("output", "must begin with item., output. or trial."),
        ("content.total", "the answer is output.content"),
        ("", "must not be empty"),
        ("output..content", "at character 7"),
        ("output.content[", "at character 15"),
        ("output.contnet", "did you mean content?"),
        ("item.inputs", "did you mean input?"),
        ("item[0]", "cannot come 0"),
        ("output.tool_calls.name", "comes an index"),
        ("output.tool_calls[0].nam", "did you mean name?"),
        ("item.id.x", "nothing more can come"),
        ("trial.epoch[0]", "nothing more can come"),
        ("output.messages[0].content[0].a[1]", ""),
    ],
)
def test_what_can_never_be_there_is_refused(path, says):
    if not says:
        assert str(parse_path(path)) == path
        return
    with pytest.raises(Invalid, match=re.escape(says)) as refused:
        parse_path(path, field="scorers[0].map.x")
    assert refused.value.reason is Reason.EXPERIMENT_INVALID
    assert refused.value.field == "scorers[0].map.x"
    assert str(refused.value).startswith("scorers[0].map.x: ")


def test_all_that_a_path_may_name_is_on_the_page():
    """What the page lists of each part is what there is, and no other."""
    text = (Path(__file__).parents[4] / "docs" / "experiment-file.md").read_text("utf-8")
    table = text.partition("| in | there is |")[2].partition("\n\n")[0]
    told = {
        row.split("|")[1].strip(" `"): set(re.findall(r"`([\w.]+)`", row.split("|")[2]))
        for row in table.splitlines()[2:]
    }
    for what, kind in {
        "item": Item,
        "output": Output,
        "a message": Message,
        "a tool call": ToolCall,
        "a span": Span,
    }.items():
        assert told[what] == set(mapping._FIELDS[kind]) - {"tool_mocks"} | ({"tool_mocks"} if kind is Item else set())
    assert told["trial"] == set(mapping._FIELDS[mapping._Trial])
