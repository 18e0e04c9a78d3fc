"""Parquet, where pyarrow is installed; and what is said where it is not."""

from __future__ import annotations

import datetime
import io

import pytest

from evalbus import NULL, Item, Value
from evalbus_server.dataset.parquet_out import ParquetFile
from evalbus_server.dataset.read import read_stream
from evalbus_server.dataset.refusal import DatasetInvalid
from evalbus_server.errors import Invalid


def read(data: bytes) -> list[Item]:
    return [item for batch in read_stream(io.BytesIO(data), "parquet", name="file") for item in batch]


def test_without_pyarrow_it_is_said_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)

    with pytest.raises(Invalid, match=r"pip install 'evalbus\[parquet\]'"):
        read(b"PAR1")
    with pytest.raises(Invalid, match=r"pip install 'evalbus\[parquet\]'"):
        ParquetFile(io.BytesIO())


def test_columns_of_all_kinds_become_cells() -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"id": 1, "input": "None", "expected": ["a"], "n": 2**60, "t": datetime.datetime(2026, 1, 2), "b": b"\x00"},
        {"id": 2, "input": "x", "expected": None, "n": None, "t": None, "b": None},
    ]
    file = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows), file)

    first, second = read(file.getvalue())

    assert (first.id, first.input, first.expected) == ("1", Value("None"), Value.of(["a"]))
    assert first.metadata["n"] == 2**60
    assert first.metadata["t"] == "2026-01-02T00:00:00"
    assert first.metadata["b"] == {"media_type": "application/octet-stream", "base64": "AA=="}
    assert second == Item("2", "x")


def test_an_export_comes_back_just_so() -> None:
    pytest.importorskip("pyarrow")
    items = [Item("a", "=1", NULL, tags=["t"]), Item("b", {"x": 1.5}, ""), Item("c", "", metadata={"k": [1]})]
    file = io.BytesIO()
    with ParquetFile(file) as written:
        written.write(items[:2])
        written.write(items[2:])

    assert read(file.getvalue()) == items


def test_what_is_no_parquet_file_is_refused() -> None:
    pytest.importorskip("pyarrow")
    for data in (b"", b"PAR1", b"nonsense" * 10):
        with pytest.raises(DatasetInvalid, match="not a Parquet file"):
            read(data)
