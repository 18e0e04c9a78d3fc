"""JSON lines, and one JSON list, as rows with their lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbus_server.dataset.cells import Row
from evalbus_server.dataset.json_rows import json_line_rows, json_list_rows
from evalbus_server.dataset.refusal import FileRefused, Refusal
from evalbus_server.dataset.source import Line


def pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.text("ab\n", max_size=3), st.integers() | st.text('x\n"\\é,{}[]', max_size=9))),
    st.integers(1, 40),
    st.sampled_from([None, 1]),
)
def test_a_list_is_read_object_by_object_however_it_comes_in_pieces(documents, size, indent):
    rows = list(json_list_rows(pieces(json.dumps(documents, indent=indent), size)))

    assert [{key: cell.data for key, cell in row.cells.items()} for row in rows if isinstance(row, Row)] == documents


def test_the_line_of_an_object_is_that_where_it_begins():
    rows = list(json_list_rows(pieces('\n[\n  {"a": 1},\n\n  {\n"a": 2}\n]\n', 4)))

    assert [row.line for row in rows] == [3, 5]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            '{"a": 1}',
            1,
            "an object, not a list; if each line is one object, say format: jsonl; if the rows stand in it, say where with records",
        ),
        ("", 1, "not a JSON list of objects: the end of the file where [ should stand"),
        ("\nx", 2, "not a JSON list of objects: 'x' where [ should stand"),
        (
            '[\n{"a": 1},\n{"a": }]',
            3,
            "not JSON at column 7: a value must stand here: a text in double quotes, a number, true, false, null, a list or an object",
        ),
        ('[{"a": 1}\n{"a": 2}]', 2, "not JSON at column 1: '{' where a comma should stand"),
        ('[{"a": 1},\n]', 2, "']' where an object should begin"),
        ('[{"a": 1},\n2]', 2, "'2' where an object should begin"),
        ('[{"a": 1}\n', 2, "not JSON at column 1: the end of the file where a comma should stand"),
        ('[{"a": 1}]\n[]', 2, "not JSON at column 1: something stands behind the list"),
        ('[{"a": ' + "[" * 100_000, 1, "not JSON: nested deeper than 100"),
        ('[{"a": ' + "9" * 5000 + "}]", 1, "not JSON: a number of more than 4,300 digits"),
    ],
)
def test_a_list_that_cannot_be_read_on_is_refused_with_its_line(text, line, message):
    with pytest.raises(FileRefused) as caught:
        list(json_list_rows(pieces(text, 1000)))
    assert (caught.value.line, str(caught.value)) == (line, message)


def test_an_object_with_a_fault_inside_is_a_refusal_and_the_next_is_read():
    rows = list(json_list_rows(['[{"a": NaN}, {"a": 1}]']))

    assert rows[0] == Refusal(1, "not_json", "not JSON in 'a': NaN is not JSON")
    assert isinstance(rows[1], Row)


def test_blank_lines_are_skipped_and_other_space_is_not_blank():
    rows = list(json_line_rows([Line(1, ""), Line(2, " \t\r"), Line(3, '{"a": 1}\r'), Line(4, "\u00a0")]))

    assert [row.line for row in rows] == [3, 4]
    assert isinstance(rows[1], Refusal)


def test_the_column_of_a_fault_is_that_of_the_file_wherever_a_window_begins():
    text = '[{"a": 1}, {"b": "' + "x" * 5000 + '"}, {"c": "y"}, oops]'
    with pytest.raises(FileRefused) as caught:
        list(json_list_rows(pieces(text, 100)))
    assert str(caught.value) == "'o' where an object should begin"
    broken = text.replace("oops", '{"d": oops}')
    with pytest.raises(FileRefused) as caught:
        list(json_list_rows(pieces(broken, 100)))
    assert str(caught.value).startswith(f"not JSON at column {broken.index('oops') + 1}: a value must stand here")
