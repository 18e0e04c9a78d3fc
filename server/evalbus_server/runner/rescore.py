"""Rescoring: a run of its own over the outputs of a finished one. Nobody asks the target."""

from __future__ import annotations

from evalbus_server.errors import Invalid, Reason, Unfit
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Run, RunState
from evalbus_server.runner.floor import Floor, Given
from evalbus_server.runner.keep import check_kept
from evalbus_server.runner.start import create, once


async def rescore(floor: Floor, run_id: str, experiment: Experiment, request_id: str, given: Given) -> Run:
    """Start a run that scores the outputs of a COMPLETED one by the scorers of *experiment*, or find it."""
    source = floor.store.run(run_id)
    over = rescoring(source, experiment)

    async def make() -> Run:
        _check_source(floor, source)
        with floor.place():
            return await create(floor, over, request_id, given, source.id)

    return await once(floor, over, request_id, make, source.id)


def _check_source(floor: Floor, source: Run) -> None:
    if source.id in floor.working or source.state is not RunState.COMPLETED:
        message = f"run {source.id} is {source.state.name}; only a COMPLETED run has all outputs to be scored"
        raise Unfit(Reason.RUN_INCOMPLETE, message)
    check_kept(source, outputs=True)


def rescoring(source: Run, experiment: Experiment) -> Experiment:
    """An experiment over the outputs of a run: its scorers, over what the run had asked.

    Raises:
        Invalid: it has no scorers, or does not fit the run's epochs.
    """
    if not experiment.scorers and experiment.scorers_from == "run":
        raise Invalid(Reason.EXPERIMENT_INVALID, "scorers: there must be one, or nothing is scored", field="scorers")
    epochs = experiment.epochs.model_copy(update={"count": source.epochs})
    dataset = Experiment.from_json(source.experiment_json).dataset
    over = experiment.model_copy(update={"dataset": dataset, "target": None, "cache": False, "epochs": epochs})
    return Experiment.from_json(over.canonical_json())
