"""Rows of YAML are plain data, and nothing in a file makes them grow without bound."""

import pytest

from evalbus_server.dataset.refusal import FileRefused
from evalbus_server.dataset.yaml_rows import yaml_rows
from evalbus_server.model import yaml_text
from evalbus_server.model.yaml_text import read_yaml_text


def test_aliases_that_unfold_without_end_are_refused():
    """SE-08: ten lines, ten thousand million entries."""
    lines = ["- l0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"  l{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]

    with pytest.raises(FileRefused, match="the aliases unfold to more than 4 MiB") as caught:
        yaml_rows("\n".join(lines), None)

    assert caught.value.kind == "not_yaml"
    assert 5 <= caught.value.line <= 10


@pytest.mark.parametrize("empty", ["[]", "{}"])
def test_aliases_of_what_is_empty_are_refused_as_well(empty: str):
    """Ten lines without a single scalar in the lists: a million million lists."""
    lines = [f"- l0: &a0 {empty}"]
    lines += [f"  l{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 13)]

    with pytest.raises(FileRefused, match="the aliases unfold to more than 4 MiB") as caught:
        yaml_rows("\n".join(lines), None)

    assert 5 <= caught.value.line <= 10


@pytest.mark.parametrize(
    "row", ["- a: [" + "[]," * 20 + "]\n", "- - - - - a\n", "- {a: {}}\n", "- {a,b,c}\n", "-\n", "- []\n"]
)
def test_a_file_without_aliases_never_unfolds_too_far(row: str, monkeypatch):
    monkeypatch.setattr(yaml_text, "_MIB", 0)  # as if each file were a large one

    assert len(read_yaml_text(row * 100)) == 100


def test_a_large_file_may_repeat_itself():
    text = "x" * 1000
    shared = "\n".join(
        f"- {{q: '{n} {text}', c: {'&c ' if not n else '*c'}{text if not n else ''}}}" for n in range(3000)
    )

    rows = yaml_rows(shared, None)

    assert len(rows) == 3000
    assert {row["c"] for row in rows} == {text}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("- {a: &x 1, b: &x 2, c: *x}", {"a": 1, "b": 2, "c": 2}),  # an anchor may be given again
        ("- {day: 2026-11-30, yes: no, pi: 3.5}", {"day": "2026-11-30", "yes": "no", "pi": 3.5}),
        ("- &base {a: 1}\n- {<<: *base, b: 2}", {"a": 1}),
    ],
)
def test_scalars_and_anchors_are_those_of_yaml_1_2(text: str, data: object):
    assert yaml_rows(text, None)[0] == data


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("- a: 1\n- a: [1", 2, "not YAML"),
        ("- a: 1\n  a: 2", 2, "the key 'a' comes twice"),
        ("- 1: x", 1, "the key 1 must be text"),
        ("- a: !!python/object:os.system x", 1, "tags such as !!python/object:os.system are not taken"),
        ("- a\n", 0, "entry 1 is not a mapping"),
        ("a: 1\n", 0, "not a list"),
        ("", 0, "not a list"),
        ("- a: \x01", 1, "the character U\\+0001 cannot stand in YAML"),
        ("[" * 50_000, 0, "nested deeper than 100|not YAML"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, why: str):
    with pytest.raises(FileRefused, match=why) as caught:
        yaml_rows(text, None)

    assert "\n" not in str(caught.value)
    assert line == 0 or caught.value.line == line
