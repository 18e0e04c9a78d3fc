"""`levenshtein`: how much of a text would have to be changed to make it the expected one."""

from __future__ import annotations

from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from evalbus import Score, ScoreTask, scorer
from evalbus_server.scorer.builtin._compared import (
    CASE,
    FULL,
    INPUTS,
    NORMALIZE,
    Normalize,
    Prepare,
    best_of,
    preparation,
    setting,
    too_long,
)

MOST_WORK = 1_000_000_000
"""Pairs of characters compared for one score at most, about 30 ms: nothing else in the process moves meanwhile."""


@dataclass(frozen=True, slots=True)
class LevenshteinSettings:
    """What counts as the same character."""

    ignore_case: bool = setting(False, CASE)
    normalize: Normalize = setting("none", NORMALIZE)


def _set_up(settings: LevenshteinSettings) -> Prepare:
    return preparation(ignore_case=settings.ignore_case, normalize=settings.normalize)


@scorer("levenshtein", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, mode="inline")
def levenshtein(task: ScoreTask, state: Prepare) -> Score:
    """1 - edits / length of the longer text: 1 for the same text, 0 if no character can stay.

    An edit inserts, deletes or replaces one Unicode code point. Two empty texts are the same. Of several expected
    texts the nearest counts. JSON is compared as it is written. Very long texts that differ in many places are
    ERRORED as TEXT_TOO_LONG.
    """
    return best_of(task, state, _judge)


def _judge(text: str, wanted: str, among: int) -> Score:
    if text == wanted:
        return FULL
    most_work = MOST_WORK // among
    longer = max(len(text), len(wanted))
    if len(text) * len(wanted) <= most_work:
        edits = Levenshtein.distance(text, wanted)
    else:
        # The fewer edits there are, the fewer pairs have to be looked at.
        allowed = most_work // longer
        edits = Levenshtein.distance(text, wanted, score_cutoff=allowed)
        if edits > allowed:
            return too_long("levenshtein", len(text), len(wanted))
    return Score.scored(1 - edits / longer, f"{edits} edits, {longer} characters")
