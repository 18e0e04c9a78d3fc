"""Two classifiers for the intent of a message, both fitted on labelled messages when the desk opens."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from support_desk.text import content_words, ngrams


@dataclass(frozen=True, slots=True)
class Example:
    """A message whose intent is known."""

    text: str
    intent: str


@dataclass(frozen=True, slots=True)
class Guess:
    """The likeliest intent of a message, with its share of the belief in all intents."""

    intent: str
    confidence: float


class Classifier(Protocol):
    """Guesses the intent of a message."""

    def classify(self, text: str) -> Guess: ...


class NgramClassifier:
    """Logistic regression over stems, pairs of stems and pieces of words, fitted by gradient descent.

    The examples are visited in the order given and nothing is random, so the same examples make the same classifier.
    """

    def __init__(self, examples: Sequence[Example], *, rounds: int = 15, step: float = 2.0) -> None:
        self._intents = sorted({example.intent for example in examples})
        known = [_features(example.text) for example in examples]
        self._weights = {feature: [0.0] * len(self._intents) for features in known for feature in features}
        right = [self._intents.index(example.intent) for example in examples]
        for turn in range(rounds):
            for features, intent in zip(known, right, strict=True):
                self._learn(features, intent, step / (1 + turn / 10))

    def classify(self, text: str) -> Guess:
        beliefs = self._beliefs([feature for feature in _features(text) if feature in self._weights])
        best = max(range(len(beliefs)), key=lambda index: beliefs[index])
        return Guess(self._intents[best], beliefs[best])

    def _learn(self, features: Sequence[str], right: int, step: float) -> None:
        """Move the weights of *features* a little towards the right intent and away from the others."""
        errors = self._beliefs(features)
        errors[right] -= 1
        scale = step / math.sqrt(len(features) or 1)
        moves = [scale * error for error in errors]
        for feature in features:
            self._weights[feature] = [weight - move for weight, move in zip(self._weights[feature], moves, strict=True)]

    def _beliefs(self, features: Sequence[str]) -> list[float]:
        scale = 1 / math.sqrt(len(features) or 1)
        columns = zip(*(self._weights[feature] for feature in features), strict=True)
        return _softmax([scale * sum(column) for column in columns] or [0.0] * len(self._intents))


class KeywordClassifier:
    """Counts, for each intent, how many of its few most telling words occur in the message."""

    def __init__(self, examples: Sequence[Example], keywords: int = 15) -> None:
        overall = Counter(word for example in examples for word in set(content_words(example.text)))
        by_intent: dict[str, Counter[str]] = defaultdict(Counter)
        for example in examples:
            by_intent[example.intent].update(set(content_words(example.text)))
        self._keywords = {intent: frozenset(_most_telling(own, overall, keywords)) for intent, own in by_intent.items()}

    def classify(self, text: str) -> Guess:
        present = set(content_words(text))
        beliefs = _softmax([float(len(present & telling)) for telling in self._keywords.values()])
        belief, intent = max(zip(beliefs, self._keywords, strict=True), key=lambda pair: pair[0])
        return Guess(intent, belief)


def _most_telling(own: Mapping[str, int], overall: Mapping[str, int], limit: int) -> list[str]:
    """The words that are frequent here and rare elsewhere; equal ones in the order of the alphabet."""
    worth = {word: count * count / overall[word] for word, count in own.items()}
    return sorted(worth, key=lambda word: (-worth[word], word))[:limit]


def _features(text: str) -> list[str]:
    """Each feature of *text* once, in a fixed order, so that sums come out the same to the last digit."""
    return sorted(set(ngrams(text)))


def _softmax(totals: Sequence[float]) -> list[float]:
    highest = max(totals)
    powers = [math.exp(total - highest) for total in totals]
    whole = sum(powers)
    return [power / whole for power in powers]
