"""Files that other systems stumbled over, each with what must become of it (`tests/data/imports`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalbus import NULL, Item, Value
from evalbus_server.dataset.read import ReadOptions, read_file
from evalbus_server.dataset.refusal import DatasetInvalid

FILES = Path(__file__).parents[3] / "data" / "imports"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text())


def items_of(name: str, **options: Any) -> list[Item]:
    return [item for batch in read_file(FILES / name, ReadOptions(**options), name=name) for item in batch]


def refusal(name: str, **options: Any) -> str:
    with pytest.raises(DatasetInvalid) as caught:
        items_of(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def right(name: str) -> dict[str, Any]:
    said = EXPECTED[name]
    if "either" in said:
        return {"refuse": said["either"]["refuse"]}
    return dict(said)


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("_") and "refuse" in right(name)])
def test_a_file_that_is_wrong_is_refused_with_its_line(name):
    line = right(name)["refuse"]

    message = refusal(name)

    assert message.startswith(name)
    if line is not None:
        assert f" line {line}: " in message or f" lines {line}, " in message


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("_") and "count" in right(name)])
def test_a_file_that_is_right_is_read_whole(name):
    items = items_of(name)

    said = right(name)
    assert len(items) == said["count"]
    if "ids" in said:
        assert [item.id for item in items] == said["ids"]
    if "input" in said:
        assert [item.input for item in items] == [Value(text) for text in said["input"]]
    if "digits" in said:
        numbers = [item.expected.text if item.expected and item.expected.kind == "json" else "" for item in items]
        assert [number or str(item.metadata["order"]) for number, item in zip(numbers, items, strict=True)] == said[
            "digits"
        ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("di03_bare_json_cell.csv",
         "line 2: 4 fields, header has 3; put a cell that holds ',' in quotes, and double the quotes inside it"),
        ("di04_unclosed_quote.csv", "line 2: quote opened on line 2 is not closed"),
        ("di05_duplicate_ids.jsonl", 'line 3: the id "a" is already that of line 1; ids are compared as text'),
        ("di06_id_type_collision.jsonl", 'line 2: the id "1" is already that of line 1; ids are compared as text; '
         "line 6: the id must be text or a number, not true"),
        ("di13_5000_digit_int.jsonl", "line 2: not JSON: a number of more than 4,300 digits"),
        ("di14_deep_nesting.jsonl", "line 4: not JSON in 'input': nested deeper than 100; "
         "line 5: not JSON: nested deeper than 100"),
        ("di16_blank_lines.jsonl", "line 6: not JSON at column 20: a value must stand here: a text in double quotes, "
         "a number, true, false, null, a list or an object"),
        ("di17a_trailing_comma.jsonl",
         "line 1: not JSON: a comma stands behind the object; write one object a line"),
        ("di17c_two_per_line.jsonl", "line 1: not JSON: something stands behind the object; write one object a line"),
        ("di18_zip_named_csv.csv", "looks like a ZIP or Excel file; save the sheet as CSV"),
        ("di19a_cp1252.csv",
         "line 2: not UTF-8: byte 0xe9 at offset 24; say which with encoding: …, such as cp1252"),
        ("di19b_utf16le_bom.csv",
         "line 1: not UTF-8: byte 0xff at offset 0; it looks like UTF-16, say encoding: utf-16"),
        ("di21_nul_byte.csv", "line 2: a NUL byte; is this a text file?"),
        ("di23_duplicate_column.csv", "line 1: the column 'input' comes twice; rename one"),
        ("di29_ragged_rows.csv", "line 2: 2 fields, header has 3; line 3: 4 fields, header has 3; put a cell that "
         "holds ',' in quotes, and double the quotes inside it"),
        ("di30_dup_json_key.jsonl", "line 1: not JSON: the key 'input' comes twice"),
    ],
)  # fmt: skip
def test_the_message_says_what_is_wrong(name, message):
    assert refusal(name).removeprefix(name).lstrip(": ") == message


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert items_of("di01_bom.jsonl") == items_of("di01_bom_quoted_header.csv") == [Item("a1", "hello", "world")]


def test_case_di_20_a_cell_of_200_000_characters_is_read_whole(tmp_path):
    path = tmp_path / "huge.csv"
    path.write_text(f"id,input\nh1,{'x' * 200_000}\nh2,small\n")

    assert [(item.id, len(item.input.text)) for batch in read_file(path) for item in batch] == [
        ("h1", 200_000),
        ("h2", 5),
    ]


def test_another_encoding_is_read_when_it_is_named():
    texts = ["café – crème", "plain"]
    assert [item.input.text for item in items_of("di19a_cp1252.csv", encoding="cp1252")] == texts
    assert [item.input.text for item in items_of("di19b_utf16le_bom.csv", encoding="utf-16")] == texts[:1]


def test_null_missing_and_empty_stay_three_things():
    assert [item.expected for item in items_of("di10_null_missing_empty.jsonl")] == [NULL, None, Value("")]


def test_words_for_nothing_stay_text_and_an_empty_cell_is_absent():
    expected = [item.expected and item.expected.text for item in items_of("di08_null_words.csv")]

    assert expected == ["None", "NA", "null", "NaN", None, "N/A"]


def test_a_list_named_jsonl_is_read_when_its_format_is_named():
    assert [item.id for item in items_of("di17b_array.jsonl", format="json")] == ["a", "b"]


def test_lists_keep_their_elements_and_templates_their_signs():
    lists = [item.expected.data if item.expected else None for item in items_of("di25_list_with_delimiters.jsonl")]
    texts = [item.input.text for item in items_of("di26_template_braces.jsonl")]

    assert lists == [["a|b", "c;d", "e,f", "g\nh", "", "  i "], [], ["one"]]
    assert texts == ["{{ 7*7 }}", "{# note #} text", "{% if x %}", "${HOME} $(id) `id` %s %(x)s {0} {x!r}"]


def test_without_the_bad_line_the_rest_is_read(tmp_path):
    lines = (FILES / "di16_blank_lines.jsonl").read_bytes().split(b"\n")
    path = tmp_path / "good.jsonl"
    path.write_bytes(b"\n".join(lines[:5] + lines[6:]))

    assert [item.id for batch in read_file(path) for item in batch] == ["a", "b", "d"]
