"""`evalbus scorers`: the scorers that are built in, and one of them tried on one output."""

from __future__ import annotations

from typing import Annotated

import typer

from evalbus_server.cli.options import Json

app = typer.Typer(help="The scorers that are built in.", rich_markup_mode=None)

Text = str | None


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


@app.command("try")
def try_scorer(  # noqa: PLR0913  # each is an option
    name: Annotated[str, typer.Argument(metavar="NAME")],
    settings: Annotated[str, typer.Option(metavar="JSON", help="Its settings.")] = "{}",
    input: Annotated[str, typer.Option(metavar="T", help="What the item asks.")] = "",
    output: Annotated[Text, typer.Option(metavar="T", help="What is judged, as text.")] = None,
    output_json: Annotated[Text, typer.Option(metavar="JSON", help="What is judged, as JSON.")] = None,
    expected: Annotated[Text, typer.Option(metavar="T", help="What the item expects, as text.")] = None,
    expected_json: Annotated[Text, typer.Option(metavar="JSON", help="The same as JSON: a list means any of.")] = None,
    metadata: Annotated[str, typer.Option(metavar="JSON", help="The item's metadata.")] = "{}",
    choices: Annotated[str, typer.Option(metavar="JSON", help="The item's choices: a list of texts.")] = "[]",
    calls: Annotated[
        str, typer.Option(metavar="JSON", help='Tool calls: [{"name": "search", "arguments": {}}, …].')
    ] = "[]",
    spans: Annotated[
        str, typer.Option(metavar="JSON", help='Spans: [{"id": "1", "name": "plan", "parent_id": ""}, …].')
    ] = "[]",
    usage: Annotated[
        str, typer.Option(metavar="JSON", help='What it used: {"output_tokens": 40, "cost": {"amount": 0.01}}.')
    ] = "{}",
    timing: Annotated[
        str, typer.Option(metavar="JSON", help='How long it took, in seconds: {"total": 1.5, "first_token": 0.2}.')
    ] = "{}",
    as_json: Json = False,
) -> None:
    """Judge one output with a builtin scorer, without a run."""
    from evalbus_server.cli import trying

    more = trying.More(calls, spans, usage, timing)
    texts = trying.Texts(settings, input, output, output_json, expected, expected_json, metadata, choices, more)
    trying.try_builtin(name, texts, as_json=as_json)
