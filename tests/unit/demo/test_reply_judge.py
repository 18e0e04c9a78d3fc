"""The judge of replies: what is missing, what is made up, what is rude."""

import pytest
import reply_judge


def test_a_reply_with_all_facts_of_the_reference_covers_it():
    reference = "LL-20474 should arrive on 16 April."
    assert reply_judge.covers("Your parcel LL-20474 arrives on 16 April and should be dry.", reference).value == 1.0


def test_a_missing_figure_weighs_more_than_a_missing_word():
    reference = "The refund of £34.00 arrives soon."
    without_sum = reply_judge.covers("The refund arrives soon.", reference)
    without_word = reply_judge.covers("The refund of £34 arrives.", reference)
    assert without_sum.value < without_word.value < 1
    assert "£34" in without_sum.explanation


def test_figures_need_a_source():
    sources = ['{"date": "2025-04-16", "amount": 34.0, "order_id": "LL-20516"}']
    assert reply_judge.grounded("£34.00 for LL-20516 by 16 April.", sources).value == 1.0
    made_up = reply_judge.grounded("£35.00 for LL-20516 by 16 April.", sources)
    assert made_up.value == pytest.approx(2 / 3)
    assert "£35" in made_up.explanation


def test_a_sum_is_the_same_however_it_is_written():
    assert reply_judge.grounded("It costs £4.50, or £9.00 for two.", ['{"price": 4.5, "total": 9.0}']).value == 1.0


def test_a_reply_without_figures_is_grounded():
    assert reply_judge.grounded("Let the soil dry.", []).value == 1.0


def test_an_upset_customer_is_owed_a_word_of_regret():
    reply = "Thank you for your message. The parcel is on its way to you."
    assert reply_judge.manners(reply, "WHERE IS IT", upset=False, orders=[]).value == 1.0
    assert "regret" in reply_judge.manners(reply, "WHERE IS IT", upset=True, orders=[]).explanation


def test_the_order_that_was_named_is_named_again():
    reply = "Thank you for your message. The parcel is on its way to you."
    judged = reply_judge.manners(reply, "where is LL-20418", upset=False, orders=["LL-20418"])
    assert judged.value == 0.75
    assert "order" in judged.explanation


def test_a_curt_reply_breaks_several_rules():
    assert reply_judge.manners("no", "hello", upset=False, orders=[]).value == 0.0
