"""`python:MODULE.FUNCTION`: plain functions as scorers, judged on the bench as a server would have them judged."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from evalbus import (
    Item,
    Output,
    Score,
    ScorerBench,
    ScoreStatus,
    SettingsInvalid,
    Value,
)
from evalbus.adapters import AdapterError, find

FUNCTIONS = '''
"""Functions as people have them."""

__version__ = "2.1.0"


def polite(output):
    """1 for a polite word."""
    return "please" in output


def close(output: float, expected: float, tolerance: float = 0.5):
    return abs(output - expected) <= tolerance, f"off by {abs(output - expected)}"


def text_only(output: str, expected: str):
    return output == expected


async def later(output, input, metadata, choices):
    return {"score": 0.25, "reason": f"{input} {metadata['topic']} {choices}", "label": "quarter"}


def on_context(output, context):
    return output in context


def nothing(output):
    return None


def not_a_number(output):
    return float("nan")


def words(output):
    return "great"


def both(output):
    return {"length": len(output) / 10, "calm": {"value": "!" not in output, "explanation": "no shouting"}}


def broken(output):
    raise KeyError("lost")


def whole(item, task, output: "Output"):
    return len(output.tool_calls) + (item.id == "q") + (task.epoch == 1)


def almost_one(output):
    return 1.0000000000000002


class Found:
    def __init__(self, score, metadata):
        self.score, self.metadata = score, metadata


def like_others(output):
    return Found(0.5, {"rationale": "because", "odd": {1, 2}})


class Counting:
    """Counts a letter."""

    def __init__(self, letter: str, most: int = 10):
        self.letter, self.most = letter, most

    def __call__(self, output):
        return output.count(self.letter) / self.most


def blind(text):
    return 1.0


THRESHOLD = 3
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The functions as a module of their own in the working folder, and what its name is."""
    name = f"functions_of_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(FUNCTIONS))
    (tmp_path / f"{name}_broken.py").write_text("import no_such_library_anywhere\n")
    (tmp_path / f"{name}_wrong.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


async def judged(
    name: str, output: Any, expected: Any = None, settings: Any = None, inputs: Any = None, **item: Any
) -> Score:
    bench = ScorerBench(find(f"python:{name}"), settings)
    return await bench.score(Item("q", "why?", expected, **item), Output(output), inputs=inputs or {})


async def test_a_bool_is_a_score(module: str) -> None:
    assert [(await judged(f"{module}.polite", text)).value for text in ("please", "no")] == [1.0, 0.0]


def test_it_says_what_the_function_says(module: str) -> None:
    info = find(f"python:{module}.polite").info
    assert (info.name, info.version, info.description) == ("polite", "2.1.0", "1 for a polite word.")
    assert info.digest != find(f"python:{module}.nothing").info.digest


async def test_settings_are_the_parameters_with_their_types(module: str) -> None:
    assert (await judged(f"{module}.close", 3, 3.4)).value == 1.0
    score = await judged(f"{module}.close", 3, 3.5, {"tolerance": 0.25})
    assert (score.value, score.explanation) == (0.0, "off by 0.5")
    with pytest.raises(SettingsInvalid, match=r"settings\.tolerence: unknown setting \(did you mean 'tolerance'\?\)"):
        await judged(f"{module}.close", 3, 3.5, {"tolerence": 1})
    with pytest.raises(SettingsInvalid, match=r"settings\.tolerance: expected a number"):
        await judged(f"{module}.close", 3, 3.5, {"tolerance": "1"})


async def test_an_annotation_says_in_which_form_a_value_is_wanted(module: str) -> None:
    assert (await judged(f"{module}.close", "3.25", "3.0")).value == 1.0
    assert (await judged(f"{module}.text_only", 42, "42")).value == 1.0
    assert (await judged(f"{module}.text_only", {"a": 1}, {"a": 1})).value == 1.0
    score = await judged(f"{module}.close", "about three", 3)
    assert score.failure is not None
    assert (score.failure.reason, score.failure.message) == ("NOT_A_NUMBER", "`output` is 'about three', not a number")


async def test_a_list_of_expected_answers_means_any_of_them(module: str) -> None:
    assert (await judged(f"{module}.close", 3, [9, 3, 8])).value == 1.0
    assert (await judged(f"{module}.close", 3, [9, 8])).value == 0.0


async def test_without_an_expected_answer_it_does_not_apply(module: str) -> None:
    score = await judged(f"{module}.close", 3)
    assert (score.status, score.explanation) == (ScoreStatus.SKIPPED, "the item has no expected answer")


async def test_an_async_function_gets_what_it_names(module: str) -> None:
    score = await judged(f"{module}.later", "x", metadata={"topic": "tea"}, choices=["a"])
    assert (score.value, score.label, score.explanation) == (0.25, "quarter", "why? tea ['a']")


async def test_any_other_input_is_mapped_or_taken_from_metadata(module: str) -> None:
    mapped = await judged(f"{module}.on_context", "a", inputs={"context": Value.of(["a", "b"])})
    found = await judged(f"{module}.on_context", "a", metadata={"context": ["b"]})
    assert (mapped.value, found.value) == (1.0, 0.0)


async def test_an_input_that_is_not_there_is_an_error_and_no_empty_text(module: str) -> None:
    score = await judged(f"{module}.on_context", "a")
    assert score.status is ScoreStatus.ERRORED
    assert score.failure is not None
    assert (score.failure.category.name, score.failure.reason) == ("INVALID", "INPUT_MISSING")
    assert "map: {context: item.metadata.context}" in score.failure.message


async def test_the_outputs_metadata_comes_before_the_items(module: str) -> None:
    bench = ScorerBench(find(f"python:{module}.on_context"))
    output = Output("a", metadata={"context": ["a"]})
    assert (await bench.score(Item("q", "x", metadata={"context": ["b"]}), output)).value == 1.0


async def test_none_is_skipped_and_nan_or_text_errored(module: str) -> None:
    none = await judged(f"{module}.nothing", "x")
    assert (none.status, none.explanation) == (ScoreStatus.SKIPPED, "the function returned None")
    for name in ("not_a_number", "words"):
        score = await judged(f"{module}.{name}", "x")
        assert score.failure is not None
        assert (score.failure.reason, score.failure.retryable) == ("NO_VALUE", False)


async def test_several_scores_are_named_in_the_settings(module: str) -> None:
    bench = ScorerBench(find(f"python:{module}.both"), {"scores": ["length", "calm"]})
    scores = await bench.scores(Item("q", "x"), Output("Hi!"))
    assert {name: score.value for name, score in scores.items()} == {"length": 0.3, "calm": 0.0}
    assert scores["calm"].explanation == "no shouting"


async def test_several_scores_that_nobody_named_are_a_fault_that_says_what_to_write(module: str) -> None:
    failure = (await judged(f"{module}.both", "x")).failure
    assert failure is not None
    assert (failure.reason, failure.retryable) == ("NO_VALUE", False)
    assert 'name those to take, as in settings: {scores: ["length", "calm"]}' in failure.message


async def test_of_several_scores_those_are_taken_that_are_named(module: str) -> None:
    found = await ScorerBench(find(f"python:{module}.both"), {"scores": ["calm"]}).scores(Item("q", "x"), Output("Hi!"))
    assert {name: score.value for name, score in found.items()} == {"calm": 0.0}
    score = await judged(f"{module}.both", "x", settings={"scores": ["clam"]})
    assert score.failure is not None
    assert "gave no value 'clam', which `scores` names; it gave length, calm" in score.failure.message


async def test_its_exception_is_a_failure_with_the_traceback(module: str) -> None:
    score = await judged(f"{module}.broken", "x")
    assert score.failure is not None
    assert (score.failure.category.name, score.failure.reason) == ("INTERNAL", "KEY_ERROR")
    assert "in broken" in score.failure.details["traceback"]


async def test_item_task_and_an_annotated_output_are_the_objects_of_the_sdk(module: str) -> None:
    assert (await judged(f"{module}.whole", "x", settings={"range": [0, None]})).value == 2.0


async def test_a_value_outside_of_its_range_is_a_fault_unless_the_settings_allow_it(module: str) -> None:
    failure = (await judged(f"{module}.whole", "x")).failure
    assert failure is not None
    assert (failure.reason, failure.retryable) == ("CONTRACT_BROKEN", False)
    assert failure.message.startswith(
        "the scorer gave 2, and its range is 0 to 1: say another, as in settings: {range:"
    )
    for wrong in ([1], [1, 0], [0, 0]):
        with pytest.raises(SettingsInvalid, match=r"settings\.range: expected \[lowest, highest\]"):
            await judged(f"{module}.whole", "x", settings={"range": wrong})
    with pytest.raises(SettingsInvalid, match=r"settings\.direction: expected `higher` or `lower`"):
        await judged(f"{module}.whole", "x", settings={"direction": "up"})


def test_direction_is_declared(module: str) -> None:
    plugin = find(f"python:{module}.polite")
    assert plugin.options.scores is not None and callable(plugin.options.scores)


async def test_rounding_over_the_end_of_the_range_is_that_end(module: str) -> None:
    assert (await judged(f"{module}.almost_one", "x")).value == 1.0


async def test_scores_of_other_libraries_are_understood(module: str) -> None:
    score = await judged(f"{module}.like_others", "x")
    assert (score.value, score.explanation) == (0.5, "because")
    assert score.metadata["rationale"] == "because"


async def test_a_class_takes_its_settings_in_the_constructor(module: str) -> None:
    score = await judged(f"{module}.Counting", "banana", settings={"letter": "a"})
    assert score.value == 0.3
    with pytest.raises(SettingsInvalid, match=r"settings\.letter: missing"):
        await judged(f"{module}.Counting", "banana")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("{}.polit", "has no 'polit'; did you mean polite?"),
        ("{}:THRESHOLD", "THRESHOLD is int, not a function"),
        ("{}.blind", "blind takes no output: give it a parameter `output`"),
        ("{}_broken.f", "No module named 'no_such_library_anywhere'"),
        ("{}_wrong.f", "cannot be imported: SyntaxError"),
        ("no_such_module_here.f", "there is no module 'no_such_module_here' in "),
        ("polite", "names no function: write MODULE.FUNCTION"),
    ],
)
def test_what_is_not_there_is_told_in_a_line(module: str, name: str, told: str) -> None:
    with pytest.raises(AdapterError) as caught:
        find(f"python:{name.format(module)}")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("use", ["foo.Bar", "autoevals", "autoevals.", ""])
def test_a_name_of_no_library_lists_them(use: str) -> None:
    with pytest.raises(
        AdapterError, match=r"autoevals\.NAME, deepeval\.NAME, ragas\.NAME, inspect_ai\.NAME or python:"
    ):
        find(use)
