"""Scorers in stages, scorers that do not apply, and values that somebody wrote as text."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from evalbus import (
    Item,
    NotScorable,
    Output,
    PluginInvalid,
    Score,
    ScoreDeclaration,
    ScorerBench,
    ScoreStatus,
    TrialFailed,
    scorer,
)
from evalbus.kit import staged, value_in

ROWS = Path(__file__).parents[3] / "data" / "vectors" / "text_scores.jsonl"


@dataclass
class Claims:
    found: list[str]


def split(output: Output) -> Claims:
    return Claims([claim.strip() for claim in output.text.split(".") if claim.strip()])


async def check(item: Item, prepared: Claims) -> dict[str, bool]:
    await asyncio.sleep(0)
    return {claim: claim in item.input.text for claim in prepared.found}


def share(analysis: dict[str, bool]) -> float:
    """The share of claims that the input supports."""
    return sum(analysis.values()) / len(analysis)


def why(score: Score, analysis: dict[str, bool]) -> str:
    return f"{score.value:g}: unsupported {[claim for claim, held in analysis.items() if not held]}"


async def test_stages_hand_on_what_they_found_and_keep_it_as_steps():
    made = staged("grounded", prepare=split, analyze=check, score=share, explain=why, version="1.0.0")
    score = await ScorerBench(made).score("a, b", "a. c.")

    assert (score.value, score.explanation) == (0.5, "0.5: unsupported ['c']")
    kept = [(step.name, None if step.result is None else step.result.data) for step in score.steps]
    assert kept == [
        ("prepare", {"found": ["a", "c"]}),
        ("analyze", {"a": True, "c": False}),
        ("score", 0.5),
        ("explain", "0.5: unsupported ['c']"),
    ]
    assert all(step.duration is not None and step.duration >= 0 for step in score.steps)
    assert made.info.description == "The share of claims that the input supports."


async def test_every_stage_but_score_may_be_left_out_and_all_may_be_sync():
    made = staged("length", score=lambda output: Score.scored(float(len(output.text) < 9), "short"))
    score = await ScorerBench(made).score("", "hello")
    assert (score.value, score.explanation) == (1, "short")
    assert [step.name for step in score.steps] == ["score"]


@pytest.mark.parametrize("kind", ["returned", "raised"])
async def test_a_stage_may_say_that_the_scorer_does_not_apply(kind):
    def prepare(output: Output) -> str:
        return output.text

    async def analyze(prepared: str) -> Score:
        if kind == "raised":
            raise NotScorable("nothing is claimed")
        return Score.skipped("nothing is claimed")

    def score(analysis: str) -> float:
        raise AssertionError("must not be asked")

    declared = [ScoreDeclaration("a"), ScoreDeclaration("b")]
    made = staged("claims", prepare=prepare, analyze=analyze, score=score, scores=declared)
    found = await ScorerBench(made).scores("", "hm")
    assert {name: (each.status.name, each.explanation) for name, each in found.items()} == {
        "a": ("SKIPPED", "nothing is claimed"),
        "b": ("SKIPPED", "nothing is claimed"),
    }


async def test_not_scorable_is_raised_by_any_scorer_and_skips_all_its_scores():
    @scorer("plain", scores=[ScoreDeclaration("a"), ScoreDeclaration("b")])
    def plain(output: Output) -> list[Score]:
        raise NotScorable("no answer was given")

    found = await ScorerBench(plain).scores("", "")
    assert [(each.status, each.explanation) for each in found.values()] == [
        (ScoreStatus.SKIPPED, "no answer was given")
    ] * 2


async def test_settings_state_and_the_context_reach_every_stage():
    @dataclass
    class Settings:
        factor: float = 2.0

    def prepare(settings: Settings, state: str) -> str:
        return f"{state} {settings.factor}"

    def rate(prepared: str, ctx) -> Score:
        return Score.scored(0.5, f"{prepared} {ctx.settings.factor} {ctx.purpose.name}")

    made = staged("rated", prepare=prepare, score=rate, setup=lambda settings: f"set up {settings.factor}")
    score = await ScorerBench(made, {"factor": 3}).score("", "")
    assert score.explanation == "set up 3.0 3.0 3.0 OFFLINE"


async def test_what_is_no_json_is_kept_as_its_repr_and_long_results_are_cut():
    made = staged("odd", prepare=lambda output: {1, 2}, analyze=lambda output: "x" * 200_000, score=lambda output: 1.0)
    score = await ScorerBench(made).score("", "")
    prepare, analyze, _ = score.steps
    assert prepare.result is not None
    assert prepare.result.text == "{1, 2}"
    assert analyze.result is not None
    assert 60_000 < len(analyze.result.text.encode()) <= 64 * 1024


async def test_half_a_character_in_a_step_spoils_no_score():
    made = staged("half", analyze=lambda output: "so \ud83d", score=lambda analysis: float(len(analysis) == 4))
    score = await ScorerBench(made).score("", "")
    assert score.value == 1.0
    assert score.steps[0].result is not None
    assert score.steps[0].result.text == "'so \\ud83d'"


async def test_a_failing_stage_fails_the_task():
    def analyze(output: Output) -> str:
        raise TrialFailed.unavailable("the model is away")

    score = await ScorerBench(staged("s", analyze=analyze, score=lambda analysis: 1.0)).score("", "")
    assert score.failure is not None
    assert score.failure.category.name == "UNAVAILABLE"
    assert (
        await ScorerBench(staged("s", score=lambda output: 1.0, explain=lambda score: 7)).score("", "")
    ).status is ScoreStatus.ERRORED
    assert (
        await ScorerBench(staged("s", prepare=lambda output: Score.scored(1), score=lambda output: 1.0)).score("", "")
    ).status is ScoreStatus.ERRORED


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ({"score": lambda analysis: 1.0}, "score has a parameter `analysis`, which is not known there"),
        ({"prepare": lambda score: 1, "score": lambda output: 1.0}, "prepare has a parameter `score`"),
        ({"score": lambda output: 1.0, "version": "1", "colour": "red"}, "colour"),
    ],
)
def test_a_stage_that_asks_for_what_is_not_there_is_refused(stages, said):
    with pytest.raises(PluginInvalid, match=said):
        staged("s", **stages)


@pytest.mark.parametrize(
    "row", [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()], ids=lambda row: repr(row["text"])
)
def test_case_sc_11_only_a_whole_finite_number_is_a_value(row):
    if isinstance(row["right"], float):
        assert str(value_in(row["text"])) == str(row["right"])
        return
    with pytest.raises(TrialFailed) as failed:
        value_in(row["text"])
    assert failed.value.failure.reason == "VALUE_UNREADABLE"
    assert repr(row["text"].strip()) in failed.value.failure.message


def test_a_long_text_is_quoted_in_part():
    with pytest.raises(TrialFailed) as failed:
        value_in("7" + "x" * 10_000)
    assert len(failed.value.failure.message) < 200
