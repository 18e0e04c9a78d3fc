"""`keyword_coverage` and `completeness`: whether the output says all that the expected text says, in its words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evalbus import Score, ScoreTask, scorer
from evalbus_server.scorer.builtin._compared import (
    FULL,
    INPUTS,
    NONE,
    THREADS,
    best_of,
    quoted,
    setting,
    unjudged,
)
from evalbus_server.scorer.builtin._stop_words import ENGLISH
from evalbus_server.scorer.builtin._words import words_of

_NO_KEYWORDS = Score.skipped("the expected answer holds no keyword")
_MOST_PAIRS = 2_000_000
"""Pairs of words compared letter by letter, at most."""
_NAMED = 10


@dataclass(frozen=True, slots=True)
class KeywordCoverageSettings:
    """Which words are no keywords."""

    stop_words: list[str] | None = setting(None, "Words that are no keywords, in place of the usual English ones.")


@dataclass(frozen=True, slots=True)
class _Keywords:
    found: dict[str, None]
    of_any: bool
    """Whether the text has any words at all."""


def _keywords_of(settings: KeywordCoverageSettings) -> Callable[[str], _Keywords]:
    stop_words = ENGLISH
    if settings.stop_words is not None:
        stop_words = frozenset(word for text in settings.stop_words for word in words_of(text))

    def prepare(text: str) -> _Keywords:
        words = words_of(text)
        keywords = {word: None for word in words if word not in stop_words and not word[-1].isdigit()}
        return _Keywords(keywords, bool(words))

    return prepare


@scorer("keyword_coverage", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_keywords_of, threads=THREADS)
def keyword_coverage(task: ScoreTask, state: Callable[[str], _Keywords]) -> Score:
    """The share of the expected text's keywords that the output holds.

    Keywords are all words but stop words and numbers, each once, as they are written but for case. Of several expected
    texts the best covered counts. An expected text without keywords is SKIPPED, unless both texts are empty.
    """
    return best_of(task, state, _covered)


def _covered(words: _Keywords, wanted: _Keywords, among: int) -> Score:
    if not wanted.found:
        return _NO_KEYWORDS if words.of_any or wanted.of_any else FULL
    missing = [word for word in wanted.found if word not in words.found]
    return _told(missing, len(wanted.found))


@scorer("completeness", version="1.0.0", inputs=INPUTS, deterministic=True, threads=THREADS)
def completeness(task: ScoreTask) -> Score:
    """The share of the expected text's words that the output holds, also in another form: jump for jumps.

    A word of more than three letters may be part of another, or the other part of it, if the shorter one is more than
    60 % of the longer one. An empty expected text asks for an empty output. Of several expected texts the best covered
    counts.
    """
    return best_of(task, _distinct, _complete)


def _distinct(text: str) -> dict[str, None]:
    return dict.fromkeys(words_of(text))


def _complete(words: dict[str, None], wanted: dict[str, None], among: int) -> Score:
    if not wanted:
        return NONE if words else FULL
    missing = [word for word in wanted if word not in words]
    if missing:
        long = [word for word in words if len(word) > 2]
        if len(missing) * len(long) > _MOST_PAIRS // among:
            message = f"{len(missing):,} and {len(long):,} words that differ are too many; compare a part with `map`"
            return unjudged("TEXT_TOO_LONG", message)
        missing = [word for word in missing if len(word) < 4 or not any(_alike(word, other) for other in long)]
    return _told(missing, len(wanted))


def _alike(word: str, other: str) -> bool:
    shorter, longer = (word, other) if len(word) <= len(other) else (other, word)
    return len(shorter) > 0.6 * len(longer) and shorter in longer


def _told(missing: list[str], wanted: int) -> Score:
    if not missing:
        return FULL
    named = ", ".join(map(quoted, missing[:_NAMED])) + (", …" if len(missing) > _NAMED else "")
    return Score.scored(1 - len(missing) / wanted, f"missing: {named}")
