"""The digest of a dataset's content: the same items in the same order, whatever way they came to be there.

Ids are unique in a version, so a version is told by the set of (id of the item before, item). The digest is made of the
sum over this set of a long hash of each pair: one item added, changed or taken out costs a few hashes and not a walk
through the whole dataset. 2,048 bits make the sum as hard to forge as its parts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from evalbus_server.store.connection import Row

_SIZE = 256
_MASK = (1 << 8 * _SIZE) - 1
EMPTY = bytes(_SIZE)
"""The sum over nothing."""


def _bytes_text(body: Any) -> str:
    return base64.b64encode(body).decode()


_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False, default=_bytes_text
).encode


def part(before: str | None, row: Row) -> int:
    """What an item adds to the sum; *row* has the columns of `rows.ITEM`, *before* is the id of the item before it."""
    text = _encode((before, *row)).encode()
    return int.from_bytes(hashlib.shake_256(text).digest(_SIZE), "little")


class Content:
    """The sum of a dataset's content as items come and go."""

    __slots__ = ("_sum",)

    def __init__(self, stored: bytes = EMPTY) -> None:
        """From what `stored` gave."""
        self._sum = int.from_bytes(stored, "little")

    def add(self, before: str | None, row: Row) -> None:
        """An item has come behind another one."""
        self._sum += part(before, row)

    def remove(self, before: str | None, row: Row) -> None:
        """An item is gone from behind another one."""
        self._sum -= part(before, row)

    @property
    def stored(self) -> bytes:
        """As bytes."""
        self._sum &= _MASK
        return self._sum.to_bytes(_SIZE, "little")

    @property
    def digest(self) -> str:
        """Hexadecimal."""
        return hashlib.sha256(self.stored).hexdigest()
