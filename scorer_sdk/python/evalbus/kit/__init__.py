"""The kit: scorers made of other scorers, and scorers in stages.

    from evalbus.kit import cascade, part, weighted_blend

    quality = weighted_blend("quality", part(accuracy, weight=3), part(tone, settings={"language": "en"}))
    checked = cascade("checked", part(exact, accept=1.0), judge)

What comes out is a scorer like any other: it is served, tested on a ScorerBench, and a part of further ones. Each part
may be sync or async; those that do not depend on each other are asked at the same time. What every part said is in the
score's metadata under `components`, and in its steps. A part that cannot judge fails the whole, unless another part
has decided already; one that does not apply (SKIPPED) takes no part.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from evalbus._definition import Scorer
from evalbus.kit import _rules
from evalbus.kit._combined import Combined
from evalbus.kit._part import Part, part
from evalbus.kit._sampled import Sampled, in_sample
from evalbus.kit._stages import Staged, staged
from evalbus.kit._texts import value_in

__all__ = [
    "Combined",
    "Part",
    "Sampled",
    "Staged",
    "all_of",
    "any_of",
    "cascade",
    "in_sample",
    "most_of",
    "negate",
    "part",
    "sampled",
    "staged",
    "threshold",
    "value_in",
    "weighted_blend",
]

Parts: TypeAlias = Part | Scorer[Any, Any]


def weighted_blend(name: str, *parts: Parts, version: str = "0.0.0", description: str = "") -> Combined:
    """The weighted mean of the parts that have a value: Σ weight · value / Σ weight over those; none: SKIPPED.

    Its range holds those of all parts. Values are taken as they are: where the ranges are not alike, the declaration says
    so, and so does a dry run of an experiment.

    Raises:
        PluginInvalid: no part has a weight, or they do not agree about what is better.
    """
    return Combined(name, [_part(each) for each in parts], _rules.BLEND, version, description)


def all_of(name: str, *parts: Parts, version: str = "0.0.0", description: str = "") -> Combined:
    """1 if every part that applies passes its threshold, else 0. A part that misses decides, even if others broke.

    Raises:
        PluginInvalid: a part of which a lower value is better has no threshold.
    """
    return Combined(name, [_part(each) for each in parts], _rules.ALL_OF, version, description)


def any_of(name: str, *parts: Parts, version: str = "0.0.0", description: str = "") -> Combined:
    """1 if a part passes its threshold, else 0. A part that passes decides, even if others broke.

    Raises:
        PluginInvalid: a part of which a lower value is better has no threshold.
    """
    return Combined(name, [_part(each) for each in parts], _rules.ANY_OF, version, description)


def most_of(name: str, *parts: Parts, version: str = "0.0.0", description: str = "") -> Combined:
    """1 if more than half of the parts that apply pass their thresholds, else 0.

    Raises:
        PluginInvalid: a part of which a lower value is better has no threshold.
    """
    return Combined(name, [_part(each) for each in parts], _rules.MOST_OF, version, description)


def cascade(name: str, *parts: Parts, version: str = "0.0.0", description: str = "") -> Combined:
    """What the first part says that decides: the cheap check first, the dear one only if it must be.

    A part decides with a value as good as its `accept`, or as bad as its `reject`; with neither, `accept` is 1. The last
    one always decides. A part that does not apply is passed over. `decided_by` in the metadata names who it was.

    Raises:
        PluginInvalid: the parts do not agree about what is better.
    """
    return Combined(name, [_part(each) for each in parts], _rules.CASCADE, version, description)


def negate(of: Parts, *, name: str | None = None, version: str = "0.0.0", description: str = "") -> Combined:
    """The other end of the range: minimum + maximum - value, of which a higher value is better. Called `not_…`.

    Raises:
        PluginInvalid: the range is open.
    """
    whole = _part(of)
    return Combined(name or f"not_{whole.name}", [whole], _rules.NEGATE, version, description)


def threshold(
    of: Parts, at: float, *, name: str | None = None, version: str = "0.0.0", description: str = ""
) -> Combined:
    """1 if the value is as good as *at*, else 0. Called like its part.

    Raises:
        PluginInvalid: *at* is not finite.
    """
    whole = _part(of)
    again = part(
        whole.scorer, name=whole.name, score=whole.score, settings=whole.settings, inputs=whole.inputs, threshold=at
    )
    return Combined(name or whole.name, [again], _rules.THRESHOLD, version, description)


def sampled(of: Scorer[Any, Any], share: float, *, name: str | None = None) -> Sampled:
    """The same scorer for a share of the trials (above 0, up to 1), the same in every run; the others are SKIPPED.

    It is the sample that the same `sampling` in an experiment takes, and a smaller share lies within a larger one.

    Raises:
        PluginInvalid: the share is out of range.
    """
    return Sampled(of, share, name)


def _part(of: Parts) -> Part:
    return of if isinstance(of, Part) else part(of)
