"""Runs inside a program of one's own, such as a test: plain functions may stand as target and scorers.

report = evalbus_server.run({"dataset": [{"input": "1+1", "expected": "2"}]}, target=my_agent, scorers=["exact_match"])
assert report.verdict == Verdict.PASS, report
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from evalbus import Failure, Item, Output, Score, Usage, scorer, target
from evalbus._definition import Plugin as Definition
from evalbus_server import logs
from evalbus_server.app import App, embedded
from evalbus_server.errors import Invalid, Reason, StoreTrouble
from evalbus_server.model.event import Event, TrialsEnded
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Outcome, Run, Verdict
from evalbus_server.model.summary import Summary
from evalbus_server.model.trial import StoredResult, epoch_of, position_of
from evalbus_server.plugin.conversation import one_line
from evalbus_server.runner.documents import read_document
from evalbus_server.runner.experiment_file import from_mapping
from evalbus_server.runner.line import Progress
from evalbus_server.store import open_reader
from evalbus_server.watch.follow import Notice

PAGE = 256
TOLD = 3
"""Trials that could not be done whose failures a report tells."""
LONGEST_TOLD = 300
"""Characters of each."""

Function: TypeAlias = Callable[..., Any]
"""A target or a scorer: a plain function, or one that is decorated with `evalbus.target` or `evalbus.scorer`."""
PluginLike: TypeAlias = Function | str | Mapping[str, Any]
"""A function, the name of a builtin, or an entry as in an experiment file, whose `use` may be a function."""
ExperimentLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Experiment


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What became of one trial."""

    item: Item
    epoch: int
    outcome: Outcome
    output: Output | None
    """None if the target failed."""
    scores: dict[str, Score]
    """By score key."""
    failure: Failure | None
    """Why it is ERRORED."""
    weighted: float | None
    attempts: int
    latency: float | None
    """Seconds."""
    usage: Usage | None
    cached: bool = False
    """Whether the output was remembered from before, and the target not asked."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RunReport:
    """A run that is over. Its text is a summary for people, so that `assert report.verdict == …, report` says why."""

    summary: Summary
    db: Path
    """Where it is stored; a temporary database is deleted along with the report."""

    @property
    def run(self) -> Run:
        """The run as it ended."""
        return self.summary.run

    @property
    def verdict(self) -> Verdict:
        """What the criteria say."""
        return self.summary.verdict

    @property
    def passed(self) -> bool:
        """Whether the verdict is PASS."""
        return self.verdict is Verdict.PASS

    def results(self) -> Iterator[TrialResult]:
        """The results in dataset order, then epoch, read as they are asked for."""
        with open_reader(self.db) as reader:
            after: tuple[int, int] | None = None
            while page := reader.results(self.run, after=after, limit=PAGE):
                for stored in page:
                    yield _result(stored, self.run)
                after = (position_of(page[-1].trial_id), epoch_of(page[-1].trial_id))

    def __str__(self) -> str:
        """The numbers and the verdict, for people, and what the first trials say that could not be done."""
        return "\n".join([_text(self.summary), *self._failures()])

    def _failures(self) -> Iterator[str]:
        if not self.run.counts.errored:
            return
        with suppress(StoreTrouble), open_reader(self.db) as reader:  # its database may be gone
            for stored in reader.results(self.run, outcomes=[Outcome.ERRORED], limit=TOLD):
                result = _result(stored, self.run)
                scored = [(f" {key}", score.failure) for key, score in result.scores.items()]
                where, failure = next((each for each in scored if each[1] is not None), ("", result.failure))
                if failure is not None:
                    said = one_line(failure.message, LONGEST_TOLD) or failure.reason
                    yield f"  {result.item.id} epoch {result.epoch}{where}: {said}"

    __repr__ = __str__  # pytest shows this of what an assertion is about


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Whom to tell while a run goes on; they are called in the event loop and should be quick."""

    on_progress: Callable[[Progress], None] | None = None
    on_item: Callable[[TrialResult], None] | None = None


def run(  # noqa: PLR0913  # each by name
    experiment: ExperimentLike,
    *,
    target: PluginLike | None = None,
    scorers: Sequence[PluginLike] | None = None,
    db: str | os.PathLike[str] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_item: Callable[[TrialResult], None] | None = None,
) -> RunReport:
    """Run an experiment and return when it is over. See `run_async`, which does the same inside an event loop.

    Raises:
        RuntimeError: an event loop runs in this thread: await `run_async` there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("an event loop runs here already: write `await evalbus_server.run_async(...)` instead")
    return asyncio.run(
        run_async(experiment, target=target, scorers=scorers, db=db, on_progress=on_progress, on_item=on_item)
    )


async def run_async(  # noqa: PLR0913  # each by name
    experiment: ExperimentLike,
    *,
    target: PluginLike | None = None,
    scorers: Sequence[PluginLike] | None = None,
    db: str | os.PathLike[str] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_item: Callable[[TrialResult], None] | None = None,
) -> RunReport:
    """Run an experiment and return when it is over.

    Args:
        experiment: the path of a file, plain data as in a file (also with functions), or an Experiment. In plain
            data `name` may be left out, and `dataset` may be a list of records or a path.
        target: stands for the experiment's own.
        scorers: stand for the experiment's own.
        db: the database; None for a temporary one, which is deleted along with the report.
        on_progress: called a few times a second.
        on_item: called with each result, in the order in which they are stored.

    Raises:
        ServerError: the run could not be started; nothing was asked.
        PluginInvalid: a function cannot be a target or a scorer; the text says what to change.
    """
    logs.set_up_once("warning")
    wanted = understand(experiment, target, scorers)
    folder = None if db is not None else tempfile.mkdtemp(prefix="evalbus-")
    path = Path(folder, "run.db") if folder is not None else Path(os.fspath(db or ""))
    try:
        async with embedded(path) as app:
            summary = await _carry_out(app, wanted, Callbacks(on_progress, on_item))
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    report = RunReport(summary, path)
    if folder is not None:
        weakref.finalize(report, shutil.rmtree, folder, ignore_errors=True)
    return report


async def _carry_out(app: App, wanted: Understood, callbacks: Callbacks) -> Summary:
    experiment = await app.publish(wanted.experiment)
    started = await app.runs.start(experiment, given=wanted.given)
    async for news in app.runs.watch(started.id, 0, results=callbacks.on_item is not None):
        if isinstance(news, Event) and isinstance(news.fact, TrialsEnded) and callbacks.on_item is not None:
            for result in app.store.results_of(started, [trial_id for trial_id, _ in news.fact.trials]):
                callbacks.on_item(_result(result, started))
        elif isinstance(news, Notice) and callbacks.on_progress is not None:
            callbacks.on_progress(news.progress)
    ended = await app.runs.wait(started.id)
    if callbacks.on_progress is not None:
        callbacks.on_progress(Progress(ended.counts, ended.counts.done, 0, []))
    return await app.runs.summary(started.id)


def _result(stored: StoredResult, run: Run) -> TrialResult:
    return TrialResult(
        item=stored.item,
        epoch=epoch_of(stored.trial_id),
        outcome=stored.outcome,
        output=stored.output,
        scores={run.score_keys[place].key: each.score for place, each in sorted(stored.scores.items())},
        failure=stored.failure,
        weighted=stored.weighted,
        attempts=stored.attempts,
        latency=stored.latency,
        usage=stored.usage,
        cached=stored.cached,
    )


# --- understanding what was given ------------------------------------------------------------------------------


@dataclass(slots=True)
class Understood:
    """An experiment in which every function has a name, and the functions by these names."""

    experiment: Experiment
    given: dict[str, Definition[Any, Any]] = field(default_factory=dict)


def understand(
    experiment: ExperimentLike, target: PluginLike | None = None, scorers: Sequence[PluginLike] | None = None
) -> Understood:
    """Make an experiment of what was given, and plugins of the functions in it.

    Raises:
        Invalid: it is no experiment.
        PluginInvalid: a function cannot be a plugin.
    """
    functions = _Functions()
    document, folder = _document(experiment)
    if target is not None:
        document["target"] = target
    if scorers is not None:
        document["scorers"] = list(scorers)
    if "target" in document:
        document["target"] = functions.entry(document["target"], is_scorer=False)
    if isinstance(document.get("scorers"), list | tuple):
        document["scorers"] = [functions.entry(each, is_scorer=True) for each in document["scorers"]]
    document["dataset"] = _dataset(document.get("dataset"))
    document.setdefault("name", _name(document, folder))
    return Understood(from_mapping(document, folder), functions.given)


def _document(experiment: ExperimentLike) -> tuple[dict[str, Any], Path]:
    """Plain data, and the folder to which its paths are relative."""
    match experiment:
        case Experiment():
            dumped = experiment.model_dump(mode="json", by_alias=True)
            folder = dumped["dataset"]["folder"]
            if not dumped["scorers"] and dumped["scorers_from"] == "items":
                del dumped["scorers"], dumped["scorers_from"]  # nothing was said about scorers
            for part in (dumped["dataset"], dumped["target"], *dumped.get("scorers", ())):
                if part is not None:
                    del part["folder"]
            return dumped, Path(folder)
        case str() | os.PathLike():
            path = Path(experiment)
            document = read_document(path, Reason.EXPERIMENT_INVALID)
            return dict(document.data), path.resolve().parent
        case Mapping():
            return dict(experiment), Path.cwd()
    raise TypeError(f"an experiment is a path, a mapping or an Experiment, not {type(experiment).__name__}")


def _dataset(dataset: Any) -> Any:
    if isinstance(dataset, list | tuple):
        return {"records": list(dataset)}
    if isinstance(dataset, str | os.PathLike):
        return {"path": os.fspath(dataset)}
    return dataset


def _name(document: Mapping[str, Any], folder: Path) -> str:
    """A name for an experiment that has none: the target's."""
    entry = document.get("target")
    name = entry.get("use") or entry.get("plugin") if isinstance(entry, Mapping) else None
    return str(name or folder.name or "experiment")


class _Functions:
    """Functions, each under a name of its own."""

    def __init__(self) -> None:
        self.given: dict[str, Definition[Any, Any]] = {}

    def entry(self, plugin: Any, *, is_scorer: bool) -> Any:
        """The entry of an experiment for a target or a scorer; whatever is not understood stays for the schema."""
        if isinstance(plugin, Mapping):
            use = plugin.get("use")
            return {**plugin, "use": self._take(use, is_scorer=is_scorer)} if callable(use) else dict(plugin)
        if callable(plugin):
            return {"use": self._take(plugin, is_scorer=is_scorer)}
        if isinstance(plugin, str) and plugin != "none":
            return {"use": plugin}
        return plugin

    def _take(self, function: Function, *, is_scorer: bool) -> str:
        definition = _definition(function, is_scorer=is_scorer)
        known = self.given.setdefault(definition.name, definition)
        if known.function is not definition.function:
            message = f"two functions are called {definition.name!r}; give one another name with @scorer or @target"
            raise Invalid(Reason.EXPERIMENT_INVALID, message)
        return definition.name


def _definition(function: Function, *, is_scorer: bool) -> Definition[Any, Any]:
    if isinstance(function, Definition):
        return function
    name = getattr(function, "__name__", type(function).__name__).replace(".", "_")
    decorate = scorer(name) if is_scorer else target(name)
    definition: Definition[Any, Any] = decorate(function)
    return definition


# --- as text ----------------------------------------------------------------------------------------------------


def _text(summary: Summary) -> str:
    run, counts = summary.run, summary.run.counts
    done = f"{counts.passed} passed, {counts.failed} failed, {counts.errored} errored, {counts.skipped} skipped"
    lines = [f"{run.name}: {summary.verdict.name} ({done} of {counts.planned}; run {run.id} {run.state.name})"]
    if run.reason:
        lines.append(f"  {run.reason}")
    for score in summary.scores:
        mean = "no value" if score.mean is None else f"{score.mean:.4g}"
        rate = "" if score.pass_rate is None else f", passed {score.pass_rate:.1%}"
        broken = f", errored {score.errored}" if score.errored else ""
        lines.append(f"  {score.key}: {mean} (n={score.n}){rate}{broken}")
    lines += [f"  {result.outcome.name}: {result.explanation}" for result in summary.criteria if result.explanation]
    lines += [f"  failures: {number} {category.name}" for category, number in summary.failures]
    return "\n".join(lines)
