"""The work of `evalbus runs` over a database: read-only, whoever writes it meanwhile, and never in his way."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.text import Text

from evalbus_server import logs
from evalbus_server.app import read_summary
from evalbus_server.cli.display import Display
from evalbus_server.cli.ends import conclude, present
from evalbus_server.cli.figures import NONE, count, length_of_time, number, plain, share
from evalbus_server.cli.report import STYLES, console, print_json, table_of
from evalbus_server.errors import NotFound, Reason
from evalbus_server.model.event import Event
from evalbus_server.model.run import Counts, Outcome, Run, RunState
from evalbus_server.model.trial import StoredResult, epoch_of, position_of
from evalbus_server.runner.line import Progress
from evalbus_server.settings import database_path
from evalbus_server.store import Reader, RunFilter, open_reader
from evalbus_server.watch.bell import Bell
from evalbus_server.watch.follow import Followed, follow
from evalbus_server.wire.jsonform import event_document, result_document, run_document, summary_document

POLL = 0.25
"""Seconds between two looks whether somebody has written."""
ATTENDED = 2.0
"""Seconds between two looks whether a run still has somebody who works on it: nothing is written when he dies."""
PAGE = 256
LATEST = ("latest", "last")
COLUMNS = ("run", "experiment", "state", "verdict", "done", "passed", "errored", "started", "took")
SHORT = 6
"""So many of the columns fit a narrow terminal."""
WIDE = 120
LIST_WIDTH = 200
"""The width of lists where nobody looks at a terminal."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which runs are listed."""

    experiment: str
    dataset: str
    tag: str
    state: str | None
    limit: int


def open_for(db: Path | None, environ: Mapping[str, str] = os.environ) -> Reader:
    """The database that a command reads."""
    logs.set_up("warning")
    return open_reader(database_path(db, environ))


def find(reader: Reader, run_id: str) -> Run:
    """A run by its id, the beginning of it, or as the latest one.

    Raises:
        NotFound: there is none.
    """
    if run_id not in LATEST:
        return reader.run(run_id)
    newest = reader.runs(limit=1)
    if not newest:
        raise NotFound(Reason.RUN_NOT_FOUND, f"{reader.path} holds no run; start one with evalbus run FILE")
    return newest[0]


# --- list -------------------------------------------------------------------------------------------------------


def list_runs(reader: Reader, chosen: Chosen, *, as_json: bool) -> None:
    """Print runs, the newest first."""
    state = None if chosen.state is None else RunState[chosen.state]
    wanted = RunFilter(experiment=chosen.experiment, dataset=chosen.dataset, tag=chosen.tag, state=state)
    runs = reader.runs(wanted, chosen.limit)
    if as_json:
        print_json({"runs": [run_document(run) for run in runs]})
        return
    out = console(LIST_WIDTH)
    columns = COLUMNS if out.width >= WIDE else COLUMNS[:SHORT]
    table = table_of(*columns, right=(4, 5, 6))
    for column in table.columns:
        column.no_wrap = column.header != "experiment"
    for run in runs:
        table.add_row(*itertools.islice(_row(run), len(columns)))
    out.print(table if runs else "No runs.")


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
    took = run.ended_at is not None and run.started_at is not None
    yield length_of_time(run.ended_at - run.started_at) if took else NONE  # type: ignore[operator]


# --- show -------------------------------------------------------------------------------------------------------


def show(reader: Reader, run_id: str, *, as_json: bool) -> None:
    """Print the numbers of a run."""
    run = find(reader, run_id)
    present(summary_document(read_summary(reader, run)), reader.path, as_json=as_json)


# --- watch ------------------------------------------------------------------------------------------------------


def watch(reader: Reader, run_id: str, *, as_json: bool) -> int:
    """Follow a run to its end: as events, one a line, or as a display and a report."""
    run = find(reader, run_id)
    asyncio.run(_watch(reader, run, as_json=as_json))
    summary = read_summary(reader, reader.run(run.id))
    return conclude(summary, reader.path, as_json=as_json, own=False, silent=as_json)


async def _watch(reader: Reader, run: Run, *, as_json: bool) -> None:
    bell = Bell()
    ringing = asyncio.create_task(_ring(reader, run.id, bell))
    source = Followed(
        events=lambda run_id, after, limit: reader.events(run_id, after=after, limit=limit),
        run=reader.run,
        progress=lambda _: None,
        bell=bell,
        poll=ATTENDED,
    )
    try:
        with Display(run.name) as display:
            async for news in follow(source, run.id, 0):
                if isinstance(news, Event):
                    if as_json:
                        print(json.dumps(event_document(news), ensure_ascii=False), flush=True)
                    display.show(_progress(news.fact.counts))
    finally:
        ringing.cancel()
        await asyncio.gather(ringing, return_exceptions=True)


async def _ring(reader: Reader, run_id: str, bell: Bell) -> None:
    """Ring whenever another process has written."""
    seen = reader.data_version()
    while True:
        await asyncio.sleep(POLL)
        version = reader.data_version()
        if version != seen:
            seen = version
            bell.ring(run_id)


def _progress(counts: Counts) -> Progress:
    """Another process knows more; this is what it stores."""
    return Progress(counts, answered=counts.done, in_flight=0, means=[])


# --- results ----------------------------------------------------------------------------------------------------


def results(reader: Reader, run_id: str, outcomes: Sequence[str], item: str, *, jsonl: bool) -> None:
    """Print results in dataset order, then epoch; a page at a time, however many there are."""
    run = find(reader, run_id)
    pages = _pages(reader, run, [Outcome[each] for each in outcomes], item)
    if jsonl:
        for page in pages:
            for result in page:
                print(json.dumps(result_document(result, run), ensure_ascii=False, allow_nan=False))
        return
    out = console(LIST_WIDTH)
    for page in pages:
        table = table_of("item", "epoch", "outcome", *(key.key for key in run.score_keys), "what", right=())
        for column in table.columns:
            column.no_wrap = True
            column.overflow = "ellipsis"
        for result in page:
            table.add_row(*_result_row(result, run))
        out.print(table)


def _pages(reader: Reader, run: Run, outcomes: Sequence[Outcome], item: str) -> Iterator[list[StoredResult]]:
    after: tuple[int, int] | None = None
    while page := reader.results(run, outcomes=outcomes, item_glob=item, after=after, limit=PAGE):
        yield page
        after = (position_of(page[-1].trial_id), epoch_of(page[-1].trial_id))


def _result_row(result: StoredResult, run: Run) -> Iterator[Text]:
    yield Text(plain(result.item.id))
    yield Text(str(epoch_of(result.trial_id)))
    yield Text(result.outcome.name)
    for place in range(len(run.score_keys)):
        stored = result.scores.get(place)
        if stored is None:
            yield Text(NONE)
        else:
            style = {True: "green", False: "red", None: ""}[stored.passed]
            score = stored.score
            yield Text(number(score.value) if score.value is not None else score.status.name.lower(), style)
    what = result.failure.message if result.failure is not None else _said(result)
    yield Text(plain(what)[:80])


def _said(result: StoredResult) -> str:
    output = result.output
    if output is None:
        return ""
    return str(output.answer or output.content or "")
