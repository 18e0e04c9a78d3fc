"""What is wrong with JSON and TOML is said in our words, whatever version of Python reads it."""

from __future__ import annotations

import json
import tomllib

import pytest

from evalbus_server.model.syntax import json_fault, toml_fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{'a': 1}", "a key in double quotes must stand here"),
        ('{"a" 1}', "a colon must stand"),
        ('{"a": 1 "b": 2}', "a comma must stand here"),
        ("[1 2]", "a comma must stand here"),
        ("[1, # two", "a value must stand here"),
        ('{"a": yes}', "a value must stand here"),
        ('{"a": "x', "no closing quote"),
        ('{"a": "x\n"}', "a line break, tab or the like stands in a text"),
        ('{"a": "C:\\data"}', "a backslash in a text is written twice"),
        ('{"a": "\\u12"}', "four hexadecimal digits"),
        ("{} {}", "something stands behind the end"),
    ],
)
def test_json(text, said):
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(text)
    assert said in json_fault(caught.value)


@pytest.mark.parametrize("text", ['{"a": 1,}', "[1,]"])
def test_a_comma_behind_the_last_entry(text):
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(text)
    assert "must stand here" in json_fault(caught.value) or "no comma may stand" in json_fault(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = yes", "put text in quotes"),
        ("a: 1", "an equals sign must stand behind a key"),
        ("a = 1 b = 2", "one key = value stands on a line"),
        ("a = 1\na = 2", "stands here already"),
        ("[a]\n[a]", "this table stands here already"),
        ("a = [1, 2", "no closing ]"),
        ('a = "x', "no closing quote"),
        ('a = "x\n"', "stands in a text"),
        ('a = "C:\\data"', "a backslash in a text is written twice"),
    ],
)
def test_toml(text, said):
    with pytest.raises(tomllib.TOMLDecodeError) as caught:
        tomllib.loads(text)
    assert said in toml_fault(str(caught.value).partition(" (at ")[0])


def test_what_is_not_known_is_as_python_says_it():
    assert toml_fault("Something new") == "something new"
