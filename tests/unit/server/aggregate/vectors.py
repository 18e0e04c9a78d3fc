"""Vectors: what other systems give for an input, as recorded from them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "data" / "vectors"
WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Grades that one of those systems writes as letters."""


def rows(file: str, **wanted: str) -> list[dict[str, Any]]:
    """The rows of a file whose fields have the wanted values."""
    lines = (FOLDER / file).read_text("utf-8").splitlines()
    return [row for row in map(json.loads, lines) if all(row[field] == value for field, value in wanted.items())]


def number(value: Any) -> float | None:
    """A recorded value as we hold it; None where there is none."""
    found = WORDS.get(value) if isinstance(value, str) else float(value)
    return None if found is None or math.isnan(found) else found


def is_plain(row: dict[str, Any]) -> bool:
    """Whether a row is about single values, and not about several in an object or a list."""
    return not any(isinstance(value, (dict, list)) for value in row["input"]["values"])


def name_of(row: dict[str, Any]) -> str:
    """A short name for a test."""
    return f"{row.get('function') or row.get('case')} {json.dumps(row.get('input') or row, ensure_ascii=False)}"[:100]
