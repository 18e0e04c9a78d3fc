"""`length` and `readability`: how long a text is, and how hard to read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from evalbus import Direction, Score, ScoreDeclaration, ScoreTask, scorer
from evalbus_server.scorer.builtin._compared import FULL, THREADS, actual_of, not_text, setting
from evalbus_server.scorer.builtin._words import words_of


@dataclass(frozen=True, slots=True)
class LengthSettings:
    """How long a text may be."""

    at_least: int = setting(0, "So many at least.")
    at_most: int | None = setting(None, "So many at most.")
    unit: Literal["characters", "words", "lines"] = setting("characters", "What is counted.")
    outside: Literal["zero", "closeness"] = setting(
        "zero", "What a text beyond that scores: 0, or how close its length is to the limit."
    )

    def __post_init__(self) -> None:
        """Refuse limits that let everything through, or nothing."""
        if not self.at_least and self.at_most is None:
            raise ValueError("say at_least, at_most or both")
        if self.at_least < 0 or (self.at_most is not None and self.at_most < self.at_least):
            raise ValueError("at_least is from 0 to at_most")


_COUNT: dict[str, Callable[[str], int]] = {
    "characters": len,
    "words": lambda text: len(words_of(text)),
    "lines": lambda text: len(text.splitlines()),
}


@scorer("length", version="1.0.0", inputs=("output",), deterministic=True, threads=THREADS)
def length(task: ScoreTask, settings: LengthSettings) -> Score:
    """1 if the output is as long as it should be, in characters, words or lines; else 0, or how close it is.

    Both limits are allowed lengths. A character is a Unicode code point; in scripts without spaces each one is a word.
    """
    actual = actual_of(task)
    if not isinstance(actual.body, str):
        return not_text(actual, "output")
    found = _COUNT[settings.unit](actual.body)
    if found < settings.at_least:
        share = found / settings.at_least
    elif settings.at_most is not None and found > settings.at_most:
        share = settings.at_most / found
    else:
        return FULL
    return Score.scored(share if settings.outside == "closeness" else 0.0, f"{found:,} {settings.unit}")


@dataclass(frozen=True, slots=True)
class ReadabilitySettings:
    """Which formula."""

    formula: Literal["flesch_reading_ease", "flesch_kincaid_grade", "automated_grade"] = setting(
        "flesch_reading_ease",
        "flesch_reading_ease: 100 is easy, 0 is hard; flesch_kincaid_grade, automated_grade: years of school.",
    )


def _declared(settings: ReadabilitySettings) -> Sequence[ScoreDeclaration]:
    if settings.formula == "flesch_reading_ease":
        return (ScoreDeclaration(minimum=None, maximum=None, unit="Flesch reading ease"),)
    unit = "years of school"
    return (ScoreDeclaration(minimum=None, maximum=None, direction=Direction.LOWER_IS_BETTER, unit=unit),)


@scorer("readability", version="1.0.0", scores=_declared, inputs=("output",), deterministic=True, threads=THREADS)
def readability(task: ScoreTask, settings: ReadabilitySettings) -> Score:
    """How hard an English text is to read, in the unit of the formula; the score has no fixed range.

    Sentences end at full stops, question and exclamation marks and at empty lines; syllables are counted by rule. A
    text that is not written in Latin letters, or holds no word, is SKIPPED.
    """
    actual = actual_of(task)
    if not isinstance(actual.body, str):
        return not_text(actual, "output")
    text = actual.body.lower()
    words = _LATIN_WORD.findall(text)
    letters = sum(map(len, words))
    if not letters or letters * 2 < sum(map(str.isalpha, text)):
        return Score.skipped("the output holds no words in Latin letters: the formulas are for English")
    sentences = max(1, sum(1 for part in _SENTENCE_END.split(text) if _LATIN_WORD.search(part)))
    per_sentence = len(words) / sentences
    if settings.formula == "automated_grade":
        value = 4.71 * letters / len(words) + 0.5 * per_sentence - 21.43
    else:
        per_word = sum(map(_syllables, words)) / len(words)
        if settings.formula == "flesch_reading_ease":
            value = 206.835 - 1.015 * per_sentence - 84.6 * per_word
        else:
            value = 0.39 * per_sentence + 11.8 * per_word - 15.59
    return Score.scored(value, f"{len(words)} words in {sentences} sentences")


_LATIN_WORD = re.compile("[a-z\u00aa-\u024f\u1e00-\u1eff]+(?:['’][a-z]+)*")
_SENTENCE_END = re.compile(r"[.!?]+|\n\s*\n")
_VOWELS = re.compile("[aeiouyà-öø-ÿ]+")


def _syllables(word: str) -> int:
    """By rule: groups of vowels, without a silent e at the end."""
    found = len(_VOWELS.findall(word))
    if found > 1 and word[-1] == "e" and not word.endswith("le"):
        found -= 1
    return found or 1
