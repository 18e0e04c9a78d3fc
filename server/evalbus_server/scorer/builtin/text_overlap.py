"""`content_similarity` and `textual_difference`: how much of their characters two texts share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import add

from rapidfuzz.distance import Indel

from evalbus import Score, ScoreTask, scorer
from evalbus_server.scorer.builtin._compared import (
    CASE,
    FULL,
    INPUTS,
    NONE,
    NORMALIZE,
    THREADS,
    Normalize,
    Prepare,
    best_of,
    preparation,
    setting,
    too_long,
)

MOST_WORK = 500_000_000
"""Pairs of characters compared for one score at most, about 40 ms: nothing else in the process moves meanwhile."""
_CHUNK = 50_000
"""Pairs of characters counted at a time: in between, other threads get on."""


@dataclass(frozen=True, slots=True)
class ContentSimilaritySettings:
    """What counts as the same character."""

    ignore_case: bool = setting(True, CASE)
    normalize: Normalize = setting("none", NORMALIZE)


class _Spaceless:
    """A text without space, whose pairs are counted once, however many texts it is compared with."""

    __slots__ = ("_pairs", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._pairs: Counter[str] | None = None

    @property
    def pairs(self) -> Counter[str]:
        if self._pairs is None:
            self._pairs = _pairs(self.text)
        return self._pairs


def _without_space(settings: ContentSimilaritySettings) -> Callable[[str], _Spaceless]:
    prepare = preparation(ignore_case=settings.ignore_case, normalize=settings.normalize)
    return lambda text: _Spaceless("".join(prepare(text).split()))


@scorer("content_similarity", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_without_space, threads=THREADS)
def content_similarity(task: ScoreTask, state: Callable[[str], _Spaceless]) -> Score:
    """The share of neighbouring characters that output and expected text have in common (Dice, by pairs).

    Where a passage stands does not count, and neither does space. Two texts of fewer than two characters are the same
    or not. Of several expected texts the nearest counts.
    """
    return best_of(task, state, _by_pairs)


def _by_pairs(output: _Spaceless, expected: _Spaceless, among: int) -> Score:
    text, wanted = output.text, expected.text
    if text == wanted:
        return FULL
    if len(text) < 2 or len(wanted) < 2:
        return NONE
    left = output.pairs
    shared = 0
    for pair, count in expected.pairs.items():
        have = left.get(pair)
        if have:
            shared += count if count < have else have
    total = len(text) + len(wanted) - 2
    return Score.scored(2 * shared / total, f"{shared} pairs of characters shared, of {total / 2:g}")


def _pairs(text: str) -> Counter[str]:
    if len(text) <= _CHUNK:
        return Counter(map(add, text, text[1:]))
    found: Counter[str] = Counter()
    for start in range(0, len(text) - 1, _CHUNK):
        part = text[start : start + _CHUNK + 1]
        found.update(map(add, part, part[1:]))
    return found


@dataclass(frozen=True, slots=True)
class TextualDifferenceSettings:
    """What counts as the same character."""

    ignore_case: bool = setting(False, CASE)
    normalize: Normalize = setting("none", NORMALIZE)


def _as_asked(settings: TextualDifferenceSettings) -> Prepare:
    return preparation(ignore_case=settings.ignore_case, normalize=settings.normalize)


@scorer("textual_difference", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_as_asked, mode="inline")
def textual_difference(task: ScoreTask, state: Prepare) -> Score:
    """The share of characters that stay when one text is made the other by deleting and inserting: 1 is no difference.

    It is 2 · c / (a + b), with c characters that both texts have in this order. Of several expected texts the nearest
    counts. Very long texts that differ in many places are ERRORED as TEXT_TOO_LONG.
    """
    return best_of(task, state, _by_order)


def _by_order(text: str, wanted: str, among: int) -> Score:
    if text == wanted:
        return FULL
    most = MOST_WORK // among
    total = len(text) + len(wanted)
    if len(text) * len(wanted) <= most:
        changes = Indel.distance(text, wanted)
    else:
        # The fewer changes there are, the fewer pairs have to be looked at.
        allowed = most // max(len(text), len(wanted))
        changes = Indel.distance(text, wanted, score_cutoff=allowed)
        if changes > allowed:
            return too_long("textual_difference", len(text), len(wanted))
    return Score.scored(1 - changes / total, f"{changes} characters to delete or insert, of {total}")
