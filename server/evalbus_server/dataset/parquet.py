"""Rows of a Parquet file, a group of rows at a time. Needs pyarrow, which `evalbus[parquet]` brings."""

from __future__ import annotations

import base64
import datetime
import decimal
from collections.abc import Iterator
from typing import Any, BinaryIO

from evalbus import Value
from evalbus_server.dataset import exports
from evalbus_server.dataset.cells import Row
from evalbus_server.dataset.refusal import FileRefused, Refusal
from evalbus_server.errors import Invalid, Reason

_AT_ONCE = 1024


def parquet_rows(file: BinaryIO) -> Iterator[Row | Refusal]:
    """One row for each row; null is absent, texts stay texts, bytes stay bytes, anything else is JSON.

    Raises:
        Invalid: pyarrow is not installed.
        FileRefused: it is no Parquet file.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise Invalid(Reason.DATASET_INVALID, "Parquet needs pyarrow: pip install 'evalbus[parquet]'") from None
    try:
        parquet = pyarrow.parquet.ParquetFile(file)
        ours = parquet.schema_arrow.names == list(exports.COLUMNS)
        number = 0
        for group in parquet.iter_batches(batch_size=_AT_ONCE):
            for found in group.to_pylist():
                number += 1
                row = _row(number, found)
                yield from exports.rows_of([row]) if ours else [row]
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise FileRefused(0, "not_parquet", f"not a Parquet file: {' '.join(str(error).split())[:200]}") from None


def _row(number: int, found: dict[str, Any]) -> Row | Refusal:
    cells: dict[str, Value] = {}
    for name, content in found.items():
        if content is not None:
            try:
                cells[name] = _cell(content)
            except (ValueError, TypeError) as error:
                return Refusal(number, "not_json", f"{name!r} has no form in JSON: {error}")
    return Row(number, cells, sum(len(cell.body) for cell in cells.values()))


def _cell(content: Any) -> Value:
    if isinstance(content, str):
        return Value(content)
    if isinstance(content, bytes):
        text = base64.b64encode(content).decode()
        return Value.of({"media_type": "application/octet-stream", "base64": text})  # which a content is read as bytes
    return Value.of(_plain(content))


def _plain(content: Any) -> Any:
    """What JSON has a form for; points in time as RFC 3339 writes them."""
    if isinstance(content, dict):
        return {str(key): _plain(each) for key, each in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(each) for each in content]
    if isinstance(content, datetime.datetime | datetime.date | datetime.time):
        return content.isoformat()
    if isinstance(content, decimal.Decimal):
        return str(content)
    return content
