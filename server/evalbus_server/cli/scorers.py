"""`evalbus scorers`: the scorers that an experiment just names, and one of them tried on one output."""

from __future__ import annotations

from typing import Annotated

import typer

from evalbus_server.cli.options import (
    ItemChoices,
    ItemExpected,
    ItemExpectedJson,
    ItemMetadata,
    Json,
    Maps,
    OutputCalls,
    OutputJson,
    OutputSpans,
    OutputText,
    OutputTiming,
    OutputUsage,
    PluginSettings,
    example,
)

app = typer.Typer(help="The scorers that are built in.", rich_markup_mode=None)


@app.command("list", epilog=example("evalbus scorers list"))
def list_scorers(as_json: Json = False) -> None:
    """List the builtin scorers, which an experiment names with `use`."""
    from evalbus_server.cli import describing

    describing.list_builtins(as_json=as_json)


@app.command(epilog=example("evalbus scorers show includes"))
def show(name: Annotated[str, typer.Argument(metavar="NAME")], as_json: Json = False) -> None:
    """Show what a scorer, or a number over all trials, takes and gives."""
    from evalbus_server.cli import describing

    describing.show_scorer(name, as_json=as_json)


@app.command("try", epilog=example("evalbus scorers try levenshtein --output kitten --expected sitting"))
def try_scorer(  # noqa: PLR0913  # each is an option
    name: Annotated[str, typer.Argument(metavar="NAME")],
    settings: PluginSettings = "{}",
    input: Annotated[str, typer.Option(metavar="T", help="What the item asks.")] = "",
    output: OutputText = None,
    output_json: OutputJson = None,
    expected: ItemExpected = None,
    expected_json: ItemExpectedJson = None,
    metadata: ItemMetadata = "{}",
    choices: ItemChoices = "[]",
    calls: OutputCalls = "[]",
    spans: OutputSpans = "[]",
    usage: OutputUsage = "{}",
    timing: OutputTiming = "{}",
    maps: Maps = None,
    as_json: Json = False,
) -> None:
    """Judge one output with a scorer, without a run.

    NAME is what an experiment says in `use`: a builtin, or a scorer of another library.
    """
    from evalbus_server.cli import one_trial, trying

    more = one_trial.More(calls, spans, usage, timing)
    texts = one_trial.Texts(input, output, output_json, expected, expected_json, metadata, choices, more)
    trying.try_scorer(name, settings, one_trial.mapping(maps or []), texts, as_json=as_json)
