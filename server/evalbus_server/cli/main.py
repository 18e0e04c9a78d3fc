"""The commands put together. Help must be quick: nothing heavy is imported before a command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from evalbus import __version__
from evalbus_server.cli import cache, dataset, experiment, plugins, proto, run, runs, scorers, serve
from evalbus_server.cli.exits import guarded
from evalbus_server.cli.options import example

app = typer.Typer(
    name="evalbus",
    help="Evaluate AI agents: items to a target, its outputs to scorers, numbers and a verdict in the end.",
    epilog="Exit codes: 0 pass, 1 fail, 2 refused, 3 inconclusive, 4 could not be carried out, 130 interrupted.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("run", epilog=example("evalbus run desk.yaml --limit 10 --set limits.retries=0"))(run.run)
app.command("serve", epilog=example("evalbus serve --listen 127.0.0.1:50051 --db team.db"))(serve.serve)
app.command("cache", epilog=example("evalbus cache --clear"))(cache.cache)
app.add_typer(runs.app, name="runs")
app.add_typer(dataset.app, name="dataset")
app.add_typer(experiment.app, name="experiment")
app.add_typer(scorers.app, name="scorers")
app.add_typer(plugins.app, name="plugins")
app.add_typer(proto.app, name="proto")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (that of the process by default) and exit with its code."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # or it writes of each broken handshake between our lines
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    sys.exit(guarded(lambda: app(words, prog_name="evalbus", standalone_mode=False), as_json=as_json))


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"evalbus {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
