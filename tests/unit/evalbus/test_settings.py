"""Settings: from a class to a schema, and from JSON to an object of it."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import jsonschema
import pydantic
import pytest

from evalbus import PluginInvalid, SettingsInvalid
from evalbus._settings import NoSettings, settings_text, settings_type


class Size(enum.Enum):
    SMALL = "small"
    BIG = 2


@dataclass(frozen=True)
class Model:
    name: str
    temperature: float = 0.0


@dataclass
class Wide:
    text: str = "x"
    count: int = 3
    share: float = 0.5
    on: bool = True
    mode: Literal["fast", "slow", 1] = "fast"
    maybe: int | None = None
    either: int | str = 1
    words: list[str] = field(default_factory=list)
    pair: tuple[int, ...] = (1,)
    table: dict[str, float] = field(default_factory=dict)
    size: Size = Size.SMALL
    model: Model = field(default_factory=lambda: Model("m"), metadata={"description": "Which one."})
    models: list[Model] = field(default_factory=list)
    optional: Model | None = None
    anything: Any = None
    noted: Annotated[int, "a note"] = 1
    bare: list = field(default_factory=list)
    internal: int = field(default=7, init=False)


WIDE = settings_type(Wide, globals(), "target 't'")


def test_nothing_given_means_the_defaults() -> None:
    assert WIDE.read("") == WIDE.read("{}") == Wide()


def test_what_is_given_is_read_by_its_type() -> None:
    given = {
        "text": "y", "count": 4.0, "share": 1, "on": False, "mode": 1, "maybe": 5, "either": "s", "words": ["a"],
        "pair": [1, 2], "table": {"a": 1}, "size": 2, "model": {"name": "n"}, "models": [{"name": "o", "temperature": 1}],
        "optional": {"name": "p"}, "anything": [{}], "noted": 2, "bare": [1, "a"],
    }  # fmt: skip

    read = WIDE.read(json.dumps(given))
    assert read == Wide(
        "y", 4, 1.0, False, 1, 5, "s", ["a"], (1, 2), {"a": 1.0}, Size.BIG, Model("n"), [Model("o", 1.0)], Model("p"),
        [{}], 2, [1, "a"],
    )  # fmt: skip
    assert (type(read.count), type(read.share), type(read.pair)) == (int, float, tuple)


@pytest.mark.parametrize(
    ("given", "path", "text"),
    [
        ({"cuont": 1}, "settings.cuont", "unknown setting (did you mean 'count'?)"),
        ({"zzz": 1}, "settings.zzz", "unknown setting; known are text, count"),
        ({"model": {"nme": 1}}, "settings.model.nme", "did you mean 'name'?"),
        ({"model": {}}, "settings.model.name", "missing"),
        ({"models": [{"name": "a"}, {"name": 1}]}, "settings.models[1].name", "expected a text, got 1"),
        ({"optional": {"name": 1}}, "settings.optional.name", "expected a text, got 1"),
        ({"text": None}, "settings.text", "expected a text, got null"),
        ({"count": "3"}, "settings.count", 'expected an integer, got "3"'),
        ({"count": 1.5}, "settings.count", "expected an integer, got 1.5"),
        ({"count": True}, "settings.count", "expected an integer, got true"),
        ({"share": "1"}, "settings.share", "expected a number"),
        ({"share": 10**400}, "settings.share", "expected a number"),
        ({"on": 1}, "settings.on", "expected true or false, got 1"),
        ({"mode": "fats"}, "settings.mode", "did you mean 'fast'?"),
        ({"mode": True}, "settings.mode", 'expected one of "fast", "slow", 1'),
        ({"maybe": "x"}, "settings.maybe", "expected an integer"),
        ({"either": []}, "settings.either", "expected an integer, got []; or expected a text, got []"),
        ({"words": "a"}, "settings.words", "expected a list"),
        ({"words": [1]}, "settings.words[0]", "expected a text"),
        ({"table": {"a": "b"}}, "settings.table.a", "expected a number"),
        ({"table": []}, "settings.table", "expected an object"),
        ({"model": 1}, "settings.model", "expected an object"),
        ({"size": "large"}, "settings.size", 'expected one of "small", 2'),
        ({"internal": 1}, "settings.internal", "unknown setting"),
        ({"text": ["x" * 200]}, "settings.text", "…"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(given: dict[str, Any], path: str, text: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        WIDE.read(json.dumps(given))

    assert caught.value.field == path
    assert str(caught.value).startswith(f"{path}: ")
    assert text in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "1", "{", '{"a":1,"a":2}', '"x"'])
def test_settings_are_a_json_object(text: str) -> None:
    for kind in (WIDE, NoSettings(), settings_type(dict, {}, "x"), settings_type(Polite, {}, "x")):
        with pytest.raises(SettingsInvalid, match=r"^settings"):
            kind.read(text)


def test_the_schema_says_the_same_as_the_reader() -> None:
    schema = json.loads(WIDE.schema)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    assert schema["properties"]["model"]["description"] == "Which one."
    assert schema["properties"]["model"]["default"] == {"name": "m", "temperature": 0.0}
    assert schema["properties"]["size"] == {"enum": ["small", 2], "default": "small"}
    assert "internal" not in schema["properties"]
    for good in ({}, {"count": 3.0}, {"mode": 1}, {"models": [{"name": "x"}]}, {"optional": None}):
        assert validator.is_valid(good)
        WIDE.read(json.dumps(good))
    wrong: tuple[dict[str, Any], ...] = (
        {"cuont": 1},
        {"model": {}},
        {"count": 1.5},
        {"words": [1]},
        {"size": "large"},
        {"on": 1},
    )
    for bad in wrong:
        assert not validator.is_valid(bad)


def test_a_dataclass_may_check_itself() -> None:
    @dataclass
    class Careful:
        low: int = 0

        def __post_init__(self) -> None:
            if self.low < 0:
                raise ValueError("low is below zero")

    with pytest.raises(SettingsInvalid, match="settings: low is below zero"):
        settings_type(Careful, {}, "x").read('{"low": -1}')


def test_a_class_inside_a_function_is_understood_by_the_names_around_it() -> None:
    @dataclass
    class Inner:
        n: int = 1

    @dataclass
    class Outer:
        inner: Inner = field(default_factory=Inner)

    assert settings_type(Outer, locals(), "x").read('{"inner": {"n": 2}}') == Outer(Inner(2))


@dataclass
class Odd:
    when: complex = 0j


@dataclass
class Looped:
    again: list[Looped] = field(default_factory=list)


@dataclass
class Unknown:
    what: NoSuchThing = None  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (Odd, r"settings field Odd\.when: .*complex.* is not supported; use str"),
        (Looped, "holds itself"),
        (Unknown, "an annotation is not understood: name 'NoSuchThing'"),
        (int, "annotate settings with a dataclass, a pydantic model or dict"),
        ("Text", "annotate settings"),
    ],
)
def test_what_cannot_be_settings_is_said_at_once(annotation: Any, text: str) -> None:
    with pytest.raises(PluginInvalid, match=text):
        settings_type(annotation, globals(), "target 't'")


def test_a_mapping_is_free() -> None:
    for annotation in (dict, dict[str, Any], Mapping[str, Any], Any):
        free = settings_type(annotation, {}, "x")
        assert free.read('{"a": [1]}') == {"a": [1]}
        assert free.read("") == {}
        assert json.loads(free.schema) == {"type": "object"}


def test_a_plugin_without_settings_takes_none() -> None:
    NoSettings().read("")
    NoSettings().read("{}")
    with pytest.raises(SettingsInvalid, match=r"settings\.a: this plugin takes no settings"):
        NoSettings().read('{"a": 1}')


# --- pydantic ---------------------------------------------------------------------------------------------------


class Part(pydantic.BaseModel):
    name: str


class Polite(pydantic.BaseModel):
    greeting: str = "hello"
    times: int = pydantic.Field(1, ge=1, description="How often.")
    parts: list[Part] = []
    alias: int = pydantic.Field(0, alias="short")


POLITE = settings_type(Polite, {}, "x")


def test_a_pydantic_model_is_read_and_has_its_own_schema() -> None:
    assert POLITE.read('{"times": 2, "parts": [{"name": "a"}], "short": 5}') == Polite(
        times=2, parts=[Part(name="a")], short=5
    )
    schema = json.loads(POLITE.schema)
    assert schema["properties"]["times"] == {
        "default": 1, "description": "How often.", "minimum": 1, "title": "Times", "type": "integer",
    }  # fmt: skip
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("given", "path", "text"),
    [
        ({"times": 0}, "settings.times", "greater than or equal to 1"),
        ({"parts": [{}]}, "settings.parts[0].name", "Field required"),
        ({"greting": ""}, "settings.greting", "did you mean 'greeting'?"),
        ({"times": "x", "greeting": 1}, "settings.greeting", "; settings.times: "),
    ],
)
def test_what_does_not_fit_a_pydantic_model_is_named_by_its_path(given: dict[str, Any], path: str, text: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        POLITE.read(json.dumps(given))

    assert caught.value.field == path
    assert text in str(caught.value)


def test_a_pydantic_model_may_allow_more_keys() -> None:
    class Loose(pydantic.BaseModel, extra="allow"):
        a: int = 1

    assert settings_type(Loose, {}, "x").read('{"b": 2}').b == 2


def test_a_pydantic_dataclass_will_do() -> None:
    @pydantic.dataclasses.dataclass
    class Both:
        a: int = pydantic.Field(1, le=3)

    kind = settings_type(Both, {}, "x")
    assert kind.read('{"a": 2}') == Both(2)
    with pytest.raises(SettingsInvalid, match=r"settings\.a"):
        kind.read('{"a": 4}')
    with pytest.raises(SettingsInvalid, match=r"settings\.b"):
        kind.read('{"b": 4}')


# --- back to text -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (None, ""),
        ({"a": (1, Size.BIG)}, '{"a":[1,2]}'),
        (Model("m"), '{"name":"m","temperature":0.0}'),
        (Polite(greeting="hi", times=1, short=0), '{"greeting":"hi","times":1,"parts":[],"short":0}'),
    ],
)
def test_settings_have_a_text(settings: object, text: str) -> None:
    assert settings_text(settings) == text


def test_what_are_no_settings_have_none() -> None:
    for wrong in (1, "x", [1], {"a": object()}, dataclasses):
        with pytest.raises(TypeError):
            settings_text(wrong)
