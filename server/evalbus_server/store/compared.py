"""Outputs of another run, for scorers that compare two."""

from __future__ import annotations

from collections.abc import Sequence

from evalbus import Item, Output
from evalbus_server.model.trial import EPOCH_BITS, OpenTrial, epoch_of
from evalbus_server.store import rows
from evalbus_server.store.datasets import AS_OF
from evalbus_server.store.documents import dumps
from evalbus_server.store.runs import OfRun

OTHERS = f"""
    SELECT j.key, o.id, EXISTS (SELECT 1 FROM purged p WHERE p.dataset = :dataset AND p.item = i.n),
        {rows.qualified("i", rows.ITEM)}, {rows.qualified("o", rows.OUTPUT)}
    FROM json_each(:wanted) j
    CROSS JOIN item i ON i.dataset = :dataset AND i.id = j.value ->> 0 AND {AS_OF}
    LEFT JOIN output o ON o.run = :outputs AND o.trial = i.position + (j.value ->> 1)
"""
AT_ONCE = 32
"""Outputs may be large: so many are read by one statement."""


def others(of: OfRun, trials: Sequence[OpenTrial]) -> dict[int, Output | str]:
    """The output of the same item and epoch in a run for each trial, or why there is none to compare with (C1).

    Items are the same if their ids are and what they ask.
    """
    run_id = of.run.id
    found: dict[int, Output | str] = {}
    for first in range(0, len(trials), AT_ONCE):
        part = trials[first : first + AT_ONCE]
        wanted = [[trial.item.id, (epoch_of(trial.trial_id) - 1) << EPOCH_BITS] for trial in part]
        place = {
            "wanted": dumps(wanted),
            "dataset": of.dataset,
            "version": of.run.dataset.version,
            "outputs": of.outputs,
        }
        for number, output_id, purged, *columns in of.connection.rows(OTHERS, place):
            trial = part[number]
            if purged:
                found[trial.trial_id] = f"this item of run {run_id} was purged"
            elif _asks(rows.read_item(tuple(columns[: rows.ITEM_WIDTH]))) != _asks(trial.item):
                found[trial.trial_id] = f"run {run_id} asked something else under this id"
            elif output_id is not None:
                found[trial.trial_id] = rows.read_output(tuple(columns[rows.ITEM_WIDTH :]))
    for trial in trials:
        missing = f"run {run_id} has no output of this item in epoch {epoch_of(trial.trial_id)}"
        found.setdefault(trial.trial_id, missing)
    return found


def _asks(item: Item) -> tuple[object, ...]:
    return item.input, item.messages, item.choices
