"""Retrying: what is ERRORED in a run that is over is asked again, and each result stands until the new one is stored."""

from __future__ import annotations

from evalbus_server.errors import Reason, Unfit
from evalbus_server.model.bounds import Keep
from evalbus_server.model.run import Run
from evalbus_server.runner.floor import Floor
from evalbus_server.runner.keep import check_kept
from evalbus_server.runner.resume import Again, Terms, begin_again


async def retry(floor: Floor, run_id: str, terms: Terms) -> Run:
    """Ask again what is ERRORED: the target where it failed, else the scorers that failed."""

    def check(run: Run) -> None:
        floor.check_over(run, "retried")
        if not run.counts.errored:
            raise Unfit(Reason.NOTHING_TO_RUN, f"run {run.id} has no ERRORED result: there is nothing to ask again")
        if floor.store.kept_summary(run) is not None:
            check_kept(run, scores=True)  # its summary could not be made again

    def queue(run: Run) -> None:
        kept = Keep.of(run.experiment_json).outputs
        if not floor.store.queue_retry(run.id, "RETRIED: on request", kept=kept):
            check_kept(run, outputs=not run.source)  # only scorers have failed
            message = f"run {run.id} scores the outputs of run {run.source}, and where that has none there is nothing to ask again"
            raise Unfit(Reason.NOTHING_TO_RUN, message)

    return await begin_again(floor, run_id, Again(check, queue), terms)
