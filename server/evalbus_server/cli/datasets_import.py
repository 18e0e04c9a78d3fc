"""`evalbus dataset import`: a file becomes the newest version of a dataset."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from evalbus_server.cli.datasets_place import Source, Where, work
from evalbus_server.cli.datasets_text import items_text, tally_text
from evalbus_server.cli.exits import ExitCode
from evalbus_server.cli.figures import count, plain
from evalbus_server.cli.report import console, print_json
from evalbus_server.dataset.importing import REMEMBERED
from evalbus_server.dataset.read import Batch, ReadOptions, read_file, read_stream
from evalbus_server.dataset.refusal import DatasetInvalid, Refusal
from evalbus_server.dataset.source import Format, unpacked
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset import Tally
from evalbus_server.model.dataset_use import FieldSource
from evalbus_server.model.run import DatasetVersion
from evalbus_server.runner.datasets import Imported
from evalbus_server.runner.documents import DocumentError, read_yaml

STDIN = "-"
MOST_REFUSED = 1_000
"""Refused rows that are told one by one."""


@dataclass(frozen=True, slots=True)
class Import:
    """What is imported, and how it is read."""

    name: str
    file: str
    maps: tuple[str, ...] = ()
    partial: bool = False
    format: Any = None
    foreign: str | None = None
    records: str | None = None
    join: Path | None = None
    encoding: str | None = None
    delimiter: str | None = None
    ids: str = "content"
    shuffle_choices: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(slots=True)
class Refused:
    """Rows that were refused: the first ones, and how many."""

    loud: bool
    rows: list[Refusal] = field(default_factory=list)
    count: int = 0

    def __call__(self, refusal: Refusal) -> None:
        """One more."""
        self.count += 1
        if self.count <= MOST_REFUSED:
            self.rows.append(refusal)
            if self.loud:
                print(plain(_refusal_line(refusal)), file=sys.stderr)


def import_file(where: Where, wanted: Import, *, as_json: bool) -> int:
    """Import a file, and tell what changed; a refused one ends with 2."""
    options = read_options(wanted)
    refused = Refused(loud=not as_json)
    options = replace(options, refused=refused if wanted.partial else None)

    async def do(source: Source) -> Imported:
        with _Showing(wanted.name) as showing, ExitStack() as stack:
            batches = stack.enter_context(_closing(_batches(wanted, options)))
            return await source.bring_in(
                wanted.name, batches, _shown(wanted.file), refused if wanted.partial else None, showing.told
            )

    try:
        imported = work(where, do, writing=True)
    except DatasetInvalid as error:
        if as_json:
            print_json(_import_document(wanted.name, None, Tally(), [*refused.rows, *error.refusals]))
        raise
    if as_json:
        print_json(_import_document(wanted.name, imported.dataset, imported.tally, refused.rows))
        return ExitCode.PASS
    out = console()
    dataset = imported.dataset
    what = tally_text(imported.tally) if imported.changed else "nothing has changed"
    out.print(f"{dataset.name} version {dataset.version}: {items_text(dataset.items)}; {what}", markup=False)
    if refused.count:
        rows = "1 row was" if refused.count == 1 else f"{count(refused.count)} rows were"
        print(f"{rows} refused", file=sys.stderr)
    return ExitCode.PASS


def read_options(wanted: Import) -> ReadOptions:
    """How a file is read."""
    if wanted.ids not in ("content", "position"):
        raise Invalid(Reason.REQUEST_INVALID, f"--ids is content or position, not {wanted.ids!r}")
    return ReadOptions(
        fields=dict(map(_mapped, wanted.maps)),
        ids="content" if wanted.ids == "content" else "position",
        format=wanted.format,
        delimiter="\t" if wanted.delimiter in ("\\t", "tab") else wanted.delimiter,
        encoding=wanted.encoding,
        records=wanted.records,
        join=wanted.join,
        foreign=wanted.foreign,
        shuffle_choices=wanted.shuffle_choices,
        tags=wanted.tags,
        remembered=REMEMBERED,
        by_option=True,
    )


def _mapped(text: str) -> tuple[str, FieldSource]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise Invalid(Reason.REQUEST_INVALID, f"--map {text!r} is not FIELD=PATH, as in input=question")
    if not path.startswith(("[", "{")) or path[1:2].isdigit():
        return name, FieldSource.model_validate(path)
    try:
        return name, FieldSource.model_validate(read_yaml(path).data)
    except (ValueError, DocumentError) as error:
        said = " ".join(str(error).split())[:200]
        raise Invalid(Reason.REQUEST_INVALID, f"--map {name}: {said}") from None


def _batches(wanted: Import, options: ReadOptions) -> Iterable[Batch]:
    if wanted.file != STDIN:
        return read_file(wanted.file, options)
    stdin = sys.stdin.buffer
    return read_stream(
        _unpacked_stdin(stdin, options.format), options.format or "jsonl", options, name="standard input"
    )


def _unpacked_stdin(stdin: Any, format: Format | None) -> BinaryIO:
    file: BinaryIO = stdin
    return file if format == "parquet" else unpacked(file, stdin.peek(8))


def _shown(file: str) -> str:
    return "standard input" if file == STDIN else file


def _closing(batches: Any) -> Any:
    return contextlib.closing(batches)


def _import_document(
    name: str, dataset: DatasetVersion | None, tally: Tally, refused: Sequence[Refusal]
) -> dict[str, Any]:
    return {
        "dataset": name,
        "version": None if dataset is None else dataset.version,
        "items": None if dataset is None else dataset.items,
        "added": tally.added,
        "changed": tally.changed,
        "removed": tally.removed,
        "refused": [{"line": each.line or None, "kind": each.kind, "message": each.message} for each in refused],
    }


def _refusal_line(refusal: Refusal) -> str:
    where = f"line {refusal.line}: " if refusal.line else ""
    return f"{where}{refusal.message} ({refusal.kind})"


class _Showing:
    """How far an import is, on a terminal."""

    def __init__(self, name: str) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[items]} items"),
            TimeElapsedColumn(),
            console=_stderr(),
            transient=True,
        )
        self._task = self._progress.add_task(plain(name), total=None, items="0")
        self._shown = self._progress.console.is_terminal

    def __enter__(self) -> _Showing:
        if self._shown:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._progress.stop()

    def told(self, items: int) -> None:
        if self._shown:
            self._progress.update(self._task, items=count(items))


def _stderr() -> Any:
    return Console(stderr=True)
