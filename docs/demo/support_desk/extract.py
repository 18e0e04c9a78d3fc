"""Finds in a message what the tools need: order numbers, addresses and the products it speaks of."""

import re
from collections import Counter
from collections.abc import Iterable

from support_desk.shop import Product
from support_desk.text import stems

_ORDER = re.compile(r"\b(?:LL|ll|Ll)[\s-]?(\d{5})\b|(?<![\w£.,+-])#?(\d{5})\b(?![.,]\d)")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_NAME = r"[A-Z][\w'’]*(?: [A-Z][\w'’]*)*"
_ADDRESS = re.compile(rf"(?:Flat \d+, )?\b\d{{1,4}}[a-zA-Z]? {_NAME}, {_NAME} [A-Z]{{1,2}}\d{{1,2}} \d[A-Z]{{2}}\b")


def order_number(text: str) -> str | None:
    """The first order number in *text*, written the way the shop writes it ("LL-20418")."""
    found = _ORDER.search(text)
    return f"LL-{found[1] or found[2]}" if found else None


def email(text: str) -> str | None:
    """The first e-mail address in *text*."""
    found = _EMAIL.search(text)
    return found[0] if found else None


def address(text: str) -> str | None:
    """The first postal address in *text*: number, street, town and postcode."""
    found = _ADDRESS.search(text)
    return found[0] if found else None


class ProductFinder:
    """Finds the product whose name a message comes closest to; a word in few names counts for more."""

    def __init__(self, products: Iterable[Product], least: float = 0.5) -> None:
        self._names = {product.sku: frozenset(stems(product.name)) for product in products}
        self._uses = Counter(term for name in self._names.values() for term in name)
        self._least = least

    def find(self, text: str) -> str | None:
        """The product's sku, or None when no name is met to at least the share asked for."""
        said = set(stems(text))
        shares = {sku: self._share(name, said) for sku, name in self._names.items()}
        best = max(shares, key=lambda sku: shares[sku])
        return best if shares[best] >= self._least else None

    def _share(self, name: frozenset[str], said: set[str]) -> float:
        return sum(1 / self._uses[term] for term in sorted(name & said)) / sum(
            1 / self._uses[term] for term in sorted(name)
        )
