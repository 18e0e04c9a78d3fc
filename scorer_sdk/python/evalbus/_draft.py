"""Frozen values made quickly.

A frozen dataclass sets each field through `object.__setattr__`, which takes four times as long as plain assignment
and is most of the cost of a conversion. A draft has the same slots and may be assigned to; when it is filled it
becomes the frozen class, which Python allows between classes of one layout.

    made = ItemDraft()
    made.id = "q1"
    ...
    made.__class__ = Item

A field that is forgotten raises AttributeError when it is read; a test fills every draft and compares.
"""

from __future__ import annotations

from typing import Any


def draft(frozen: type) -> Any:
    """A class with the slots of *frozen*, a frozen dataclass with slots."""
    slots: tuple[str, ...] = frozen.__slots__  # type: ignore[attr-defined]  # dataclass(slots=True) made them
    return type(f"{frozen.__name__}Draft", (), {"__slots__": slots, "__doc__": f"An unfinished {frozen.__name__}."})
