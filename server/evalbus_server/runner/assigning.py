"""Runs that leave it to their items who judges them: what that needs before the run, and for each trial.

An item names scorers of its own, or none, or says nothing: then the dataset's own judge it. The sets are never merged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from evalbus import Failure, FailureCategory, FailureOrigin, Item, Score
from evalbus_server.dataset.select import Selector
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.assignment import Assignment
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.faults import BUILTINS_LISTED, suggestion
from evalbus_server.model.run import DatasetVersion, ScoreKey, Selection
from evalbus_server.model.trial import OpenTrial
from evalbus_server.store import Store

_AT_ONCE = 4_096
"""Positions that are looked at before the loop goes on."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """Which scorers the items of a run name."""

    items: int
    own: Counter[tuple[str, ...]]
    """By the names of an item, how many items have just these; those that say nothing are not among them."""
    default: tuple[str, ...]
    """The dataset's own scorers."""

    @property
    def names(self) -> list[str]:
        """Everybody who is named, once each."""
        silent = self.items > self.own.total()
        return list(dict.fromkeys([*(self.default if silent else ()), *(name for names in self.own for name in names)]))

    def builtins(self, experiment: Experiment, known: Collection[str]) -> tuple[str, ...]:
        """Those of the named that the experiment does not declare, and that ship with the server."""
        declared = {use.name or use.use for use in experiment.scorers}
        return tuple(sorted(name for name in self.names if name not in declared and name in known))

    def assignment(self, names: Sequence[str], builtins: tuple[str, ...], known: Collection[str]) -> Assignment | None:
        """How to tell who judges what; *names* are the run's scorers. None if nobody is ever named.

        Raises:
            Invalid: the dataset names a scorer that nobody knows, or scorers are declared that nobody names.
        """
        for name in self.default if self.items > self.own.total() else ():
            if name not in names:
                everybody = sorted({*names, *known})
                message = f"the dataset names the scorer {name!r}, which is neither declared here nor a builtin"
                hint = suggestion(name, everybody, everybody, BUILTINS_LISTED)
                raise Invalid(Reason.EXPERIMENT_INVALID, f"dataset.scorers: {message}{hint}", field="dataset.scorers")
        if not self.names:
            if names:
                message = "scorers_from: items, but no item names a scorer and the dataset has none: nothing is judged"
                hint = "name some (evalbus dataset scorers), or leave scorers_from out"
                raise Invalid(Reason.EXPERIMENT_INVALID, f"{message}; {hint}", field="scorers_from")
            return None
        return Assignment(tuple(names), self.default, builtins)

    def unknown(self, names: Collection[str]) -> Iterator[str]:
        """A sentence for each scorer that items name and that is none of the run's, *names*: they cannot be judged."""
        by_name = Counter[str]()
        for own, count in self.own.items():
            by_name.update({name: count for name in set(own) if name not in names})
        for name, count in sorted(by_name.items()):
            who = "1 item names" if count == 1 else f"{count:,} items name"
            yield f"{who} the scorer {name!r}, which is neither declared here nor a builtin: ERRORED, and not asked"

    def tasks(self, assignment: Assignment, shares: Sequence[float]) -> int:
        """About how many score tasks one epoch makes, if each scorer takes its share of the trials."""
        each = [(assignment.of(names), count) for names, count in self.own.items()]
        each.append((assignment.of(None), self.items - self.own.total()))
        return round(
            sum(
                share * count
                for who, count in each
                for scorer, share in enumerate(shares)
                if who.scorers >> scorer & 1 and not who.unknown
            )
        )


def wishes_of(items: Iterable[Item], experiment: Experiment, default: tuple[str, ...]) -> Wishes:
    """What items that are not stored yet name, and the dataset by *default*."""
    use = experiment.dataset
    selector = Selector(use.items, use.limit, use.tags)
    taken = [item.scorers for item in items if selector.takes(item.id, item.tags)]
    return Wishes(len(taken), Counter(own for own in taken if own is not None), default)


async def stored_wishes(
    store: Store, dataset: DatasetVersion, selection: Selection, chosen: Sequence[int], experiment: Experiment
) -> Wishes:
    """What the selected items of a stored dataset name; *chosen* are their positions if the selection is listed."""
    own: Counter[tuple[str, ...]] = Counter()
    end = max(chosen, default=-1) if selection.listed else selection.last
    taken = bytearray(end + 1)
    for position in chosen:
        taken[position] = 1
    after = -1
    while after < end:
        last = min(after + _AT_ONCE, end)
        for position, names in store.own_scorers(dataset.name, dataset.version, after=after, last=last):
            if taken[position] or not selection.listed:
                own[names] += 1
        after = last
        await asyncio.sleep(0)
    default = experiment.dataset.scorers
    if default is None:
        default = store.dataset_info(dataset.name).scorers
    return Wishes(selection.items, own, default)


class Assigning:
    """Tells the line who judges its trials."""

    def __init__(self, assignment: Assignment, keys: Sequence[ScoreKey]) -> None:
        """*keys* are the run's."""
        self._assignment = assignment
        self._keys = keys

    def assign(self, trial: OpenTrial) -> bool:
        """Note who is to judge a trial; False if it names somebody unknown, and is not to be asked."""
        who = self._assignment.of(trial.item.scorers)
        trial.waiting = who.scorers
        return not who.unknown

    def to_judge(self, trial: OpenTrial) -> tuple[dict[int, Score], list[ScoreKey], Failure | None]:
        """The trial's scores and the keys that they are to have, numbered anew; or why it cannot be judged."""
        who = self._assignment.of(trial.item.scorers)
        if who.unknown:
            message = (
                f"item {trial.item.id!r} names the scorer {who.unknown!r}, which is neither declared nor a builtin"
            )
            failure = Failure(FailureCategory.INVALID, message, "SCORER_UNKNOWN", FailureOrigin.SERVER, False)
            return {}, [], failure
        places = [place for place, key in enumerate(self._keys) if who.scorers >> key.scorer & 1]
        scores = {new: trial.scores[old] for new, old in enumerate(places) if old in trial.scores}
        return scores, [self._keys[place] for place in places], None
