"""Several votes become one: the label that more than half of all votes have, or the middle of the values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from evalbus import Failure
from evalbus_server.scorer.builtin.judges.asking import Vote
from evalbus_server.scorer.builtin.judges.definition import Found

_NOTHING = "(not scorable)"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a jury came to for one score: found, or failed."""

    found: Found | None
    failure: Failure | None = None


def decide(votes: Sequence[Vote | Failure], how: Literal["majority", "median"]) -> list[Verdict]:
    """The verdict on each score.

    A vote that is lost, since the model gave no verdict, still counts among all votes: the others have to be more than
    half of them. No label with more than half of all votes is a tie, which is not graded.
    """
    cast = [vote for vote in votes if isinstance(vote, Vote)]
    lost = [vote for vote in votes if isinstance(vote, Failure)]
    if len(cast) * 2 <= len(votes):
        return [Verdict(None, lost[0])] * (len(cast[0].found) if cast else 1)
    if len(votes) == 1:
        return [Verdict(found) for found in cast[0].found]
    names = [found.name for found in cast[0].found]
    return [_one([vote.found[place] for vote in cast], len(votes), lost, how) for place in range(len(names))]


def told(votes: Sequence[Vote | Failure], models: Sequence[str], place: int) -> list[dict[str, Any]]:
    """The votes on one score, for its metadata."""
    rows: list[dict[str, Any]] = []
    for vote, model in zip(votes, models, strict=True):
        if isinstance(vote, Failure):
            rows.append({"model": model, "failure": vote.reason, "message": vote.message})
            continue
        found = vote.found[place]
        row: dict[str, Any] = {"model": vote.model or model, "value": found.value}
        if found.label:
            row["label"] = found.label
        if found.explanation:
            row["explanation"] = found.explanation
        rows.append(row)
    return rows


def _one(cast: Sequence[Found], asked: int, lost: Sequence[Failure], how: Literal["majority", "median"]) -> Verdict:
    if how == "majority" and all(found.label or found.value is None for found in cast):
        return _majority(cast, asked, lost)
    values = [found.value for found in cast if found.value is not None]
    if len(values) * 2 <= asked:
        if lost and (len(cast) - len(values)) * 2 <= asked:
            return Verdict(None, lost[0])  # it might have decided
        first = next(found for found in cast if found.value is None)
        return Verdict(Found(None, first.explanation, name=first.name))
    middle = median(values)
    nearest = min((found for found in cast if found.value is not None), key=lambda found: abs(found.value - middle))  # type: ignore[operator]
    listed = ", ".join(f"{value:g}" for value in values)
    explanation = f"the middle of {listed}: {nearest.explanation}".rstrip(": ")
    return Verdict(Found(middle, explanation, "", nearest.name, nearest.metadata))


def _majority(cast: Sequence[Found], asked: int, lost: Sequence[Failure]) -> Verdict:
    counts = Counter(_NOTHING if found.value is None else found.label for found in cast)
    winner, count = counts.most_common(1)[0]
    tally = ", ".join(f"{label} {number}" for label, number in counts.most_common())
    if count * 2 <= asked:
        if lost:
            return Verdict(None, lost[0])  # it might have decided
        return Verdict(Found(None, f"the votes are tied: {tally}", name=cast[0].name))
    first = next(found for found in cast if (_NOTHING if found.value is None else found.label) == winner)
    explanation = f"{count} of {asked} votes: {winner}. {first.explanation}".strip()
    return Verdict(Found(first.value, explanation, first.label, first.name, first.metadata))
