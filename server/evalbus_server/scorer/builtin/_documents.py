"""JSON documents as scorers see them: a text that is JSON is as good as JSON itself."""

from __future__ import annotations

from typing import Any

from evalbus import Score, Value
from evalbus._json import loads
from evalbus_server.scorer.builtin._compared import unjudged

LONGEST = 4_000_000
"""More characters than this no output has."""

_KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}


def document_of(value: Value) -> Any:
    """The JSON document that a value is, or that its text says.

    Raises:
        ValueError: it is none; the text says why.
    """
    return loads(str(value.body))


def kind_of(document: Any) -> str:
    """What JSON calls it."""
    return "null" if document is None else _KINDS.get(type(document), "number")


def too_large(text: str) -> Score:
    """The score where a document is too large to be looked at."""
    return unjudged("TEXT_TOO_LONG", f"a document of {len(text):,} characters is too long; map a part of it")
