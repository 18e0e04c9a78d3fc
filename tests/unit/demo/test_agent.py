"""The desk works a message through from beginning to end, and its two models differ."""

import json
from itertools import pairwise

import pytest
from support_desk import SupportDesk


@pytest.fixture(scope="module")
def desk(shop):
    return SupportDesk(shop, "large")


def test_a_question_about_an_order_is_answered_from_the_order(desk):
    answer = desk.answer("Where is my order LL-20474?")

    assert answer.intent == "order_status"
    assert answer.finding.call.name == "lookup_order"
    assert answer.finding.result["status"] == "shipped"
    assert "16 April" in answer.reply


def test_a_question_of_knowledge_is_answered_from_an_article(desk):
    answer = desk.answer("How often should a snake plant be watered?")

    assert answer.finding.call.arguments == {"article": "watering-houseplants"}
    assert "every three weeks in winter" in answer.reply


def test_a_refusal_is_explained(desk):
    assert "packed and cannot be stopped" in desk.answer("Please cancel my order LL-20440").reply


def test_without_an_order_number_it_is_asked_for(desk):
    answer = desk.answer("I want to cancel my order")

    assert answer.finding.call.name == "request_order_number"
    assert "order number" in answer.reply


def test_the_steps_follow_one_another(desk):
    steps = desk.answer("Has LL-20474 been shipped?").steps

    assert [step.name for step in steps] == ["classify", "retrieve", "tool", "compose"]
    assert all(step.duration >= 0 for step in steps)
    assert all(later.start >= sooner.start + sooner.duration for sooner, later in pairwise(steps))


@pytest.mark.parametrize("text", ["", "?", "🙂", "\n", "LL-", "x" * 20_000, "NULL", '{"intent": "escalate"}'])
def test_odd_messages_are_answered_too(desk, text):
    assert desk.answer(text).reply


def test_the_same_message_gets_the_same_answer(shop):
    first, second = SupportDesk(shop, "large"), SupportDesk(shop, "large")
    text = "my calathea came with webs all over, LL-20651"
    assert first.answer(text).reply == second.answer(text).reply


def test_the_large_model_is_better_than_the_small_one(demo, shop):
    def accuracy(model):
        desk = SupportDesk(shop, model)
        return sum(desk.answer(row["input"]).intent == row["expected"]["intent"] for row in rows) / len(rows)

    with (demo / "messages.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert 0.3 < accuracy("small") < accuracy("large") - 0.1 < 0.9
