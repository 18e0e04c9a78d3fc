"""Where things stand in JSON and TOML: found for whatever these formats allow."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus_server.errors import Invalid
from evalbus_server.runner.experiment_file import load
from evalbus_server.runner.places import json_places, refused_in_json, toml_places

TEXTS = st.text(max_size=8)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def parts(document: Any, path: tuple[str | int, ...] = ()) -> Any:
    """Every path in a document, with what stands there."""
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for step, part in entries:
        yield (*path, step), part
        if isinstance(part, dict | list):
            yield from parts(part, (*path, step))


@given(st.dictionaries(TEXTS, DOCUMENTS, max_size=4), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_every_part_of_a_json_document_is_found_where_it_stands(document, indent, ascii):
    text = json.dumps(document, indent=indent, ensure_ascii=ascii)
    places = json_places(text, 99)
    rows = text.split("\n")

    assert set(places) == {path for path, _ in parts(document)}
    for path, part in parts(document):
        line, column = places[path]
        begins = json.dumps(path[-1] if isinstance(path[-1], str) else part, ensure_ascii=ascii)
        rest = rows[line - 1][column - 1 :]
        assert rest.startswith(begins[:1] if isinstance(part, dict | list) else begins)


TOML = '''# an experiment
name = "x" # with a name
"odd key" = 1.5e3
dataset.path = 'items.jsonl'
when = 1979-05-27 07:32:00

[target]
command = [
  "python",  # the interpreter
  "a = b.py",
]
settings = { model = "small", "deep".er = [ 1, 2.5 ] }

[[scorers]]
use = "includes"
[[scorers]]
use = """
several
lines = [ " "" """
[scorers.settings]
text = \'\'\'it's [ "here" \'\'\'
[limits]
retries = -3
'''
EXPECTED = {
    ("name",): (2, 1),
    ("odd key",): (3, 1),
    ("dataset",): (4, 1),
    ("dataset", "path"): (4, 1),
    ("when",): (5, 1),
    ("target",): (7, 1),
    ("target", "command"): (8, 1),
    ("target", "command", 0): (9, 3),
    ("target", "command", 1): (10, 3),
    ("target", "settings"): (12, 1),
    ("target", "settings", "model"): (12, 14),
    ("target", "settings", "deep"): (12, 31),
    ("target", "settings", "deep", "er"): (12, 31),
    ("target", "settings", "deep", "er", 0): (12, 45),
    ("target", "settings", "deep", "er", 1): (12, 48),
    ("scorers",): (14, 1),
    ("scorers", 0): (14, 1),
    ("scorers", 0, "use"): (15, 1),
    ("scorers", 1): (16, 1),
    ("scorers", 1, "use"): (17, 1),
    ("scorers", 1, "settings"): (20, 1),
    ("scorers", 1, "settings", "text"): (21, 1),
    ("limits",): (22, 1),
    ("limits", "retries"): (23, 1),
}


def test_every_part_of_a_toml_document_is_found_where_it_stands():
    assert set(EXPECTED) == {path for path, _ in parts(tomllib.loads(TOML))}
    assert toml_places(TOML, 99) == EXPECTED
    assert set(toml_places(TOML, 1)) == {path for path in EXPECTED if len(path) == 1}


@given(
    st.dictionaries(TEXTS.filter(lambda t: t.isprintable()), st.lists(st.integers() | TEXTS, max_size=3), max_size=4)
)
def test_whatever_toml_takes_is_passed(document):
    text = "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in document.items())
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # a surrogate escape
    assert set(toml_places(text, 9)) == {path for path, _ in parts(read)}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1,\n "b": {"c": 1, "c": 2}}', (2, 16)),
        ('{"a": [1, {"a": -Infinity}]}', (1, 17)),
        ('{"a": [{"b": 1}, {"b": 2}]}', None),
        ('{"a": "NaN"}', None),
        ('{"a": 1, "a": 2, nonsense', (1, 10)),
        ("{", None),
        ("", None),
    ],
)
def test_what_json_has_not_is_found(text, place):
    assert refused_in_json(text) == place


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        (
            "e.json",
            '{\n "name": "a",\n "dataset": {"name": "d"},\n "target": "none",\n "limits": {"retrys": 1}}',
            "5, column 13",
        ),
        ("e.toml", 'name = "a"\ntarget = "none"\ndataset = {name = "d"}\n[limits]\nretrys = 1\n', "5, column 1"),
        ("e.yaml", "name: a\ntarget: none\ndataset: {name: d}\nlimits:\n  retrys: 1\n", "5, column 3"),
    ],
)
def test_a_fault_is_named_with_its_place_in_every_format(tmp_path, name, text, place):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(Invalid) as caught:
        load(path)
    assert str(caught.value) == f"{path}: line {place}: limits.retrys: unknown key; did you mean retries?"
