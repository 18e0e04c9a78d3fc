"""What may change of a run after its start: its limits, by their paths in the experiment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.faults import suggestion
from evalbus_server.model.run import Run
from evalbus_server.runner.experiment_file import from_document
from evalbus_server.runner.floor import Admit, Floor

LIMITS = ("concurrency", "timeout", "trial_timeout", "retries", "max_errors", "tokens", "cost", "deadline")
_PATH = re.compile(rf"limits\.({'|'.join(LIMITS)})|scorers(\..+|\[.+\])\.(concurrency|timeout)")


def in_force(run: Run) -> Experiment:
    """The experiment of a run with the limits that are in force now."""
    experiment = Experiment.from_json(run.experiment_json)
    if run.assignment is not None:
        experiment = experiment.with_builtins(run.assignment.builtins)
    return changed(experiment, run.changed_limits) if run.limits_json else experiment


def changed(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """An experiment with other limits.

    Raises:
        Invalid: a path is not that of a limit which may change, or a value does not fit.
    """
    for path in settings:
        if not _PATH.fullmatch(path):
            known = [f"limits.{name}" for name in LIMITS]
            can = [*known, "concurrency and timeout of scorers"]
            message = f"{path}: this cannot change in a run{suggestion(path, known, can)}"
            raise Invalid(Reason.EXPERIMENT_INVALID, message, field=path)
    overrides = [f"{path}={json.dumps(value)}" for path, value in settings.items()]
    try:
        return from_document(experiment, overrides)
    except Invalid as error:
        raise Invalid(error.reason, str(error).removeprefix("--set "), field=error.field) from None


def change_limits(floor: Floor, run_id: str, settings: Mapping[str, Any], admit: Admit) -> Run:
    """Change limits of a run: at once if it is at work here, else from when it goes on."""
    run = floor.store.run(run_id)
    experiment = admit(changed(in_force(run), settings))
    run = floor.store.change_limits(run.id, settings)
    working = floor.working.get(run.id)
    if working is not None:
        working.experiment = experiment
        working.crew.change(experiment)
        if working.watchdog is not None:
            working.watchdog.change(experiment.limits)
        if working.line is not None:
            working.line.widen()
    floor.bell.ring(run.id)
    return run
