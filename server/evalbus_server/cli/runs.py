"""`evalbus runs`: what is stored of runs, also while another process works on them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from evalbus_server.cli.options import Db, Json, RunId, Server, one_place

app = typer.Typer(help="List, show and watch runs, and read their results.", rich_markup_mode=None)


class State(StrEnum):
    """How far a run is; the names of `model.run.RunState`."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    INTERRUPTED = "INTERRUPTED"
    ABORTED = "ABORTED"


class Outcome(StrEnum):
    """What became of a trial; the names of `model.run.Outcome`."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    ERRORED = "ERRORED"
    SKIPPED = "SKIPPED"


@app.command("list")
def list_runs(  # noqa: PLR0913  # each is an option
    experiment: Annotated[str, typer.Option(metavar="NAME", help="Only runs of this experiment.")] = "",
    dataset: Annotated[str, typer.Option(metavar="NAME", help="Only runs over this dataset.")] = "",
    tag: Annotated[str, typer.Option(metavar="T", help="Only runs with this tag.")] = "",
    state: Annotated[State | None, typer.Option(case_sensitive=False, help="Only runs in this state.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = 20,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List runs, the newest first."""
    one_place(db, server)
    from evalbus_server.cli import reading

    chosen = reading.Chosen(experiment, dataset, tag, None if state is None else state.value, limit)
    reading.read(reading.Place(db, server), lambda source: reading.list_runs(source, chosen, as_json=as_json))


@app.command()
def show(run: RunId, db: Db = None, server: Server = None, as_json: Json = False) -> None:
    """Show the numbers and the verdict of a run."""
    one_place(db, server)
    from evalbus_server.cli import reading

    place = reading.Place(db, server)
    reading.read(place, lambda source: reading.show(source, run, place, as_json=as_json))


@app.command()
def watch(
    run: RunId,
    db: Db = None,
    server: Server = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one event a line, as JSON.")] = False,
) -> int:
    """Follow a run to its end, live or later.

    Ends with the code of the verdict. Ctrl-C stops the watching only.
    """
    one_place(db, server)
    from evalbus_server.cli import reading

    place = reading.Place(db, server)
    return reading.read(place, lambda source: reading.watch(source, run, place, as_json=as_json))


@app.command()
def results(  # noqa: PLR0913  # each is an option
    run: RunId,
    outcome: Annotated[list[Outcome] | None, typer.Option(case_sensitive=False, help="Only these. Repeatable.")] = None,
    item: Annotated[str, typer.Option(metavar="GLOB", help="Only items whose id matches.")] = "",
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Print one trial a line, as JSON, with everything.")] = False,
    db: Db = None,
    server: Server = None,
) -> None:
    """List the results of a run.

    They come in the order of the dataset, then by epoch.
    """
    one_place(db, server)
    from evalbus_server.cli import reading

    outcomes = [each.value for each in outcome or ()]
    reading.read(reading.Place(db, server), lambda source: reading.results(source, run, outcomes, item, jsonl=jsonl))
