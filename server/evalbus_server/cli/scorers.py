"""`evalbus scorers`: the scorers that are built in."""

from __future__ import annotations

from typing import Annotated

import typer

from evalbus_server.cli.options import Json

app = typer.Typer(help="The scorers that are built in.", rich_markup_mode=None)


@app.command("list")
def list_scorers(as_json: Json = False) -> None:
    """List the builtin scorers, which an experiment names with `use`."""
    from evalbus_server.cli import describing

    describing.list_builtins(as_json=as_json)


@app.command()
def show(name: Annotated[str, typer.Argument(metavar="NAME")], as_json: Json = False) -> None:
    """Show what a builtin scorer takes and gives."""
    from evalbus_server.cli import describing

    describing.show_builtin(name, as_json=as_json)
