"""`evalbus dataset export`: the items of a version, written to a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from evalbus import Item
from evalbus_server.cli.datasets_place import Source, Where, work
from evalbus_server.cli.datasets_show import Chosen
from evalbus_server.cli.exits import Ending, ExitCode
from evalbus_server.cli.files import whole
from evalbus_server.dataset import exports


@dataclass(frozen=True, slots=True)
class Written:
    """How an export is written."""

    format: str
    out: Path | None
    raw: bool
    bom: bool


def export(where: Where, name: str, chosen: Chosen, written: Written) -> None:
    """Write the items of a dataset."""

    async def do(source: Source) -> None:
        version = await source.dataset(name, chosen.version)
        with ExitStack() as stack:
            file = _out(written, stack)
            async with aclosing(source.items(name, version.version, chosen.tags)) as pages:  # type: ignore[type-var]
                if written.format == "parquet":
                    from evalbus_server.dataset.parquet_out import ParquetFile

                    parquet = stack.enter_context(ParquetFile(file))
                    async for page in pages:
                        parquet.write(page)
                    return
                first = True
                async for page in pages:
                    _write(file, page, written, first)
                    first = False
                if first:
                    _write(file, [], written, first)

    try:
        work(where, do)
    except BrokenPipeError:
        raise
    except OSError as error:
        if written.out is None:
            raise
        raise Ending(ExitCode.TROUBLE, "IO", f"--out {written.out}: {error.strerror or error}") from None


def _out(written: Written, stack: ExitStack) -> BinaryIO:
    if written.out is not None:
        return stack.enter_context(whole(written.out))
    return sys.stdout.buffer


def _write(file: BinaryIO, items: Sequence[Item], written: Written, first: bool) -> None:
    if written.format == "jsonl":
        lines = exports.json_lines(items)
    else:
        lines = exports.csv_lines(items, raw=written.raw, bom=written.bom)
        if not first:
            next(lines)
    file.write("".join(lines).encode())
