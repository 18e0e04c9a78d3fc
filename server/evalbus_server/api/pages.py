"""Pages of lists: how long they are, and tokens that say where the next one begins."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from evalbus_server.errors import Invalid, Reason

_MARK = 8
"""Bytes of a token that bind it to its filter."""


def page_size(wanted: int, *, default: int, most: int) -> int:
    """How long a page is: 0 means the default, and too much is lowered.

    Raises:
        Invalid: it is negative.
    """
    if wanted < 0:
        raise Invalid(Reason.REQUEST_INVALID, f"page_size must be 0 or more, not {wanted}", field="page_size")
    return min(wanted or default, most)


class Tokens:
    """Tokens of one list under one filter. They hold no secret, and nothing is kept of them."""

    def __init__(self, *filter: Any) -> None:
        """*filter* is the list's name and all that restricts it, as JSON has a form for it."""
        self._mark = hashlib.sha256(json.dumps(filter).encode()).digest()[:_MARK]

    def after(self, *place: Any) -> str:
        """The token for what follows a place."""
        body = json.dumps(place, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mark + body).decode().rstrip("=")

    def place(self, token: str, kinds: Sequence[type]) -> list[Any] | None:
        """The place in a token, of these types; None for "", the first page.

        Raises:
            Invalid: it is no token of this list under this filter.
        """
        if not token:
            return None
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            place = json.loads(data[_MARK:])
        except (ValueError, RecursionError):
            place = None
        else:
            if data[:_MARK] != self._mark:
                place = None
        if not isinstance(place, list) or [type(part) for part in place] != list(kinds):
            message = "the page token belongs to another list or filter; start again from the first page"
            raise Invalid(Reason.PAGE_TOKEN_INVALID, message, field="page_token")
        return place
