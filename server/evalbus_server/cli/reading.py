"""The work of `evalbus runs`, the same for a database and for a server."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from rich.console import Console
from rich.text import Text

from evalbus import CallFailed
from evalbus_server import logs
from evalbus_server.cli.client import Remote
from evalbus_server.cli.database import Database
from evalbus_server.cli.display import Display
from evalbus_server.cli.ends import conclude, document_of, present
from evalbus_server.cli.exits import Ending, ExitCode
from evalbus_server.cli.figures import NONE, count, length_of_time, number, plain, share
from evalbus_server.cli.files import NO_FILES, Files
from evalbus_server.cli.report import STYLES, console, print_json
from evalbus_server.cli.tables import Column, Table, right
from evalbus_server.errors import Reason
from evalbus_server.model.event import Event
from evalbus_server.model.result_filter import EVERYTHING, ResultFilter, ScoreFilter, written_score
from evalbus_server.model.run import Outcome, Run, RunState
from evalbus_server.model.summary import Summary
from evalbus_server.model.trial import StoredResult, epoch_of
from evalbus_server.runner.line import Progress
from evalbus_server.settings import database_path
from evalbus_server.store import RunFilter
from evalbus_server.watch.follow import Idle
from evalbus_server.wire.jsonform import event_document, result_document, run_document

PAGE = 256
"""Results in one table."""
COLUMNS = (
    *(Column(name) for name in ("run", "experiment", "state", "verdict")),
    *right("done", "passed", "errored"),
    *(Column(name, spare=True) for name in ("started", "took")),
)

T_ = TypeVar("T_")


class Source(Protocol):
    """Where runs are read from."""

    async def run(self, run_id: str) -> Run:
        """A run by its id, the beginning of it, or `latest`."""
        ...

    async def runs(self, wanted: RunFilter, limit: int) -> list[Run]:
        """Runs, the newest first."""
        ...

    def watch(self, run_id: str, after: int = 0) -> AsyncGenerator[Event | Progress | Idle, None]:
        """What happens in a run, to its end."""
        ...

    def results(self, run: Run, filter: ResultFilter = EVERYTHING) -> AsyncGenerator[tuple[StoredResult, Run], None]:
        """Results in dataset order, then epoch, each with its run."""
        ...

    async def summary(self, run: Run) -> Summary:
        """The numbers of a run."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs are, as the options say it."""

    db: Path | None
    server: str | None

    def open(self) -> Database | Remote:
        """What to read from."""
        if self.server is not None:
            return Remote(self.server, os.environ)
        return Database(database_path(self.db, os.environ))

    @property
    def options(self) -> str:
        """The options that lead there, for lines to be typed next."""
        if self.server is not None:
            return f" --server {shlex.quote(self.server)}"
        usual = database_path(None, os.environ)
        path = database_path(self.db, os.environ)
        return "" if path.resolve() == usual.resolve() else f" --db {shlex.quote(str(path))}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which runs are listed."""

    experiment: str
    dataset: str
    tag: str
    state: str | None
    limit: int


def read(place: Place, work: Callable[[Source], Awaitable[T_]]) -> T_:
    """Do some reading work."""
    logs.set_up("warning")

    async def opened() -> T_:
        async with place.open() as source:
            return await work(source)

    return asyncio.run(opened())


async def write_files(files: Files, place: Place, summary: Summary) -> None:
    """Write files about a run, with a reader of their own."""
    if files:
        async with place.open() as source:
            await files.write(source, summary)


# --- list and show ----------------------------------------------------------------------------------------------


async def list_runs(source: Source, chosen: Chosen, *, as_json: bool) -> None:
    """Print runs, the newest first."""
    state = None if chosen.state is None else RunState[chosen.state]
    wanted = RunFilter(experiment=chosen.experiment, dataset=chosen.dataset, tag=chosen.tag, state=state)
    runs = await source.runs(wanted, chosen.limit)
    if as_json:
        print_json({"runs": [run_document(run) for run in runs]})
        return
    out = console()
    if not runs:
        out.print("No runs.")
        return
    table = Table(*COLUMNS)
    for run in runs:
        table.add_row(*_row(run))
    table.print(out)


def _row(run: Run) -> Iterator[str | Text]:
    counts = run.counts
    verdict = NONE if run.verdict is None else run.verdict.name
    decided = counts.passed + counts.failed + counts.errored
    yield run.id
    yield Text(plain(run.name))
    yield run.state.name
    yield Text(verdict, STYLES.get(verdict, ""))
    yield f"{count(counts.done)} of {count(counts.planned)}"
    yield share(counts.passed / decided if decided else None)
    yield count(counts.errored)
    yield datetime.fromtimestamp(run.started_at or run.created_at).strftime("%Y-%m-%d %H:%M")
    rests = run.started_at is not None and run.session_began_at is None
    yield length_of_time(run.worked) if rests else NONE


async def show(source: Source, run_id: str, place: Place, *, as_json: bool) -> None:
    """Print the numbers of a run, and what it was told to do."""
    summary = await source.summary(await source.run(run_id))
    present(document_of(summary), place.options, as_json=as_json, settings=True)


# --- watch ------------------------------------------------------------------------------------------------------


async def watch(source: Source, run_id: str, place: Place, *, as_json: bool, files: Files = NO_FILES) -> int:
    """Follow a run to its end: as events, one a line, or as a display and a report."""
    run = await source.run(run_id)
    await follow_to_the_end(source, run, events=as_json)
    summary = await numbers_at_the_end(source, run, place)
    await files.write(source, summary)
    return conclude(summary, place.options, as_json=as_json, own=False, silent=as_json)


async def numbers_at_the_end(source: Source, run: Run, place: Place) -> Summary:
    """The numbers of a run that was followed to its end.

    Raises:
        Ending: the server that carried it out has ended too; the run keeps what is stored.
    """
    try:
        return await source.summary(await source.run(run.id))
    except CallFailed as error:
        if error.reason != Reason.SERVER_UNREACHABLE:
            raise
        message = (
            f"run {run.id} was followed until its server ended; what is stored stays. When the server is back: "
            f"evalbus runs show {run.id}{place.options}, and runs resume if it is INTERRUPTED"
        )
        raise Ending(ExitCode.TROUBLE, error.reason, message) from None


async def follow_to_the_end(source: Source, run: Run, *, events: bool) -> None:
    """Show how a run goes; *events*: print each event on a line, as JSON."""
    with Display(run.name) as display:
        async with aclosing(source.watch(run.id)) as news:
            async for each in news:
                match each:
                    case Event():
                        if events:
                            print(json.dumps(event_document(each), ensure_ascii=False), flush=True)
                        display.show_counts(each.fact.counts)
                    case Progress():
                        display.show(each)


# --- results ----------------------------------------------------------------------------------------------------


def chosen_results(
    outcomes: Sequence[str], item: str, tags: Sequence[str], scores: Sequence[str], text: str
) -> ResultFilter:
    """A filter as the options say it.

    Raises:
        Invalid: a condition on a score cannot be understood.
    """
    return ResultFilter(
        tuple(Outcome[each] for each in outcomes), item, tuple(tags), tuple(map(written_score, scores)), text
    )


async def results(source: Source, run_id: str, filter: ResultFilter, *, jsonl: bool) -> None:
    """Print results in dataset order, then epoch, as they are read."""
    run = await source.run(run_id)
    found = source.results(run, filter)
    out = console()
    page: list[tuple[StoredResult, Run]] = []
    some = False
    async with aclosing(found):
        async for result, its_run in found:
            some = True
            if jsonl:
                print(json.dumps(result_document(result, its_run), ensure_ascii=False, allow_nan=False))
                continue
            page.append((result, its_run))
            if len(page) == PAGE:
                _print_page(out, page)
                page = []
    if page:
        _print_page(out, page)
    if not some and not jsonl:
        out.print(Text(plain(_nothing(run, filter))), soft_wrap=True)


def _nothing(run: Run, filter: ResultFilter) -> str:
    """Why no result is shown."""
    if not run.counts.done:
        return f"No trial of run {run.id} has a result yet; it is {run.state.name}."
    said = [
        *(f"--outcome {outcome.name}" for outcome in filter.outcomes),
        *([f"--item {filter.item}"] if filter.item else ()),
        *(f"--tag {tag}" for tag in filter.tags),
        *(f"--score {_written(score)}" for score in filter.scores),
        *([f"--text {filter.text}"] if filter.text else ()),
    ]
    return (
        f"None of the {count(run.counts.done)} results of run {run.id} fits {' and '.join(said) or 'what was asked'}."
    )


def _written(score: ScoreFilter) -> str:
    """A condition on a score as people write it."""
    if score.missing or score.status is not None:
        return f"{score.key}={'missing' if score.status is None else score.status.name.lower()}"
    if score.at_least is not None and score.at_least == score.at_most:
        return f"{score.key}={score.at_least:g}"
    bounds = (("<", score.below), ("<=", score.at_most), (">", score.above), (">=", score.at_least))
    return "".join(f"{score.key}{sign}{bound:g}" for sign, bound in bounds if bound is not None)


def _print_page(out: Console, page: list[tuple[StoredResult, Run]]) -> None:
    keys = list(dict.fromkeys(key.key for _, run in page for key in run.score_keys))  # of a server: those it has told
    table = Table("item", "epoch", "outcome", *keys, Column("what", text=True))
    for result, run in page:
        table.add_row(*_result_row(result, run, keys))
    table.print(out)


def _result_row(result: StoredResult, run: Run, keys: Sequence[str]) -> Iterator[Text]:
    scores = {run.score_keys[place].key: stored for place, stored in result.scores.items()}
    yield Text(plain(result.item.id))
    yield Text(str(epoch_of(result.trial_id)))
    yield Text(result.outcome.name)
    for key in keys:
        stored = scores.get(key)
        if stored is None:
            yield Text(NONE)
        else:
            style = {True: "green", False: "red", None: ""}[stored.passed]
            score = stored.score
            yield Text(number(score.value) if score.value is not None else score.status.name.lower(), style)
    what = result.failure.message if result.failure is not None else _said(result)
    yield Text.assemble(("cached  " if result.cached else "", "dim"), plain(what)[:80])


def _said(result: StoredResult) -> str:
    output = result.output
    if output is None:
        return ""
    return str(output.answer or output.content or "")
