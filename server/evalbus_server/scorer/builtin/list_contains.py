"""`list_contains`: whether a list holds what it should, in any order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from rapidfuzz.distance import Levenshtein

from evalbus import Score, ScoreTask, Value, scorer
from evalbus_server.scorer.builtin._compared import (
    CASE,
    INPUTS,
    NO_EXPECTED,
    THREADS,
    Prepare,
    accepted_of,
    actual_of,
    not_text,
    preparation,
    quoted,
    setting,
    unjudged,
)
from evalbus_server.scorer.documents import SPACE, entries

MOST_ENTRIES = 150
"""More entries on both sides, besides those that are the same, are not paired."""
MOST_WORK = 200_000_000
"""Pairs of characters compared for one score at most."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class ListContainsSettings:
    """What the output may hold besides."""

    allow_extra: bool = setting(False, "Whether entries that nobody expects may be there too.")
    ignore_case: bool = setting(False, CASE)


def _set_up(settings: ListContainsSettings) -> Prepare:
    return preparation(ignore_case=settings.ignore_case, trim=True)


@scorer("list_contains", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, threads=THREADS)
def list_contains(task: ScoreTask, settings: ListContainsSettings, state: Prepare) -> Score:
    """How well the output's list holds the expected entries, from 0 to 1, in any order.

    Each entry is paired with one of the other list so that the sum of their similarities (by edits, as levenshtein) is
    the highest; it is divided by the length of the longer list, or with `allow_extra` by that of the expected one. The
    expected answers are the expected entries; a list in the list is one such list, and several are any of. An output
    that is no list scores 0.
    """
    accepted = accepted_of(task)
    if not accepted:
        return NO_EXPECTED
    actual = actual_of(task)
    if not isinstance(actual.body, str):
        return not_text(actual, "output")
    said = _entries(actual)
    if said is None:
        return Score.scored(0.0, f"no list: {quoted(actual)}")
    found = [state(each) for each in said]
    lists = [_entries(each) for each in accepted]
    if None in lists:  # no list of lists: the entries themselves
        lists = [[str(each.body) for each in accepted]]
    scores = []
    for wanted in lists:
        score = _contains(found, [state(each) for each in wanted or ()], settings.allow_extra, len(lists))
        if score.value is None:
            return score
        scores.append(score)
    return max(scores, key=lambda score: score.value or 0.0)


def _contains(found: Sequence[str], wanted: Sequence[str], allow_extra: bool, among: int) -> Score:
    longest = len(wanted) if allow_extra else max(len(found), len(wanted))
    if not longest:
        return Score.scored(1.0)
    left = Counter(found)
    missing = []
    for each in wanted:
        if left.get(each, 0):
            left[each] -= 1
        else:
            missing.append(each)
    same = len(wanted) - len(missing)
    if same == min(len(found), len(wanted)):
        total = float(same)  # no pairing could do better
    elif max(len(found), len(wanted)) <= MOST_ENTRIES:
        work = sum(map(len, found)) * sum(map(len, wanted))
        if work > MOST_WORK // among:
            return unjudged("TEXT_TOO_LONG", "the entries are too long to be compared; map a part of them")
        total = _best_sum([[Levenshtein.normalized_similarity(left, right) for right in wanted] for left in found])
    else:
        message = f"lists of {len(found):,} and {len(wanted):,} entries that differ are too long to be paired"
        return unjudged("LIST_TOO_LONG", message)
    told = [f"missing: {', '.join(map(quoted, missing[:_NAMED]))}"] if missing else []
    if len(found) > same and not allow_extra:
        told.append(f"not expected: {', '.join(map(quoted, islice(left.elements(), _NAMED)))}")
    return Score.scored(min(total / longest, 1.0), "; ".join(told))


def _entries(value: Value) -> list[str] | None:
    """The entries of a list, as texts; None if it is none."""
    if not isinstance(value.body, str):
        return None
    document = value.body.strip(SPACE)
    if not document.startswith("["):
        return None
    if value.kind == "text":
        try:
            value = Value.json(document)
        except ValueError:
            return None
    return [str(each.body) for each in entries(value.text.strip(SPACE))]


def _best_sum(gains: Sequence[Sequence[float]]) -> float:
    """The highest sum of gains in which no row and no column is used twice."""
    if len(gains) > len(gains[0]):
        gains = list(zip(*gains, strict=True))
    if len(gains) == 1:
        return max(gains[0])
    if len(gains) == len(gains[0]) == 2:
        (first, second), (third, fourth) = gains
        return max(first + fourth, second + third)
    pairing = _Pairing(gains)
    for row in range(1, len(gains) + 1):
        pairing.add(row)
    return sum(gains[row - 1][column - 1] for column, row in enumerate(pairing.row_of) if row and column)


class _Pairing:
    """Kuhn's and Munkres' method, with a price for each row and column; place 0 of each is no row and no column."""

    def __init__(self, gains: Sequence[Sequence[float]]) -> None:
        self._gains = gains
        self._columns = range(1, len(gains[0]) + 1)
        self._row_price = [0.0] * (len(gains) + 1)
        self._column_price = [0.0] * (len(gains[0]) + 1)
        self.row_of = [0] * (len(gains[0]) + 1)

    def add(self, row: int) -> None:
        """Give a row its column, and others another if that is better for all."""
        self.row_of[0] = row
        column = 0
        slack = [math.inf] * len(self.row_of)
        came_from = [0] * len(self.row_of)
        used: list[int] = []
        free = list(self._columns)
        while self.row_of[column]:
            used.append(column)
            self._look_from(column, free, slack, came_from)
            following = min(free, key=slack.__getitem__)
            self._reprice(slack[following], used, free, slack)
            free.remove(following)
            column = following
        while column:
            self.row_of[column] = self.row_of[came_from[column]]
            column = came_from[column]

    def _look_from(self, column: int, free: Sequence[int], slack: list[float], came_from: list[int]) -> None:
        row = self.row_of[column]
        gains, price = self._gains[row - 1], self._row_price[row]
        for other in free:
            cost = -gains[other - 1] - price - self._column_price[other]
            if cost < slack[other]:
                slack[other], came_from[other] = cost, column

    def _reprice(self, by: float, used: Sequence[int], free: Sequence[int], slack: list[float]) -> None:
        for column in used:
            self._row_price[self.row_of[column]] += by
            self._column_price[column] -= by
        for column in free:
            slack[column] -= by
