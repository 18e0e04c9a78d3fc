"""Judges a reply by what can be checked in it: facts of the reference, figures and their sources, manners."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from support_desk.text import stems, words

_FIGURE = re.compile(r"LL-\d{5}|£\d+(?:\.\d\d)?|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|[A-Z]-\d{5}|\d+(?:\.\d+)?")
_SPARE_ZEROS = re.compile(r"(?<=\d)\.0+$|(?<=\.\d)0$")
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_POLITE = re.compile(r"\b(thank|thanks|please|sorry|glad|welcome)\b", re.IGNORECASE)
_SORRY = re.compile(r"\bsorry\b", re.IGNORECASE)

SHORTEST, LONGEST = 8, 80
FIGURE_WEIGHT = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """A value from 0 to 1 and the reason for it."""

    value: float
    explanation: str


def covers(reply: str, reference: str) -> Judgement:
    """How much of what the reference says is in the reply; a figure weighs as much as three words."""
    wanted = dict.fromkeys(_figures(reference), FIGURE_WEIGHT) | dict.fromkeys(_plain_stems(reference), 1)
    if not wanted:
        return Judgement(1.0, "the reference states nothing")
    present = _figures(reply) | _plain_stems(reply)
    missing = [fact for fact in wanted if fact not in present]
    share = 1 - sum(wanted[fact] for fact in missing) / sum(wanted.values())
    return Judgement(share, f"missing: {', '.join(sorted(missing))}" if missing else "all of the reference is there")


def grounded(reply: str, sources: Iterable[str]) -> Judgement:
    """The share of the reply's figures (orders, days, sums, counts) that stand in a source."""
    known = set().union(*(_figures(_spoken_days(source)) for source in sources))
    stated = _figures(reply)
    unknown = sorted(figure for figure in stated if figure not in known and figure.removeprefix("£") not in known)
    if not stated:
        return Judgement(1.0, "no figures to check")
    found = len(stated) - len(unknown)
    explanation = f"{found} of {len(stated)} figures have a source"
    return Judgement(found / len(stated), explanation + (f"; without: {', '.join(unknown)}" if unknown else ""))


def manners(reply: str, message: str, *, upset: bool, orders: Sequence[str]) -> Judgement:
    """The share of a few plain rules that hold: length, politeness, a word of regret, the order named."""
    length = len(words(reply))
    rules = {
        f"{length} words, wanted {SHORTEST} to {LONGEST}": SHORTEST <= length <= LONGEST,
        "not a polite word": bool(_POLITE.search(reply)),
        "does not end as a sentence": reply.rstrip().endswith((".", "!", "?")),
    }
    if upset:
        rules["no word of regret for an upset customer"] = bool(_SORRY.search(reply))
    named = [order for order in orders if order in message]
    if named:
        rules["does not name the customer's order"] = any(order in reply for order in named)
    broken = [rule for rule, holds in rules.items() if not holds]
    return Judgement(1 - len(broken) / len(rules), "; ".join(broken) or "well-mannered")


def article_texts(lines: Iterable[str]) -> dict[str, str]:
    """The articles of the knowledge base by id, title included."""
    articles = [json.loads(line) for line in lines]
    return {article["id"]: f"{article['title']}. {article['text']}" for article in articles}


def _figures(text: str) -> set[str]:
    """The figures in *text*; £34, £34.0 and £34.00 are one."""
    return {_SPARE_ZEROS.sub("", figure).rstrip(".") for figure in _FIGURE.findall(text)}


def _plain_stems(text: str) -> set[str]:
    return {term for term in stems(text) if not any(char.isdigit() for char in term) and term != "xmoney"}


def _spoken_days(text: str) -> str:
    """*text* with 2025-04-16 as "16 April", the way a reply says it."""

    def spoken(found: re.Match[str]) -> str:
        day = date.fromisoformat(found[0])
        return f"{day.day} {day:%B}"

    return _ISO_DAY.sub(spoken, text)
