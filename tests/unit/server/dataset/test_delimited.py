"""CSV and TSV: what RFC 4180 says is read exactly, what it does not say is refused."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbus_server.dataset.cells import Row
from evalbus_server.dataset.delimited import delimited_rows
from evalbus_server.dataset.refusal import FileRefused, Refusal
from evalbus_server.dataset.source import lines_of

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


def rows_of(text: str, delimiter: str = ",") -> list[Row | Refusal]:
    return list(delimited_rows(lines_of(io.BytesIO(text.encode())), delimiter))


def cells_of(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    rows = rows_of(text, delimiter)
    assert all(isinstance(row, Row) for row in rows), rows
    return [{name: cell.text for name, cell in row.cells.items()} for row in rows if isinstance(row, Row)]


@settings(deadline=None)
@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=5),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from([("\r\n", csv.QUOTE_ALL), ("\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_MINIMAL)]),
)
def test_what_a_spreadsheet_writes_is_read_back(records, delimiter, form):
    end, quoting = form
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerow(["a", "b", "c"])
    writer.writerows(records)

    read = cells_of(file.getvalue(), delimiter)

    assert read == [{name: cell for name, cell in zip("abc", record, strict=True) if cell} for record in records]


def test_cells_are_text_and_empty_ones_absent():
    assert cells_of('a,b,c,d\n01,1e5,true,\n"",NaN, x ,""\n') == [
        {"a": "01", "b": "1e5", "c": "true"},
        {"b": "NaN", "c": " x "},
    ]


def test_the_line_of_a_row_is_the_physical_one_where_it_begins():
    rows = rows_of('a,b\n"1\n2",x\n\n3,y\n')

    assert [row.line for row in rows if isinstance(row, Row)] == [2, 5]


def test_a_quote_inside_a_bare_cell_is_a_quote():
    assert cells_of('a,b\n5" pipe,the "x" one\n') == [{"a": '5" pipe', "b": 'the "x" one'}]


def test_the_space_around_names_of_columns_does_not_count():
    assert cells_of(" a ,\tb\n1,2\n") == [{"a": "1", "b": "2"}]


def test_a_file_without_rows_has_none():
    assert rows_of("") == []
    assert rows_of("a,b") == []


def test_a_row_of_another_length_is_refused_and_the_next_is_read():
    rows = rows_of("a,b\n1\n2,3,4\n5,6\n")

    assert rows[0] == Refusal(2, "ragged", "1 field, header has 2")
    assert isinstance(rows[1], Refusal)
    assert isinstance(rows[2], Row)


def test_text_behind_a_closing_quote_is_refused():
    assert rows_of('a,b\n"x"y,z\n') == [
        Refusal(2, "stray_quote", "text behind a closing quote; double the quotes inside a cell that is in quotes")
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('a,b\n"x,y\n1,2\n', 2, "quote opened on line 2 is not closed"),
        ('a,b\n1,2\n3,"4\n\n', 3, "quote opened on line 3 is not closed"),
        ('"a,b\n1,2', 1, "quote opened on line 1 is not closed"),
        ('a,b\n"x\ny"z,1', 2, "text behind a closing quote; double the quotes inside a cell that is in quotes"),
        ('a,b\n"x\n\0y",1', 3, "a NUL byte; is this a text file?"),
        ("a,b\r1,2\r", 1, "a carriage return outside quotes; save the file with LF or CRLF line ends"),
        ('a,b\n"1",2\r3\n', 2, "a carriage return outside quotes; save the file with LF or CRLF line ends"),
        ("a,,c\n", 1, "column 2 has no name; give it one or remove it"),
        ("a,b, a\n", 1, "the column 'a' comes twice; rename one"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused_with_its_line(text, line, message):
    with pytest.raises(FileRefused) as caught:
        rows_of(text)
    assert (caught.value.line, str(caught.value)) == (line, message)


@settings(deadline=None)
@given(st.text('",\n\rab', max_size=40))
def test_no_text_does_anything_but_become_rows_or_be_refused(text):
    try:
        rows = rows_of("x,y\n" + text)
    except FileRefused:
        return
    for row in rows:
        assert isinstance(row, Refusal) or set(row.cells) <= {"x", "y"}
