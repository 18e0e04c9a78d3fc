"""Items that came over the wire are those that a file would bring."""

from __future__ import annotations

import io

from hypothesis import given, settings

from evalbus import Item, Message, Output, ToolCall, Value
from evalbus_server.dataset.exports import item_text
from evalbus_server.dataset.normal import normal
from evalbus_server.dataset.read import read_stream
from tests.unit.server.dataset.test_exports import ITEMS


def back(item: Item) -> Item:
    ((made,),) = read_stream(io.BytesIO(item_text(item).encode()), "jsonl", name="export")
    return made


def test_space_between_tokens_is_left_out_everywhere_and_nothing_else() -> None:
    spaced = Value('{ "a b": [1.0,\n "x  y"] }', "json")
    call = ToolCall("f", '{ "x": 1 }', result=spaced)
    item = Item(
        "i",
        spaced,
        spaced,
        metadata='{ "k": 1 }',
        messages=[Message("user", (spaced,), tool_calls=(call,), metadata="{ }")],
        output=Output(spaced, metadata="{}"),
    )

    made = normal(item)

    assert made.input.body == '{"a b":[1.0,"x  y"]}'
    assert made.messages[0].tool_calls[0].arguments_json == '{"x":1}'
    assert made.messages[0].metadata_json == ""
    assert made == back(item) == back(made)


@settings(max_examples=50, deadline=None)
@given(item=ITEMS)
def test_an_item_from_a_file_is_left_as_it_is(item: Item) -> None:
    assert normal(item) is item
