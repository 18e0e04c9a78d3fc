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

# What an item is, and the output that is judged: of commands that try one.
AsText: TypeAlias = str | None
ItemExpected: TypeAlias = Annotated[
    AsText, typer.Option("--expected", metavar="T", help="What the item expects, as text.")
]
ItemExpectedJson: TypeAlias = Annotated[
    AsText, typer.Option("--expected-json", metavar="JSON", help="The same as JSON: a list means any of.")
]
ItemMetadata: TypeAlias = Annotated[str, typer.Option("--metadata", metavar="JSON", help="The item's metadata.")]
ItemChoices: TypeAlias = Annotated[
    str, typer.Option("--choices", metavar="JSON", help="The item's choices: a list of texts.")
]
OutputText: TypeAlias = Annotated[AsText, typer.Option("--output", metavar="T", help="What is judged, as text.")]
OutputJson: TypeAlias = Annotated[
    AsText, typer.Option("--output-json", metavar="JSON", help="What is judged, as JSON.")
]
OutputCalls: TypeAlias = Annotated[
    str, typer.Option("--calls", metavar="JSON", help='Tool calls: [{"name": "search", "arguments": {}}, …].')
]
OutputSpans: TypeAlias = Annotated[
    str, typer.Option("--spans", metavar="JSON", help='Spans: [{"id": "1", "name": "plan", "parent_id": ""}, …].')
]
OutputUsage: TypeAlias = Annotated[
    str, typer.Option("--usage", metavar="JSON", help='What it used: {"output_tokens": 40, "cost": {"amount": 0.01}}.')
]
OutputTiming: TypeAlias = Annotated[
    str,
    typer.Option("--timing", metavar="JSON", help='How long it took, in seconds: {"total": 1.5, "first_token": 0.2}.'),
]
Maps: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="INPUT=PATH", help="Where an input of the scorer is, as in an experiment. Repeatable."
    ),
]
PluginSettings: TypeAlias = Annotated[str, typer.Option("--settings", metavar="JSON", help="Its settings.")]

Tags: TypeAlias = Annotated[list[str] | None, typer.Option("--tag", metavar="T", help="Add a tag. Repeatable.")]


def example(line: str) -> str:
    """What stands below the options of a command: how it is typed."""
    return f"Example: {line}"


def one_place(db: Path | None, server: str | None) -> None:
    """Refuse two places at once."""
    if db is not None and server is not None:
        raise typer.BadParameter("the server has its own database; leave one of the two out", param_hint="--db")
