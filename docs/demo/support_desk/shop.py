"""The shop's own files: its products, its orders and its knowledge base, read once and never changed."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from support_desk.classify import Example
from support_desk.retrieve import Article


@dataclass(frozen=True, slots=True)
class Product:
    """Something that the shop sells."""

    sku: str
    name: str
    kind: str
    price: float
    stock: int
    restock: date | None

    @property
    def is_plant(self) -> bool:
        return self.kind == "plant"


@dataclass(frozen=True, slots=True)
class Shipment:
    """A parcel: on its way until *date*, or delivered on it."""

    carrier: str
    tracking: str
    date: date
    late: bool


@dataclass(frozen=True, slots=True)
class Refund:
    """Money that goes back: pending, paid, declined or awaiting_parcel."""

    state: str
    amount: float
    date: date | None


@dataclass(frozen=True, slots=True)
class Order:
    """One order; its status is placed, packed, shipped, delivered or cancelled."""

    order_id: str
    status: str
    skus: tuple[str, ...]
    total: float
    address: str
    payment: str
    shipment: Shipment | None
    refund: Refund | None


@dataclass(frozen=True, slots=True)
class Shop:
    """All that is on file, as of *today*."""

    today: date
    products: Mapping[str, Product]
    orders: Mapping[str, Order]
    articles: Mapping[str, Article]
    examples: tuple[Example, ...]


def open_shop(folder: Path) -> Shop:
    """Read the files in *folder*."""
    on_file = json.loads((folder / "orders.json").read_text(encoding="utf-8"))
    articles = [Article(**line) for line in _lines(folder / "knowledge.jsonl")]
    return Shop(
        today=date.fromisoformat(on_file["today"]),
        products={entry["sku"]: _product(entry) for entry in on_file["products"]},
        orders={entry["order_id"]: _order(entry) for entry in on_file["orders"]},
        articles={article.id: article for article in articles},
        examples=tuple(Example(**line) for line in _lines(folder / "train.jsonl")),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _product(entry: dict[str, Any]) -> Product:
    return Product(**{**entry, "restock": _day(entry["restock"])})


def _order(entry: dict[str, Any]) -> Order:
    shipment, refund = entry["shipment"], entry["refund"]
    return Order(
        order_id=entry["order_id"],
        status=entry["status"],
        skus=tuple(item["sku"] for item in entry["items"]),
        total=entry["total"],
        address=entry["address"],
        payment=entry["payment"],
        shipment=Shipment(**{**shipment, "date": date.fromisoformat(shipment["date"])}) if shipment else None,
        refund=Refund(**{**refund, "date": _day(refund["date"])}) if refund else None,
    )


def _day(text: str | None) -> date | None:
    return date.fromisoformat(text) if text else None
