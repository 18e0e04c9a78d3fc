"""Documents: YAML by the core schema of 1.2, JSON and TOML as plain data; what is refused, in one line."""

from __future__ import annotations

from itertools import pairwise

import pytest

from evalbus_server.errors import Invalid, Reason
from evalbus_server.runner.documents import DocumentError, read_document, read_yaml


def refusal(tmp_path, name: str, content: str | bytes) -> str:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(Invalid) as caught:
        read_document(path, Reason.EXPERIMENT_INVALID)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("none", "none"),
        ("2024-01-31", "2024-01-31"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("null", None),
        ("~", None),
        ("", None),
        ("true", True),
        ("-12", -12),
        ("+3", 3),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("'1'", "1"),
        ('"\\u00e9"', "é"),
        ("9007199254740993", 9007199254740993),
        ("1180591620717411303424", 2**70),
        ("{{ 7*7 }}x: ${HOME}", None),
    ],
)
def test_a_scalar_is_what_the_core_schema_says(text, data):
    if text.startswith("{{"):
        text, data = f"'{text}'", text
    read = read_yaml(f"a: {text}").data["a"]
    assert read == data
    assert type(read) is type(data)


def test_merge_keys_and_aliases_work():
    text = "base: &b {use: x, n: 1}\nagain: *b\nmore: {n: 2, <<: *b}\nboth: {<<: [*b, {n: 3, m: 4}]}"

    data = read_yaml(text).data

    assert data["again"] == {"use": "x", "n": 1}
    assert data["again"] is not data["base"]
    assert data["more"] == {"use": "x", "n": 2}
    assert data["both"] == {"use": "x", "n": 1, "m": 4}


def test_the_places_of_keys_and_entries_are_known():
    document = read_yaml("a: 1\nb:\n  - x\n  - c: 1\n    d: 2\n")

    assert document.place_of(("b", 1, "d")) == (5, 5)
    assert document.place_of(("b", 1, "missing")) == (4, 5)
    assert document.place_of(("b", 0)) == (3, 5)
    assert document.place_of(("z",)) is None
    assert (document.told("b[1].d"), document.told("z"), document.told(None)) == ("line 5, column 5: ", "", "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' comes twice"),
        ("a: &x [1, *x]", "line 1, column 11: the alias *x has no anchor &x before it"),
        ("a: !!python/object/apply:os.system ['x']", "line 1, column 4: tags such as !!python/object/apply:"
         "os.system are not taken; write the plain value"),
        ("a: !foo b", "line 1, column 4: tags such as !foo are not taken; write the plain value"),
        ("a: 1\n---\nb: 2", "line 2, column 1: a second document begins; keep one"),
        ("1: x", "line 1, column 1: the key 1 must be text; put it in quotes"),
        ("a: 007", "line 1, column 4: 007 is a number with a zero in front; put it in quotes if it is text"),
        ("a: " + "9" * 5000, "line 1, column 4: a number of more than 4,300 digits"),
        ("a: 1\nb: [", "line 2, column 5: not YAML: expected the node content, but found '<stream end>'"),
        ("a: b: c", "line 1, column 5: not YAML: mapping values are not allowed here"),
        ("a: x\x01", "line 1: the character U+0001 cannot stand in YAML"),
        ("- 1", "must be a mapping of keys to values"),
        ("just text", "must be a mapping of keys to values"),
        (" \n", "is empty"),
        ("# nothing", "must be a mapping of keys to values"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_yaml_file_is_one_line(tmp_path, text, line):
    assert refusal(tmp_path, "e.yaml", text) == line


def test_deep_nesting_is_refused(tmp_path):
    assert "nested deeper than 100" in refusal(tmp_path, "e.yaml", "a: " + "[" * 5000)
    assert "nested deeper than 100" in refusal(tmp_path, "e.json", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert "nested deeper than 100" in refusal(tmp_path, "e.toml", "a = " + "[" * 100_000 + "]" * 100_000)


def test_aliases_that_explode_are_refused_at_once(tmp_path):  # SE-05
    names = "abcdefghi"
    lines = ['a: &a ["x","x","x","x","x","x","x","x","x"]']
    lines += [f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]" for old, new in pairwise(names)]

    line = refusal(tmp_path, "e.yaml", "\n".join([*lines, "items: *i"]))

    assert line.endswith("the aliases unfold to more than 4 MiB")


def test_a_file_that_is_not_there_or_cannot_be_one_is_one_line(tmp_path):
    with pytest.raises(Invalid, match="there is no such file"):
        read_document(tmp_path / "none.yaml", Reason.EXPERIMENT_INVALID)
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(Invalid, match="is a folder; name the file in it"):
        read_document(tmp_path / "folder.yaml", Reason.EXPERIMENT_INVALID)
    with pytest.raises(Invalid, match="cannot be read: embedded null byte"):
        read_document("a\0.yaml", Reason.EXPERIMENT_INVALID)


def test_bytes_that_are_not_utf_8_are_named(tmp_path):
    line = refusal(tmp_path, "e.yaml", b"a: 1\nb: caf\xe9\n")

    assert line == "line 2: not UTF-8: byte 0xe9 at offset 11; save it as UTF-8"


def test_a_byte_order_mark_is_accepted(tmp_path):
    path = tmp_path / "e.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')

    assert read_document(path, Reason.EXPERIMENT_INVALID).data == {"a": 1}


def test_a_file_over_one_mebibyte_is_refused(tmp_path):
    assert refusal(tmp_path, "e.yaml", b"a: " + b"x" * (1 << 20)).startswith("is over 1 MiB")


def test_json_and_toml_faults_say_where(tmp_path):
    assert refusal(tmp_path, "e.json", '{"a": 1,\n "b": }') == (
        "line 2, column 7: not JSON: a value must stand here: a text in double quotes, a number, true, false, null, "
        "a list or an object"
    )
    assert "no comma " in refusal(tmp_path, "e.json", '{"a": 1,}')
    assert refusal(tmp_path, "e.json", '{"a": 1,\n "a": 2}') == "line 2, column 2: not JSON: the key 'a' comes twice"
    assert refusal(tmp_path, "e.json", '{"a": [1,\n  NaN]}') == "line 2, column 3: not JSON: NaN is not JSON"
    assert refusal(tmp_path, "e.toml", "a = 1\nb = ") == (
        "line 2, column 4: not TOML: no value is written so: put text in quotes"
    )
    assert refusal(tmp_path, "e.toml", "a = 1\nb = yes\n") == (
        "line 2, column 5: not TOML: no value is written so: put text in quotes"
    )
    assert refusal(tmp_path, "e.toml", "a = 1\na = 2\n") == (
        "line 2, column 6: not TOML: this key stands here already, with a value"
    )
    assert refusal(tmp_path, "e.txt", "a: 1") == "the suffix '.txt' says no format; call it .yaml, .json or .toml"


def test_a_value_that_is_not_yaml_is_not_evaluated(tmp_path):
    with pytest.raises(DocumentError, match="tags such as !!python"):
        read_yaml(f'items:\n  - input: !!python/object/apply:os.system ["touch {tmp_path}/pwned"]')
    assert not (tmp_path / "pwned").exists()
