"""The other runs that an experiment names. Before a run, `latest` and the beginnings of ids become ids; only those are stored."""

from __future__ import annotations

from evalbus_server.errors import Invalid, NotFound, Reason, ServerError
from evalbus_server.model.bounds import Criterion
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.plugin_use import ScorerUse
from evalbus_server.model.run import Run, RunState
from evalbus_server.runner.keep import check_kept
from evalbus_server.store import RunFilter, Store

LATEST = "latest"


def named_in_full(store: Store, experiment: Experiment, source: str = "") -> Experiment:
    """An experiment whose baselines and compared runs are ids. *source* is the run whose outputs it scores, if it does:
    then `latest` is one before that.

    Raises:
        Invalid: there is no such run, it is not COMPLETED, or does not keep what is compared.
    """

    def baseline(index: int, criterion: Criterion) -> Criterion:
        if criterion.baseline is None:
            return criterion
        where = f"criteria[{index}].baseline"
        run = _completed(store, experiment.name, criterion.baseline, where, source)
        if store.kept_summary(run) is not None:
            raise _refused(where, f"run {run.id} does not keep the scores to compare with")
        return criterion.model_copy(update={"baseline": run.id})

    def against(index: int, use: ScorerUse) -> ScorerUse:
        if use.against is None:
            return use
        where = f"scorers[{index}].against"
        run = _completed(store, experiment.name, use.against, where, source)
        try:
            check_kept(run, outputs=True)
        except ServerError as error:
            raise _refused(where, str(error)) from None
        return use.model_copy(update={"against": run.id})

    criteria = tuple(baseline(*each) for each in enumerate(experiment.criteria))
    scorers = tuple(against(*each) for each in enumerate(experiment.scorers))
    return experiment.model_copy(update={"criteria": criteria, "scorers": scorers})


def named_alike(asked: Experiment, stored: Experiment) -> Experiment:
    """*asked* with the ids that *stored* has where both can mean the same run: `latest` was another one then."""
    criteria, scorers = list(asked.criteria), list(asked.scorers)
    for index, (criterion, before) in enumerate(zip(criteria, stored.criteria, strict=False)):
        if _can_mean(criterion.baseline, before.baseline):
            criteria[index] = criterion.model_copy(update={"baseline": before.baseline})
    for index, (use, earlier) in enumerate(zip(scorers, stored.scorers, strict=False)):
        if _can_mean(use.against, earlier.against):
            scorers[index] = use.model_copy(update={"against": earlier.against})
    return asked.model_copy(update={"criteria": tuple(criteria), "scorers": tuple(scorers)})


def _can_mean(name: str | None, run_id: str | None) -> bool:
    return name is not None and run_id is not None and (name == LATEST or run_id.startswith(name))


def _completed(store: Store, experiment: str, name: str, where: str, source: str) -> Run:
    if name == LATEST:
        newest = store.runs(RunFilter(experiment=experiment, state=RunState.COMPLETED), limit=1, before=source or None)
        if not newest:
            message = (
                f"there is no earlier run of {experiment!r} that is COMPLETED; run it without this first, or name a run"
            )
            raise _refused(where, message)
        return newest[0]
    try:
        run = store.run(name)
    except NotFound as error:
        raise _refused(where, str(error)) from None
    if run.state is not RunState.COMPLETED:
        raise _refused(where, f"run {run.id} is {run.state.name}, not COMPLETED")
    return run


def _refused(where: str, message: str) -> Invalid:
    return Invalid(Reason.EXPERIMENT_INVALID, f"{where}: {message}", field=where)
