"""`json_valid`: whether the output is JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evalbus import Score, ScoreTask, scorer
from evalbus_server.scorer.builtin._compared import FULL, THREADS, actual_of, not_text, setting
from evalbus_server.scorer.builtin._documents import LONGEST, document_of, kind_of, too_large


@dataclass(frozen=True, slots=True)
class JsonValidSettings:
    """Which JSON will do."""

    type: Literal["any", "object", "array"] = setting("any", "What the document is: anything, an object, or an array.")


@scorer("json_valid", version="1.0.0", inputs=("output",), deterministic=True, threads=THREADS)
def json_valid(task: ScoreTask, settings: JsonValidSettings) -> Score:
    """1 if the output is one JSON document, else 0.

    JSON is as in RFC 8259: without NaN, trailing commas or comments. A key that comes twice in an object, and nesting
    deeper than 100, are not taken either. Text around a document, such as a code fence, is not JSON.
    """
    actual = actual_of(task)
    text = actual.body
    if not isinstance(text, str):
        return not_text(actual, "output")
    if len(text) > LONGEST:
        return too_large(text)
    try:
        document = document_of(actual)
    except ValueError as error:
        return Score.scored(0.0, f"not JSON: {error}")
    if settings.type == "any" or settings.type == kind_of(document):
        return FULL
    return Score.scored(0.0, f"{kind_of(document)}, not {settings.type}")
