"""Texts as words, in any script: where words are not parted by spaces, each character is one."""

from __future__ import annotations

import re
from collections.abc import Collection

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Characters of scripts that write no spaces between words."""
ARTICLES = frozenset(("a", "an", "the"))

_TOKEN = re.compile(
    r"(?<!\w)[-\N{MINUS SIGN}]?[0-9]++(?:,[0-9]{3})*+(?:\.[0-9]++)?+(?![^\W_])"
    rf"|[{UNSPACED}]"
    rf"|[^\W_{UNSPACED}]++(?:['’][^\W_{UNSPACED}]++)*+"
)
_NUMBER = re.compile(r"[-\N{MINUS SIGN}]?[0-9,]+(?:\.[0-9]+)?")


def words_of(text: str) -> list[str]:
    """The words of a text, case-folded, without punctuation; numbers in one form, so that 3.0 is 3."""
    return [
        word if word[-1] > "9" else _plain_number(word)
        for word in _TOKEN.findall(text.casefold())  # nothing that ends with a letter is a number
    ]


def telling_words_of(text: str, without: Collection[str] = ARTICLES) -> list[str]:
    """The words that say something: all but articles, or others."""
    return [word for word in words_of(text) if word not in without]


def as_words(text: str) -> str:
    """The telling words with a space between them; the text itself if there are none."""
    return " ".join(telling_words_of(text)) or text.strip()


def _plain_number(word: str) -> str:
    if word.isdecimal() and word[0] != "0":
        return word
    if not _NUMBER.fullmatch(word):
        return word
    digits = word.replace(",", "").replace("\N{MINUS SIGN}", "-")
    whole, _, rest = digits.partition(".")
    sign, whole = ("-", whole[1:]) if whole[0] == "-" else ("", whole)
    rest = rest.rstrip("0")
    whole = whole.lstrip("0") or "0"
    number = f"{whole}.{rest}" if rest else whole
    return number if number == "0" else sign + number
