"""`similarity`: how alike two texts are, by other measures than edits of characters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from rapidfuzz import fuzz
from rapidfuzz.distance import DamerauLevenshtein, Jaro, JaroWinkler

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


class _Measure(NamedTuple):
    of: Callable[[str, str], float]
    most_work: int
    """Pairs of characters compared in about 50 ms: nothing else in the process moves meanwhile."""


_MEASURES = {
    "jaro_winkler": _Measure(JaroWinkler.normalized_similarity, 1_000_000_000),
    "jaro": _Measure(Jaro.normalized_similarity, 1_000_000_000),
    "damerau_levenshtein": _Measure(DamerauLevenshtein.normalized_similarity, 5_000_000),
    "sorted_words": _Measure(lambda left, right: fuzz.token_sort_ratio(left, right) / 100, 500_000_000),
    "shared_words": _Measure(lambda left, right: fuzz.token_set_ratio(left, right) / 100, 500_000_000),
}


@dataclass(frozen=True, slots=True)
class SimilaritySettings:
    """Which measure, and what counts as the same character."""

    method: Literal["jaro_winkler", "jaro", "damerau_levenshtein", "sorted_words", "shared_words"] = setting(
        "jaro_winkler",
        "jaro, jaro_winkler: for names and short texts; damerau_levenshtein: edits, with a swap of neighbours as one; "
        "sorted_words: the order of words does not count; shared_words: nor do words that only one text has.",
    )
    ignore_case: bool = setting(True, CASE)
    normalize: Normalize = setting("none", NORMALIZE)


@dataclass(frozen=True, slots=True)
class _State:
    prepare: Prepare
    judge: Callable[[str, str, int], Score]


def _set_up(settings: SimilaritySettings) -> _State:
    prepare = preparation(ignore_case=settings.ignore_case, normalize=settings.normalize)
    return _State(prepare, partial(_judge, _MEASURES[settings.method]))


@scorer("similarity", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, mode="inline")
def similarity(task: ScoreTask, state: _State) -> Score:
    """How alike the output and the expected text are, from 0 to 1, by a measure of your choice.

    Of several expected texts the nearest counts. JSON is compared as it is written. Very long texts are ERRORED as
    TEXT_TOO_LONG.
    """
    return best_of(task, state.prepare, state.judge)


def _judge(measure: _Measure, text: str, wanted: str, among: int) -> Score:
    if text == wanted:
        return FULL
    if len(text) * len(wanted) > measure.most_work // among:
        return too_long("similarity", len(text), len(wanted))
    return Score.scored(measure.of(text, wanted), f"texts of {len(text)} and {len(wanted)} characters")
