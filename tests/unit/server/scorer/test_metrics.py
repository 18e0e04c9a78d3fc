"""Numbers over all trials of a score: as other packages compute them, whatever the order, or none with the reason."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, MetricDeclaration, Output, Score, ScoreTask, Value
from evalbus_server.errors import Invalid
from evalbus_server.model.plugin_use import MetricUse
from evalbus_server.scorer.metrics import METRICS, MetricFault, MetricRow, asked_metric

FOLDER = Path(__file__).parents[3] / "data" / "vectors"
ROWS = [json.loads(line) for line in (FOLDER / "metrics.jsonl").read_text("utf-8").splitlines()]


def rows_of(given: Sequence[Mapping[str, Any]]) -> list[MetricRow]:
    """Rows in short form: what was said, what is expected, the value, the item."""
    made = []
    for place, each in enumerate(given):
        expected = each.get("expected")
        item = Item(each.get("item", f"i{place}"), "", None if expected is None else Value.of(expected))
        said = each.get("said")
        score = Score.scored(each.get("value", 0.0), answer=None if said is None else Value.of(said))
        made.append(MetricRow(ScoreTask(place, 1, item, Output(each.get("output", ""))), score, {}))
    return made


def made(name: str, rows: Sequence[MetricRow], **settings: Any) -> tuple[float | None, str]:
    asked = asked_metric(MetricUse(use=name, settings=settings), (), "metrics[0]")
    taken = [part for row in rows if (part := asked.take(row)) is not None]
    return asked.make(taken)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['metric']} {row['settings']}")
def test_a_metric_is_what_other_packages_compute_in_any_order(row):
    """Recorded from scikit-learn 1.9, SciPy 1.17, krippendorff 0.9 and sacreBLEU 2.6."""
    rows = rows_of(row["rows"])
    value, explanation = made(row["metric"], rows, **row["settings"])
    assert value == pytest.approx(row["value"], abs=1e-9)
    assert explanation
    random.Random(1).shuffle(rows)
    assert made(row["metric"], rows, **row["settings"])[0] == value  # to the last digit (N6)


def test_every_metric_is_compared_with_another_package():
    assert {row["metric"] for row in ROWS} == set(METRICS)


def test_vectors_of_cohens_kappa():
    """As evalkit gives it; none of no rows, where it gives 0."""
    for said, expected, value in [
        ([1, 1, 0, 0], [1, 0, 0, 0], 0.5),
        ([1, 1, 1, 1], [1, 1, 1, 1], 1),
        ([1, 0, 1, 0], [0, 1, 0, 1], -1.0),
        ([], [], None),
    ]:
        rows = rows_of([{"said": a, "expected": b} for a, b in zip(said, expected, strict=True)])
        assert made("cohen_kappa", rows)[0] == value


def test_vectors_of_krippendorffs_alpha():
    """As inspect_ai gives it; none where it gives NaN."""
    cases: list[tuple[str, list[list[Any]], float | None]] = [
        ("nominal", [["C", "C"], ["C", "I"], ["I", "I"], ["I", "I"]], 0.5333333333333333),
        ("nominal", [["C"], ["C"]], None),
        ("interval", [[1, 2], [3, 3], [5, 4], [2, 2]], 0.8478260869565217),
        ("interval", [[1, 5], [5, 1], [1, 5]], -0.6666666666666667),
    ]
    for level, units, value in cases:
        rows = rows_of(
            [
                {"item": f"i{place}", "said": each, "value": each if level == "interval" else 0}
                for place, unit in enumerate(units)
                for each in unit
            ]
        )
        found = made("krippendorff_alpha", rows, level=level)[0]
        assert found == (None if value is None else pytest.approx(value, abs=1e-9))


def test_case_and_space_do_not_count_where_they_should_not_and_any_of_several_is_right():
    rows = rows_of([{"said": " Yes ", "expected": ["no", "yes"]}, {"said": "no", "expected": ["yes"]}])
    assert made("accuracy", rows)[0] == 0
    assert made("accuracy", rows, ignore_case=True) == (0.5, "1 of 2 trials")


def test_what_was_said_is_the_answer_else_the_label_else_the_output():
    item = Item("i", "", "b")
    task = ScoreTask(1, 1, item, Output("c"), {})
    assert MetricRow(task, Score.scored(1, answer="b", label="a"), {}).said() == Value("b")
    assert MetricRow(task, Score.scored(1, label="a"), {}).said() == Value("a")
    assert MetricRow(task, Score.scored(1), {}).said() == Value("c")
    mapped = ScoreTask(1, 1, item, Output("c"), {"output": Value("d"), "expected": Value("e")})
    assert MetricRow(mapped, Score.scored(1), {}).said() == Value("d")
    assert MetricRow(mapped, Score.scored(1), {}).accepted() == [Value("e")]


def test_inputs_are_mapped_from_item_output_trial_and_score_and_a_missing_one_is_a_fault():
    use = MetricUse(use="accuracy", map={"output": "score.metadata.level", "expected": "item.metadata.human"})
    asked = asked_metric(use, (), "m")
    item = Item("i", "", metadata={"human": "high"})
    row = MetricRow(ScoreTask(1, 1, item, Output("")), Score.scored(1, metadata={"level": "high"}), asked.mapped or {})
    assert asked.take(row) == ("high", "high")
    missing = MetricRow(row.task, Score.scored(1), asked.mapped or {})
    with pytest.raises(MetricFault, match=r"'output' has no value for item 'i': there is no score\.metadata\.level"):
        asked.take(missing)


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("accuracy", [{"said": "a"}], "no trial has both something said and something expected"),
        ("f1", [], "no trial has"),
        ("auc", [{"value": 1, "expected": "yes"}], "1 positive and 0 negative trials: there must be some of both"),
        ("pearson", [{"value": 1, "expected": 1}], "two are needed"),
        ("pearson", [{"value": 1, "expected": 1}, {"value": 1, "expected": 2}], "the values are all the same"),
        ("spearman", [{"value": 1, "expected": 1}, {"value": 2, "expected": 1}], "what is expected are all the same"),
        ("matthews", [{"said": "a", "expected": "a"}], "only one class was said"),
        ("krippendorff_alpha", [{"value": 1}], "ask each item in several epochs"),
        ("corpus_bleu", [{"output": "a"}], "no trial has an expected text"),
    ],
)
def test_where_there_is_none_the_reason_is_said(name, rows, said):
    value, explanation = made(name, rows_of(rows))
    assert value is None
    assert said in explanation


def test_a_class_that_nobody_names_has_no_number_and_an_expected_text_no_distance():
    assert made("f1", rows_of([{"said": "a", "expected": "a"}]), positive="x") == (None, "no trial says or expects 'x'")
    with pytest.raises(MetricFault, match="what item 'i0' expects is 'many', which is no finite number"):
        made("pearson", rows_of([{"value": 1, "expected": "many"}]))


def test_a_text_that_is_too_long_for_a_corpus_is_a_fault_and_never_left_out():
    with pytest.raises(MetricFault, match="item 'i0' has a text of 100,001 characters"):
        made("corpus_bleu", rows_of([{"output": "a" * 100_001, "expected": "a"}]))


def test_auc_goes_by_what_is_better():
    rows = rows_of([{"value": 1, "expected": "yes"}, {"value": 2, "expected": "no"}])
    assert made("auc", rows)[0] == 0
    lower = [MetricRow(row.task, row.score, {}, lower_is_better=True) for row in rows]
    assert made("auc", lower)[0] == 1


@pytest.mark.parametrize(
    ("use", "field", "said"),
    [
        ({"use": "acuracy"}, "m", "did you mean accuracy?"),
        ({"use": "f1", "settings": {"averag": "micro"}}, "m.settings.averag", "did you mean 'average'?"),
        ({"use": "f1", "map": {"outptu": "output.content"}}, "m.map.outptu", "did you mean output?"),
        ({"use": "f1", "map": {"output": "output.contents"}}, "m.map.output", "did you mean content?"),
        ({"use": "f1", "map": {"output": "score.valu"}}, "m.map.output", "did you mean value?"),
        ({"use": "own", "settings": {"a": 1}}, "m.settings", "made by the scorer"),
        ({"use": "own", "map": {"output": "output.content"}}, "m.map", "made by the scorer"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(use, field, said):
    with pytest.raises(Invalid) as refused:
        asked_metric(MetricUse.model_validate(use), [MetricDeclaration("own")], "m")
    assert refused.value.field == field
    assert said in str(refused.value)


def test_a_scorers_own_metric_goes_before_a_builtin_of_the_same_name():
    declared = MetricDeclaration("f1", 0, 1)
    asked = asked_metric(MetricUse(use="f1", name="mine"), [declared], "m")
    assert (asked.name, asked.builtin, asked.declared) == ("mine", None, declared)
