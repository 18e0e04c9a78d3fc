"""Starting: a run is checked, stored as QUEUED, and goes to work. A request id starts one run, however often it comes."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from evalbus_server.aggregate.criteria import check_criteria
from evalbus_server.errors import Conflict, Invalid, Reason
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Counts, Run, RunState
from evalbus_server.runner.assigning import stored_wishes
from evalbus_server.runner.crew import Call, Crew
from evalbus_server.runner.floor import Floor, Given
from evalbus_server.runner.other_runs import named_alike, named_in_full
from evalbus_server.runner.plan import check_size, dataset_of, select
from evalbus_server.runner.session import go_to_work

Publish = Callable[[], Awaitable[Experiment]]
"""Stores the dataset of an experiment; the same experiment over it."""


async def start(
    floor: Floor, experiment: Experiment, request_id: str, given: Given, publish: Publish | None = None
) -> Run:
    """Start a run over a stored dataset, which *publish* stores, or find the one that this request has started."""

    async def make() -> Run:
        with floor.place():
            over = experiment if publish is None else await publish()
            return await create(floor, over, request_id, given)

    return await once(floor, experiment, request_id, make)


async def once(
    floor: Floor, experiment: Experiment, request_id: str, make: Callable[[], Awaitable[Run]], source: str = ""
) -> Run:
    """*make* a run, or find the one that the same request has made of the same experiment and *source*.

    Raises:
        Conflict: REQUEST_ID_REUSED: it was another experiment or source.
    """
    if not request_id:
        return await make()
    async with floor.lock(request_id):
        earlier = floor.store.run_of_request(request_id)
        if earlier is None:
            return await make()
        if not _asked_for(earlier, experiment) or earlier.source != source:
            message = f"the request id {request_id!r} was used for another experiment; take a new one"
            raise Conflict(Reason.REQUEST_ID_REUSED, message)
        return earlier


async def create(floor: Floor, experiment: Experiment, request_id: str, given: Given, source: str = "") -> Run:
    """Check and store a run, and let it go to work; *source* is the run whose outputs it scores."""
    dataset = dataset_of(floor.store, experiment)
    selection, chosen = await select(floor.store, experiment, dataset)
    check_size(experiment, selection.items)
    experiment = named_in_full(floor.store, experiment.over(dataset.name, dataset.version), source)
    wishes, known = None, floor.means.in_process(given, scorers=True)
    if experiment.scorers_from == "items":
        wishes = await stored_wishes(floor.store, dataset, selection, chosen, experiment)
    builtins = () if wishes is None else wishes.builtins(experiment, known)
    run_id = new_run_id(floor.clock())
    complete = experiment.with_builtins(builtins)
    crew = Crew(Call(complete, run_id, 1, selection.items, given), floor.means)
    await floor.bring_together(crew)
    try:
        assignment = None if wishes is None else wishes.assignment(crew.names, builtins, known)
        if source and not crew.scorers:
            message = "scorers: there must be one, or nothing is scored"
            raise Invalid(Reason.EXPERIMENT_INVALID, message, field="scorers")
        check_criteria(experiment.criteria, crew.keys, experiment.epochs.count, experiment.scorers)
        run = floor.store.create_run(
            Run(
                id=run_id,
                name=experiment.name,
                state=RunState.QUEUED,
                created_at=floor.clock(),
                dataset=dataset,
                selection=selection,
                epochs=experiment.epochs.count,
                experiment_json=experiment.canonical_json(),
                digest=experiment.digest(),
                score_keys=crew.keys,
                plugins=crew.identities,
                counts=Counts(planned=selection.items * experiment.epochs.count),
                tags=experiment.tags,
                request_id=request_id,
                source=source,
                assignment=assignment,
            ),
            chosen,
        )
    except BaseException:
        await crew.dismiss()
        raise
    go_to_work(floor, run, crew, complete)
    return run


def new_run_id(now: float) -> str:
    """An id that sorts by time of creation: milliseconds in hexadecimal, then 40 random bits."""
    return f"r{int(now * 1000):011x}{os.urandom(5).hex()}"


def _asked_for(run: Run, experiment: Experiment) -> bool:
    stored = Experiment.from_json(run.experiment_json)
    return _asked_digest(stored) == _asked_digest(named_alike(experiment, stored))


def _asked_digest(experiment: Experiment) -> str:
    """The digest of an experiment without the version that its dataset had when it started."""
    return experiment.model_copy(update={"dataset": experiment.dataset.model_copy(update={"version": None})}).digest()
