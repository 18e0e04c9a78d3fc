"""The numbers of a run, made on the loop a little at a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from evalbus_server.aggregate.reduce import parse_reducer
from evalbus_server.aggregate.steps import Work
from evalbus_server.aggregate.summary import summarise_in_steps
from evalbus_server.errors import NotFound
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Run
from evalbus_server.model.summary import Summary
from evalbus_server.runner.floor import Floor
from evalbus_server.runner.keep import as_it_stands
from evalbus_server.wire.summary import summary_from_bytes


async def summarise(floor: Floor, run: Run) -> Summary:
    """The numbers of a run, computed from what is stored, and what its criteria say."""
    kept = floor.store.kept_summary(run)
    if kept is not None:
        return as_it_stands(summary_from_bytes(kept), run)
    experiment = Experiment.from_json(run.experiment_json)
    numbers = replace(await floor.store.numbers_in_turns(run), run=run)
    baselines = {}
    for criterion in experiment.criteria:
        if criterion.baseline is not None and criterion.baseline not in baselines:
            with suppress(NotFound):  # its criterion says so
                other = floor.store.run(criterion.baseline)
                baselines[criterion.baseline] = await floor.store.numbers_in_turns(other)
    reducer = parse_reducer(experiment.epochs.reducer, experiment.epochs.count)
    work = Work(summarise_in_steps(numbers, experiment.criteria, reducer, baselines=baselines, now=floor.clock()))
    for _ in work:
        await asyncio.sleep(0)
    return work.result


def summarise_at_once(floor: Floor, run: Run) -> Summary:
    """The same without letting anybody else do something meanwhile."""
    steps = summarise(floor, run)
    while True:
        try:
            steps.send(None)
        except StopIteration as end:
            summary: Summary = end.value
            return summary
