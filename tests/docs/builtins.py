"""The part of `docs/builtin-scorers.md` that is made of what the scorers say of themselves.

`python -m tests.docs.builtins` writes it anew.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

from evalbus_server.scorer.builtin import BUILTINS
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/builtin-scorers.md"
MARK = "<!-- From here on: made by python -m tests.docs.builtins -->\n"
TYPES = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "object": "mapping",
}


def sections() -> str:
    """A section for each builtin scorer."""
    return "\n".join(map(section_of, BUILTINS))


def section_of(name: str) -> str:
    """The section of one: what it does, then its settings."""
    scorer = BUILTINS[name]
    text = scorer.info.settings_schema
    rows = [_row(key, part) for key, part in json.loads(text or "{}").get("properties", {}).items()]
    table = ["| setting | type | default | meaning |", "| --- | --- | --- | --- |", *rows, ""] if rows else []
    return "\n".join([f"## {name}", "", inspect.getdoc(scorer.function) or "", "", *table])


def _row(key: str, part: dict[str, Any]) -> str:
    default = part.get("default")
    written = default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)
    shown = "–" if default in (None, [], {}, "") else f"`{written}`"
    meaning = part.get("description", "").replace("|", "\\|")
    return f"| `{key}` | {_type(part)} | {shown} | {meaning} |"


def _type(part: dict[str, Any]) -> str:
    if "enum" in part:
        return ", ".join(f"`{choice}`" for choice in part["enum"])
    if "anyOf" in part:
        return " or ".join(_type(each) for each in part["anyOf"] if each.get("type") != "null")
    if part.get("type") == "array":
        return f"list of {_type(part.get('items', {}))}"
    return TYPES.get(part.get("type", ""), "anything")


def main() -> None:
    """Write the page anew."""
    head, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    PAGE.write_text(f"{head}{mark}\n{sections()}", encoding="utf-8")


if __name__ == "__main__":
    main()
