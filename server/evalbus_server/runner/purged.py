"""Trials of items whose content is gone: nobody is asked about them any more, and each of them ends once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from evalbus import Failure, FailureCategory, FailureOrigin
from evalbus_server.model.trial import OpenTrial, position_of
from evalbus_server.plugin.port import Flight
from evalbus_server.store import ITEM_PURGED

T = TypeVar("T")


class PurgedTrials:
    """What one session of a run knows of them."""

    def __init__(self) -> None:
        """Nothing was ever purged."""
        self.positions: Callable[[], frozenset[int]] = frozenset
        """The positions of items whose content is gone, as they are now."""
        self.left: set[int] = set()
        """Such trials on which scorers were at work: they end once these have answered."""
        self._ended: set[int] = set()

    def split(self, trials: list[OpenTrial]) -> tuple[list[OpenTrial], list[OpenTrial]]:
        """The trials of items that are still there, and the others."""
        return self._split(trials, _itself)

    def split_flights(self, flights: list[Flight]) -> tuple[list[Flight], list[Flight]]:
        """The same for flights."""
        return self._split(flights, _trial_of)

    def _split(self, some: list[T], trial_of: Callable[[T], OpenTrial]) -> tuple[list[T], list[T]]:
        positions = self.positions()
        if not positions:
            return some, []
        there: list[T] = []
        gone: list[T] = []
        for each in some:
            (gone if position_of(trial_of(each).trial_id) in positions else there).append(each)
        return there, gone

    def to_end(self, trials: Iterable[OpenTrial]) -> list[tuple[OpenTrial, Failure]]:
        """Those of such trials that have not ended yet, with the failure with which they do."""
        ending = []
        for trial in trials:
            if trial.trial_id not in self._ended:
                self._ended.add(trial.trial_id)
                ending.append((trial, _failure(trial)))
        return ending

    def failure(self, trial: OpenTrial) -> Failure | None:
        """The failure with which a trial ends whose last awaited score has come; None: it has all its scores."""
        if trial.trial_id not in self.left:
            return None
        self._ended.add(trial.trial_id)
        return _failure(trial)


def _itself(trial: OpenTrial) -> OpenTrial:
    return trial


def _trial_of(flight: Flight) -> OpenTrial:
    return flight.trial


def _failure(trial: OpenTrial) -> Failure:
    message = f"the content of item {trial.item.id!r} was purged: there is nothing to ask or to judge"
    return Failure(FailureCategory.INVALID, message, ITEM_PURGED, FailureOrigin.SERVER, False)
