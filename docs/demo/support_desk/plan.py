"""Decides which tool a message calls for, from its intent and what was found in it."""

from collections.abc import Sequence

from support_desk import extract
from support_desk.extract import ProductFinder
from support_desk.retrieve import Hit
from support_desk.tools import ToolCall

# Intents about one order: nothing can be done without its number.
_ORDER_TOOLS = {
    "order_status": "lookup_order",
    "start_return": "start_return",
    "refund_status": "check_refund",
    "change_address": "change_address",
    "cancel_order": "cancel_order",
    "damaged_item": "report_damage",
}


def plan(intent: str, text: str, hits: Sequence[Hit], products: ProductFinder) -> ToolCall:
    """The one call that takes the message furthest."""
    order_id = extract.order_number(text)
    if intent in _ORDER_TOOLS:
        return _about_an_order(intent, text, order_id)
    if intent == "escalate":
        return ToolCall("escalate", {"order_id": order_id} if order_id else {})
    if intent == "payment_problem" and order_id:
        return ToolCall("check_payment", {"order_id": order_id})
    if intent == "account_access" and (email := extract.email(text)):
        return ToolCall("send_login_link", {"email": email})
    if intent == "product_question" and (sku := products.find(text)):
        return ToolCall("check_stock", {"sku": sku})
    if hits:
        return ToolCall("read_article", {"article": hits[0].article.id})
    return ToolCall("escalate", {})


def _about_an_order(intent: str, text: str, order_id: str | None) -> ToolCall:
    if order_id is None:
        return ToolCall("request_order_number", {})
    arguments = {"order_id": order_id}
    if intent == "change_address" and (address := extract.address(text)):
        arguments["address"] = address
    return ToolCall(_ORDER_TOOLS[intent], arguments)
