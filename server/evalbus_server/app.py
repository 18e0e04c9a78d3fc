"""The composition root: here, and only here, the stations are built and put together."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from weakref import WeakValueDictionary

from evalbus import Item
from evalbus_server.aggregate.reduce import parse_reducer
from evalbus_server.aggregate.summary import summarise
from evalbus_server.api.control import Control
from evalbus_server.api.server import Parts, Server
from evalbus_server.api.server import serve as serve_until_asked
from evalbus_server.dataset.importing import REMEMBERED
from evalbus_server.dataset.read import read_batches
from evalbus_server.errors import NotFound
from evalbus_server.model.dataset_use import in_folder
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.plugin_use import PluginUse, Tls
from evalbus_server.model.run import Run
from evalbus_server.model.summary import Summary
from evalbus_server.plugin.codec import Codec, ScorerCodec, TargetCodec
from evalbus_server.plugin.inprocess import InProcessPlugin
from evalbus_server.plugin.launch import FixedAddress, LaunchedProcess
from evalbus_server.plugin.remote import Place, RemotePlugin
from evalbus_server.runner.crew import MakePlugin, Means, Wanted, trial_limits
from evalbus_server.runner.datasets import Datasets
from evalbus_server.runner.keep import as_it_stands
from evalbus_server.runner.origin import origin_of
from evalbus_server.runner.plan import dataset_name
from evalbus_server.runner.runs import Runs
from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.settings import Serving
from evalbus_server.store import Reader, Store, open_reader, open_store
from evalbus_server.watch.bell import Bell
from evalbus_server.wire.summary import summary_from_bytes

ADDRESS_LIMIT = 10.0
"""Seconds until somebody must answer at an address: nothing has to be started there."""


_USUAL_THRESHOLD = (700, 10, 10)
_RARE_THRESHOLD = (50_000, 20, 50)


@dataclass(frozen=True, slots=True)
class App:
    """The parts of a server over one database."""

    store: Store
    runs: Runs

    async def publish(self, experiment: Experiment) -> Experiment:
        """The same experiment over a stored dataset: a file, records or a command's output are stored first.

        Raises:
            Invalid: the dataset cannot be read.
            Conflict: another file of the same name is one already, or an upload of it is under way.
            StoreTrouble: it cannot be stored.
        """
        if experiment.dataset.source == "stored":
            return experiment
        name, datasets = dataset_name(experiment), Datasets(self.store)
        origin = origin_of(experiment, name, datasets.origin(name))
        batches = read_batches(experiment.dataset, remembered=REMEMBERED)
        source = experiment.dataset.path or name
        done = await datasets.bring_in(name, batches, source=source, origin=origin)
        return experiment.over(done.dataset.name, done.dataset.version)


@asynccontextmanager
async def embedded(path: str | Path) -> AsyncIterator[App]:
    """A server without sockets over a database; runs still at work at the end are interrupted.

    Raises:
        StoreTrouble: the database cannot be opened for writing.
    """
    store = open_store(path)
    try:
        store.finish_deletions()
        store.interrupt_orphans()
        app = App(store, _runs(store))
        with rare_collection():
            try:
                async with Control(app.runs, store.path):
                    yield app
            finally:
                await app.runs.close(grace=0.0)
    finally:
        store.close()


async def serve(serving: Serving) -> None:
    """Serve a database over gRPC until the process is asked to end; see `api/server.py`.

    Raises:
        ServerError: the database cannot be opened for writing, or the address not be listened on.
    """
    made_in_vain = not serving.db.exists()
    store = open_store(serving.db)
    try:
        store.finish_deletions()
        store.interrupt_orphans()
        bell = Bell()
        commands = frozenset(command.argv for command in serving.allowed.commands)
        runs = Runs(store, Means(plugin_maker(), BUILTINS, commands), bell, most_open=serving.most_open)
        parts = Parts(store, runs, bell)
        server = Server(parts, serving.listening, serving.allowed, resume=serving.resume)
        with rare_collection():
            async with Control(parts.runs, store.path):
                await serve_until_asked(server, grace=serving.grace)
        made_in_vain = False
    finally:
        made_in_vain = made_in_vain and not store.runs(limit=1) and not store.datasets(1)
        store.close()
        if made_in_vain:  # It could not listen, and nothing is in the file.
            serving.db.unlink(missing_ok=True)


@contextmanager
def rare_collection() -> Iterator[None]:
    """Let Python look for cycles less often: the thousands of trials on their way are in none, and looking through
    them every 700 objects takes a sixth of a run's time. A threshold that somebody has set stays as it is.
    """
    before = gc.get_threshold()
    if before == _USUAL_THRESHOLD:
        gc.set_threshold(*_RARE_THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _runs(store: Store) -> Runs:
    return Runs(store, Means(plugin_maker(), BUILTINS), Bell())


@contextmanager
def planning(path: Path) -> Iterator[Runs]:
    """Runs that can only be planned: a database is read if there is one, and nothing is written.

    Raises:
        StoreTrouble: there is a file that is no database.
    """
    with ExitStack() as stack:
        if path.exists():
            reader = stack.enter_context(open_reader(path))
        else:
            folder = stack.enter_context(TemporaryDirectory(prefix="evalbus-"))
            reader = stack.enter_context(open_store(Path(folder, "none.db")))
        yield _runs(cast(Store, reader))  # planning only reads


def items_of(experiment: Experiment) -> Iterator[Item] | None:
    """The items of a dataset that is not stored yet; None for one that is.

    Raises:
        Invalid: it cannot be read.
    """
    if experiment.dataset.source == "stored":
        return None
    return chain.from_iterable(read_batches(experiment.dataset))


def read_summary(reader: Reader, run: Run) -> Summary:
    """The numbers of a run, computed from what is stored."""
    kept = reader.kept_summary(run)
    if kept is not None:
        return as_it_stands(summary_from_bytes(kept), run)
    experiment = Experiment.from_json(run.experiment_json)
    names = {criterion.baseline for criterion in experiment.criteria if criterion.baseline is not None}
    baselines = {}
    for name in names:
        with suppress(NotFound):  # its criterion says so
            baselines[name] = reader.numbers(reader.run(name))
    reducer = parse_reducer(experiment.epochs.reducer, experiment.epochs.count)
    numbers = reader.numbers(run)
    return summarise(numbers, experiment.criteria, reducer, baselines=baselines, now=time.time())


# --- plugins ----------------------------------------------------------------------------------------------------


def plugin_maker() -> MakePlugin:
    """What makes the plugins of crews: here, at an address, or in a process that those of one crew share."""
    processes = Processes()

    def make(wanted: Wanted) -> RemotePlugin | InProcessPlugin:
        limits = trial_limits(wanted.experiment.limits)
        if wanted.definition is not None:
            return InProcessPlugin(
                wanted.definition,
                total=wanted.items,
                limits=limits,
                trusted=wanted.definition in BUILTINS.values(),
            )
        use = wanted.use
        place: Place
        if use.address is not None:
            place = FixedAddress(use.address, wanted.token, limit=min(use.start_limit, ADDRESS_LIMIT))
        else:
            place = processes.place(use, wanted.environment, wanted.experiment)
        codec: Codec = ScorerCodec() if wanted.scorer else TargetCodec(wanted.items, limits)
        return RemotePlugin(place, codec, use.plugin, tls=_tls(use))

    return make


def _tls(use: PluginUse) -> Tls | None:
    if use.tls is None or not use.tls.root_certificates:
        return use.tls
    return use.tls.model_copy(update={"root_certificates": str(in_folder(use.tls.root_certificates, use.folder))})


class Processes:
    """Launched processes: plugins of one crew that are started alike share one."""

    def __init__(self) -> None:
        """None is started yet."""
        self._running: WeakValueDictionary[tuple[Any, ...], SharedProcess] = WeakValueDictionary()

    def place(self, use: PluginUse, environment: Mapping[str, str], experiment: Experiment) -> Place:
        """Where a plugin is that is started by a command; *experiment* is the crew's own."""
        command = use.launched
        assert command is not None
        key = (id(experiment), command, use.folder, tuple(sorted(environment.items())), use.start_limit)
        shared = self._running.get(key)
        if shared is None:
            process = LaunchedProcess(command, use.folder, environment, limit=use.start_limit)
            shared = self._running[key] = SharedProcess(process, experiment)
        return SharedPlace(shared)


class SharedProcess:
    """A process for several plugins."""

    def __init__(self, process: LaunchedProcess, experiment: Experiment) -> None:
        """Keeps *experiment* alive as long as its identity names this process."""
        self.process = process
        self.experiment = experiment
        self.turn = asyncio.Lock()
        """Held while it is started or ended."""
        self.address = ""
        """Another one each time it is started."""


class SharedPlace:
    """A shared process as one of its plugins sees it.

    When the process breaks, every plugin in it wants it ended and started again: the first who comes does that, the
    others only find it started again.
    """

    def __init__(self, shared: SharedProcess) -> None:
        """Not started by this plugin yet."""
        self._shared = shared
        self._address = ""
        self.token = shared.process.token
        self.hint = shared.process.hint
        self.token_hint = shared.process.token_hint
        self.limit = shared.process.limit

    def __str__(self) -> str:
        """What the process is started as."""
        return str(self._shared.process)

    async def address(self) -> str:
        """The socket of the process, which is started if it does not run."""
        shared = self._shared
        async with shared.turn:
            self._address = shared.address = await shared.process.address()
            return self._address

    async def lost(self) -> str:
        """How the process ended, once it has."""
        return await self._shared.process.lost()

    async def end(self) -> None:
        """End the process that this plugin knows, unless another one runs by now."""
        async with self._shared.turn:
            if self._address == self._shared.address:
                await self._shared.process.end()

    async def last_words(self) -> str:
        """How it ended, if it has, and the end of what it printed."""
        return await self._shared.process.last_words()
