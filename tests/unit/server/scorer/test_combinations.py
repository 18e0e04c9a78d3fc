"""Builtins made of others, and what other systems give for the same; or why ours differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, Output, Score, ScorerBench, ScoreStatus, SettingsInvalid, ToolCall
from evalbus.kit import in_sample
from evalbus_server.errors import Invalid
from evalbus_server.model.experiment import Experiment
from evalbus_server.scorer.builtin import BUILTINS
from tests import differences

ROWS = Path(__file__).parents[3] / "data" / "vectors" / "kit.jsonl"
VECTORS = [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]


def named(*names: str) -> list[dict[str, Any]]:
    return [row for row in VECTORS if (row.get("function") or row["scorer"]) in names]


def text_of(row: dict[str, Any]) -> str:
    return json.dumps(row["input"])


async def said(name: str, settings: dict[str, Any], output: Any = "said", expected: Any = None, **given: Any) -> Score:
    item = Item("i1", given.pop("input", ""), expected, metadata=given.pop("metadata", None))
    return await ScorerBench(BUILTINS[name], settings).score(item, Output(output, **given))


# --- vectors ------------------------------------------------------------------------------------------------------


def component(name: str, weight: float, value: Any = None) -> dict[str, Any]:
    """A part that says this: similarity as a number, no expected answer for nothing, a broken one for an exception."""
    if value is None:
        return {"use": "numeric_diff", "name": name, "weight": weight}  # no expected answer: SKIPPED
    if value == "throw":
        return {"use": "last_number", "name": name, "weight": weight, "map": {"expected": "item.metadata.word"}}
    return {
        "use": "json_diff",
        "name": name,
        "weight": weight,
        "map": {"output": "item.metadata.all", "expected": f'item.metadata["{value}"]'},
    }


def shares() -> dict[str, Any]:
    """Objects of ten keys that differ in as many as make the value."""
    ten = {f"k{n}": n for n in range(10)}
    made: dict[str, Any] = {"all": ten, "word": "seven"}
    for tenths in range(11):
        value = f"{tenths / 10:g}"
        made[value] = {key: n if n < tenths else -1 for key, n in ten.items()}
    return made


@pytest.mark.parametrize("row", named("weightedBlend"), ids=text_of)
async def test_blends_give_what_they_give_elsewhere(row):
    settings = {"scorers": [component(*each) for each in row["input"]["components"]]}
    expected: Any = differences.ERRORED if row["expected"]["status"] == "error" else row["expected"]["score"]
    expected = differences.BLENDS.get(text_of(row), (expected, ""))[0]
    try:
        score = await said("weighted_blend", settings, metadata=shares())
    except SettingsInvalid:
        assert expected == differences.REFUSED
        return
    found = score.value if score.status is ScoreStatus.SCORED else score.status.name.lower()
    assert found == (expected if isinstance(expected, str) else pytest.approx(expected, abs=1e-9))


@pytest.mark.parametrize("row", named("scorer.cascade(exact,includes)"), ids=text_of)
async def test_a_cascade_stops_where_it_stops_elsewhere(row):
    settings = {"scorers": [{"use": "exact_match", "name": "exact"}, {"use": "includes", "name": "inc"}]}
    score = await said("cascade", settings, row["input"]["output"], row["input"]["target"])
    assert score.value == 1
    assert score.metadata["decided_by"] == row["expected"]["decided_by"]


@pytest.mark.parametrize("row", named("scorer.multi_scorer[match,includes,exact]"), ids=text_of)
async def test_most_of_several_is_what_the_mode_and_the_majority_of_two_values_are(row):
    settings = {"scorers": ["match", "includes", "exact_match"]}
    score = await said("most_of", settings, row["input"]["output"], row["input"]["target"])
    assert score.value == {"C": 1, "I": 0}[row["expected"]["value"]]


SAMPLES: dict[str, Any] = {
    # a policy there -> what an experiment says here; None: nothing. Where it is refused, the reason.
    "null": None,
    '{"type": "ratio", "rate": 1}': 1,
    '{"type": "none"}': None,
    '{"type": "ratio", "rate": 0}': 0,
    '{"type": "ratio"}': ("ratio", "a share that is missing is neither 0 nor 1"),
    '{"rate": 0.1}': ({"rate": 0.1}, "a share is a number; nothing else is silently taken for 1"),
    '{"type": "weird"}': ({"type": "weird"}, "what is not known is refused, neither open nor closed"),
}


@pytest.mark.parametrize("row", named("shouldSample", "liveSampling"), ids=text_of)
def test_sampling_says_what_it_means_or_is_refused(row):
    said = SAMPLES[json.dumps(row["input"].get("policy", row["input"].get("sampling")))]
    share = said[0] if isinstance(said, tuple) else said
    document = {"name": "e", "dataset": {"name": "d"}, "scorers": [{"use": "exact_match"}]}
    if share is not None:
        document["scorers"][0]["sampling"] = share  # type: ignore[index]
    if isinstance(said, tuple):
        with pytest.raises(Invalid):
            Experiment.parse(document)
        return
    taken = Experiment.parse(document).scorers[0].sampling
    assert taken in (0, 1)
    assert row["expected"]["sampled"] is in_sample(row["input"].get("key", "k"), 1, taken)


NOT_OURS = {
    "hashToUnitInterval": "their samples go by a hash of a trace, ours by one of item and epoch: same share, other trials",
    "paramsMergeOrder": "settings are merged in the same order, as tests/unit/evalbus/kit says",
}


def test_every_vector_is_tested_or_named():
    tested = {
        "weightedBlend",
        "scorer.cascade(exact,includes)",
        "scorer.multi_scorer[match,includes,exact]",
        "shouldSample",
        "liveSampling",
    }
    assert {row.get("function") or row["scorer"] for row in VECTORS} == tested | set(NOT_OURS)


# --- as an experiment writes them -----------------------------------------------------------------------------------


async def test_combinations_hold_each_other_and_map_their_own_inputs():
    settings = {
        "scorers": [
            {"use": "cascade", "name": "id", "settings": {"scorers": ["exact_match", "levenshtein"]}, "weight": 3},
            {"use": "negate", "settings": {"scorer": {"use": "includes", "map": {"expected": "item.metadata.bad"}}}},
        ]
    }
    score = await said("weighted_blend", settings, "Paris!", "Paris", metadata={"bad": "London"})
    assert score.value == pytest.approx((3 * 5 / 6 + 1) / 4)
    assert [step.name for step in score.steps] == [
        "id: exact_match",
        "id: levenshtein",
        "id",
        "negate: includes",
        "negate",
    ]


async def test_inputs_of_the_whole_reach_the_parts():
    bench = ScorerBench(BUILTINS["all_of"], {"scorers": ["exact_match"]})
    assert (await bench.score("", "x", inputs={"output": "a", "expected": "a"})).value == 1


async def test_a_mapped_input_that_is_missing_errors_the_score():
    settings = {"scorers": [{"use": "includes", "map": {"expected": "item.metadata.none"}}]}
    score = await said("all_of", settings)
    assert score.failure is not None
    assert (score.failure.reason, score.failure.category.name) == ("INPUT_MISSING", "INVALID")
    assert score.failure.message == "includes: the mapped input 'expected' has no value: there is no item.metadata.none"


async def test_a_threshold_looks_which_way_is_better():
    settings = {"scorer": {"use": "tool_call_limit", "settings": {"at_most": 1}}, "at": 1}
    assert (await said("threshold", settings, tool_calls=[ToolCall("a")])).value == 1


@pytest.mark.parametrize(
    ("name", "settings", "field", "said_"),
    [
        ("weighted_blend", {}, "settings.scorers", "missing"),
        ("weighted_blend", {"scorers": []}, "settings.scorers", "no parts"),
        ("weighted_blend", {"scorers": ["f1", "f1"]}, "settings.scorers", "two parts are called 'f1'"),
        ("weighted_blend", {"scorers": ["rouge"]}, "settings.scorers[0].use", "did you mean rouge_l?"),
        ("weighted_blend", {"scorers": [{"use": "f1", "weight": -1}]}, "settings.scorers[0]", "0 or more"),
        ("weighted_blend", {"scorers": ["f1", {"use": "tool_called"}]}, "settings.scorers[1].settings.tool", "missing"),
        ("all_of", {"scorers": [{"use": "f1", "map": {"a": "b"}}]}, "settings.scorers[0].map.a", "no such input"),
        (
            "all_of",
            {"scorers": [{"use": "f1", "map": {"output": "b"}}]},
            "settings.scorers[0].map.output",
            "begin with",
        ),
        (
            "all_of",
            {"scorers": ["f1", {"use": "f1", "name": "f10", "settings": {"no": 1}}]},
            "settings.scorers[1].settings.no",
            "settings.scorers[1].settings.no: unknown",
        ),
        ("negate", {"scorer": {"use": "regex", "settings": {"pattern": "("}}}, "settings.scorer.settings.pattern", "("),
        ("negate", {"scorer": {"use": "bleu", "wieght": 1}}, "settings.scorer", "did you mean 'weight'?"),
        ("threshold", {"scorer": "f1"}, "settings.at", "missing"),
    ],
)
async def test_settings_that_do_not_fit_are_refused_with_their_place(name, settings, field, said_):
    with pytest.raises(SettingsInvalid) as refused:
        await ScorerBench(BUILTINS[name], settings).open()
    assert refused.value.field == field
    assert said_ in str(refused.value)


@pytest.mark.parametrize(
    ("inside", "value"), [({"use": "exact_match"}, 1.0), ({"use": "regex", "settings": {"no": 1}}, None)]
)
async def test_many_levels_cost_no_more_than_their_number(inside, value):
    for _ in range(30):  # a day, if each asked twice what the next one declares
        inside = {"use": "negate", "settings": {"scorer": inside}}
    bench = ScorerBench(BUILTINS["negate"], {"scorer": inside})
    if value is None:
        with pytest.raises(SettingsInvalid, match=r"settings\.no: unknown"):
            await bench.open()
        return
    assert (await bench.score(Item("i1", "", "a"), Output("a"))).value == 0.0


async def test_weights_are_as_large_as_they_are():
    parts = [{"use": "exact_match", "weight": 1.7e308}, {"use": "levenshtein", "weight": 1.7e308}]
    assert (await said("weighted_blend", {"scorers": parts}, "ab", "ac")).value == 0.25
