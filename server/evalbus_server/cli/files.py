"""Files about a run that others read: JUnit XML for CI, a summary in Markdown for people. Written once it is over.

Imports nothing heavy: every command that carries a run out or follows one has options of this kind.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import typer

from evalbus_server.cli.exits import Ending, ExitCode

if TYPE_CHECKING:
    from evalbus_server.model.result_filter import ResultFilter
    from evalbus_server.model.run import Run
    from evalbus_server.model.summary import Summary
    from evalbus_server.model.trial import StoredResult


class ResultSource(Protocol):
    """Where the results of a run are read from."""

    def results(self, run: Run, filter: ResultFilter = ...) -> AsyncGenerator[tuple[StoredResult, Run], None]:
        """Results in dataset order, then epoch, each with its run."""
        ...


@dataclass(frozen=True, slots=True)
class Files:
    """Which files are wanted."""

    junit: Path | None = None
    markdown: Path | None = None

    def __bool__(self) -> bool:
        """Whether any is."""
        return self.junit is not None or self.markdown is not None

    def check(self) -> Files:
        """These files, if they can be written where they are wanted: a run is not to end in vain.

        Raises:
            BadParameter: one cannot; nothing was asked yet.
        """
        for option, path in (("--junit", self.junit), ("--markdown", self.markdown)):
            if path is None:
                continue
            if path.is_dir():
                raise typer.BadParameter(f"{path} is a folder; give a file", param_hint=option)
            folder = path.absolute().parent
            if not folder.is_dir():
                raise typer.BadParameter(f"there is no folder {folder}; make it first", param_hint=option)
            if not os.access(folder, os.W_OK):
                raise typer.BadParameter(f"the folder {folder} may not be written to", param_hint=option)
        return self

    async def write(self, source: ResultSource, summary: Summary) -> None:
        """Write what is wanted about a run; a file is whole or as it was before.

        Raises:
            Ending: a file could not be written.
        """
        # Here, so that a run without files does not pay for an XML library.
        from evalbus_server.cli.junit import write_junit
        from evalbus_server.cli.markdown import write_markdown

        await _write("--junit", self.junit, write_junit, source, summary)
        await _write("--markdown", self.markdown, write_markdown, source, summary)


NO_FILES = Files()


def wanted_files(junit: Path | None, markdown: Path | None, *, detach: bool = False, dry_run: bool = False) -> Files:
    """The files that the options ask for, if they can be written.

    Raises:
        BadParameter: they cannot, or there will be nothing to write.
    """
    files = Files(junit, markdown)
    if files and (detach or dry_run):
        option = "--markdown" if junit is None else "--junit"
        why = "this command does not see the end of the run" if detach else "a dry run has no results"
        raise typer.BadParameter(f"{why}; leave it out", param_hint=option)
    return files.check()


async def _write(
    option: str,
    path: Path | None,
    write: Callable[[TextIOWrapper, ResultSource, Summary], Awaitable[None]],
    source: ResultSource,
    summary: Summary,
) -> None:
    if path is None:
        return
    try:
        with whole(path) as raw, TextIOWrapper(raw, encoding="utf-8", newline="\n") as file:
            await write(file, source, summary)
    except OSError as error:
        raise Ending(ExitCode.TROUBLE, "IO", f"{option} {path}: {error.strerror or error}") from None


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its place once it is complete; what is no file, such as a pipe, is written as it is."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    place = path.resolve()
    handle, made = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with open(handle, "wb") as file:
            yield file
        os.chmod(made, 0o666 & ~_umask())
        os.replace(made, place)
    except BaseException:
        os.unlink(made)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
