"""The page of differences from other systems: each recorded row whose value is another one here, with the reason.

`python -m tests.docs.differences` writes it anew.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests import differences
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/differences.md"
MARK = "<!-- From here on: made by python -m tests.docs.differences -->\n"
FOLDER = ROOT / "tests/data/vectors"
SHOWN = 110
"""Characters of what was asked."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Differences of one kind."""

    title: str
    file: str
    here: Mapping[Any, tuple[float | str | None, str]]
    key: Callable[[Row, int], Hashable]
    """Of a row, and of how many rows of its name stood before it."""


def name_of(row: Row) -> str:
    """What it is called there."""
    return str(row.get("function") or row["scorer"])


PARTS = (
    Part(
        "Builtin scorers",
        "builtin_scorers.jsonl",
        differences.BUILTINS,
        lambda row, _: (name_of(row), json.dumps(row["input"], ensure_ascii=False)),
    ),
    Part(
        "Judges",
        "judges.jsonl",
        differences.JUDGES,
        lambda row, place: (f"{row['system']} {row['scorer']}", place),
    ),
    Part("Blends", "kit.jsonl", differences.BLENDS, lambda row, _: json.dumps(row["input"])),
    Part(
        "Reducers of epochs",
        "numbers.jsonl",
        differences.REDUCERS,
        lambda row, _: (name_of(row).removeprefix("reducer."), json.dumps(row["input"].get("values"))),
    ),
    Part(
        "Numbers of a run",
        "numbers.jsonl",
        differences.NUMBERS,
        lambda row, _: (name_of(row), len(row["input"].get("values") or "")),
    ),
)


def found(part: Part) -> Iterator[tuple[Hashable, Row]]:
    """The recorded rows that are meant, by their keys; of rows with one key the first."""
    before: Counter[str] = Counter()
    seen = set()
    for line in (FOLDER / part.file).read_text("utf-8").splitlines():
        row = json.loads(line)
        name = f"{row['system']} {name_of(row)}"
        key = part.key(row, before[name])
        before[name] += 1
        if key in part.here and key not in seen:
            seen.add(key)
            yield key, row


def sections() -> str:
    """A table for each part."""
    return "\n".join(line for part in PARTS for line in _section(part))


def _section(part: Part) -> Iterator[str]:
    yield f"### {part.title}\n"
    yield "| there | asked | value there | here | because |\n| --- | --- | --- | --- | --- |"
    for key, row in found(part):
        value, reason = part.here[key]
        asked = json.dumps(row["input"], ensure_ascii=False)
        cells = (
            f"{row['system']}: `{name_of(row)}`",
            _code(_cut(asked)),
            _theirs(row["expected"]),
            _ours(value),
            reason,
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _theirs(expected: Any) -> str:
    """A recorded value as people read it."""
    if isinstance(expected, dict):
        known = next((name for name in ("score", "value", "scores") if name in expected), None)
        if known is not None:
            return _theirs(expected[known])
        failed = any(word in key for key in expected for word in ("error", "raises", "throws"))
        return "an error" if failed or expected.get("status") == "error" else _code(_cut(json.dumps(expected)))
    if isinstance(expected, list):
        return ", then ".join(map(_theirs, expected))
    if isinstance(expected, str) and ("rror" in expected or "raises" in expected):
        return "an error"
    return "NaN" if str(expected).lower() == "nan" else "nothing" if expected is None else f"{expected}"


def _ours(value: float | str | None) -> str:
    if value is None:
        return "nothing"
    if not isinstance(value, str):
        return f"{value:.4g}"
    return value if value == differences.REFUSED else value.upper()


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def main() -> None:
    """Write the page anew."""
    head, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    PAGE.write_text(f"{head}{mark}\n{sections()}", encoding="utf-8")


if __name__ == "__main__":
    main()
