"""`evalbus run`: one experiment, from its file to its verdict."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from evalbus_server.cli.files import wanted_files
from evalbus_server.cli.options import Db, Detach, Json, Junit, Markdown, Overrides, Server, Tags, one_place


def run(  # noqa: PLR0913  # each is an option
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment: YAML, JSON or TOML.")],
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Ask only the first N items.")] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Ask the target so many trials at a time."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", min=1, help="Ask each item N times.")] = None,
    overrides: Overrides = None,
    tag: Tags = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, ask nothing, store nothing.")] = False,
    db: Db = None,
    server: Server = None,
    detach: Detach = False,
    junit: Junit = None,
    markdown: Markdown = None,
    as_json: Json = False,
) -> int:
    """Run an experiment and show its numbers and verdict.

    Ctrl-C lets trials in flight finish for 10 s; what has a result stays stored. Ctrl-C again leaves at once.
    """
    _refuse_contradictions(db, server, detach, dry_run)
    files = wanted_files(junit, markdown, detach=detach, dry_run=dry_run)
    from evalbus_server.cli import running
    from evalbus_server.settings import database_path

    options = (("dataset.limit", limit), ("limits.concurrency", concurrency), ("epochs.count", epochs))
    asked = running.Asked(
        file=file,
        overrides=(*(f"{path}={value}" for path, value in options if value is not None), *(overrides or ())),
        tags=tuple(tag or ()),
        db=database_path(db, os.environ),
        as_json=as_json,
        files=files,
    )
    if server is None:
        return running.plan(asked) if dry_run else running.run(asked)
    from evalbus_server.cli import reading, remote

    place = reading.Place(None, server)
    return remote.plan(asked, place) if dry_run else remote.run(asked, place, detach=detach)


def _refuse_contradictions(db: Path | None, server: str | None, detach: bool, dry_run: bool) -> None:
    if detach and server is None:
        raise typer.BadParameter(
            "it needs --server, since a run without one ends with this command", param_hint="--detach"
        )
    one_place(db, server)
    if dry_run and detach:
        raise typer.BadParameter("a dry run starts nothing; leave --detach out", param_hint="--detach")
