"""The tables of keys say what the schemas say: every key, no other, with its default and its choices."""

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from evalbus_server.dataset.mapping import FIELDS
from evalbus_server.model.bounds import Criterion, Keep, Limits, PoolUse, TrialBounds
from evalbus_server.model.dataset_use import DatasetUse, FieldSource
from evalbus_server.model.experiment import Epochs, Experiment
from evalbus_server.model.part import Part
from evalbus_server.model.plugin_use import MetricUse, PluginUse, ScorerUse, TargetUse, Tls
from evalbus_server.model.reducers import METRICS, REDUCERS, REDUCERS_OF_K
from evalbus_server.model.written import format_duration, parse_duration
from evalbus_server.settings import CommandSettings, LimitSettings, Settings, TlsSettings
from tests.docs import builtins, differences
from tests.docs.pages import PAGES, Page, plain

EXPERIMENT = PAGES["docs/experiment-file.md"]
SERVER = PAGES["docs/server.md"]
NOT_WRITTEN = {"folder"}
"""Filled in when an experiment file is read."""

TABLES = [
    *(
        (EXPERIMENT, model)
        for model in (
            Experiment,
            DatasetUse,
            FieldSource,
            PluginUse,
            Tls,
            ScorerUse,
            MetricUse,
            Epochs,
            Limits,
            TrialBounds,
            PoolUse,
            Criterion,
            Keep,
        )
    ),
    *((SERVER, model) for model in (Settings, TlsSettings, CommandSettings, LimitSettings)),
]
every_table = pytest.mark.parametrize(("page", "model"), TABLES, ids=[model.__name__ for _, model in TABLES])


def keys(model: type[BaseModel]) -> dict[str, str]:
    """The names of a model's own fields by their keys; what a scorer shares with a target is told once."""
    shared = PluginUse.model_fields if model is ScorerUse else {}
    hidden = set() if model is CommandSettings else NOT_WRITTEN
    return {
        field.alias or name: name
        for name, field in model.model_fields.items()
        if name not in shared and name not in hidden
    }


def default_of(model: type[BaseModel], name: str) -> str:
    """A default as the pages write it; "" if the tables say it in words."""
    field = model.model_fields[name]
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, Epochs):
        return str(default.count)
    if isinstance(default, BaseModel) and default != type(default)():
        return ""
    if isinstance(default, BaseModel):
        return (
            "see there"
            if any(field.default not in (None, PydanticUndefined) for field in type(default).model_fields.values())
            else "–"
        )
    if default is None or default in ((), {}, ""):
        return "–"
    written = model.model_construct(**{name: default}).model_dump(mode="json", include={name})[name]
    return str(written).lower() if isinstance(written, bool) else str(written)


def _normal(default: str) -> str:
    """A length of time in the form in which it is stored: the pages may say 60s."""
    try:
        return format_duration(parse_duration(default))
    except ValueError:
        return default


def choices_of(annotation: Any) -> set[str]:
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {choice for part in get_args(annotation) for choice in choices_of(part)}


def _parts_in(annotation: Any) -> Iterator[type[Part]]:
    """The models that an annotation speaks of, and those of their fields."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _parts_in(field.annotation)
    for part in get_args(annotation):
        yield from _parts_in(part)


def test_every_model_of_the_schema_has_a_table() -> None:
    told = {model for _, model in TABLES} | {TargetUse}
    assert set(_parts_in(Experiment)) <= told
    assert TargetUse.model_fields.keys() == PluginUse.model_fields.keys()


@every_table
def test_a_table_has_every_key_and_no_other(page: Page, model: type[BaseModel]) -> None:
    told = [plain(row[0]) for row in page.table(f"keys: {model.__name__}")]
    assert sorted(told) == sorted(keys(model))


@every_table
def test_a_table_has_the_defaults(page: Page, model: type[BaseModel]) -> None:
    told = {plain(row[0]): row[2] for row in page.table(f"keys: {model.__name__}")}
    assert {key: _normal(default) for key, default in told.items()} == {
        key: default_of(model, name) for key, name in keys(model).items()
    }


@every_table
def test_a_table_has_the_choices(page: Page, model: type[BaseModel]) -> None:
    told = {plain(row[0]): row[3] for row in page.table(f"keys: {model.__name__}")}
    for key, name in keys(model).items():
        for choice in choices_of(model.model_fields[name].annotation):
            assert f"`{choice}`" in told[key], f"{key}: {choice}"


def test_a_scorer_is_told_to_take_all_keys_of_a_target() -> None:
    section = EXPERIMENT.section("scorers")
    for key in keys(PluginUse):
        assert f"`{key}`" in section


def test_every_metric_and_reducer_is_told() -> None:
    for metric in METRICS:
        assert f"`{metric}`" in EXPERIMENT.section("criteria")
    for name in (*REDUCERS, *(f"{name}(k)" for name in REDUCERS_OF_K)):
        assert f"`{name}`" in EXPERIMENT.section("epochs")


def test_every_field_of_an_item_is_told() -> None:
    for field in FIELDS:
        assert f"| `{field}` |" in EXPERIMENT.section("fields")


def test_the_example_uses_every_top_level_key() -> None:
    first = next(block for block in EXPERIMENT.blocks if block.language == "yaml")
    told = {line.partition(":")[0] for line in first.body.splitlines() if line[:1].isalpha()}
    assert told == keys(Experiment).keys()


def test_the_page_of_builtin_scorers_says_what_they_say_of_themselves() -> None:
    written = builtins.PAGE.read_text().partition(builtins.MARK)[2]
    assert written.strip() == builtins.sections().strip(), "bring it up to date: python -m tests.docs.builtins"


def test_the_page_of_judges_says_what_they_say_of_themselves() -> None:
    written = builtins.JUDGES_PAGE.read_text().partition(builtins.MARK)[2]
    assert written.strip() == builtins.judge_sections().strip(), "bring it up to date: python -m tests.docs.builtins"


def test_the_page_of_differences_has_all_that_the_tests_expect() -> None:
    written = differences.PAGE.read_text().partition(differences.MARK)[2]
    assert written.strip() == differences.sections().strip(), "bring it up to date: python -m tests.docs.differences"


def test_every_difference_is_of_a_recorded_row() -> None:
    for part in differences.PARTS:
        assert {key for key, _ in differences.found(part)} == set(part.here), part.title
