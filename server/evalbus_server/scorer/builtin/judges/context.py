"""Judges of what retrieval brought, passage by passage, and of what noise does to an answer."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from evalbus import Need
from evalbus_server.scorer.builtin.judges.common import REASON, VERDICT, YES_NO, clamped
from evalbus_server.scorer.builtin.judges.definition import Definition, Facts, Found, Stage
from evalbus_server.scorer.builtin.judges.settings import JudgeSettings, said
from evalbus_server.scorer.builtin.judges.shapes import Choice, Many, Number, Record, Text

LEVELS = {"high": 1.0, "medium": 0.7, "low": 0.3, "none": 0.0}


def _precision(facts: Facts) -> Found:
    verdicts = [each["verdict"] == "yes" for each in facts.verdicts("analyze")]
    if not verdicts:
        return Found(None, "the context holds no passage")
    hits, total = 0, 0.0
    for place, relevant in enumerate(verdicts, 1):
        if relevant:
            hits += 1
            total += hits / place
    numbers = ", ".join(str(place) for place, relevant in enumerate(verdicts, 1) if relevant)
    told = f": {numbers}" if numbers else ""
    return Found(total / hits if hits else 0.0, f"{hits} of {len(verdicts)} passages are relevant{told}")


CONTEXT_PRECISION = Definition(
    "judge_context_precision",
    """Whether the passages that matter come first in the context: average precision.

    A model says of each passage whether it helps to answer. Value: for each relevant passage the share of relevant ones up
    to it, averaged over the relevant ones; 0 if none is. As in Ragas and Mastra.""",
    (
        Stage(
            "analyze",
            """\
Here is what was asked, an answer to it (the reference, if there is one), and the passages that were found, in their order.

{{input}}

{{expected}}

{{output}}

{{context}}

For each passage: is it relevant? "yes" if it helps to arrive at the answer, "no" if the answer can do without it.""",
            each=VERDICT,
            over="context",
        ),
    ),
    _precision,
    inputs=("input", "output", "expected", "context"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRelevancySettings(JudgeSettings):
    """What takes away from relevance."""

    unused_penalty: float = said("What each highly relevant passage takes off that the output makes no use of.", 0.1)
    missing_penalty: float = said("What each piece of information takes off that is missing, 0.5 at most.", 0.15)
    share_weight: float = said(
        "The weight of the share of passages that reach `minimum`, beside their mean level.", 0.0
    )
    minimum: Literal["high", "medium", "low"] = said("The level that a passage has to reach for that share.", "low")

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        JudgeSettings.__post_init__(self)
        for name in ("unused_penalty", "missing_penalty", "share_weight"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is from 0 to 1")


_MOST_MISSING = 0.5


def _context_relevancy(facts: Facts) -> Found:
    settings = facts.settings
    verdicts = facts.verdicts("analyze")
    missing = facts.replies["analyze"]["missing"]
    if not verdicts:
        return Found(None, "the context holds no passage")
    levels = [LEVELS[each["relevance"]] for each in verdicts]
    reached = sum(level >= LEVELS[settings.minimum] for level in levels) / len(levels)
    unused = sum(each["relevance"] == "high" and each["used"] == "no" for each in verdicts)
    base = (1 - settings.share_weight) * fmean(levels) + settings.share_weight * reached
    penalty = settings.unused_penalty * unused + min(settings.missing_penalty * len(missing), _MOST_MISSING)
    counts = {level: sum(each["relevance"] == level for each in verdicts) for level in LEVELS}
    told = ", ".join(f"{count} {level}" for level, count in counts.items() if count)
    lacking = f"; missing: {'; '.join(missing)}" if missing else ""
    idle = f"; {unused} of high relevance not used" if unused else ""
    return Found(clamped(base - penalty), f"{len(verdicts)} passages: {told}{idle}{lacking}")


CONTEXT_RELEVANCY = Definition(
    "judge_context_relevancy",
    """How relevant the passages of the context are to what was asked.

    A model gives each passage a level (high 1, medium 0.7, low 0.3, none 0), says whether the output makes use of it, and
    what is missing. Value: the mean level, less 0.1 for each highly relevant passage that is not used and 0.15 for each
    thing that is missing, 0.5 at most, as in Mastra; with `share_weight: 0.3` and no penalties, as in VoltAgent.""",
    (
        Stage(
            "analyze",
            """\
Here is what was asked, what was answered, and the passages that were found for the answer.

{{input}}

{{output}}

{{context}}

For each passage: how relevant is it to what was asked (high: it answers at least a part of it; medium: it helps;
low: it is about the matter but does not help; none: it is about something else), and does the answer make use of it? Then
list what is missing: each piece of information that the question needs and no passage has.""",
            each=Record({"reason": REASON, "relevance": Choice(tuple(LEVELS)), "used": YES_NO}),
            over="context",
            also={"missing": Many(Text(), "Each piece of information that no passage has.")},
        ),
    ),
    _context_relevancy,
    settings=ContextRelevancySettings,
    inputs=("input", "output", "context"),
)

IMPACTS = {"none": 1.0, "minimal": 0.85, "moderate": 0.6, "significant": 0.3, "severe": 0.1}
_DIMENSIONS = ("relevance", "accuracy", "completeness", "focus", "invention")
_GAP = 0.2
_ISSUE, _MOST_ISSUES = 0.1, 0.3


def _robustness(facts: Facts) -> Found:
    reply = facts.replies["analyze"]
    impacts = reply["impacts"]
    counted = fmean(IMPACTS[impacts[name]] for name in _DIMENSIONS)
    given = reply["robustness"]
    # A model that thinks better of an answer than its own findings allow is held to these.
    value = given if abs(given - counted) <= _GAP else min(given, counted)
    value -= min(_ISSUE * len(reply["issues"]), _MOST_ISSUES)
    told = ", ".join(f"{name} {impacts[name]}" for name in _DIMENSIONS if impacts[name] != "none")
    issues = f"; {'; '.join(reply['issues'])}" if reply["issues"] else ""
    return Found(clamped(value), f"{told or 'no impact'}{issues}", metadata={"given": given, "counted": counted})


NOISE_SENSITIVITY = Definition(
    "judge_noise_sensitivity",
    """How well the output holds out against noise in what was asked: 1 is as good as without it.

    The answer without the noise is the mapped `baseline`, else the expected answer. A model compares both by relevance,
    accuracy, completeness, focus and invention (impact none 1, minimal 0.85, moderate 0.6, significant 0.3, severe 0.1),
    and gives a robustness from 0 to 1. Value: that number, or the mean of the impacts if it is lower and they are more than
    0.2 apart; less 0.1 for each major issue, 0.3 at most. As in Mastra.""",
    (
        Stage(
            "analyze",
            """\
Somebody was asked a question that holds noise: things that are beside the point, misleading, or wrong. Here is that
question, the answer to it, and the answer that was given, or is right, without the noise (of several any one).

{{input}}

{{output}}

{{baseline}}

How far did the noise make the answer worse? Name the impact on relevance, accuracy, completeness, focus, and invention
(things made up because of the noise). List major issues only: wrong statements taken from the noise, or parts of the
question left unanswered for it. Then give robustness, from 0 (the noise has won) to 1 (as good as without it).""",
            Record(
                {
                    "reasoning": Text("What the noise is, and what it did."),
                    "impacts": Record({name: Choice(tuple(IMPACTS)) for name in _DIMENSIONS}),
                    "issues": Many(Text(), "Each major issue; usually none."),
                    "robustness": Number(0, 1),
                }
            ),
        ),
    ),
    _robustness,
    requires={"baseline": "the item has no expected answer, and no baseline is mapped"},
    inputs=("input", "output", "expected", "baseline"),
)

MATCHES = {"exact": 1.0, "semantic": 0.8, "partial": 0.4, "missing": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilaritySettings(JudgeSettings):
    """What counts how much."""

    exact_bonus: float = said("What an exact match counts beyond one in other words.", 0.2)
    extra_penalty: float = said("What each thing takes off that is in the output alone, 0.2 at most.", 0.05)
    missing_penalty: float = said("What each thing takes off that is missing, beside counting 0.", 0.15)
    contradiction_penalty: float = said("What each contradiction takes off.", 1.0)

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        JudgeSettings.__post_init__(self)
        for name in ("exact_bonus", "extra_penalty", "missing_penalty", "contradiction_penalty"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is from 0 to 1")


_MOST_EXTRA = 0.2


def _similarity(facts: Facts) -> Found:
    reply, settings = facts.replies["analyze"], facts.settings
    matches = [each["match"] for each in reply["units"]]
    if not matches:
        return Found(None, "the expected answer says nothing")
    bonus = settings.exact_bonus
    counted = sum(MATCHES[match] + bonus * (match == "exact") for match in matches) / (len(matches) * (1 + bonus))
    penalty = min(settings.extra_penalty * len(reply["extra"]), _MOST_EXTRA)
    penalty += settings.missing_penalty * matches.count("missing")
    penalty += settings.contradiction_penalty * len(reply["contradictions"])
    told = [", ".join(f"{matches.count(match)} {match}" for match in MATCHES if match in matches)]
    told += [f"{name}: {'; '.join(reply[name])}" for name in ("contradictions", "extra") if reply[name]]
    return Found(clamped(counted - penalty), ". ".join(told))


SIMILARITY = Definition(
    "judge_similarity",
    """How far the output says what the expected answer says, in whatever words.

    A model takes the expected answer apart and finds each part in the output: exact 1 (and a bonus of 0.2), semantic 0.8,
    partial 0.4, missing 0. Value: their mean, of the highest possible one, less penalties for what is missing, what is
    there in addition, and what contradicts. As in Mastra.""",
    (
        Stage(
            "analyze",
            """\
Here is the reference answer (of several any one is right: take the one that the answer is nearest to), and the answer that
was given.

{{expected}}

{{output}}

Take the reference apart into units, each one piece of information. For each unit: how is it in the given answer? "exact"
in the same words, "semantic" in other words with the same meaning, "partial" in part, "missing" not at all. List what the
given answer says in addition as extra, and each thing in which it contradicts the reference as a contradiction.""",
            Record(
                {
                    "units": Many(
                        Record({"unit": Text("The piece of information."), "match": Choice(tuple(MATCHES))}),
                        "Each unit of the reference.",
                    ),
                    "extra": Many(Text(), "In the given answer only, contradictions left out."),
                    "contradictions": Many(Text(), "What contradicts the reference."),
                }
            ),
        ),
    ),
    _similarity,
    settings=SimilaritySettings,
    needs=(Need.EXPECTED,),
    inputs=("output", "expected"),
)

DEFINITIONS = (CONTEXT_PRECISION, CONTEXT_RELEVANCY, NOISE_SENSITIVITY, SIMILARITY)
