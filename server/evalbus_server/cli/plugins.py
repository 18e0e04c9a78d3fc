"""`evalbus plugins`: look at a target or a scorer before an experiment uses it."""

from __future__ import annotations

from typing import Annotated

import typer

from evalbus_server.cli.options import Json

app = typer.Typer(help="Look at targets and scorers, and try them.", rich_markup_mode=None)

Text = str | None
Command = Annotated[Text, typer.Option(metavar="'WORDS'", help="Start it so, as in 'python target.py'.")]
Address = Annotated[Text, typer.Option(metavar="A", help="It listens there.")]
Plugin = Annotated[str, typer.Option(metavar="NAME", help="Which one, if several are served there.")]
IsTarget = Annotated[bool, typer.Option("--target", help="Look for a target only.")]
IsScorer = Annotated[bool, typer.Option("--scorer", help="Look for a scorer only.")]


@app.command()
def describe(  # noqa: PLR0913  # each is an option
    command: Command = None,
    address: Address = None,
    plugin: Plugin = "",
    target: IsTarget = False,
    scorer: IsScorer = False,
    as_json: Json = False,
) -> None:
    """Show what a plugin says of itself."""
    from evalbus_server.cli import describing

    describing.describe(describing.sought(command, address, plugin, target=target, scorer=scorer), as_json=as_json)


@app.command()
def check(  # noqa: PLR0913  # each is an option
    command: Command = None,
    address: Address = None,
    plugin: Plugin = "",
    target: IsTarget = False,
    scorer: IsScorer = False,
    settings: Annotated[str, typer.Option(metavar="JSON", help="Its settings.")] = "{}",
    input: Annotated[str, typer.Option(metavar="T", help="What the item asks.")] = "Hello",
    expected: Annotated[Text, typer.Option(metavar="T", help="What the item expects.")] = None,
    output: Annotated[str, typer.Option(metavar="T", help="What a scorer is given to judge.")] = "Hello",
    as_json: Json = False,
) -> int:
    """Open a conversation with a plugin and ask it one trial.

    Ends with 1 if the plugin could not do the trial.
    """
    from evalbus_server.cli import describing

    sought = describing.sought(command, address, plugin, target=target, scorer=scorer)
    return describing.check(sought, describing.OneTrial(settings, input, expected, output), as_json=as_json)
