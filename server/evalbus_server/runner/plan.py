"""The plan: what a run would do, and all that can be checked before it, without storing anything."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evalbus import Item, PluginInfo
from evalbus_server.aggregate.criteria import check_criteria
from evalbus_server.aggregate.unlike import warnings_about
from evalbus_server.dataset.select import Selector, shuffle
from evalbus_server.errors import Invalid, NotFound, Reason, Unfit
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import DatasetVersion, ScoreKey, Selection
from evalbus_server.model.trial import EPOCHS
from evalbus_server.runner.assigning import stored_wishes, wishes_of
from evalbus_server.runner.crew import Call, Crew
from evalbus_server.runner.floor import Floor, Given
from evalbus_server.runner.other_runs import named_in_full
from evalbus_server.store import Store

OUTLINES = 1_000
"""Items that one step of a selection looks at."""
FIRST_ITEMS = 5
"""So many items a plan names."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do."""

    items: int
    epochs: int
    plugins: tuple[PluginInfo, ...]
    keys: tuple[ScoreKey, ...]
    has_target: bool
    tasks: int
    """Score tasks in one epoch; of a scorer that samples, about."""
    dataset: DatasetVersion | None = None
    """None if it is not stored yet."""
    first_items: tuple[str, ...] = ()
    """The ids of the first few, as they are asked; of a dataset that is not stored yet as they stand there."""
    warnings: tuple[str, ...] = ()
    """What hinders nothing, and is hardly meant so."""

    @property
    def trials(self) -> int:
        """Trials in all."""
        return self.items * self.epochs

    @property
    def scorer_calls(self) -> int:
        """Score tasks in all."""
        return self.tasks * self.epochs


async def plan(floor: Floor, experiment: Experiment, items: Iterable[Item] | None, given: Given) -> Plan:
    """Check an experiment over *items*, or over its stored dataset; raises whatever would hinder the run."""
    wishes = dataset = None
    if items is None:
        dataset = dataset_of(floor.store, experiment)
        selection, chosen = await select(floor.store, experiment, dataset)
        count, first = selection.items, _first(floor.store, dataset, selection, chosen)
        if experiment.scorers_from == "items":
            wishes = await stored_wishes(floor.store, dataset, selection, chosen, experiment)
    elif experiment.scorers_from == "items":
        taken = _Taken(experiment, items)
        wishes = wishes_of(taken, experiment, _default(floor.store, experiment))
        count, first = wishes.items, taken.first
    else:
        taken = _Taken(experiment, items)
        count, first = sum(1 for _ in taken), taken.first
    check_size(experiment, count)
    experiment = named_in_full(floor.store, experiment)
    known = floor.means.in_process(given, scorers=True)
    builtins = () if wishes is None else wishes.builtins(experiment, known)
    complete = experiment.with_builtins(builtins)
    crew = Crew(Call(complete, "validation", 1, count, given), floor.means)
    await floor.bring_together(crew, only_looked_at=True)
    shares = [use.sampling for use in complete.scorers]
    tasks = round(count * sum(shares))
    warnings = list(warnings_about(crew.keys, experiment.criteria))
    if wishes is not None:
        warnings.extend(wishes.unknown(crew.names))
        assignment = wishes.assignment(crew.names, builtins, known)
        tasks = 0 if assignment is None else wishes.tasks(assignment, shares)
    check_criteria(experiment.criteria, crew.keys, experiment.epochs.count, experiment.scorers)
    return Plan(
        count,
        experiment.epochs.count,
        tuple(crew.infos),
        crew.keys,
        experiment.target is not None,
        tasks,
        dataset,
        tuple(first),
        tuple(warnings),
    )


class _Taken:
    """The items that an experiment takes of those of a dataset, remembering the first ones."""

    def __init__(self, experiment: Experiment, items: Iterable[Item]) -> None:
        use = experiment.dataset
        self._selector = Selector(use.items, use.limit, use.tags)
        self._items = items
        self.first: list[str] = []

    def __iter__(self) -> Iterator[Item]:
        for item in self._items:
            if self._selector.takes(item.id, item.tags):
                if len(self.first) < FIRST_ITEMS:
                    self.first.append(item.id)
                yield item


def _first(store: Store, dataset: DatasetVersion, selection: Selection, chosen: Sequence[int]) -> list[str]:
    """The ids of the first items that a run over a stored dataset asks."""
    if not selection.listed:
        page = store.outlines(dataset.name, dataset.version, limit=min(FIRST_ITEMS, selection.items))
        return [each.id for each in page]
    places = chosen[:FIRST_ITEMS]
    return [store.outlines(dataset.name, dataset.version, after=place - 1, limit=1)[0].id for place in places]


def _default(store: Store, experiment: Experiment) -> tuple[str, ...]:
    """Who judges items that name nobody, of a dataset whose items are not stored yet."""
    if experiment.dataset.scorers is not None:
        return experiment.dataset.scorers
    try:
        return store.dataset_info(dataset_name(experiment)).scorers
    except NotFound:
        return ()


def dataset_name(experiment: Experiment) -> str:
    """What a dataset is stored under: its own name, else the stem of its file, else the experiment's name."""
    dataset = experiment.dataset
    if dataset.name is not None:
        return dataset.name
    if dataset.path is None:
        return experiment.name.strip()
    path = Path(dataset.path)
    return (path.with_suffix("").stem if path.suffix == ".gz" else path.stem).strip()


def dataset_of(store: Store, experiment: Experiment) -> DatasetVersion:
    """The stored dataset of an experiment.

    Raises:
        Invalid: it is not stored yet.
        NotFound: there is none of this name and version.
    """
    use = experiment.dataset
    if use.source != "stored" or use.name is None:
        raise Invalid(Reason.EXPERIMENT_INVALID, "dataset: it is not stored yet; upload it first", field="dataset")
    return store.dataset(use.name, use.version)


async def select(store: Store, experiment: Experiment, dataset: DatasetVersion) -> tuple[Selection, Sequence[int]]:
    """Find the selected items: the selection, and the positions of its items if it is listed."""
    use = experiment.dataset
    if not use.chooses and use.limit is None:
        return Selection(False, dataset.items, store.last_position(dataset.name, dataset.version)), ()
    selector = Selector(use.items, use.limit if use.shuffle is None else None, use.tags)
    after = -1
    chosen = array("I")
    while page := store.outlines(dataset.name, dataset.version, after=after, limit=OUTLINES):
        after = page[-1].position
        chosen.extend(each.position for each in page if selector.takes(each.id, each.tags))
        if selector.full:
            break
        await asyncio.sleep(0)
    if use.shuffle is not None:
        for _ in shuffle(chosen, use.shuffle):
            await asyncio.sleep(0)
        del chosen[use.limit or len(chosen) :]
    if not use.chooses:
        return Selection(False, len(chosen), chosen[-1] if chosen else -1), ()
    return Selection(True, len(chosen), len(chosen) - 1), chosen


def check_size(experiment: Experiment, items: int) -> None:
    """Check that there is something to run, and no more than can be numbered.

    Raises:
        Unfit: NOTHING_TO_RUN.
        Invalid: too many epochs.
    """
    if items == 0:
        use = experiment.dataset
        said = [f"`{key}`" for key in ("items", "tags", "limit") if getattr(use, key)]
        chosen = f" with these {' and '.join(said)}" if said else ""
        raise Unfit(Reason.NOTHING_TO_RUN, f"nothing to run: the dataset has no item{chosen}", field="dataset")
    if experiment.epochs.count > EPOCHS:
        raise Invalid(Reason.EXPERIMENT_INVALID, f"epochs: at most {EPOCHS}", field="epochs.count")
