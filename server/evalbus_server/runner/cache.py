"""The response cache of a run: answers that its target gave before to just the same, so that it is not asked again.

What is the same: the target's name, version and digest, its settings, arguments and environment, the bounds of a trial,
the whole item, and the epoch: so epochs stay several answers. Only outputs are remembered, never failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence

from evalbus_server.errors import StoreTrouble
from evalbus_server.model.trial import Changes, OpenTrial, StoredItem, epoch_of
from evalbus_server.store import MOST_CACHED, Remembered, Store

_AT_ONCE = 256
"""So many answers are written down together."""


async def clear(store: Store) -> int:
    """Forget all remembered answers; returns how many."""
    gone = 0
    for taken in store.forget_cached():
        gone += taken
        await asyncio.sleep(0)
    return gone


class Cache:
    """What one session of a run remembers, and finds remembered."""

    def __init__(self, store: Store, run_id: str, target: bytes) -> None:
        """*target* identifies all that answers depend on beside item and epoch."""
        self._store = store
        self._run_id = run_id
        self._hash = hashlib.sha256(target)
        self._keys: dict[int, str] = {}
        """Of trials that are on their way, by trial id."""
        self._sizes: dict[int, int] = {}
        """Of remembered outputs that are on their way to the log."""
        self._answers: list[tuple[str, int]] = []

    async def make_room(self) -> None:
        """Forget the oldest answers where there are too many."""
        for _ in self._store.forget_cached(keep=MOST_CACHED):
            await asyncio.sleep(0)

    def look_up(self, trials: Sequence[OpenTrial]) -> list[Remembered | None]:
        """The output that is remembered for each trial; whatever becomes of the others is noted when it is stored."""
        keys = [self._key(trial) for trial in trials]
        found = self._store.cached(keys)
        answers = [found.get(key) for key in keys]
        for trial, key, answer in zip(trials, keys, answers, strict=True):
            self._keys[trial.trial_id] = key
            if answer is not None:
                self._sizes[trial.trial_id] = answer.size
        return answers

    def committed(self, changes: Changes) -> int:
        """Take note of what was stored; returns how many bytes of remembered outputs are on their way no more."""
        size = 0
        for record in changes.outputs:
            key = self._keys.pop(record.trial_id, None)
            size += self._sizes.pop(record.trial_id, 0)
            if key is not None:
                self._answers.append((key, record.trial_id))
        for result in changes.results:
            self._keys.pop(result.trial_id, None)  # the target failed, or its output came just before
        if len(self._answers) >= _AT_ONCE:
            self.write_down()
        return size

    def write_down(self) -> None:
        """Store what is to be remembered."""
        answers, self._answers = self._answers, []
        if answers:
            with contextlib.suppress(StoreTrouble):  # they are asked once more; the log tells of a trouble that stays
                self._store.remember(self._run_id, answers)

    def _key(self, trial: OpenTrial) -> str:
        assert isinstance(trial.stored, StoredItem)
        made = self._hash.copy()
        made.update(repr((epoch_of(trial.trial_id), trial.stored.columns)).encode())
        return made.hexdigest()[:40]
