"""Items as files would bring them: JSON without the space between its tokens, and no empty objects.

So an item that came over the wire is the same as one that was exported and imported again.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, TypeVar

from evalbus import Item, Value
from evalbus_server.dataset.cells import compact

T_ = TypeVar("T_")

_EMPTY_IS_NOTHING = ("metadata_json", "attributes_json")


def normal(item: Item) -> Item:
    """The same item in this form; the item itself if it has it already."""
    made: Item = _normal(item)
    return made


def _normal(part: Any) -> Any:
    if isinstance(part, Value):
        if part.kind != "json" or not isinstance(part.body, str):
            return part
        text = compact(part.body)
        return part if text == part.body else Value(text, "json")
    if isinstance(part, tuple):
        made = tuple(map(_normal, part))
        return part if all(new is old for new, old in zip(made, part, strict=True)) else made
    return _normal_parts(part) if is_dataclass(part) else part


def _normal_parts(value: T_) -> T_:
    fields = value.__dataclass_fields__  # type: ignore[attr-defined]
    parts = {name: getattr(value, name) for name in fields}
    changed = False
    for name, old in parts.items():
        new = _text(name, old) if name.endswith("_json") else _normal(old)
        if new is not old:
            parts[name] = new
            changed = True
    if not changed:
        return value
    made = object.__new__(type(value))
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made


def _text(name: str, text: str | None) -> str | None:
    if not text:
        return text
    short = compact(text)
    if short == "{}" and name in _EMPTY_IS_NOTHING:
        return ""
    return text if short == text else short
