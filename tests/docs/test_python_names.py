"""What the pages say of the Python packages is there, and what there is for plugin authors is said."""

import dataclasses
import inspect
import re
from typing import Any

import pytest

import evalbus
import evalbus_server
from evalbus import (
    Context,
    Item,
    Output,
    Score,
    ScorerBench,
    ScoreRow,
    ScoreTask,
    TargetBench,
    ToolBox,
    TrialFailed,
    Value,
    kit,
)
from evalbus.client import Client, RunHandle
from evalbus_server import RunReport
from evalbus_server.scorer.metrics import METRICS
from tests.docs.pages import PAGES

TARGET, SCORER = PAGES["docs/write-a-target.md"], PAGES["docs/write-a-scorer.md"]
EMBED, SERVER = PAGES["docs/embed.md"], PAGES["docs/server.md"]
MEANT: dict[str, tuple[type[Any], ...]] = {
    "item": (Item,),
    "output": (Output,),
    "value": (Value,),
    "task": (ScoreTask,),
    "ctx": (Context,),
    "ctx.tools": (ToolBox,),
    "report": (RunReport,),
    "client": (Client,),
    "run": (RunHandle,),
    "bench": (TargetBench, ScorerBench),
    "Score": (Score,),
    "TrialFailed": (TrialFailed,),
}
"""The words for values in `word.part`, and what they stand for."""


def public(kind: type[Any]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def made_in_init(kind: type[Any]) -> set[str]:
    return set(re.findall(r"self\.(\w+)\b", inspect.getsource(kind.__init__)))


@pytest.mark.parametrize("page", [TARGET, SCORER, EMBED, SERVER], ids=lambda page: page.name)
def test_the_parts_of_values_that_a_page_names_are_there(page) -> None:
    for code in page.code:
        for word, part in re.findall(r"(?<![\w.\"])(\w+)\.(\w+)", code):
            kinds = MEANT.get(word, ())
            # A path of an experiment goes on where the document decides: `output.content.order`.
            assert not kinds or any(part in public(kind) | _slots(kind) for kind in kinds), f"{page.name}: {code}"


def _slots(kind: type[Any]) -> set[str]:
    return made_in_init(kind) if kind in (TargetBench, ScorerBench, RunHandle) else set()


@pytest.mark.parametrize(("decorator", "page"), [(evalbus.target, TARGET), (evalbus.scorer, SCORER)])
def test_every_option_of_a_decorator_is_told(decorator, page) -> None:
    for option in list(inspect.signature(decorator).parameters)[1:]:
        assert re.search(rf"\b{option}\b ?=", page.text), option


def test_every_constructor_of_a_score_and_every_kind_of_failure_is_told() -> None:
    for name in ("scored", "skipped", "errored"):
        assert f"Score.{name}(" in SCORER.text
    for name in ("rate_limited", "unavailable", "invalid", "refused"):
        assert f"`TrialFailed.{name}(" in TARGET.text


def test_every_part_of_an_output_is_told() -> None:
    told = set(re.findall(r"`(\w+)`", TARGET.section("What it returns")))
    slots = {slot.removesuffix("_json") for slot in Output.__slots__}
    assert slots <= told


def test_all_of_the_kit_is_told() -> None:
    told = re.findall(r"\w+", PAGES["docs/scorers/combining.md"].text)
    assert set(kit.__all__) <= set(told)


def test_every_builtin_metric_and_each_of_its_settings_is_told() -> None:
    page = PAGES["docs/scorers/metrics.md"]
    for name, each in METRICS.items():
        assert f"`{name}`" in page.text
        if not name.startswith("corpus_"):  # those have the settings of the scorers
            assert all(f"`{field.name}`" in page.text for field in dataclasses.fields(each.settings)), name


def test_all_that_a_row_has_is_told() -> None:
    told = PAGES["docs/scorers/metrics.md"].section("Your own")
    assert all(f"`{name}`" in told for name in ("value", *(field.name for field in dataclasses.fields(ScoreRow))))


def test_every_need_is_told() -> None:
    assert all(need.name in SCORER.section("What it needs") for need in evalbus.Need)


@pytest.mark.parametrize("function", [evalbus_server.run, evalbus_server.run_async])
def test_every_argument_of_run_is_told(function) -> None:
    for name in inspect.signature(function).parameters:
        assert re.search(rf"`{name}`|`{name}=|\b{name}=", EMBED.text) or name == "experiment", name


def test_every_method_of_the_client_is_told() -> None:
    told = set(re.findall(r"\b(?:client|run)\.(\w+)\(", SERVER.text))  # of a client, or of a run's handle
    missing = public(Client) - {"close"} - told
    assert not missing, f"say in {SERVER.name} what these do: {', '.join(sorted(missing))}"
