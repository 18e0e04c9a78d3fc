"""A target for questions to a bank: the demo's classifier, fitted when a run opens on the file that the settings name."""

import csv
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from evalbus import Item, Output, serve, target

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "demo"))
from support_desk.classify import Classifier, Example, NgramClassifier


@dataclass(frozen=True)
class Settings:
    """Where the labelled questions are, and how often they are looked at."""

    train: str
    rounds: int = 1


def fit(settings: Settings) -> Classifier:
    """The classifier of a file; the same file makes the same one."""
    with open(settings.train, encoding="utf-8", newline="") as file:
        examples = [Example(row["text"], row["category"]) for row in csv.DictReader(file)]
    # The file goes through its categories one after the other, and whoever learns in that order forgets the first ones.
    examples.sort(key=lambda example: hashlib.sha256(example.text.encode()).digest())
    return NgramClassifier(examples, rounds=settings.rounds)


@target("banking77", version="1.0.0", setup=fit, mode="inline")
def banking77(item: Item, settings: Settings, state: Classifier) -> Output:
    """Answers with the category of a question."""
    guess = state.classify(item.input.text)
    return Output(guess.intent, metadata={"confidence": guess.confidence})


if __name__ == "__main__":
    serve(banking77)
