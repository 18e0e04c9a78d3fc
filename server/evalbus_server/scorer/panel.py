"""All scorers of a run. Each has its own exchange and its own cursor: a slow one holds up nobody.

Outputs reach a scorer from memory while it keeps up, and from the store when it has fallen behind or the run was
resumed: scoring what is stored and not yet scored is the ordinary path.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evalbus import Failure, FailureCategory, FailureOrigin, Item, Need, Output, Score, ScorerInfo, Usage, Value
from evalbus.kit import in_sample
from evalbus_server.model.run import ScoreKey
from evalbus_server.model.trial import AttemptRecord, OpenTrial, ResultRecord, ScoreRecord, epoch_of
from evalbus_server.plugin.exchange import Exchange
from evalbus_server.plugin.port import Flight

PAGE = 128
BRAKE = 0.05
"""Seconds after which the line that waits for scorers looks whether they are worth it."""
QUICK = 64
"""Trials that a scorer which is worth it answers in that time: reading them back from the store would cost more."""
BRAKE_AGAIN = 1.0
"""Seconds until the line waits again after it was in vain: that little does a slow scorer hold the target up."""


class InputPath(Protocol):
    """A compiled path into item and output."""

    def find(self, item: Item, output: Output, trial_id: int) -> Value | None:
        """The value there; None if there is none."""
        ...


CheckScores = Callable[[Sequence[Score] | Failure, Sequence[tuple[int, ScoreKey]]], list[tuple[int, Score]]]
Others = Callable[[Sequence[OpenTrial]], Mapping[int, Output | str]]
"""The other output of each trial, or why there is none to compare with."""
Unscored = Callable[[int, int, int], tuple[list[tuple[int, OpenTrial]], int]]
"""(scorer, after, limit) -> stored outputs that it has not scored, and the last place looked at."""


class Purse(Protocol):
    """What a plugin takes out of the run's budget."""

    def spend(self, usage: Usage) -> None:
        """An attempt took so much."""
        ...

    def settled(self, count: int) -> None:
        """So many trials have their final answer, and what they took was told before."""
        ...


@dataclass(slots=True)
class Seat:
    """One scorer of the panel."""

    index: int
    exchange: Exchange
    keys: tuple[tuple[int, ScoreKey], ...]
    """Its score keys, with their positions in the run."""
    info: ScorerInfo
    inputs: Mapping[str, InputPath] = field(default_factory=dict)
    sampling: float = 1.0
    purse: Purse | None = None
    others: Others | None = None
    """Of a scorer that compares: finds the outputs to compare with."""
    cursor: int = 0
    """The last output that it was offered, in the order of commits."""
    behind: bool = False
    held: int = 0
    """Trials it was offered and has not answered."""
    answered: int = 0
    errors: int = 0

    @property
    def bit(self) -> int:
        """Its bit in the masks of a trial."""
        return 1 << self.index


class Panel:
    """Hands stored outputs to every scorer, and scored trials on."""

    def __init__(  # noqa: PLR0913  # what it is connected to, by name
        self,
        seats: Sequence[Seat],
        *,
        unscored: Unscored,
        check: CheckScores,
        scored: Callable[[list[OpenTrial], list[ScoreRecord], list[AttemptRecord]], None],
        window: int,
        assigned: bool = False,
    ) -> None:
        """*scored* gets trials whose last score has come, and the records of all that came with it.

        *assigned*: trials come with who is to judge them, in `waiting`; else everybody judges all.
        """
        self.seats = tuple(seats)
        self._unscored = unscored
        self._check = check
        self._scored = scored
        self._window = window
        self._trials: dict[int, OpenTrial] = {}
        self._all = (1 << len(seats)) - 1
        self._assigned = assigned
        self._last = 0
        self._stopped = False
        self._quiet = asyncio.Event()
        self._eased = asyncio.Event()
        self._no_brake_before = 0.0

    def resume(self, last: int) -> None:
        """Begin behind: *last* outputs were stored by earlier sessions, and whoever has not scored them will."""
        self._last = last
        for seat in self.seats:
            seat.behind = last > 0
            if seat.behind:
                self._catch_up(seat)

    def offer(self, trials: list[OpenTrial], last: int) -> None:
        """Take trials whose outputs were just stored, the last of them as number *last* of the run."""
        everyone = self._all
        if self._assigned:
            trials = [trial for trial in trials if trial.waiting]  # the others have their results
        for trial in trials:
            if not self._assigned:
                trial.waiting = everyone
            trial.holding = 0
            self._trials[trial.trial_id] = trial
        self._last = last
        for seat in self.seats:
            if seat.behind:
                continue
            own = [trial for trial in trials if trial.waiting & seat.bit] if self._assigned else trials
            if seat.held + len(own) > self._window:
                seat.behind = True
                self._catch_up_soon(seat)
            else:
                seat.cursor = last
                self._ask(seat, own)
        if any(seat.behind for seat in self.seats):
            for trial in trials:
                if not trial.holding and trial.waiting:
                    self._trials.pop(trial.trial_id, None)  # it comes back from the store

    def withdraw(self, seat: Seat, trials: Sequence[OpenTrial]) -> list[OpenTrial]:
        """Take trials back that a scorer was offered and was not asked about; those that nobody is at work on any more.

        The others are done once those have answered who are at work on them.
        """
        for trial in trials:
            trial.holding &= ~seat.bit
            trial.waiting = trial.holding
        seat.held -= len(trials)
        self._eased.set()
        if seat.behind:
            self._catch_up_soon(seat)
        if not seat.held:
            self._quiet.set()
        return [trial for trial in trials if not trial.holding]

    def leave(self, trial_id: int) -> bool:
        """Let nobody else be asked about a trial; whether somebody is at work on it, so that it is done after that."""
        trial = self._trials.get(trial_id)
        if trial is None or not trial.holding:
            return False
        trial.waiting = trial.holding
        return True

    def stored(self, scores: Sequence[ScoreRecord], results: Sequence[ResultRecord]) -> None:
        """Scores and results are stored: trials that have ended, or that nobody works on, leave the memory."""
        trials = self._trials
        for result in results:
            trials.pop(result.trial_id, None)
        if not any(seat.behind for seat in self.seats):
            return  # then somebody works on every other
        for trial_id in {record.trial_id for record in scores}:
            trial = self._trials.get(trial_id)
            if trial is not None and not trial.holding:
                del self._trials[trial_id]

    def stop(self) -> None:
        """Ask for nothing more."""
        self._stopped = True
        for seat in self.seats:
            seat.behind = False
            seat.exchange.stop()
        self._quiet.set()
        self._eased.set()

    def cancel(self) -> None:
        """Stop, and cancel what scorers are working on."""
        self.stop()
        for seat in self.seats:
            seat.exchange.cancel()

    def finish(self) -> None:
        """Nothing more will be offered."""
        for seat in self.seats:
            seat.exchange.finish()

    async def room(self, coming: int) -> None:
        """Wait if the *coming* outputs would not find room in memory and the scorers are quick enough to make some.

        A scorer that is slow falls behind instead, and nobody waits for it.
        """
        clock = asyncio.get_running_loop().time
        while clock() >= self._no_brake_before and not self._stopped:
            full = [seat for seat in self.seats if seat.behind or seat.held + coming > self._window]
            if not full:
                return
            before = [seat.answered for seat in full]
            await self._ease(coming)
            answered = min(seat.answered - count for seat, count in zip(full, before, strict=True))
            if not self._roomy(coming) and answered < QUICK:
                self._no_brake_before = clock() + BRAKE_AGAIN

    async def _ease(self, coming: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BRAKE):
                while not (self._roomy(coming) or self._stopped):
                    self._eased.clear()
                    await self._eased.wait()

    def _roomy(self, coming: int) -> bool:
        return all(not seat.behind and seat.held + coming <= self._window for seat in self.seats)

    async def caught_up(self) -> None:
        """Wait until every scorer has been offered every stored output."""
        while not self._stopped and any(seat.behind or seat.held for seat in self.seats):
            self._quiet.clear()
            await self._quiet.wait()

    @property
    def faults(self) -> int:
        """Broken promises of all scorers."""
        return sum(seat.exchange.faults for seat in self.seats)

    # --- asking -------------------------------------------------------------------------------------------------

    def _ask(self, seat: Seat, trials: Sequence[OpenTrial]) -> None:
        """Offer trials to a scorer; those that it need not see get their scores at once."""
        bit = seat.bit
        flights: list[Flight] = []
        at_once: list[tuple[OpenTrial, Sequence[Score] | Failure]] = []
        plain = not (seat.inputs or seat.info.needs or seat.sampling < 1 or seat.others)
        others = {} if seat.others is None else seat.others(trials)
        for trial in trials:
            trial.holding |= bit
            if plain:
                flights.append(Flight(trial))
                continue
            answer = self._without_asking(seat, trial)
            if answer is not None:
                at_once.append((trial, answer))
                continue
            inputs, failure = self._inputs(seat, trial)
            if failure is not None:
                at_once.append((trial, failure))
                continue
            other = others.get(trial.trial_id)
            if isinstance(other, str):
                at_once.append((trial, _skipped(seat, other)))
                continue
            flight = Flight(trial, inputs)
            if other is not None:
                flight.against = other
            flights.append(flight)
        seat.held += len(flights) + len(at_once)
        seat.exchange.offer(flights)
        if at_once:
            self._settle(seat, [(trial, answer, None) for trial, answer in at_once])

    def _without_asking(self, seat: Seat, trial: OpenTrial) -> Sequence[Score] | None:
        """SKIPPED scores for a trial that is not sampled, or that lacks what the scorer needs."""
        item, output = trial.item, trial.output
        assert output is not None
        if seat.sampling < 1 and not in_sample(item.id, epoch_of(trial.trial_id), seat.sampling):
            share = f"{seat.sampling:g} of the trials" if seat.sampling else "none"
            return _skipped(seat, f"not sampled: this scorer takes {share}")
        for need in seat.info.needs:
            if need is Need.EXPECTED and "expected" not in seat.inputs and not item.accepted:
                return _skipped(seat, "the item has no expected answer")
            if need is Need.MESSAGES and not output.messages:
                return _skipped(seat, "the output has no messages")
            if need is Need.TOOL_CALLS and not output.tool_calls:
                return _skipped(seat, "the output has no tool calls")
            if need is Need.SPANS and not output.spans:
                return _skipped(seat, "the output has no spans")
        return None

    def _inputs(self, seat: Seat, trial: OpenTrial) -> tuple[dict[str, Value] | None, Failure | None]:
        """The mapped inputs of a scorer, or the failure if one is missing."""
        if not seat.inputs:
            return None, None
        assert trial.output is not None
        inputs: dict[str, Value] = {}
        for name, path in seat.inputs.items():
            value = path.find(trial.item, trial.output, trial.trial_id)
            if value is None:
                message = f"the mapped input {name!r} has no value: there is no {path}"
                failure = Failure(FailureCategory.INVALID, message, "INPUT_MISSING", FailureOrigin.SERVER, False)
                return None, failure
            inputs[name] = value
        return inputs, None

    def _catch_up(self, seat: Seat) -> None:
        """Offer a scorer that has fallen behind the next page of what it has not scored."""
        if self._stopped or not seat.behind or seat.held > self._window // 2:
            return
        page, looked_at = self._unscored(seat.index, seat.cursor, PAGE)
        trials = []
        for _, loaded in page:
            trial = self._trials.get(loaded.trial_id)
            if trial is None:
                trial = self._trials[loaded.trial_id] = loaded
            if trial.waiting & seat.bit and not trial.holding & seat.bit:
                trials.append(trial)
        seat.cursor = max(seat.cursor, looked_at)
        if seat.cursor >= self._last:
            seat.behind = False
            self._quiet.set()
        if trials:
            self._ask(seat, trials)
        if seat.behind:
            self._catch_up_soon(seat)

    def _catch_up_soon(self, seat: Seat) -> None:
        """A page at a time, so that the loop stays free."""
        asyncio.get_running_loop().call_soon(self._catch_up, seat)

    # --- answers ------------------------------------------------------------------------------------------------

    def answered(self, index: int, flights: list[Flight]) -> None:
        """Take a scorer's final answers."""
        seat = self.seats[index]
        attempts: list[AttemptRecord] = []
        answers: list[tuple[OpenTrial, Sequence[Score] | Failure, Usage | None]] = []
        for flight in flights:
            if flight.failures is not None:
                failures = flight.failures[flight.noted :]
                attempts.extend(AttemptRecord(flight.trial.trial_id, index, *failed) for failed in failures)
            answers.append((flight.trial, flight.result, flight.usage))  # type: ignore[arg-type]
        self._settle(seat, answers, attempts)

    def _settle(
        self,
        seat: Seat,
        answers: Iterable[tuple[OpenTrial, Sequence[Score] | Failure, Usage | None]],
        attempts: list[AttemptRecord] | None = None,
    ) -> None:
        records: list[ScoreRecord] = []
        done: list[OpenTrial] = []
        check, keys = self._check, seat.keys
        off = ~seat.bit
        count = 0
        for trial, answer, usage in answers:
            count += 1
            broken = False
            scores = trial.scores
            for (position, score), (_, key) in zip(check(answer, keys), keys):  # noqa: B905  # one for each key
                value = score.value
                scores[position] = score
                passed = None if value is None or key.threshold is None else key.passes(value)
                records.append(ScoreRecord(trial.trial_id, position, score, passed))
                if score.usage is not None:
                    if seat.purse is not None:
                        seat.purse.spend(score.usage)
                    trial.usage = score.usage if trial.usage is None else trial.usage + score.usage
                broken = broken or score.failure is not None
            if usage is not None:
                trial.usage = usage if trial.usage is None else trial.usage + usage
            seat.errors += broken
            trial.waiting &= off
            trial.holding &= off
            if not trial.waiting:
                done.append(trial)
        seat.held -= count
        seat.answered += count
        self._eased.set()
        self._scored(done, records, attempts or [])
        if seat.purse is not None:
            seat.purse.settled(count)
        if seat.behind:
            self._catch_up(seat)
        if not seat.held:
            self._quiet.set()


def _skipped(seat: Seat, why: str) -> list[Score]:
    return [Score.skipped(why, name=key.declaration.name) for _, key in seat.keys]
