"""The demo's files fit together: what the messages expect exists, and nothing is learned by heart."""

import json
from collections import Counter

import pytest
from support_desk import extract
from support_desk.text import words
from support_desk.tools import ToolCall, ToolRefused, Tools


@pytest.fixture(scope="module")
def messages(demo):
    with (demo / "messages.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def tool_calls(messages):
    return [ToolCall(**message["expected"]["tool_call"]) for message in messages]


def pieces(text):
    """Runs of three words, by which near-copies are told."""
    tokens = words(text)
    return set(zip(tokens, tokens[1:], tokens[2:], strict=False))


def test_there_are_enough_messages_and_each_has_an_id_of_its_own(messages):
    assert len(messages) >= 240
    assert len({message["id"] for message in messages}) == len(messages)


def test_no_message_is_there_twice(messages):
    assert Counter(" ".join(words(message["input"])) for message in messages).most_common(1)[0][1] == 1


def test_each_message_has_an_intent_that_can_be_learned(messages, shop):
    learned = Counter(example.intent for example in shop.examples)
    assert {message["expected"]["intent"] for message in messages} == set(learned)
    assert min(learned.values()) >= 15


def test_no_message_is_a_training_message_or_close_to_one(messages, shop):
    training = [(pieces(example.text), " ".join(words(example.text))) for example in shop.examples]
    for message in messages:
        own, plain = pieces(message["input"]), " ".join(words(message["input"]))
        for known, known_plain in training:
            assert plain != known_plain
            if len(own) >= 4 and len(known) >= 4:
                assert len(own & known) / len(own | known) < 0.6, message["input"]


def test_every_expected_call_can_be_run_or_is_refused_for_a_reason(messages, shop):
    tools = Tools(shop)
    for call in tool_calls(messages):
        assert call.name in tools.names
        try:
            tools.run(call)
        except ToolRefused as refusal:
            assert str(refusal)


def test_an_order_is_on_file_exactly_when_the_message_says_so(messages, shop):
    for message in messages:
        order_id = message["expected"]["tool_call"]["arguments"].get("order_id")
        if order_id is not None:
            assert message["metadata"]["order_exists"] == (order_id in shop.orders)
            assert ("unknown-order" in message["tags"]) == (order_id not in shop.orders)


def test_a_call_without_an_order_number_is_expected_only_if_the_message_has_none(messages):
    for message in messages:
        if message["expected"]["tool_call"]["name"] == "request_order_number":
            assert extract.order_number(message["input"]) is None


def test_the_messages_are_varied(messages):
    assert {message["metadata"]["difficulty"] for message in messages} == {"easy", "medium", "hard"}
    assert len({message["metadata"]["channel"] for message in messages}) >= 4
    assert len({message["metadata"]["language"] for message in messages}) >= 4
    assert max(len(message["input"]) for message in messages) > 250 > 20 > min(len(m["input"]) for m in messages)


def test_every_product_in_an_order_is_sold(shop):
    assert {sku for order in shop.orders.values() for sku in order.skus} <= set(shop.products)


def test_the_knowledge_base_has_articles_of_readable_length(shop):
    assert 25 <= len(shop.articles) <= 45
    assert all(30 <= len(words(article.text)) <= 120 for article in shop.articles.values())
