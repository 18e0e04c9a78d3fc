"""What several judges share: verdicts and how they are counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evalbus_server.scorer.builtin.judges.definition import Facts, Found
from evalbus_server.scorer.builtin.judges.shapes import Choice, Many, Record, Text

REASON = Text("Why, in one sentence, before the verdict.")
YES_NO = Choice(("yes", "no"))
VERDICT = Record({"reason": REASON, "verdict": YES_NO})
UNSURE = Record({"reason": REASON, "verdict": Choice(("yes", "unsure", "no"))})

_NAMED = 5


def listing(name: str, about: str) -> Record:
    """A reply that is a list of texts."""
    return Record({name: Many(Text(), about)})


def share(over: str, *, empty: str, told: str, good: bool = True) -> Callable[[Facts], Found]:
    """The formula: how many of the entries of *over* have the verdict yes, of all of them.

    *good* says whether yes is good; *told* introduces those that spoil the value; *empty* says why there is no value
    without entries.
    """

    def formula(facts: Facts) -> Found:
        verdicts = [each["verdict"] for each in facts.verdicts("analyze")]
        if not verdicts:
            return Found(None, empty)
        hits = verdicts.count("yes")
        spoiling = [place for place, each in enumerate(verdicts) if (each == "yes") != good]
        return Found(
            hits / len(verdicts), f"{hits} of {len(verdicts)}{explained(facts, 'analyze', over, spoiling, told)}"
        )

    return formula


def explained(facts: Facts, stage: str, over: str, places: Sequence[int], told: str) -> str:
    """The entries at these places, with the reasons of their verdicts."""
    if not places:
        return ""
    entries, verdicts = facts.listed(over), facts.verdicts(stage)
    lines = [f"{_cut(entries[place])} ({_cut(verdicts[place]['reason'])})" for place in places[:_NAMED]]
    more = f"; and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return f"; {told}: {'; '.join(lines)}{more}"


def clamped(value: float) -> float:
    """The value within 0 to 1."""
    return min(1.0, max(0.0, value))


def chosen(values: dict[str, float], stage: str = "score") -> Callable[[Facts], Found]:
    """The formula: the value of the word that the model chose."""

    def formula(facts: Facts) -> Found:
        reply: dict[str, Any] = facts.replies[stage]
        return Found(values[reply["verdict"]], reply["reason"], reply["verdict"])

    return formula


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 150 else text[:150] + "…"
