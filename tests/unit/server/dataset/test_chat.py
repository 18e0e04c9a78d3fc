"""Captured traffic of chat completions becomes items with outputs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, Message, Output, ToolCall, Usage, Value
from evalbus_server.dataset.read import ReadOptions, read_stream
from evalbus_server.dataset.refusal import DatasetInvalid

ASKED: dict[str, Any] = {
    "model": "m",
    "temperature": 0.10,
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "1+1"}],
}
SAID = {"id": "c1", "model": "m-2", "choices": [{"index": 0, "message": {"role": "assistant", "content": "2"}}]}


def read(*rows: object, join: Path | None = None) -> list[Item]:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    options = ReadOptions(foreign="chat_completions", join=join)
    return [
        item for batch in read_stream(io.BytesIO(text.encode()), "jsonl", options, name="traffic") for item in batch
    ]


def test_a_request_with_its_response():
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
    (item,) = read({"request": ASKED, "response": {**SAID, "usage": usage}, "user": "u1"})

    assert (item.id, item.input) == ("c1", Value("1+1"))
    assert item.messages == (Message("system", (Value("be brief"),)), Message("user", (Value("1+1"),)))
    assert item.output == Output("2", usage=Usage(9, 1, 4, 1))
    assert item.metadata == {"user": "u1", "request": {"model": "m", "temperature": 0.1}, "response": {"model": "m-2"}}


def test_tool_calls_are_part_of_both():
    call = {"id": "t", "type": "function", "function": {"name": "add", "arguments": '{"a": 1.50}'}}
    asked = [
        {"role": "user", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "+1"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": "2"},
    ]
    answer = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    (item,) = read({"request": {"messages": asked}, "response": answer})

    assert item.input == Value("1+1")
    assert item.messages[1].tool_calls == (ToolCall("add", '{"a": 1.50}', id="t"),)
    assert item.output is not None
    assert item.output.content == Value("null", "json")
    assert item.output.tool_calls == item.messages[1].tool_calls


def test_a_batch_is_joined_with_its_answers(tmp_path):
    answers = tmp_path / "answers.jsonl"
    rows = [
        {"id": "x2", "custom_id": "b", "response": {"status_code": 429, "body": {"error": {"code": "slow"}}}},
        {"id": "x1", "custom_id": "a", "response": {"status_code": 200, "body": SAID}},
    ]
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    request = {"method": "POST", "url": "/v1/chat/completions", "body": ASKED}

    a, b = read({"custom_id": "a", **request}, {"custom_id": "b", **request}, join=answers)

    assert (a.id, a.output) == ("a", Output("2"))
    assert (b.id, b.output) == ("b", None)
    assert b.metadata["response"] == {"error": {"code": "slow"}}


def test_a_conversation_alone_ends_with_the_output():
    one, other = read(
        {"messages": [*ASKED["messages"], {"role": "assistant", "content": "2"}]}, {"messages": ASKED["messages"]}
    )

    assert (one.input, one.output, len(one.messages)) == (Value("1+1"), Output("2"), 2)
    assert other.output is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"a": 1}, "no messages: a row is a request with its response, or has messages"),
        ({"request": {"messages": "hi"}}, "no messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "no message is the user's"),
        ({"messages": ["hi"]}, "messages holds what is no object"),
        ({"messages": [{"content": "hi"}]}, "messages holds a message without a role"),
    ],
)
def test_what_is_no_such_row_is_told(row, said):
    with pytest.raises(DatasetInvalid) as caught:
        read(row)
    assert said in str(caught.value)
