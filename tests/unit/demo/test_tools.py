"""The tools keep the shop's rules and change nothing on file."""

import pytest
from support_desk.tools import ToolCall, ToolRefused, Tools


@pytest.fixture
def run(shop):
    tools = Tools(shop)
    return lambda name, **arguments: tools.run(ToolCall(name, arguments))


def test_an_order_on_its_way_has_a_day(run):
    assert run("lookup_order", order_id="LL-20418") | {"carrier": "", "tracking": ""} == {
        "order_id": "LL-20418",
        "status": "shipped",
        "carrier": "",
        "tracking": "",
        "date": "2025-04-15",
        "late": False,
    }


@pytest.mark.parametrize(
    "name", ["lookup_order", "start_return", "check_refund", "change_address", "cancel_order", "report_damage"]
)
def test_an_unknown_order_is_refused(run, name):
    with pytest.raises(ToolRefused, match="no order LL-99999"):
        run(name, order_id="LL-99999")


def test_goods_can_be_returned_for_thirty_days(run):
    assert run("start_return", order_id="LL-20425")["until"] == "2025-05-05"
    with pytest.raises(ToolRefused, match="30 days"):
        run("start_return", order_id="LL-20452")


def test_plants_cannot_be_returned_but_what_came_with_them_can(run):
    with pytest.raises(ToolRefused, match="living plants"):
        run("start_return", order_id="LL-20580")
    assert run("start_return", order_id="LL-20433")["items"] == "Glass plant mister"


def test_only_an_order_that_is_not_packed_can_be_cancelled(run):
    assert run("cancel_order", order_id="LL-20470")["refunded"] == 89.0
    assert run("cancel_order", order_id="LL-20534")["refunded"] == 0.0
    with pytest.raises(ToolRefused, match="packed"):
        run("cancel_order", order_id="LL-20440")


def test_an_address_can_be_changed_until_the_parcel_leaves(run):
    assert run("change_address", order_id="LL-20440", address="1 New Road")["to"] == "1 New Road"
    with pytest.raises(ToolRefused, match="shipped"):
        run("change_address", order_id="LL-20418", address="1 New Road")


def test_damage_is_settled_by_a_replacement_or_by_money(run):
    assert run("report_damage", order_id="LL-20510")["remedy"] == "replacement"
    assert run("report_damage", order_id="LL-20620")["remedy"] == "refund"


def test_a_call_leaves_the_files_as_they_were(run):
    run("cancel_order", order_id="LL-20470")
    assert run("lookup_order", order_id="LL-20470")["status"] == "placed"
