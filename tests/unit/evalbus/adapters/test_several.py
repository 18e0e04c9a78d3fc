"""Scorers of other libraries that give several values at once: those that were named become scores of their own."""

from __future__ import annotations

from typing import Any

import pytest

from evalbus import Item, Output, Score, ScoreDeclaration, ScorerBench, ScoreStatus, TrialFailed
from evalbus.adapters._adapter import SCORES, Foreign, Several, plugin, scores_of_all

TWO = [ScoreDeclaration("tone"), ScoreDeclaration("facts")]
GIVEN = Several({"facts": Score.scored(0.5), "more": Score.scored(0.1), "tone": Score.scored(1.0, label="C")})


def test_the_named_values_are_scores_in_the_order_of_their_names():
    found = scores_of_all(GIVEN, TWO)
    assert [(score.name, score.value, score.label) for score in found] == [("tone", 1.0, "C"), ("facts", 0.5, "")]


def test_one_that_does_not_apply_is_skipped_under_every_name():
    found = scores_of_all(Score.skipped("no answer"), TWO)
    assert [(score.name, score.status, score.explanation) for score in found] == [
        ("tone", ScoreStatus.SKIPPED, "no answer"),
        ("facts", ScoreStatus.SKIPPED, "no answer"),
    ]


@pytest.mark.parametrize(
    ("given", "declared", "told"),
    [
        (GIVEN, [ScoreDeclaration()], 'name those to take, as in settings: {scores: ["facts", "more", "tone"]}'),
        (Several({}), TWO, "gave no value 'tone', which `scores` names; it gave none"),
        (GIVEN, [ScoreDeclaration("odd")], "gave no value 'odd', which `scores` names; it gave facts, more, tone"),
    ],
)
def test_values_that_nobody_named_are_refused_with_what_to_write(given, declared, told):
    with pytest.raises(TrialFailed) as caught:
        scores_of_all(given, declared)
    assert told in str(caught.value)
    assert caught.value.failure.reason == "NO_VALUE" and caught.value.failure.retryable is False


async def judged(names: tuple[str, ...] = (), **settings: Any) -> list[Score]:
    async def judge(task: Any) -> Several:
        return GIVEN

    foreign = Foreign("both", "1", "", (), (), lambda _: judge, shared=(SCORES,), names=names)
    return list((await ScorerBench(plugin(foreign), settings).scores(Item("i", "?"), Output("o"))).values())


async def test_names_come_from_the_scorer_and_settings_go_before_them():
    assert [score.name for score in await judged(("tone", "facts"))] == ["tone", "facts"]
    assert [score.name for score in await judged(("tone", "facts"), scores=["more"])] == ["more"]
    assert [score.name for score in await judged(scores=["facts", "tone"])] == ["facts", "tone"]
