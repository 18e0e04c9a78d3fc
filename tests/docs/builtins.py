"""The parts of the pages on builtin scorers and judges that are made of what the scorers say of themselves.

`python -m tests.docs.builtins` writes them anew.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Collection
from typing import Any

from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.scorer.builtin.judges import JUDGES
from evalbus_server.scorer.builtin.judges.settings import JudgeSettings
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/builtin-scorers.md"
JUDGES_PAGE = ROOT / "docs/scorers/judges.md"
SHARED = tuple(field.name for field in dataclasses.fields(JudgeSettings))
"""The settings that all judges have."""
MARK = "<!-- From here on: made by python -m tests.docs.builtins -->\n"
TYPES = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "object": "mapping",
}


def sections() -> str:
    """A section for each builtin scorer that asks no model."""
    return "\n".join(section_of(name) for name in BUILTINS if name not in JUDGES)


def judge_sections() -> str:
    """The settings of all judges, then a section for each with its own ones."""
    some = next(iter(JUDGES))
    shared = "\n".join(["## Settings of all judges", "", *_table(_settings(some), lambda key: key in SHARED)])
    return "\n".join([shared, *(section_of(name, leave_out=SHARED) for name in JUDGES)])


def section_of(name: str, leave_out: Collection[str] = ()) -> str:
    """The section of one: what it does, then its settings."""
    told = inspect.getdoc(BUILTINS[name].function) or ""
    return "\n".join([f"## {name}", "", told, "", *_table(_settings(name), lambda key: key not in leave_out)])


def _settings(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BUILTINS[name].info.settings_schema or "{}").get("properties", {})
    return found


def _table(settings: dict[str, Any], wanted: Callable[[str], bool]) -> list[str]:
    rows = [_row(key, part) for key, part in settings.items() if wanted(key)]
    return ["| setting | type | default | meaning |", "| --- | --- | --- | --- |", *rows, ""] if rows else []


def _row(key: str, part: dict[str, Any]) -> str:
    default = part.get("default")
    written = default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)
    nothing = default in (None, [], {}, "") or (isinstance(default, dict) and None in default.values())
    shown = "–" if nothing else f"`{written}`"
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
    """Write the pages anew."""
    for page, text in ((PAGE, sections()), (JUDGES_PAGE, judge_sections())):
        head, mark, _ = page.read_text(encoding="utf-8").partition(MARK)
        page.write_text(f"{head}{mark}\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
