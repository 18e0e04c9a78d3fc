"""Items made anew with some parts exchanged."""

from __future__ import annotations

from typing import Any

from evalbus import Item


def remade(item: Item, **parts: Any) -> Item:
    """The same item with other parts."""
    made = {
        "id": item.id,
        "input": item.input,
        "expected": item.expected,
        "metadata": item.metadata_json,
        "tags": item.tags,
        "choices": item.choices,
        "messages": item.messages,
        "tool_mocks": item.tool_mocks,
        "scorers": item.scorers,
        "output": item.output,
    }
    return Item(**{**made, **parts})
