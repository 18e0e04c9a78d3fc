"""`tone`: whether a text keeps one tone, or that of another text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from evalbus import Score, ScoreTask, SettingsInvalid, scorer
from evalbus_server.scorer.builtin._compared import (
    INPUTS,
    THREADS,
    actual_of,
    expected_texts,
    not_text,
    setting,
)
from evalbus_server.scorer.builtin._lexicon import NEGATIONS, VALENCE

_LETTERS = re.compile(r"[^\W\d_]+")
_SENTENCE = re.compile(r"[^.!?]+")
_WORD = re.compile(r"[\w'’-]+")
_LATIN = re.compile("[a-z\u00aa-\u024f\u1e00-\u1eff]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ToneSettings:
    """What the tone is compared with."""

    compared_with: Literal["itself", "expected"] = setting(
        "itself", "itself: whether all sentences have one tone; expected: whether it is that of the expected answer."
    )
    reference: str | None = setting(None, "A text whose tone is wanted, in place of `compared_with`.")


def _set_up(settings: ToneSettings) -> float | None:
    if not settings.reference:
        return None
    if not _is_readable(settings.reference):
        raise SettingsInvalid("settings.reference: its words are not English", "settings.reference")
    return _mean(settings.reference)


@scorer("tone", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, threads=THREADS)
def tone(task: ScoreTask, settings: ToneSettings, state: float | None) -> Score:
    """How steady the tone of the output is from sentence to sentence, or how near to that of another text.

    The tone of a text is the mean of how good or bad its words sound, from -5 to 5, by a small list of English words.
    Steady is 1 - the variance over the sentences; near is 1 - the distance; neither falls below 0. A text that is not
    written in Latin letters, or holds no word, is SKIPPED.
    """
    actual = actual_of(task)
    if not isinstance(actual.body, str):
        return not_text(actual, "output")
    if not _is_readable(actual.body):
        return Score.skipped("the output holds no words in Latin letters: its tone cannot be read")
    if state is not None:
        return _near(actual.body, [state])
    if settings.compared_with == "itself":
        return _steady(actual.body)
    texts = expected_texts(task)
    if isinstance(texts, Score):
        return texts
    readable = [text for text in texts if _is_readable(text)]
    if not readable:
        return Score.skipped("the expected answer holds no words in Latin letters: its tone cannot be read")
    return _near(actual.body, [_mean(text) for text in readable])


def _steady(text: str) -> Score:
    tones = [_mean(sentence) for sentence in _SENTENCE.findall(text) if sentence.strip()]
    mean = sum(tones) / len(tones)
    variance = sum((each - mean) ** 2 for each in tones) / len(tones)
    return Score.scored(
        max(0.0, 1 - variance), f"{len(tones)} sentences, mean tone {mean:.3f}, variance {variance:.3f}"
    )


def _near(text: str, wanted: list[float]) -> Score:
    found = _mean(text)
    distance = min(abs(found - each) for each in wanted)
    return Score.scored(max(0.0, 1 - distance), f"tone {found:.3f}, {distance:.3f} away")


def _mean(text: str) -> float:
    """The tone of all words of a text, those without any included."""
    words = _WORD.findall(text.lower().replace("’", "'"))
    total = 0
    before = ""
    for word in words:
        valence = VALENCE.get(word)
        if valence is not None:
            total += -valence if before in NEGATIONS else valence
        before = word
    return total / len(words) if words else 0.0


def _is_readable(text: str) -> bool:
    """Whether most letters of a text are Latin ones."""
    if text.isascii():
        return _LETTERS.search(text) is not None
    letters = sum(map(len, _LETTERS.findall(text)))
    return letters > 0 and sum(map(len, _LATIN.findall(text))) * 2 >= letters
