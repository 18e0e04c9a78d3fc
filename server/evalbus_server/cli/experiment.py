"""`evalbus experiment`: about experiment files."""

from __future__ import annotations

import typer

from evalbus_server.cli.options import example

app = typer.Typer(help="Experiment files.", rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """A group, though it has one command."""


@app.command(epilog=example("evalbus experiment schema > experiment.schema.json"))
def schema() -> None:
    """Print the JSON Schema of experiment files, for editors."""
    import json

    from evalbus_server.model.experiment import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
