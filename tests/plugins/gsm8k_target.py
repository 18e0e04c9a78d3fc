"""A target that really tries school arithmetic: it reads the quantities of a question and guesses what to do with them.

Sentence by sentence it keeps one running number, and takes the words around each quantity as a sign for what to do
with it. That is right for a small part of the questions; it never sees an expected answer.
"""

import re
from fractions import Fraction

from evalbus import Item, Output, Span, serve, target

_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
WORDS = {
    **{word: Fraction(number) for number, word in enumerate(_UNITS.split())},
    **{word: Fraction(10 * number) for number, word in enumerate(_TENS.split(), 2)},
    "dozen": Fraction(12),
    "hundred": Fraction(100),
    "thousand": Fraction(1000),
    "half": Fraction(1, 2),
    "third": Fraction(1, 3),
    "quarter": Fraction(1, 4),
    "twice": Fraction(2),
    "double": Fraction(2),
    "triple": Fraction(3),
}
SCALES = {"half", "third", "quarter", "twice", "double", "triple", "dozen"}
"""Words that stand for a number of times rather than a number of things."""
WORD = re.compile(r"\d+/\d+|\$?\d[\d,]*(?:\.\d+)?%?|[a-z']+")
SENTENCE = re.compile(r"(?<=[.?!])\s+")

_LESS = "gave gives give spent spends lost loses ate eats sold sells used uses left fewer less broke paid pays"
_SHARED = "split divided equally evenly shared among between"
_MORE = "more bought buys gets got found adds added another additional plus earned received"
LESS, SHARED, MORE = (frozenset(words.split()) for words in (_LESS, _SHARED, _MORE))
TIMES = frozenset(("each", "every", "per", "times", "apiece"))


def solve(question: str) -> Fraction:
    """The number that the words of a question suggest."""
    *told, asked = SENTENCE.split(question.lower().strip()) or [""]
    total: Fraction | None = None
    for sentence in told or [asked]:
        total = _told(sentence, total)
    if told:
        total = _asked(asked, total)
    return total if total is not None else Fraction(0)


def _told(sentence: str, total: Fraction | None) -> Fraction | None:
    """The running number after one more sentence."""
    words = WORD.findall(sentence)
    said = set(words)
    for place, word in enumerate(words):
        number = value_of(word)
        if number is None:
            continue
        around = set(words[max(place - 3, 0) : place + 4])
        if total is None:
            total = number
        elif word in SCALES or word.endswith("%") or (number.denominator > 1 and number < 1) or around & TIMES:
            total = total * number
        elif said & SHARED and number:
            total = total / number
        elif said & LESS:
            total = total - number
        elif said & MORE or not said & TIMES:
            total = total + number
        else:
            total = total * number
    return total


def _asked(sentence: str, total: Fraction | None) -> Fraction | None:
    """The answer to the question itself, which may bring a number of its own."""
    words = WORD.findall(sentence)
    numbers = [number for number in map(value_of, words) if number is not None]
    if not numbers or total is None:
        return total
    if set(words) & SHARED and numbers[0]:
        return total / numbers[0]
    if {"left", "remain", "remaining", "more"} & set(words):
        return abs(total - numbers[0])
    return total * numbers[0]


def value_of(word: str) -> Fraction | None:
    """The number that a word is; None if it is none."""
    if word in WORDS:
        return WORDS[word]
    plain = word.strip("$%").replace(",", "")
    if not plain[:1].isdigit() or plain.endswith("/0"):
        return None
    number = Fraction(plain)
    return number / 100 if word.endswith("%") else number


def written(number: Fraction) -> str:
    """A number as people write it: whole if it is, else with two decimals at most."""
    return str(number.numerator) if number.denominator == 1 else f"{float(number):.2f}".rstrip("0").rstrip(".")


@target("gsm8k-solver", version="1.0.0", mode="inline")
def gsm8k_solver(item: Item) -> Output:
    """Answers with a sentence and the number in it, and tells which quantities it saw."""
    question = item.input.text
    answer = written(solve(question))
    seen = [word for word in WORD.findall(question.lower()) if value_of(word) is not None]
    return Output(
        f"I make it {answer}.",
        answer=answer,
        spans=[Span("read", "read", kind="read", attributes={"quantities": seen})],
    )


if __name__ == "__main__":
    serve(gsm8k_solver)
