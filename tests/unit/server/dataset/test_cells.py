"""Cells keep JSON as it was written, but for the space between its tokens."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbus import Value, _json
from evalbus_server.dataset.cells import cell_of, compact, elements, inside, members, row_cells
from evalbus_server.dataset.refusal import RowRefused

DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), DOCUMENTS),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_a_row_is_cut_into_cells_that_mean_the_same(document, indent, ascii):
    cells = row_cells(json.dumps(document, indent=indent, ensure_ascii=ascii))

    assert {key: cell.data for key, cell in cells.items()} == document
    assert list(cells) == list(document)
    assert all(cell.kind == "json" or isinstance(cell.body, str) for cell in cells.values())


@settings(deadline=None)
@given(DOCUMENTS)
def test_space_between_tokens_does_not_count(document):
    tight = _json.dumps(document)

    assert compact(json.dumps(document, indent=3, ensure_ascii=False)) == tight
    assert row_cells('{ "a" : ' + json.dumps(document, indent=1, ensure_ascii=False) + "\t}") == {"a": cell_of(tight)}


@pytest.mark.parametrize(
    "number", ["1.10", "1e2", "1E400", "-0", "0.12345678901234567890123", "12345678901234567890123"]
)
def test_every_digit_of_a_number_is_kept(number):
    cells = row_cells(f'{{"a": {number}, "b": [1, {{"c": {number}}}]}}')

    assert cells["a"].text == number
    assert cells["b"].text == f'[1,{{"c":{number}}}]'
    assert inside(cells["b"], (1, "c")) == Value(number, "json")


def test_a_path_leads_inside_documents():
    cell = cell_of('{"a": [{"b": "x"}, [1, 2.50]], "odd.key": null}')

    assert inside(cell, ("a", 0, "b")) == Value("x")
    assert inside(cell, ("a", -1, 1)) == Value("2.50", "json")
    assert inside(cell, ("odd.key",)) == Value("null", "json")
    assert inside(cell, ()) == cell
    assert inside(cell, ("a", 5)) is None
    assert inside(cell, ("a", "b")) is None
    assert inside(cell, (0,)) is None
    assert inside(Value("text"), ("a",)) is None


def test_members_and_elements_are_as_they_were_written():
    assert members(' {"a" : 1.0 , "b":[ 1 ]} ') == {"a": "1.0", "b": "[ 1 ]"}
    assert members("{ }") == {}
    assert elements('[ 1.0 , "x,y" ,[2]]') == ["1.0", '"x,y"', "[2]"]
    assert elements("[]") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"a": 1,}',
            "not JSON at column 9: a key in double quotes must stand here; no comma follows the last one, and no comments",
        ),
        ('{"a" 1}', "not JSON at column 6: a colon must stand between a key and its value"),
        (
            '{"a": 1 "b": 2}',
            "not JSON at column 9: a comma must stand here, or the bracket that ends the list or object",
        ),
        ('{"a": "x', "not JSON at column 7: the text that begins here has no closing quote"),
        ('{"a": NaN}', "not JSON in 'a': NaN is not JSON"),
        ('{"a": [-Infinity]}', "not JSON in 'a': -Infinity is not JSON"),
        ('{"a": {"b": 1, "b": 2}}', "not JSON in 'a': the key 'b' comes twice"),
        ('{"a": "\\ud800"}', "not JSON in 'a': not valid Unicode: a lone surrogate at character 1"),
        ('{"\\ud800": 1}', "not JSON: not valid Unicode: a lone surrogate at character 0"),
        ("", "not JSON, not an object; write one object a line"),
        ("nope", "not JSON, not an object; write one object a line"),
    ],
)
def test_what_is_not_a_row_is_said(text, message):
    with pytest.raises(RowRefused) as caught:
        row_cells(text)
    assert str(caught.value) == message


@settings(deadline=None)
@given(st.text('{}[]",:\\ 0e-.nulltrfas', max_size=30))
def test_no_text_does_anything_but_become_a_row_or_be_refused(text):
    try:
        cells = row_cells(text)
    except RowRefused:
        return
    assert {key: cell.data for key, cell in cells.items()} == json.loads(text)
