"""Datasets are read as a stream, in batches, all or nothing."""

from __future__ import annotations

import io
import json
import tracemalloc

import pytest

from evalbus_server.dataset import read as module
from evalbus_server.dataset.read import ReadOptions, read_batches, read_file, read_records, read_stream
from evalbus_server.dataset.refusal import DatasetInvalid, Refusal
from evalbus_server.errors import Invalid
from evalbus_server.model.dataset_use import DatasetUse


def lines(*documents: object) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


def ids(batches) -> list[str]:
    return [item.id for batch in batches for item in batch]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "items.jsonl"


def test_the_same_rows_give_the_same_items_in_every_format(tmp_path):
    rows = [{"input": f"q{n}", "expected": "a,\n", "topic": "x"} for n in range(3)]
    (tmp_path / "a.jsonl").write_text(lines(*rows))
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=2))
    (tmp_path / "a.csv").write_text("input,expected,topic\n" + "".join(f'q{n},"a,\n",x\n' for n in range(3)))
    (tmp_path / "a.tsv").write_text("input\texpected\ttopic\n" + "".join(f'q{n}\t"a,\n"\tx\n' for n in range(3)))
    (tmp_path / "b.csv").write_text("input;expected;topic\n" + "".join(f'q{n};"a,\n";x\n' for n in range(3)))

    read = [list(read_file(tmp_path / f"a.{suffix}")) for suffix in ("jsonl", "json", "csv", "tsv")]
    read.append(list(read_file(tmp_path / "b.csv", ReadOptions(delimiter=";"))))
    read.append(list(read_records(rows)))

    assert all(each == read[0] for each in read)


def test_items_come_in_batches_while_the_file_is_read(path):
    path.write_text(lines(*({"id": str(n), "input": "q"} for n in range(600))))

    assert [len(batch) for batch in read_file(path)] == [256, 256, 88]


def test_a_batch_is_bounded_in_size_too(path):
    path.write_text(lines(*({"id": str(n), "input": "q" * 400_000} for n in range(5))))

    assert [len(batch) for batch in read_file(path)] == [2, 2, 1]


def test_memory_does_not_grow_with_the_file(path, monkeypatch):
    # Only the table of ids grows, which is some 100 bytes an item; the items themselves would be 2 MB each 1,000.
    with path.open("w") as file:
        for n in range(20_000):
            file.write(json.dumps({"id": str(n), "input": "q" * 2000}) + "\n")

    tracemalloc.start()
    assert sum(len(batch) for batch in read_file(path)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 8_000_000


def test_no_batch_comes_after_a_refused_row_and_the_first_refusals_are_told_together(path):
    path.write_text(
        lines({"id": "a", "input": 1}, [], {"id": "a", "input": 2})
        + "{\n"
        + lines({"id": "b"}, {"id": "c", "input": 3})
    )
    batches = read_file(path, name="items.jsonl")

    with pytest.raises(DatasetInvalid) as caught:
        next(batches)

    assert str(caught.value) == (
        "items.jsonl line 2: a list, not an object; write one object a line, or say format: json if the whole file "
        'is one list; line 3: the id "a" is already that of line 1; ids are compared as text; line 4: not JSON '
        "at column 2: a key in double quotes must stand here; no comma follows the last one, and no comments; "
        "line 5: no input; there is id: say which with fields: {input: …}"
    )
    assert [(each.line, each.kind) for each in caught.value.refusals] == [
        (2, "not_an_object"),
        (3, "duplicate_id"),
        (4, "not_json"),
        (5, "no_input"),
    ]


def test_reading_stops_when_enough_is_wrong(path):
    path.write_text(lines(*({"question": n} for n in range(100_000))))

    with pytest.raises(DatasetInvalid) as caught:
        list(read_file(path))

    assert str(caught.value).endswith(
        "there is question: say which with fields: {input: …}; further rows were not looked at"
    )
    assert "lines 1, 2, 3, 4, 5: no input" in str(caught.value)


def test_who_listens_to_refusals_gets_the_good_rows(path):
    path.write_text(lines({"id": "a", "input": 1}, {"id": "b"}, {"id": "c", "input": 3}))
    refused: list[Refusal] = []

    assert ids(read_file(path, ReadOptions(refused=refused.append))) == ["a", "c"]
    assert [each.line for each in refused] == [2]


def test_a_file_that_cannot_be_read_on_is_refused_whatever_was_good(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text('input\nq\n"open')

    with pytest.raises(DatasetInvalid, match="quote opened on line 3 is not closed"):
        list(read_file(path, ReadOptions(refused=lambda _: None)))


@pytest.mark.parametrize(("suffix", "content"), [("jsonl", "\n"), ("json", "[]"), ("csv", "input\n"), ("csv", "")])
def test_a_file_without_items_is_refused(tmp_path, suffix, content):
    path = tmp_path / f"items.{suffix}"
    path.write_text(content)

    with pytest.raises(DatasetInvalid) as caught:
        list(read_file(path, name="items"))
    assert str(caught.value) == "items: holds no items"


def test_a_missing_file_is_one_line(tmp_path):
    use = DatasetUse(path="none.jsonl", folder=str(tmp_path))

    with pytest.raises(DatasetInvalid) as caught:
        list(read_batches(use))
    assert str(caught.value) == "none.jsonl: there is no such file"


def test_an_item_that_is_too_large_is_refused_with_its_size(path):
    path.write_text(lines({"id": "a", "input": "q" * (1 << 20)}, {"id": "b", "input": "é" * (600 << 10)}))

    with pytest.raises(DatasetInvalid) as caught:
        list(read_file(path))
    assert [each.kind for each in caught.value.refusals] == ["too_large", "too_large"]
    assert "at most 1048576 are allowed" in str(caught.value)


def test_the_dataset_of_an_experiment_is_read_with_its_options(tmp_path):
    (tmp_path / "items.txt").write_bytes("id|frage\n1|café\n".encode("cp1252"))
    use = DatasetUse.model_validate(
        {
            "path": "items.txt",
            "folder": str(tmp_path),
            "format": "csv",
            "delimiter": "|",
            "encoding": "cp1252",
            "fields": {"input": "frage"},
        }
    )

    ((item,),) = read_batches(use)

    assert (item.id, item.input.text) == ("1", "café")


def test_records_in_place_are_read_and_refused_by_number():
    use = DatasetUse(records=({"id": 1, "input": {"n": 2**70}}, {"id": "1", "input": "q"}))

    with pytest.raises(DatasetInvalid) as caught:
        list(read_batches(use))
    assert str(caught.value) == (
        'dataset.records record 2: the id "1" is already that of record 1; ids are compared as text'
    )


def test_records_that_json_has_no_form_for_are_refused():
    with pytest.raises(DatasetInvalid, match="record 1: not JSON: Object of type set"):
        list(read_records([{"input": {1}}]))
    with pytest.raises(DatasetInvalid, match="record 1: not JSON: not valid Unicode"):
        list(read_records([{"input": "\ud800"}]))


def test_a_stored_dataset_is_not_read_here():
    with pytest.raises(Invalid, match="the dataset 'support' is stored"):
        list(read_batches(DatasetUse(name="support")))


def test_a_stream_that_is_open_already_is_read():
    assert ids(read_stream(io.BytesIO(b'{"id": "a", "input": 1}'), "jsonl", name="standard input")) == ["a"]


def test_the_reading_of_a_file_can_be_given_up(path):
    path.write_text(lines(*({"id": str(n), "input": "q"} for n in range(module.BATCH * 3))))
    batches = read_file(path)
    next(batches)

    batches.close()  # type: ignore[attr-defined]  # a warning of an open file would fail the test
