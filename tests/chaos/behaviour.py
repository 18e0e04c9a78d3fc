"""What a plugin of the chaos suite does about one attempt: decided by the seed alone, so that it is the same in every run.

Pure: the plugins ask here what to do, and the harness what they must have done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

HONEST = "honest"
FAULTS = (
    "beats",  # honest, after it has said for a while that it is alive
    "unavailable",
    "internal",
    "rate_limited",
    "refused",
    "late",  # answers when it was given up already
    "doubled",  # answers twice, the second time wrongly
    "foreign",  # answers also for a trial that nobody asked, and for another attempt
    "out_of_place",  # messages that make no sense where they come
    "broken",  # an answer that breaks the contract
    "silent",  # never answers
    "stalls",  # blocks the whole process for a while
    "fewer",  # asks for fewer trials at a time, and for a pause
    "ends",  # ends the stream in order, in the middle
    "aborts",  # breaks the stream
    "dies",  # kills the process
)
FINAL = frozenset({"refused", "broken"})
"""What the server does not ask again."""
MOST_TOKENS = 9
"""So many an attempt uses at most."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as a plugin sees it."""

    role: str
    """`target` or `scorer`."""
    item: str
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class Manners:
    """How the plugins of a scenario behave."""

    seed: int
    weights: Mapping[str, float]
    """Share of attempts by fault; the rest is honest."""
    poison: Mapping[str, str]
    """Items that kill the process whenever they are asked, and the role that they kill."""
    pace: float
    """Seconds that an honest answer takes at most."""

    def kind(self, attempt: Attempt) -> str:
        """What is done about the attempt: HONEST, one of FAULTS, or `dies`."""
        if self.poison.get(attempt.item) == attempt.role:
            return "dies"
        drawn = self.draw(attempt, "kind")
        for name, weight in self.weights.items():
            drawn -= weight
            if drawn < 0:
                return name
        return HONEST

    def draw(self, attempt: Attempt, what: str) -> float:
        """A number in [0, 1) for one purpose, always the same."""
        text = f"{self.seed}|{attempt.role}|{attempt.item}|{attempt.epoch}|{attempt.number}|{what}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big") / 2**48

    def tokens(self, attempt: Attempt) -> int:
        """Input tokens that the attempt says it used, also when it fails."""
        return 1 + int(self.draw(attempt, "tokens") * MOST_TOKENS)

    def micros(self, attempt: Attempt) -> int | None:
        """Its cost; None: nobody knows it."""
        drawn = self.draw(attempt, "cost")
        return None if drawn < 0.3 else int(drawn * 100)


def word_of(seed: int, item: str) -> str:
    """A word that stands in the input of one item, and in all that is said about it: what a purge must take out."""
    return "word" + _letters(f"{seed}|{item}")


def mark_of(run: str) -> str:
    """A word that stands in all that the plugins say in one run: what a run that keeps no outputs must not leave."""
    return "mark" + _letters(run)


def _letters(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def input_of(seed: int, item: str) -> str:
    """What an item asks."""
    return f"text of {item} {word_of(seed, item)}"


def answer_of(attempt: Attempt, word: str, mark: str) -> str:
    """What a target answers: it tells which attempt said it, about which item, in which run."""
    return f"{attempt.item}/{attempt.epoch}/{attempt.number} {word} {mark}"


def score_of(content: str) -> float:
    """What a scorer makes of an output."""
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=2).digest(), "big") % 101 / 100


def explanation_of(content: str, number: int) -> str:
    """What a scorer says about an output: which one it saw, and in which attempt."""
    return f"{content} {number}"
