"""A scorer for a share of the trials."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evalbus._context import Ticket
from evalbus._definition import Call, Opened, Scorer
from evalbus._errors import PluginInvalid
from evalbus._item import ScoreTask
from evalbus._score import Score


class Sampled(Scorer[Any, Any]):
    """A scorer that skips the trials which are not in its sample. Made by `sampled`."""

    def __init__(self, of: Scorer[Any, Any], share: Any, name: str | None = None) -> None:
        """Sample another scorer.

        Raises:
            PluginInvalid: the share is out of range.
        """
        if not isinstance(of, Scorer):
            raise PluginInvalid(f"a scorer is a function decorated with @scorer, or a combination of such, not {of!r}")
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise PluginInvalid(f"{name or of.name}: a share is above 0 and at most 1, not {share!r}")
        self._of = of
        self._share = share
        self.holds_threads = of.holds_threads  # type: ignore[misc]  # it is this one's only
        options = of.options
        if not options.description:
            options = replace(options, description=f"{of.name}, for {share:g} of the trials.")
        super().__init__(of.function, name or of.name, replace(options, scores=None, setup=None), {})
        self._digest = of.info.digest and hashlib.sha256(f"{of.info.digest} {share!r}".encode()).hexdigest()[:32]

    async def open(self, opening: Any) -> Opened:
        """Open a conversation with the scorer."""
        return await self._of.open(opening)

    def bind(self, opened: Opened, log: Callable[[str], None]) -> Call:
        """What asks the scorer, or not."""
        call, share = self._of.bind(opened, log), self._share
        skipped = [
            Score.skipped(f"not sampled: {self.name} takes {share:g} of the trials", name=each.name)
            for each in opened.ready.scores
        ]

        async def skip() -> _Skipped:
            return _Skipped(skipped)

        def ask(ticket: Ticket) -> Any:
            task: ScoreTask = ticket.task
            if in_sample(task.item.id, task.epoch, share):
                return call(ticket)
            return skip() if self.is_async else _Skipped(skipped)

        return ask

    def result(self, returned: Any, ticket: Ticket) -> Any:
        """The scores."""
        return returned.scores if isinstance(returned, _Skipped) else self._of.result(returned, ticket)

    def raised(self, error: BaseException, opened: Opened) -> Any:
        """As the scorer says."""
        return self._of.raised(error, opened)

    def release(self, opened: Opened) -> None:
        """Let go of what the scorer holds."""
        self._of.release(opened)

    def _find_settings(self, names: Any) -> Any:
        return self._of._settings

    def _declared(self, settings: Any) -> Any:
        return self._of._declared(settings)

    def _read_signature(self, names: Any) -> Any:
        return self._of._parameters


class _Skipped:
    def __init__(self, scores: list[Score]) -> None:
        self.scores = tuple(scores)


def in_sample(item_id: str, epoch: int, share: float) -> bool:
    """Whether a trial belongs to a sample: the same for equal shares, in every run, and a smaller share within a larger."""
    digest = hashlib.blake2b(f"{epoch}\0{item_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64
