"""Weighted means over scores of unlike ranges: computed all the same, and told of."""

from __future__ import annotations

from typing import Any

import pytest

from evalbus import Direction, Output, Score, ScoreDeclaration, Scorer, ScorerInfo, scorer
from evalbus.kit import part, weighted_blend
from evalbus_server.aggregate.unlike import warnings_about
from evalbus_server.model.bounds import Criterion
from evalbus_server.model.run import ScoreKey

SHARE, TEN = ScoreDeclaration(), ScoreDeclaration("", 0, 10)
LESS = ScoreDeclaration("", 0, 1, Direction.LOWER_IS_BETTER)
WEIGHTED = Criterion(metric="weighted", min=0.5)


def keys(*declared: tuple[ScoreDeclaration, float | None]) -> list[ScoreKey]:
    return [ScoreKey("abc"[n], n, declaration, None, weight) for n, (declaration, weight) in enumerate(declared)]


@pytest.mark.parametrize(
    ("given", "criteria", "told"),
    [
        (keys((SHARE, 1), (TEN, 2)), [], "a 0 to 1, b 0 to 10"),
        (keys((SHARE, 1), (TEN, None)), [], "a 0 to 1, b 0 to 10"),
        (keys((SHARE, None), (TEN, None)), [WEIGHTED], "a 0 to 1, b 0 to 10"),
        (keys((SHARE, 1), (LESS, 1)), [], "a 0 to 1, b 0 to 1 (lower is better)"),
        (keys((SHARE, 1), (ScoreDeclaration("", None, None, unit="ms"), 1)), [], "a 0 to 1, b any number ms"),
        (keys((SHARE, None), (TEN, None)), [], ""),
        (keys((SHARE, 1), (TEN, 0)), [], ""),
        (keys((TEN, 1), (TEN, 2)), [WEIGHTED], ""),
        ([], [WEIGHTED], ""),
    ],
)
def test_it_is_told_where_somebody_weighs_scores_of_unlike_ranges(given, criteria, told):
    wanted = [f"weighted mixes scores of unlike ranges, as they are: {told}"] if told else []
    assert list(warnings_about(given, criteria)) == wanted


def scores_of(scorer: Scorer[Any, Any]) -> tuple[ScoreDeclaration, ...]:
    kind = scorer.info.kind
    assert isinstance(kind, ScorerInfo)
    return kind.scores


@scorer("share")
def share(output: Output) -> float:
    return 0.5


@scorer("points", scores=[TEN])
def points(output: Output) -> Score:
    return Score.scored(5.0)


def test_a_blend_tells_it_of_its_parts_wherever_it_is_made():
    blend = weighted_blend("blend", share, points)
    [declared] = scores_of(blend)
    alike = weighted_blend("alike", share, part(share, name="again"), part(points, weight=0))

    assert (declared.minimum, declared.maximum) == (0, 10)
    assert list(warnings_about([ScoreKey("blend", 0, declared)], [])) == [
        "blend is a mean of parts with unlike ranges: share 0 to 1, points 0 to 10"
    ]
    assert scores_of(alike)[0].description == ""
