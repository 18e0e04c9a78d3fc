"""`evalbus plugins`: look at a target or a scorer before an experiment uses it."""

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

app = typer.Typer(help="Look at targets and scorers, and try them.", rich_markup_mode=None)

Text = str | None
Command = Annotated[Text, typer.Option(metavar="'WORDS'", help="Start it so, as in 'python target.py'.")]
Address = Annotated[Text, typer.Option(metavar="A", help="It listens there.")]
Plugin = Annotated[str, typer.Option(metavar="NAME", help="Which one, if several are served there.")]
Use = Annotated[Text, typer.Option(metavar="NAME", help="A builtin, or a scorer of another library.")]
IsTarget = Annotated[bool, typer.Option("--target", help="Look for a target only.")]
IsScorer = Annotated[bool, typer.Option("--scorer", help="Look for a scorer only.")]


@app.command(epilog=example("evalbus plugins describe --command 'python target.py'"))
def describe(  # noqa: PLR0913  # each is an option
    command: Command = None,
    address: Address = None,
    use: Use = None,
    plugin: Plugin = "",
    target: IsTarget = False,
    scorer: IsScorer = False,
    as_json: Json = False,
) -> None:
    """Show what a plugin says of itself."""
    from evalbus_server.cli import describing

    way = describing.Way(command, address, use)
    describing.describe(describing.sought(way, plugin, target=target, scorer=scorer), as_json=as_json)


@app.command(epilog=example("evalbus plugins check --command 'python polite.py' --output 'Thank you'"))
def check(  # noqa: PLR0913  # each is an option
    command: Command = None,
    address: Address = None,
    use: Use = None,
    plugin: Plugin = "",
    target: IsTarget = False,
    scorer: IsScorer = False,
    settings: PluginSettings = "{}",
    input: Annotated[str, typer.Option(metavar="T", help="What the item asks.")] = "Hello",
    expected: ItemExpected = None,
    expected_json: ItemExpectedJson = None,
    metadata: ItemMetadata = "{}",
    choices: ItemChoices = "[]",
    output: OutputText = None,
    output_json: OutputJson = None,
    calls: OutputCalls = "[]",
    spans: OutputSpans = "[]",
    usage: OutputUsage = "{}",
    timing: OutputTiming = "{}",
    maps: Maps = None,
    as_json: Json = False,
) -> int:
    """Open a conversation with a plugin and ask it one trial.

    A scorer judges the text Hello unless you say otherwise. Ends with 1 if the plugin could not do the trial.
    """
    from evalbus_server.cli import checking, describing, one_trial

    sought = describing.sought(describing.Way(command, address, use), plugin, target=target, scorer=scorer)
    more = one_trial.More(calls, spans, usage, timing)
    texts = one_trial.Texts(input, output, output_json, expected, expected_json, metadata, choices, more)
    return checking.check(sought, settings, one_trial.mapping(maps or []), texts, as_json=as_json)
