"""`evalbus runs`: what is stored of runs, also while another process works on them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evalbus_server.cli.files import wanted_files
from evalbus_server.cli.options import (
    AcceptChanged,
    Db,
    Detach,
    Json,
    Junit,
    Markdown,
    Overrides,
    RunId,
    Server,
    Tags,
    example,
    one_place,
)

if TYPE_CHECKING:
    from evalbus_server.cli.reading import Place

app = typer.Typer(help="List, show, watch and control runs, and read their results.", rich_markup_mode=None)


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


@app.command("list", epilog=example("evalbus runs list --experiment nightly --state completed"))
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


@app.command(epilog=example("evalbus runs show latest"))
def show(run: RunId, db: Db = None, server: Server = None, as_json: Json = False) -> None:
    """Show the numbers and the verdict of a run."""
    one_place(db, server)
    from evalbus_server.cli import reading

    place = reading.Place(db, server)
    reading.read(place, lambda source: reading.show(source, run, place, as_json=as_json))


@app.command(epilog=example("evalbus runs watch latest"))
def watch(  # noqa: PLR0913  # each is an option
    run: RunId,
    db: Db = None,
    server: Server = None,
    junit: Junit = None,
    markdown: Markdown = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one event a line, as JSON.")] = False,
) -> int:
    """Follow a run to its end, live or later.

    Ends with the code of the verdict. Ctrl-C stops the watching only.
    """
    one_place(db, server)
    files = wanted_files(junit, markdown)
    from evalbus_server.cli import reading

    place = reading.Place(db, server)
    return reading.read(place, lambda source: reading.watch(source, run, place, as_json=as_json, files=files))


@app.command(epilog=example("evalbus runs results latest --outcome failed --score 'tone<0.5'"))
def results(  # noqa: PLR0913  # each is an option
    run: RunId,
    outcome: Annotated[list[Outcome] | None, typer.Option(case_sensitive=False, help="Only these. Repeatable.")] = None,
    item: Annotated[str, typer.Option(metavar="GLOB", help="Only items whose id matches.")] = "",
    tag: Annotated[list[str] | None, typer.Option(metavar="T", help="Only items with this tag. Repeatable.")] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(metavar="S", help="Only where it holds: tone<0.5, tone=errored, tone=missing. Repeatable."),
    ] = None,
    text: Annotated[str, typer.Option(metavar="T", help="Only where this text stands, in any case.")] = "",
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Print one trial a line, as JSON, with everything.")] = False,
    db: Db = None,
    server: Server = None,
) -> None:
    """List the results of a run.

    They come in the order of the dataset, then by epoch.
    """
    one_place(db, server)
    from evalbus_server.cli import reading

    chosen = reading.chosen_results([each.value for each in outcome or ()], item, tag or (), score or (), text)
    reading.read(reading.Place(db, server), lambda source: reading.results(source, run, chosen, jsonl=jsonl))


@app.command(epilog=example("evalbus runs resume latest"))
def resume(  # noqa: PLR0913  # each is an option
    run: RunId,
    accept_changed: AcceptChanged = False,
    db: Db = None,
    server: Server = None,
    detach: Detach = False,
    junit: Junit = None,
    markdown: Markdown = None,
    as_json: Json = False,
) -> int:
    """Go on with a run that has halted: only what is missing is done.

    It was paused, interrupted, aborted or cancelled. Ends with the code of the verdict, as `evalbus run`.
    """
    place = _place(db, server, detach)
    files = wanted_files(junit, markdown, detach=detach)
    from evalbus_server.cli import control

    return control.resume(run, place, accept_changed=accept_changed, as_json=as_json, detach=detach, files=files)


@app.command(epilog=example("evalbus runs retry latest"))
def retry(  # noqa: PLR0913  # each is an option
    run: RunId,
    accept_changed: AcceptChanged = False,
    db: Db = None,
    server: Server = None,
    detach: Detach = False,
    junit: Junit = None,
    markdown: Markdown = None,
    as_json: Json = False,
) -> int:
    """Ask again what is ERRORED in a run that is over.

    The target is asked where it failed, else the scorers that failed. Ends with the code of the verdict.
    """
    place = _place(db, server, detach)
    files = wanted_files(junit, markdown, detach=detach)
    from evalbus_server.cli import control

    return control.retry(run, place, accept_changed=accept_changed, as_json=as_json, detach=detach, files=files)


@app.command(epilog=example("evalbus runs rescore latest --set scorers.tone.threshold=0.9"))
def rescore(  # noqa: PLR0913  # each is an option
    run: RunId,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The experiment with the scorers; without it, the run's own.")
    ] = None,
    overrides: Overrides = None,
    tag: Tags = None,
    db: Db = None,
    server: Server = None,
    detach: Detach = False,
    junit: Junit = None,
    markdown: Markdown = None,
    as_json: Json = False,
) -> int:
    """Score the outputs of a finished run anew, in a new run.

    The target is not asked. Ends with the code of the new run's verdict.
    """
    place = _place(db, server, detach)
    files = wanted_files(junit, markdown, detach=detach)
    if file is None and not overrides:
        raise typer.BadParameter("give an experiment FILE, or what is to be set anew in that of the run with --set")
    from evalbus_server.cli import control

    how = control.Rescoring(file, tuple(overrides or ()), tuple(tag or ()))
    return control.rescore(run, place, how, as_json=as_json, detach=detach, files=files)


@app.command(epilog=example("evalbus runs pause latest"))
def pause(run: RunId, db: Db = None, server: Server = None, as_json: Json = False) -> int:
    """Pause a run: trials in flight finish, and it can be resumed."""
    place = _place(db, server)
    from evalbus_server.cli import control

    return control.tell(run, place, control.PAUSE, as_json=as_json)


@app.command(epilog=example("evalbus runs cancel latest"))
def cancel(run: RunId, db: Db = None, server: Server = None, as_json: Json = False) -> int:
    """Cancel a run; what is stored stays."""
    place = _place(db, server)
    from evalbus_server.cli import control

    return control.tell(run, place, control.CANCEL, as_json=as_json)


@app.command("set", epilog=example("evalbus runs set latest limits.concurrency=4 limits.cost=10"))
def set_limits(
    run: RunId,
    settings: Annotated[list[str], typer.Argument(metavar="PATH=VALUE...", help="As in limits.concurrency=4.")],
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Change limits of a run, also while it is at work."""
    place = _place(db, server)
    from evalbus_server.cli import control

    return control.tell(run, place, control.change(settings), as_json=as_json)


@app.command(epilog=example("evalbus runs delete r1a22d563bd55 --yes"))
def delete(
    run: RunId,
    yes: Annotated[bool, typer.Option("--yes", help="Do it: nothing brings the run back.")] = False,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Delete a run that is over, with all its results."""
    place = _place(db, server)
    if not yes:
        raise typer.BadParameter("nothing brings the run back: say --yes", param_hint="--yes")
    from evalbus_server.cli import control

    return control.delete(run, place, as_json=as_json)


def _place(db: Path | None, server: str | None, detach: bool = False) -> Place:
    one_place(db, server)
    if detach and server is None:
        message = "it needs --server, since a run without one ends with this command"
        raise typer.BadParameter(message, param_hint="--detach")
    from evalbus_server.cli.reading import Place

    return Place(db, server)
