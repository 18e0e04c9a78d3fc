"""The work of the commands that change a run: go on with it, pause it, cancel it; for a database and for a server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from evalbus import CallFailed
from evalbus_server import logs
from evalbus_server.api.control import ask
from evalbus_server.app import App, embedded
from evalbus_server.cli import remote
from evalbus_server.cli.causes import cause_in
from evalbus_server.cli.client import Remote
from evalbus_server.cli.database import Database
from evalbus_server.cli.display import Display
from evalbus_server.cli.ends import conclude
from evalbus_server.cli.exits import ExitCode
from evalbus_server.cli.files import NO_FILES, Files
from evalbus_server.cli.reading import Place, write_files
from evalbus_server.cli.report import console, print_json
from evalbus_server.cli.running import Interrupts, follow
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Run
from evalbus_server.runner.documents import DocumentError, read_yaml
from evalbus_server.runner.experiment_file import from_document, load
from evalbus_server.runner.rescore import rescoring
from evalbus_server.runner.runs import Runs
from evalbus_server.settings import database_path
from evalbus_server.wire.jsonform import run_document

DELETION = 600.0
"""Seconds that another process gets to delete a run."""

Begin: TypeAlias = Callable[[App, Run], Awaitable[Run]]
"""Begins work, in this process, on what the named run asks for."""


# --- going on ---------------------------------------------------------------------------------------------------


def resume(  # noqa: PLR0913  # each is an option
    run_id: str, place: Place, *, accept_changed: bool, as_json: bool, detach: bool, files: Files = NO_FILES
) -> int:
    """Go on with a run, here or at a server; the exit code says how it went."""
    if place.server is None:
        return carried(
            run_id,
            place,
            lambda app, run: app.runs.resume(run.id, accept_changed=accept_changed),
            as_json=as_json,
            files=files,
        )

    async def begin(server: Remote) -> Run:
        run = await server.run(run_id)
        return await server.resume(run.id, accept_changed=accept_changed)

    return remote.carried(place, begin, as_json=as_json, detach=detach, files=files)


def retry(  # noqa: PLR0913  # each is an option
    run_id: str, place: Place, *, accept_changed: bool, as_json: bool, detach: bool, files: Files = NO_FILES
) -> int:
    """Ask again what is ERRORED in a run, here or at a server; the exit code says how it went."""
    if place.server is None:
        return carried(
            run_id,
            place,
            lambda app, run: app.runs.retry(run.id, accept_changed=accept_changed),
            as_json=as_json,
            files=files,
        )

    async def begin(server: Remote) -> Run:
        run = await server.run(run_id)
        return await server.retry(run.id, accept_changed=accept_changed)

    return remote.carried(place, begin, as_json=as_json, detach=detach, files=files)


@dataclass(frozen=True, slots=True)
class Rescoring:
    """How outputs are to be scored anew."""

    file: Path | None
    """An experiment; None: that of the run."""
    overrides: tuple[str, ...]
    tags: tuple[str, ...]

    def experiment(self, run: Run) -> Experiment:
        """The experiment over the outputs of a run.

        Raises:
            Invalid: there is none.
        """
        if self.file is None:
            own = from_document(Experiment.from_json(run.experiment_json), self.overrides, self.tags)
            return rescoring(run, own)
        stored = f'dataset={{"name": {json.dumps(run.dataset.name)}}}'
        return rescoring(run, load(self.file, (stored, "target=none", *self.overrides), self.tags))


def rescore(  # noqa: PLR0913  # each is an option
    run_id: str, place: Place, how: Rescoring, *, as_json: bool, detach: bool, files: Files = NO_FILES
) -> int:
    """Score the outputs of a run anew, here or at a server; the exit code says how it went."""
    if place.server is None:
        return carried(
            run_id,
            place,
            lambda app, run: app.runs.rescore(run.id, how.experiment(run)),
            as_json=as_json,
            files=files,
        )

    async def begin(server: Remote) -> Run:
        run = await server.run(run_id)
        return await server.rescore(run.id, how.experiment(run))

    return remote.carried(place, begin, as_json=as_json, detach=detach, files=files)


def carried(run_id: str, place: Place, begin: Begin, *, as_json: bool, files: Files = NO_FILES) -> int:
    """Carry a run out in this process; the exit code says how it went."""
    logs.set_up("warning")
    path = database_path(place.db, os.environ)

    async def work() -> int:
        named = await _named(path, run_id)
        async with embedded(path) as app:
            with Display(named.name) as display:
                begun = await begin(app, named)
                async with Interrupts(app.runs, begun, display):
                    await follow(app.runs, begun, display)
            summary = await app.runs.summary(begun.id)
        await write_files(files, place, summary)
        cause = await cause_in(place, summary)
        return conclude(summary, place.options, as_json=as_json, cause=cause)

    return asyncio.run(work())


async def _named(path: Path, run_id: str) -> Run:
    """A run by its id, the beginning of it, or `latest`; a database that is not there is not made."""
    async with Database(path) as database:
        return await database.run(run_id)


# --- a word to a run at work ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Word:
    """What a run is told."""

    do: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def tell(self, runs: Runs, run_id: str) -> Run:
        """Tell it in this process."""
        match self.do:
            case "cancel":
                return runs.cancel(run_id)
            case "pause":
                return runs.pause(run_id)
        return runs.change_limits(run_id, self.settings)

    async def tell_server(self, server: Remote, run_id: str) -> Run:
        """Tell it at a server."""
        match self.do:
            case "cancel":
                return await server.cancel(run_id)
            case "pause":
                return await server.pause(run_id)
        return await server.update_limits(run_id, self.settings)


CANCEL = Word("cancel")
PAUSE = Word("pause")


def change(settings: Sequence[str]) -> Word:
    """Other limits, each as `PATH=VALUE` with a YAML value.

    Raises:
        Invalid: one has another form.
    """
    found: dict[str, Any] = {}
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals:
            message = f"{setting}: write PATH=VALUE, such as limits.concurrency=32"
            raise Invalid(Reason.EXPERIMENT_INVALID, message)
        try:
            found[path.strip()] = read_yaml(value).data
        except DocumentError as error:
            raise Invalid(Reason.EXPERIMENT_INVALID, f"{setting}: in the value, {error}") from None
    return Word("set", found)


def tell(run_id: str, place: Place, word: Word, *, as_json: bool) -> int:
    """Tell a run something, whoever carries it out."""
    logs.set_up("warning")
    work = _tell_server(run_id, place, word) if place.server is not None else _tell_process(run_id, place, word)
    document = asyncio.run(work)
    if as_json:
        print_json(document)
    else:
        console().print(_acknowledged(document, word, place), markup=False, highlight=False, soft_wrap=True)
    return ExitCode.PASS


async def _tell_server(run_id: str, place: Place, word: Word) -> dict[str, Any]:
    async with Remote(place.server or "", os.environ) as server:
        run = await server.run(run_id)
        return run_document(await word.tell_server(server, run.id))


async def _tell_process(run_id: str, place: Place, word: Word) -> dict[str, Any]:
    """Over the control socket of the database; without anybody there, in this process."""
    path = database_path(place.db, os.environ)
    named = await _named(path, run_id)
    answer = ask(path.resolve(), {"do": word.do, "run": named.id, "settings": word.settings})
    if answer is None:
        async with embedded(path) as app:
            return run_document(word.tell(app.runs, named.id))
    if "error" in answer:
        raise CallFailed(answer["error"]["reason"], answer["error"]["message"], "")
    document: dict[str, Any] = answer["run"]
    return document


def _acknowledged(document: dict[str, Any], word: Word, place: Place) -> str:
    run, state = document["run"], document["state"]
    at_work = state in ("QUEUED", "RUNNING")
    if word.do == "set":
        told = ", ".join(f"{path}={json.dumps(value)}" for path, value in word.settings.items())
        when = "if it is retried" if state == "COMPLETED" else "once it goes on"
        return f"run {run}: {told}" + ("" if at_work else f", {when}; it is {state}")
    if not at_work:
        return f"run {run} is {state}"
    doing = "is being cancelled" if word.do == "cancel" else "pauses once trials in flight have finished"
    return f"run {run} {doing}; evalbus runs watch {run}{place.options} follows it to its end"


# --- an end for good --------------------------------------------------------------------------------------------


def delete(run_id: str, place: Place, *, as_json: bool) -> int:
    """Delete a run that is over."""
    logs.set_up("warning")
    deleted = asyncio.run(_delete_at_server(run_id, place) if place.server is not None else _delete(run_id, place))
    if as_json:
        print_json({"deleted": deleted.id})
    else:
        done = f"{deleted.counts.done:,} results"
        console().print(f"run {deleted.id} of {deleted.name} is deleted, with {done}", markup=False, highlight=False)
    return ExitCode.PASS


async def _delete_at_server(run_id: str, place: Place) -> Run:
    async with Remote(place.server or "", os.environ) as server:
        run = await server.run(run_id)
        await server.delete(run.id)
        return run


async def _delete(run_id: str, place: Place) -> Run:
    path = database_path(place.db, os.environ)
    named = await _named(path, run_id)
    answer = ask(path.resolve(), {"do": "delete", "run": named.id}, patience=DELETION)
    if answer is None:
        async with embedded(path) as app:
            await app.runs.delete(named.id)
    elif "error" in answer:
        raise CallFailed(answer["error"]["reason"], answer["error"]["message"], "")
    return named
