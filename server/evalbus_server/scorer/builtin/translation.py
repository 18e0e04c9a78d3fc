"""`bleu` and `chrf`: how near a translation is to a reference, one sentence or text at a time.

The values are those of sacreBLEU's sentence scores, divided by 100. They are computed here because a score must cost
microseconds, and sacreBLEU would bring numpy and lxml along.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from evalbus import Score, ScoreTask, scorer
from evalbus_server.scorer.builtin._compared import FULL, INPUTS, THREADS, best_of, read_too_often, setting, unjudged

LONGEST = 100_000
"""Characters of a text at most: counting all parts of a longer one takes long, and much memory."""

MOST_COUNTED = 20 * LONGEST
"""Characters of an output whose parts are counted for one score at most, as often as there are expected answers."""

_LOWERCASE = "Whether upper and lower case are the same."


@dataclass(frozen=True, slots=True)
class BleuSettings:
    """How texts become tokens."""

    tokenize: Literal["13a", "char", "none"] = setting(
        "13a", "13a: words and punctuation, as in WMT; char: characters, for Chinese and Japanese; none: at spaces."
    )
    lowercase: bool = setting(False, _LOWERCASE)
    order: int = setting(4, "The longest run of tokens that is looked for.")

    def __post_init__(self) -> None:
        """Refuse orders that nobody means."""
        _check(self.order)


@dataclass(frozen=True, slots=True)
class ChrfSettings:
    """Which parts of a text are compared."""

    order: int = setting(6, "The longest run of characters that is looked for.")
    word_order: int = setting(0, "The longest run of words that is looked for as well: 2 makes it chrF++.")
    beta: float = setting(2.0, "How much more it matters that nothing is missing than that nothing is too much.")
    lowercase: bool = setting(False, _LOWERCASE)

    def __post_init__(self) -> None:
        """Refuse orders that nobody means."""
        _check(self.order)
        if not 0 <= self.word_order <= 10:
            raise ValueError(f"word_order is from 0 to 10, not {self.word_order}")
        if not 0 < self.beta <= 100:
            raise ValueError(f"beta is above 0 and at most 100, not {self.beta}")


def _check(order: int) -> None:
    if not 1 <= order <= 10:
        raise ValueError(f"order is from 1 to 10, not {order}")


@dataclass(frozen=True, slots=True)
class _Text:
    text: str
    tokens: list[str]


@dataclass(frozen=True, slots=True)
class _Bleu:
    prepare: Callable[[str], _Text]
    judge: Callable[[_Text, _Text, int], Score]


def _for_bleu(settings: BleuSettings) -> _Bleu:
    return _Bleu(
        partial(_tokenized, _TOKENIZERS[settings.tokenize], settings.lowercase), partial(_bleu, settings.order)
    )


@scorer("bleu", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_for_bleu, threads=THREADS)
def bleu(task: ScoreTask, state: _Bleu) -> Score:
    """BLEU of the output against the expected text, from 0 to 1: runs of up to four tokens that both have.

    It is sacreBLEU's score of one sentence (effective order, exponential smoothing). Of several expected texts the
    best counts, each by itself; an empty one asks for an empty output. Texts of more than 100,000 characters are
    ERRORED as TEXT_TOO_LONG.
    """
    return best_of(task, state.prepare, state.judge)


@dataclass(frozen=True, slots=True)
class _Chrf:
    prepare: Callable[[str], str]
    judge: Callable[[str, str, int], Score]


def _for_chrf(settings: ChrfSettings) -> _Chrf:
    return _Chrf(str.lower if settings.lowercase else str, partial(_chrf, settings))


@scorer("chrf", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_for_chrf, threads=THREADS)
def chrf(task: ScoreTask, state: _Chrf) -> Score:
    """ChrF of the output against the expected text, from 0 to 1: runs of up to six characters that both have.

    It is sacreBLEU's score of one sentence; space does not count. Of several expected texts the best counts; an
    empty one asks for an empty output. Texts of more than 100,000 characters are ERRORED as TEXT_TOO_LONG.
    """
    return best_of(task, state.prepare, state.judge)


# --- BLEU -------------------------------------------------------------------------------------------------------


def _bleu(highest: int, output: _Text, expected: _Text, among: int) -> Score:
    refused = _too_long("bleu", output.text, expected.text, among)
    if refused is not None:
        return refused
    tokens, wanted = output.tokens, expected.tokens
    if not tokens and not wanted:
        return FULL
    logs, smoothing, orders, any_shared = 0.0, 1.0, 0, False
    for order in range(1, min(highest, len(tokens)) + 1):
        total = len(tokens) - order + 1
        shared = _shared_runs(tokens, wanted, order) if any_shared or order == 1 else 0
        if not shared and order == 1:
            break
        any_shared = shared > 0
        if not shared:
            smoothing *= 2
        logs += math.log((shared or 1 / smoothing) / total)
        orders = order
    if not orders:
        return Score.scored(0.0, "no token in common")
    short = math.exp(1 - len(wanted) / len(tokens)) if len(tokens) < len(wanted) else 1.0
    found = short * math.exp(logs / orders)
    told = f"{len(tokens)} tokens for {len(wanted)}" + (f", a penalty of {short:.3f} for brevity" if short < 1 else "")
    return Score.scored(min(found, 1.0), told)


def _shared_runs(tokens: list[str], wanted: list[str], order: int) -> int:
    """How many runs of so many tokens both texts have; each counts as often as the reference has it."""
    left = _runs(wanted, order)
    if not left:
        return 0
    shared = 0
    for run, count in _runs(tokens, order).items():
        have = left.get(run)
        if have:
            shared += count if count < have else have
    return shared


def _runs(tokens: list[str], order: int) -> Counter[Any]:
    if order == 1:
        return Counter(tokens)
    return Counter(zip(*[tokens[start:] for start in range(order)], strict=False))


def _tokenized(tokenize: Callable[[str], list[str]], lowercase: bool, text: str) -> _Text:
    if len(text) > LONGEST:
        return _Text(text, [])
    return _Text(text, tokenize(text.lower() if lowercase else text))


def _tokens_13a(text: str) -> list[str]:
    """As mteval-v13a does it, which is what everybody compares with."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    if "&" in text:
        text = text.replace("&quot;", '"').replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
    text = f" {text} "
    text = _PUNCTUATION_13A.sub(r" \1 ", text)
    if "." in text or "," in text:
        text = _AFTER_DIGIT.sub(r" \1 \2", _BEFORE_DIGIT.sub(r"\1 \2 ", text))
    if "-" in text:
        text = _DASH.sub(r"\1 \2 ", text)
    return text.split()


_PUNCTUATION_13A = re.compile(r"([\{-\~\[-\`!-\&\(-\+\:-\@\/])")
_BEFORE_DIGIT = re.compile(r"([^0-9])([\.,])")
_AFTER_DIGIT = re.compile(r"([\.,])([^0-9])")
_DASH = re.compile(r"([0-9])(-)")
_TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "13a": _tokens_13a,
    "char": lambda text: list("".join(text.split())),
    "none": str.split,
}


def bleu_counts(output: str, expected: Sequence[str], settings: BleuSettings) -> tuple[int, ...]:
    """What one text adds to the BLEU of a corpus: its tokens, those of the expected text whose length is nearest (of
    equals the shorter), then by order the runs that it shares with any expected text, and all its runs.
    """
    prepare = partial(_tokenized, _TOKENIZERS[settings.tokenize], settings.lowercase)
    tokens, wanted = prepare(output).tokens, [prepare(text).tokens for text in expected]
    nearest = min((abs(len(each) - len(tokens)), len(each)) for each in wanted)[1]
    shared, totals = [], []
    for order in range(1, settings.order + 1):
        left: Counter[Any] = Counter()
        for each in wanted:
            left |= _runs(each, order)
        runs = _runs(tokens, order)
        shared.append(sum(min(count, left[run]) for run, count in runs.items() if run in left))
        totals.append(max(len(tokens) - order + 1, 0))
    return len(tokens), nearest, *shared, *totals


# --- chrF -------------------------------------------------------------------------------------------------------


def _chrf(settings: ChrfSettings, output: str, expected: str, among: int) -> Score:
    refused = _too_long("chrf", output, expected, among)
    if refused is not None:
        return refused
    precision = recall = 0.0
    orders = 0
    said, wanted = "".join(output.split()), "".join(expected.split())
    if not said and not wanted:
        return FULL
    shared = 1
    for order in range(1, settings.order + 1):
        found, asked = len(said) - order + 1, len(wanted) - order + 1
        if found < 1 or asked < 1:
            break
        shared = shared and _shared_characters(said, wanted, order)  # no short run in common: no longer one either
        precision += shared / found
        recall += shared / asked
        orders += 1
    if settings.word_order:
        words, expected_words = _chrf_words(output), _chrf_words(expected)
        for order in range(1, settings.word_order + 1):
            found, asked = len(words) - order + 1, len(expected_words) - order + 1
            if found < 1 or asked < 1:
                break
            shared = _shared_runs(words, expected_words, order)
            precision += shared / found
            recall += shared / asked
            orders += 1
    if not precision + recall:
        return Score.scored(0.0, "no character in common")
    precision, recall = precision / orders, recall / orders
    factor = settings.beta**2
    value = (1 + factor) * precision * recall / (factor * precision + recall)
    return Score.scored(min(value, 1.0), f"precision {precision:.3f}, recall {recall:.3f}")


def chrf_counts(output: str, expected: Sequence[str], settings: ChrfSettings) -> tuple[int, ...]:
    """What one text adds to the chrF of a corpus: by order its parts, those of the best expected text, and the shared."""
    prepare = str.lower if settings.lowercase else str
    found = [_chrf_counts(prepare(output), prepare(text), settings) for text in expected]
    return max(found, key=lambda counts: _chrf_value(counts, settings))


def _chrf_counts(output: str, expected: str, settings: ChrfSettings) -> tuple[int, ...]:
    said, wanted = "".join(output.split()), "".join(expected.split())
    counts: list[int] = []
    for order in range(1, settings.order + 1):
        counts += _parts(len(said), len(wanted), order, _shared_characters(said, wanted, order))
    words, expected_words = (_chrf_words(output), _chrf_words(expected)) if settings.word_order else ([], [])
    for order in range(1, settings.word_order + 1):
        counts += _parts(len(words), len(expected_words), order, _shared_runs(words, expected_words, order))
    return tuple(counts)


def _parts(said: int, wanted: int, order: int, shared: int) -> tuple[int, int, int]:
    """As sacreBLEU: where one text is too short for a run, the other's do not count either."""
    found, asked = max(said - order + 1, 0), max(wanted - order + 1, 0)
    return (found if asked else 0), asked, shared


def _chrf_value(counts: Sequence[int], settings: ChrfSettings) -> float:
    precision = recall = 0.0
    for said, wanted, shared in zip(counts[::3], counts[1::3], counts[2::3], strict=True):
        if said and wanted:
            precision += shared / said
            recall += shared / wanted
    factor = settings.beta**2
    return (1 + factor) * precision * recall / (factor * precision + recall) if precision + recall else 0.0


def _shared_characters(said: str, wanted: str, order: int) -> int:
    parts = [said[start : start + order] for start in range(len(said) - order + 1)]
    asked = [wanted[start : start + order] for start in range(len(wanted) - order + 1)]
    once, once_asked = set(parts), set(asked)
    if len(once) == len(parts) or len(once_asked) == len(asked):  # then no part can be shared twice
        return len(once & once_asked)
    left = Counter(asked)
    return sum(min(count, left[part]) for part, count in Counter(parts).items() if part in left)


_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def _chrf_words(text: str) -> list[str]:
    """Words with the punctuation at one end of each taken apart, as chrF++ does it."""
    words = []
    for word in text.split():
        if len(word) == 1:
            words.append(word)
        elif word[-1] in _PUNCTUATION:
            words += [word[:-1], word[-1]]
        elif word[0] in _PUNCTUATION:
            words += [word[0], word[1:]]
        else:
            words.append(word)
    return words


def _too_long(name: str, left: str, right: str, among: int) -> Score | None:
    longer = max(len(left), len(right))
    if longer <= LONGEST:
        return read_too_often(left, among, MOST_COUNTED)
    message = f"a text of {longer:,} characters is longer than the {LONGEST:,} that {name} takes; map a part of it"
    return unjudged("TEXT_TOO_LONG", message)
