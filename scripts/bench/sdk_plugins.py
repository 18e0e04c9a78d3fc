"""The plugins of the benchmark, as an author writes them with the SDK: `sdk_plugins.py (target|exact|levenshtein)`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein
from work import EXACT, LEVENSHTEIN, TARGET, answer

from evalbus import Item, Output, Trial, scorer, serve, target


@dataclass(frozen=True)
class Pace:
    """How long each answer takes, in seconds."""

    seconds: float = 0.0


@target(TARGET, version="1.0.0", mode="inline", max_in_flight=2048)
def quick(trial: Trial) -> str:
    """Answer at once."""
    assert trial.item.expected is not None
    return answer(trial.index, trial.item.expected.text)


@target("bench-slow", version="1.0.0", max_in_flight=2048)
async def slow(trial: Trial, settings: Pace) -> str:
    """Answer after a while, as a model would."""
    await asyncio.sleep(settings.seconds)
    assert trial.item.expected is not None
    return answer(trial.index, trial.item.expected.text)


@scorer(EXACT, version="1.0.0", deterministic=True, mode="inline", max_in_flight=2048)
def exact(item: Item, output: Output) -> float:
    """1 if the output is the expected answer."""
    assert item.expected is not None
    return float(output.text == item.expected.text)


@scorer(LEVENSHTEIN, version="1.0.0", deterministic=True, mode="inline", max_in_flight=2048)
def levenshtein(item: Item, output: Output) -> float:
    """How alike output and expected answer are."""
    assert item.expected is not None
    return Levenshtein.normalized_similarity(output.text, item.expected.text)


PLUGINS = {"target": (quick, slow), "exact": (exact,), "levenshtein": (levenshtein,)}

if __name__ == "__main__":
    serve(*PLUGINS[sys.argv[1]])
