"""Words, stems, sentences and the features that the classifier learns from."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

# What stands for itself rather than for its letters: any order number is the same feature, whichever order it is.
_MARKS = (
    (re.compile(r"\bll[\s-]?\d{5}\b|#\d{5}\b|\b\d{5}\b"), " xorder "),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), " xemail "),
    (re.compile(r"[£€$]\s?\d+(?:\.\d+)?"), " xmoney "),
    (re.compile(r"(\d)(cm|mm|kg|l)\b"), r"\1 \2"),
)
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?|[?!]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")

_STOP = (
    "a about after all also am an and any are as at be been before but by can could did do does for from get had has "
    "have he hello her here hi him his how i if in into is it its just like me more my no not now of off on one or our "
    "out please she so some than thank thanks that the their them then there they thing this to too up us very was we "
    "were what when where which who why will with would you your"
)
STOP_WORDS = frozenset(_STOP.split())

_IRREGULAR = {"leaves": "leaf", "shelves": "shelf", "dies": "die", "died": "die", "bought": "buy", "sent": "send"}


def words(text: str) -> list[str]:
    """The words of *text*, lower-case and without accents; order numbers, addresses and sums become one word each."""
    plain = unicodedata.normalize("NFKD", text.lower().replace("’", "'"))
    plain = "".join(char for char in plain if not unicodedata.combining(char))
    for pattern, mark in _MARKS:
        plain = pattern.sub(mark, plain)
    return _WORD.findall(plain)


def stem(word: str) -> str:
    """*word* without a common English ending, so that "leaves dropping" meets "leaf drops" half-way."""
    if len(word) <= 3 or word in _IRREGULAR:
        return _IRREGULAR.get(word, word)
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        return word[:-1]
    return word.rstrip("e") if len(word) > 4 else word


def content_words(text: str) -> list[str]:
    """The words of *text* that carry meaning, as they are written."""
    return [word for word in words(text) if word[0].isalnum() and word not in STOP_WORDS and word != "xorder"]


def stems(text: str) -> list[str]:
    """The stems of the words of *text* that carry meaning."""
    return [stem(word.removesuffix("'s")) for word in content_words(text)]


def sentences(text: str) -> list[str]:
    """The sentences of *text*, in order."""
    return [part for part in _SENTENCE_END.split(text.strip()) if part]


def ngrams(text: str) -> Iterator[str]:
    """Stems, pairs of stems, and pieces of four letters, which survive a typing mistake."""
    tokens = words(text)
    stemmed = [stem(token) for token in tokens]
    for token in stemmed:
        yield f"w:{token}"
    for first, second in pairwise(stemmed):
        yield f"p:{first} {second}"
    for token in tokens:
        framed = f"<{token}>"
        for start in range(len(framed) - 3):
            yield f"c:{framed[start : start + 4]}"
