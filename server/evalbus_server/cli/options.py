"""The options that commands share. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

AcceptChanged: TypeAlias = Annotated[
    bool, typer.Option("--accept-changed", help="Go on though a plugin is not what it was.")
]
Db: TypeAlias = Annotated[
    Path | None,
    typer.Option("--db", metavar="F", help="The database [default: $EVALBUS_DB, else ./evalbus.db]."),
]
Detach: TypeAlias = Annotated[bool, typer.Option("--detach", help="With --server: start, print the id, do not wait.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Set a value of the file, as in limits.retries=0. Repeatable."),
]
Junit: TypeAlias = Annotated[
    Path | None,
    typer.Option("--junit", metavar="F", help="Write the trials and the verdict there as JUnit XML."),
]
Markdown: TypeAlias = Annotated[
    Path | None,
    typer.Option("--markdown", metavar="F", help="Write a summary there as Markdown."),
]
RunId: TypeAlias = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, the beginning of it, or `latest`.")]
Server: TypeAlias = Annotated[
    str | None,
    typer.Option("--server", metavar="A", help="Ask the server at this address instead of opening a database."),
]

Tags: TypeAlias = Annotated[list[str] | None, typer.Option("--tag", metavar="T", help="Add a tag. Repeatable.")]


def one_place(db: Path | None, server: str | None) -> None:
    """Refuse two places at once."""
    if db is not None and server is not None:
        raise typer.BadParameter("the server has its own database; leave one of the two out", param_hint="--db")
