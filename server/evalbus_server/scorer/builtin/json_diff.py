"""`json_diff`: how much of a JSON document is as expected, part by part."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from rapidfuzz.distance import Levenshtein

from evalbus import Score, ScoreTask, Value, scorer
from evalbus_server.scorer.builtin._compared import (
    FULL,
    INPUTS,
    NO_EXPECTED,
    THREADS,
    accepted_of,
    actual_of,
    not_text,
    read_too_often,
    setting_list,
    unjudged,
)
from evalbus_server.scorer.builtin.numeric_diff import closeness
from evalbus_server.scorer.documents import read_exactly

MOST_WORK = 500_000_000
"""Pairs of characters compared for one score at most."""
_NAMED = 5

Abstain: TypeAlias = Callable[[Any, Any], bool]
"""Whether two values are not to be compared."""


@dataclass(frozen=True, slots=True)
class JsonDiffSettings:
    """What is left out."""

    ignore: list[str] = setting_list("Keys that are left out, wherever they stand, or paths such as meta.date.")
    any_value: list[str] = setting_list("Texts in the expected document that stand for any value, such as <any>.")


def _set_up(settings: JsonDiffSettings) -> Abstain:
    wildcards = frozenset(settings.any_value)
    return lambda actual, expected: isinstance(expected, str) and expected in wildcards


@scorer("json_diff", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, threads=THREADS)
def json_diff(task: ScoreTask, settings: JsonDiffSettings, state: Abstain) -> Score:
    """How much of the output is as in the expected document, from 0 to 1: each part counts for itself.

    An object scores the mean over the keys of both, a list the mean over its places; what only one has scores 0.
    Numbers score 1 - |a - b| / (|a| + |b|), texts by edits as levenshtein, other pairs by the edits of their JSON. What
    is left out takes no part anywhere; where nothing else is left, the score is SKIPPED. A list that is expected stands
    in another, since a list means any of.
    """
    accepted = accepted_of(task)
    if not accepted:
        return NO_EXPECTED
    actual = actual_of(task)
    if not isinstance(actual.body, str):
        return not_text(actual, "output")
    often = read_too_often(actual.body, len(accepted))
    if often is not None:
        return often
    return _best(_document(actual), accepted, settings, state)


def _best(found: Any, accepted: Sequence[Value], settings: JsonDiffSettings, abstain: Abstain) -> Score:
    """The best score of a document against each expected one."""
    best: Score | None = None
    for expected in accepted:
        if not isinstance(expected.body, str):
            return not_text(expected, "expected answer")
        comparison = Comparison(abstain, settings.ignore, MOST_WORK // len(accepted))
        try:
            value = comparison.of(*_of_one_kind(found, _document(expected)))
        except _TooLong:
            return unjudged(
                "TEXT_TOO_LONG", "the texts in the documents are too long to be compared; map a part of them"
            )
        except RecursionError:
            return unjudged("TOO_DEEP", "the documents are nested too deeply")
        if value is None:
            best = best or Score.skipped("all of the expected answer is left out of the comparison")
        elif value == 1.0:
            return FULL
        elif best is None or best.value is None or value > best.value:
            best = Score.scored(value, comparison.told())
    assert best is not None
    return best


class Comparison:
    """Compares two documents and remembers where they differ."""

    def __init__(self, abstain: Abstain, ignore: Sequence[str] = (), work: int = MOST_WORK) -> None:
        """*work* is how many pairs of characters may be compared."""
        self._abstain = abstain
        self._keys = frozenset(each for each in ignore if "." not in each)
        self._paths = frozenset(ignore) - self._keys
        self._work = work
        self.differing: list[str] = []

    def of(self, actual: Any, expected: Any, path: str = "", keys: str = "") -> float | None:
        """The share that is as expected; None if nothing is compared."""
        if self._abstain(actual, expected):
            return None
        if isinstance(expected, dict) and isinstance(actual, dict):
            return self._objects(actual, expected, path, keys)
        if isinstance(expected, list) and isinstance(actual, list):
            return self._lists(actual, expected, path, keys)
        value = self._leaves(actual, expected)
        if value < 1.0:
            self.differing.append(path or "the whole")
        return value

    def told(self) -> str:
        """Where they differ."""
        more = len(self.differing) - _NAMED
        return f"differs at {', '.join(self.differing[:_NAMED])}" + (f" and {more} other places" if more > 0 else "")

    def _objects(self, actual: Mapping[str, Any], expected: Mapping[str, Any], path: str, keys: str) -> float | None:
        scores: list[float | None] = []
        for key in dict.fromkeys((*expected, *actual)):
            inside = f"{keys}.{key}" if keys else key
            if key in self._keys or inside in self._paths:
                continue
            here = f"{path}.{key}" if path else key
            if key in actual and key in expected:
                scores.append(self.of(actual[key], expected[key], here, inside))
            elif key in expected and self._abstain(None, expected[key]):
                continue
            else:
                scores.append(0.0)
                self.differing.append(f"{here} ({'missing' if key in expected else 'not expected'})")
        return _mean(scores, empty=not expected and not actual)

    def _lists(self, actual: Sequence[Any], expected: Sequence[Any], path: str, keys: str) -> float | None:
        scores = [
            self.of(left, right, f"{path}[{place}]", keys)
            for place, (left, right) in enumerate(zip(actual, expected, strict=False))
        ]
        if len(actual) != len(expected):
            both = len(scores)
            only = [] if len(expected) < both else expected[both:]
            absent = sum(1 for each in only if not self._abstain(None, each)) or len(actual) - len(expected)
            if absent > 0:
                scores += [0.0] * absent
                self.differing.append(f"{path}[{both}] ({'missing' if only else 'not expected'})")
        return _mean(scores, empty=not expected and not actual)

    def _leaves(self, actual: Any, expected: Any) -> float:
        if type(actual) is type(expected):
            if isinstance(expected, str):
                return self._texts(actual, expected)
            if isinstance(expected, Decimal):
                return closeness(actual, expected)
            return float(actual == expected)
        if actual is None or expected is None:
            return 0.0
        return self._texts(_written(actual), _written(expected))

    def _texts(self, actual: str, expected: str) -> float:
        if actual == expected:
            return 1.0
        self._work -= len(actual) * len(expected)
        if self._work < 0:
            raise _TooLong
        return Levenshtein.normalized_similarity(actual, expected)


class _TooLong(Exception):
    """Comparing would take too long."""


def _mean(scores: Sequence[float | None], *, empty: bool) -> float | None:
    counted = [score for score in scores if score is not None]
    if counted:
        return sum(counted) / len(counted)
    return 1.0 if empty else None


def _document(value: Value) -> Any:
    """The document that a value is; a text is read as JSON if it looks like an object or a list, and is one."""
    text = str(value.body)
    if value.kind == "json" or text.lstrip()[:1] in ("{", "["):
        try:
            return read_exactly(text)
        except ValueError:
            pass
    return text


def _of_one_kind(actual: Any, expected: Any) -> tuple[Any, Any]:
    """Both documents; a text beside a number, true, false or null is read as JSON if it is some."""
    if isinstance(actual, str) != isinstance(expected, str):
        try:
            if isinstance(actual, str):
                return read_exactly(actual), expected
            return actual, read_exactly(expected)
        except ValueError:
            pass
    return actual, expected


def _written(document: Any) -> str:
    """As compact JSON, keys in order."""
    if isinstance(document, Decimal):
        return str(document)
    if isinstance(document, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_written(document[key])}" for key in sorted(document)) + "}"
    if isinstance(document, list):
        return "[" + ",".join(map(_written, document)) + "]"
    return json.dumps(document, ensure_ascii=False)
