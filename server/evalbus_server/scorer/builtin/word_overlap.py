"""`f1` and `rouge_l`: which words the output and the expected text share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from rapidfuzz.distance import LCSseq

from evalbus import Score, ScoreTask, scorer
from evalbus_server.scorer.builtin._compared import FULL, INPUTS, THREADS, best_of, setting, setting_list, too_long
from evalbus_server.scorer.builtin._words import ARTICLES, telling_words_of, words_of

MOST_WORK = 150_000_000
"""Pairs of words compared for one score at most, about 50 ms: nothing else in the process moves meanwhile."""

_NO_WORDS = Score.skipped("the expected answer holds no word that counts")


@dataclass(frozen=True, slots=True)
class F1Settings:
    """Which words do not count."""

    stop_words: list[str] = setting_list("Words that do not count, besides the articles a, an and the.")


def _words_that_count(settings: F1Settings) -> Callable[[str], list[str]]:
    left_out = ARTICLES.union(*map(words_of, settings.stop_words)) if settings.stop_words else ARTICLES
    return partial(telling_words_of, without=left_out)


@scorer("f1", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_words_that_count, threads=THREADS)
def f1(task: ScoreTask, state: Callable[[str], list[str]]) -> Score:
    """The F1 of the words that the output and the expected text share, in any order: 1 if all are there and no other.

    Case, punctuation, articles and how a number is written do not count; how often a word comes does. Of several
    expected texts the best counts. An expected text without a word that counts is SKIPPED.
    """
    return best_of(task, state, _share)


def _share(words: list[str], wanted: list[str], among: int) -> Score:
    if words == wanted:
        return FULL if wanted else _NO_WORDS
    if not wanted:
        return _NO_WORDS
    left = Counter(words)
    shared = 0
    for word in wanted:
        if left.get(word, 0) > 0:
            left[word] -= 1
            shared += 1
    return _of_shared(shared, len(words), len(wanted), "f1")


@dataclass(frozen=True, slots=True)
class RougeLSettings:
    """Which share it is."""

    measure: Literal["f1", "precision", "recall"] = setting(
        "f1", "precision: of the output's words; recall: of the expected ones; f1: both in one."
    )


@scorer("rouge_l", version="1.0.0", inputs=INPUTS, deterministic=True, threads=THREADS)
def rouge_l(task: ScoreTask, settings: RougeLSettings) -> Score:
    """ROUGE-L: the longest run of words that output and expected text share in this order, with others between.

    Case and punctuation do not count; words are those of any script, as they are written: nothing is stemmed. Of
    several expected texts the best counts. An expected text without a word is SKIPPED.
    """
    return best_of(task, words_of, _JUDGES[settings.measure])


def _longest(measure: str, words: list[str], wanted: list[str], among: int) -> Score:
    if words == wanted:
        return FULL if wanted else _NO_WORDS
    if not wanted:
        return _NO_WORDS
    if len(words) * len(wanted) > MOST_WORK // among:
        return too_long("rouge_l", len(words), len(wanted), "words")
    return _of_shared(LCSseq.similarity(words, wanted), len(words), len(wanted), measure)


_JUDGES = {measure: partial(_longest, measure) for measure in ("f1", "precision", "recall")}


def _of_shared(shared: int, found: int, wanted: int, measure: str) -> Score:
    told = f"{shared} words shared, of {found} in the output and {wanted} expected"
    if measure == "f1":
        return Score.scored(2 * shared / (found + wanted), told)
    return Score.scored(shared / (found if measure == "precision" else wanted) if found else 0.0, told)
