"""The tools of the desk, run against what the shop has on file.

Each call sees the files as they are and says what it would change: answers never depend on what other messages did.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from support_desk.shop import Order, Shop

RETURN_DAYS = 30

Result = dict[str, str | int | float | bool | None]


class ToolRefused(Exception):
    """A tool that could not do what was asked, with the reason."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool and what it is asked."""

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)


class Tools:
    """All tools by name."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._by_name: dict[str, Callable[..., Result]] = {
            "lookup_order": self._lookup_order,
            "start_return": self._start_return,
            "check_refund": self._check_refund,
            "change_address": self._change_address,
            "cancel_order": self._cancel_order,
            "report_damage": self._report_damage,
            "check_payment": self._check_payment,
            "check_stock": self._check_stock,
            "read_article": self._read_article,
            "send_login_link": self._send_login_link,
            "request_order_number": self._request_order_number,
            "escalate": self._escalate,
        }

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._by_name)

    def run(self, call: ToolCall) -> Result:
        """Do what *call* asks; raises ToolRefused."""
        return self._by_name[call.name](**call.arguments)

    def _order(self, order_id: str) -> Order:
        if order := self._shop.orders.get(order_id):
            return order
        raise ToolRefused(f"there is no order {order_id}")

    def _lookup_order(self, order_id: str) -> Result:
        order = self._order(order_id)
        result: Result = {"order_id": order_id, "status": order.status}
        if parcel := order.shipment:
            result |= {
                "carrier": parcel.carrier,
                "tracking": parcel.tracking,
                "date": parcel.date.isoformat(),
                "late": parcel.late,
            }
        return result

    def _start_return(self, order_id: str) -> Result:
        order = self._order(order_id)
        goods = [sku for sku in order.skus if not self._shop.products[sku].is_plant]
        if not goods:
            raise ToolRefused("living plants cannot be sent back")
        if order.status != "delivered" or order.shipment is None:
            raise ToolRefused(f"order {order_id} has not been delivered yet")
        last_day = order.shipment.date + timedelta(days=RETURN_DAYS)
        if self._shop.today > last_day:
            raise ToolRefused(f"the {RETURN_DAYS} days for returning order {order_id} are over")
        names = ", ".join(self._shop.products[sku].name for sku in goods)
        return {"order_id": order_id, "label": f"R-{order_id[3:]}", "items": names, "until": last_day.isoformat()}

    def _check_refund(self, order_id: str) -> Result:
        refund = self._order(order_id).refund
        if refund is None:
            return {"order_id": order_id, "state": "none"}
        day = refund.date.isoformat() if refund.date else None
        return {"order_id": order_id, "state": refund.state, "amount": refund.amount, "date": day}

    def _change_address(self, order_id: str, address: str | None = None) -> Result:
        order = self._order(order_id)
        if order.status not in ("placed", "packed"):
            raise ToolRefused(f"order {order_id} is {order.status}, its address can no longer be changed")
        return {"order_id": order_id, "from": order.address, "to": address}

    def _cancel_order(self, order_id: str) -> Result:
        order = self._order(order_id)
        if order.status != "placed":
            raise ToolRefused(f"order {order_id} is {order.status} and cannot be stopped")
        return {"order_id": order_id, "refunded": order.total if order.payment in ("paid", "duplicate") else 0.0}

    def _report_damage(self, order_id: str) -> Result:
        order = self._order(order_id)
        if order.status != "delivered":
            raise ToolRefused(f"order {order_id} has not been delivered yet")
        in_stock = all(self._shop.products[sku].stock > 0 for sku in order.skus)
        return {"order_id": order_id, "claim": f"D-{order_id[3:]}", "remedy": "replacement" if in_stock else "refund"}

    def _check_payment(self, order_id: str) -> Result:
        order = self._order(order_id)
        return {"order_id": order_id, "payment": order.payment, "total": order.total}

    def _check_stock(self, sku: str) -> Result:
        product = self._shop.products[sku]
        restock = product.restock.isoformat() if product.restock else None
        return {"name": product.name, "price": product.price, "stock": product.stock, "restock": restock}

    def _read_article(self, article: str) -> Result:
        return {"article": article, "title": self._shop.articles[article].title}

    def _send_login_link(self, email: str) -> Result:
        return {"email": email, "valid_minutes": 60}

    def _request_order_number(self) -> Result:
        return {"format": "LL-00000"}

    def _escalate(self, order_id: str | None = None) -> Result:
        weekend = self._shop.today.weekday() >= 5
        return {"order_id": order_id, "queue": "people", "answer_within_days": 3 if weekend else 2}
