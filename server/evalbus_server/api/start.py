"""Starting a run for a caller: what it may ask for, its inline dataset first, and never while the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from evalbus import Item
from evalbus.v1 import run_pb2
from evalbus_server.api.rules import Allowed
from evalbus_server.api.upload import MOST_ITEMS, stored
from evalbus_server.errors import Conflict, Invalid, Reason, Unfit, Unreachable
from evalbus_server.model.dataset import checked_name
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import DatasetVersion, Run
from evalbus_server.runner.plan import Plan
from evalbus_server.runner.runs import Runs
from evalbus_server.store import Store
from evalbus_server.wire.experiment import experiment_from_proto

LONGEST_REQUEST_ID = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller asks for."""

    experiment: Experiment
    items: tuple[Item, ...] | None
    """Those in the request itself; None: the dataset is stored."""
    request_id: str


class Starter:
    """Starts the runs of callers."""

    def __init__(self, store: Store, runs: Runs, allowed: Allowed) -> None:
        """Start them among *runs*, as far as they are *allowed*."""
        self._store = store
        self._runs = runs
        self._allowed = allowed
        self.stopping = False
        """Nothing more is started."""
        self._storing = asyncio.Lock()
        """Two requests with items in them may be for the same dataset."""

    def asked(self, request: run_pb2.StartRunRequest) -> Asked:
        """What a request asks for.

        Raises:
            Invalid: the experiment or the request id is not acceptable.
            Denied: it names a command that this server does not start.
        """
        _check_request_id(request.request_id)
        if not request.HasField("experiment"):
            raise Invalid(Reason.REQUEST_INVALID, "there is no experiment in the request", field="experiment")
        experiment, items = experiment_from_proto(request.experiment)
        admitted = self._allowed.admit(experiment)
        return Asked(admitted, None if experiment.dataset.source == "stored" else items, request.request_id)

    async def plan(self, asked: Asked) -> Plan:
        """What a run would do; nothing is stored."""
        self._refuse_at_the_end()
        return await self._runs.plan(asked.experiment, asked.items)

    async def start(self, asked: Asked) -> Run:
        """Start a run; one request id starts one.

        Raises:
            ServerError: what hinders it.
        """
        self._refuse_at_the_end()
        experiment = asked.experiment
        if asked.items is None:
            return await self._runs.start(experiment, request_id=asked.request_id)
        if not asked.items:
            raise Unfit(Reason.NOTHING_TO_RUN, "nothing to run: there is no item in the request", field="dataset")
        published: list[DatasetVersion] = []

        async def publish() -> Experiment:
            async with self._storing:
                dataset, _ = await stored(self._store, experiment.name, _batches(asked.items or ()))
            published.append(dataset)
            return experiment.over(dataset.name, dataset.version)

        named = experiment.over(
            checked_name(experiment.name), 1
        )  # whatever the version will be: a request may come again
        run = await self._runs.start(named, request_id=asked.request_id, publish=publish)
        if not published:
            await publish()
        if run.dataset.digest != published[0].digest:
            message = f"the request id {asked.request_id!r} was used for other items; take a new one"
            raise Conflict(Reason.REQUEST_ID_REUSED, message, field="request_id")
        return run

    async def resume(self, run_id: str, *, accept_changed: bool) -> Run:
        """Go on with a run, as far as its experiment is one that callers may run here.

        Raises:
            ServerError: what hinders it.
        """
        self._refuse_at_the_end()
        return await self._runs.resume(run_id, accept_changed=accept_changed, admit=self._allowed.admit)

    def take_up_stopped(self) -> tuple[str, ...]:
        """The runs that a server of this database left behind when it ended."""
        return self._runs.take_up_stopped()

    async def resume_stopped(self, run_ids: tuple[str, ...]) -> None:
        """Go on with them, as far as callers may run their experiments here."""
        await self._runs.resume_stopped(run_ids, admit=self._allowed.admit)

    async def retry(self, run_id: str, *, accept_changed: bool) -> Run:
        """Ask again what is ERRORED in a run; the rest as in `resume`.

        Raises:
            ServerError: what hinders it.
        """
        self._refuse_at_the_end()
        return await self._runs.retry(run_id, accept_changed=accept_changed, admit=self._allowed.admit)

    async def rescore(self, request: run_pb2.RescoreRunRequest) -> Run:
        """Score the outputs of a run anew, by an experiment that callers may run here.

        Raises:
            ServerError: what hinders it.
        """
        self._refuse_at_the_end()
        _check_request_id(request.request_id)
        source = self._store.run(request.run_id)
        message = request.experiment
        message.name = message.name or source.name
        message.ClearField("target")
        message.dataset.stored.name = source.dataset.name
        experiment, _ = experiment_from_proto(message)
        admitted = self._allowed.admit(experiment)
        return await self._runs.rescore(source.id, admitted, request_id=request.request_id)

    def change_limits(self, run_id: str, settings: dict[str, Any]) -> Run:
        """Change limits of a run, within those of this server.

        Raises:
            ServerError: what hinders it.
        """
        return self._runs.change_limits(run_id, settings, admit=self._allowed.admit)

    def _refuse_at_the_end(self) -> None:
        if self.stopping:
            raise Unreachable(Reason.SERVER_STOPPING, "the server stops and starts no more runs; ask again later")


def _check_request_id(request_id: str) -> None:
    if len(request_id) > LONGEST_REQUEST_ID:
        message = f"the request id has {len(request_id)} characters; {LONGEST_REQUEST_ID} are the most"
        raise Invalid(Reason.REQUEST_INVALID, message, field="request_id")


async def _batches(items: tuple[Item, ...]) -> AsyncIterator[list[Item]]:
    for first in range(0, len(items), MOST_ITEMS):
        yield list(items[first : first + MOST_ITEMS])
