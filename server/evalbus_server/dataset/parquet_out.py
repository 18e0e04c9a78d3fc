"""Items as a Parquet file, with the columns of our CSV. Needs pyarrow, which `evalbus[parquet]` brings."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, BinaryIO

from evalbus import Item
from evalbus_server.dataset.exports import COLUMNS, row_of
from evalbus_server.errors import Invalid, Reason


class ParquetFile:
    """A file that is being written. Use it with `with`."""

    def __init__(self, file: BinaryIO) -> None:
        """Begin to write.

        Raises:
            Invalid: pyarrow is not installed.
        """
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise Invalid(Reason.DATASET_INVALID, "Parquet needs pyarrow: pip install 'evalbus[parquet]'") from None
        self._arrow: Any = pyarrow
        self._schema = pyarrow.schema([(name, pyarrow.string()) for name in COLUMNS])
        self._writer = pyarrow.parquet.ParquetWriter(file, self._schema)

    def __enter__(self) -> ParquetFile:
        """The file itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Write what ends it."""
        self._writer.close()

    def write(self, items: Sequence[Item]) -> None:
        """The next items."""
        rows = [{name: cell or None for name, cell in row_of(item).items()} for item in items]
        self._writer.write_table(self._arrow.Table.from_pylist(rows, schema=self._schema))
