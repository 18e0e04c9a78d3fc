"""The exchange of trials with one plugin: credits, deadlines, retries, losses. Lists move, not tasks.

One exchange serves one plugin for one run. It owns four places: `todo` (to be sent), `flying` (sent, unanswered),
`later` (waiting for a retry) and `zombies` (given up, but still holding a credit until the plugin answers). In
`flying` entries stand in the order of their deadlines, so one timer is enough. It never touches the store, and knows
neither gRPC nor what the trials are for.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from evalbus import Failure, FailureCategory, FailureOrigin, Usage
from evalbus._plugin import Open, ProgressKind, Ready, TrialProgress
from evalbus_server.errors import Reason, Unreachable
from evalbus_server.plugin.pool import Member, Pool
from evalbus_server.plugin.port import (
    Answered,
    Conversation,
    ConversationLost,
    FailedAttempt,
    Flight,
    Plugin,
    PushBack,
    Result,
)

RECORDS_A_MESSAGE = 256
DEFAULT_CREDIT = 256
LONGEST_RETRY_AFTER = 300.0
RECOVERIES_WITHOUT_PROGRESS = 5
RECOVERIES = 1000
LOSSES_BEFORE_SUSPICION = 2
KILLERS_IN_A_ROW = 20
"""So many trials that each break the plugin alone, with no answer between them: then it is not the trials."""
LONGEST_PAUSE = 5.0
LOWERED_FOR = 1.0
"""Seconds in which a second rate limit is taken for one of the same flood."""
GRACE_AT_END = 5.0
"""Seconds that unanswered, given-up trials get before their stream is broken off."""

_RETRIED = frozenset({FailureCategory.TIMEOUT, FailureCategory.UNAVAILABLE, FailureCategory.INTERNAL})

_log = structlog.get_logger("evalbus.plugin")


@dataclass(frozen=True, slots=True)
class Rules:
    """How one plugin's trials are treated. Times in seconds."""

    concurrency: int = 10
    timeout: float = 60.0
    trial_timeout: float = 600.0
    silence: float | None = 120.0
    retries: int = 2
    session: int = 1
    """Attempt numbers are session * 1000 + n."""


def _no_pools(granted: int) -> Sequence[Pool]:
    """Nothing is shared with anybody."""
    return ()


class Exchange:
    """Keeps up to `rules.concurrency` trials in flight at one plugin and hands the answers on in batches."""

    def __init__(
        self,
        plugin: Plugin,
        opening: Open,
        rules: Rules,
        done: Callable[[list[Flight]], None],
        *,
        origin: FailureOrigin,
    ) -> None:
        """*done* gets flights that have their final result, on the loop, many at a time."""
        self._plugin = plugin
        self._opening = opening
        self._rules = rules
        self._done = done
        self._origin = origin
        self._pools: Callable[[int], Sequence[Pool]] = _no_pools
        self._memberships: list[Member] = []
        self._allowed = float(rules.concurrency)  # lowered when the plugin asks for less, raised as it answers
        self._lowered_at = float("-inf")
        self._fault: Exception | None = None
        self._todo: deque[Flight] = deque()
        self._flying: dict[int, Flight] = {}
        self._running: dict[int, Flight] = {}  # those of a plugin with progress that have started, by start
        self._later: list[tuple[float, int, Flight]] = []
        self._short: list[tuple[float, int, Flight, int]] = []  # deadlines that are earlier than their place says
        self._zombies: set[tuple[int, int]] = set()
        self._suspects: deque[Flight] = deque()
        self._to_cancel: list[tuple[int, int]] = []
        self._bell = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._serial = 0
        self._credit = rules.concurrency
        self._paused_until = 0.0
        self._finishing = False
        self._stopped = False
        self._cancelled = False
        self._last_heard = 0.0
        self._progressed = True
        self._recoveries = 0
        self._fruitless = 0
        self._killers = 0
        self._stuck_since: float | None = None
        self._conversation: Conversation | None = None
        self._silence = float("inf") if rules.silence is None else rules.silence
        self._silence_is_short = self._silence < rules.timeout
        self._ended = False
        self._abandoning: asyncio.Future[None] | None = None
        self._connecting: asyncio.Future[Conversation] | None = None
        self._reports_progress = "progress" in plugin.info.capabilities
        self._cancels = "cancel" in plugin.info.capabilities
        self._loop = asyncio.get_running_loop()
        self.faults = 0
        """Answers that nobody waited for: late, doubled, foreign."""
        self.ready: Ready | None = None

    # --- what the line calls ------------------------------------------------------------------------------------

    def offer(self, flights: Iterable[Flight]) -> None:
        """Take flights to be asked, in this order."""
        self._todo.extend(flights)
        self._bell.set()

    @property
    def concurrency(self) -> int:
        """Trials that may be in flight at most, whatever the plugin grants."""
        return self._rules.concurrency

    @property
    def in_flight(self) -> int:
        """Trials at the plugin now."""
        return len(self._flying) + len(self._running)

    @property
    def unfinished(self) -> int:
        """Trials that were offered and have no final result."""
        return len(self._todo) + len(self._flying) + len(self._running) + len(self._later) + len(self._suspects)

    def share(self, pools: Callable[[int], Sequence[Pool]]) -> None:
        """Share places with other exchanges: *pools* gives the pools, once the plugin has granted a limit."""
        self._pools = pools

    def change(self, rules: Rules) -> None:
        """Go on by other rules; what is in flight keeps its deadlines."""
        self._rules = rules
        self._allowed = float(rules.concurrency)
        self._silence = float("inf") if rules.silence is None else rules.silence
        self._silence_is_short = self._silence < rules.timeout
        self._bell.set()

    def finish(self) -> None:
        """Nothing more will be offered: `run` returns once everything is answered."""
        self._finishing = True
        self._bell.set()

    def stop(self) -> None:
        """Send nothing more, and forget what was not sent; what is in flight may finish. `run` returns then."""
        self._stopped = self._finishing = True
        self._todo.clear()
        self._later.clear()
        self._suspects.clear()
        self._bell.set()

    def cancel(self) -> None:
        """Stop, and cancel what is in flight: answers that were quicker stand, the rest stays unanswered."""
        self.stop()
        self._cancelled = True
        if self._connecting is not None:
            self._connecting.cancel()
        flights = [*self._flying.values(), *self._running.values()]
        if self._cancels:
            self._to_cancel.extend((flight.trial.trial_id, flight.attempt) for flight in flights)
            self._arm(self._loop.time() + GRACE_AT_END)
        else:
            self._flying.clear()
            self._running.clear()
            self._tell_pools()
        self._bell.set()

    async def open(self) -> Ready:
        """Open the conversation, so that settings are judged before the first trial.

        Raises:
            Unreachable: the plugin cannot be reached or started.
            Unfit: the plugin refused.
        """
        conversation = await self._plugin.converse(self._opening)
        self._take(conversation)
        assert self.ready is not None
        return self.ready

    async def run(self) -> None:
        """Exchange until everything offered is answered and `finish` was called.

        Raises:
            Unreachable: the plugin is lost for good; what is unanswered stays so.
            Unfit: the plugin refused when the conversation was opened again.
        """
        try:
            while True:
                if self._conversation is None and not await self._reopen():
                    return
                assert self._conversation is not None
                self._progressed = False
                lost = await self._converse(self._conversation)
                self._conversation = None
                if lost is None or self._nothing_left():
                    return
                self._recover(lost, await self._plugin.last_words())
                self._tell_pools()
                await self._plugin.restart()
                if self._nothing_left():
                    return
                in_a_row = max(self._fruitless, self._killers)
                if in_a_row > 1:
                    await asyncio.sleep(min(0.1 * 2**in_a_row, LONGEST_PAUSE))
        finally:
            self._disarm()
            self._leave_pools()

    async def _reopen(self) -> bool:
        """Open the conversation again; False if the run was cancelled meanwhile: nobody waits for a lost plugin then."""
        self._connecting = asyncio.ensure_future(self._plugin.converse(self._opening))
        try:
            self._take(await self._connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._cancelled and (task is None or not task.cancelling()):
                return False
            self._connecting.cancel()
            raise
        finally:
            self._connecting = None
        return True

    async def close(self) -> None:
        """Break off whatever is open."""
        self._disarm()
        self._leave_pools()
        if self._conversation is not None:
            conversation, self._conversation = self._conversation, None
            await conversation.abandon()
        if self._abandoning is not None:
            await self._abandoning

    # --- one conversation ---------------------------------------------------------------------------------------

    def _take(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.ready = conversation.ready
        self._zombies.clear()
        self._stuck_since = None
        self._ended = False
        self._last_heard = self._loop.time()
        described = self._plugin.info.max_in_flight or DEFAULT_CREDIT
        self._credit = min(described, conversation.ready.max_in_flight or described)
        self._leave_pools()
        self._memberships = [pool.join(self._bell.set) for pool in self._pools(self._credit)]

    async def _converse(self, conversation: Conversation) -> ConversationLost | None:
        """Send and receive until all is done (None) or the conversation is lost."""
        sender = asyncio.ensure_future(self._send(conversation))
        try:
            while (received := await conversation.receive()) is not None:
                self._last_heard = self._loop.time()
                if received.answers:
                    self._settle(received.answers)
                if received.news:
                    self._note(received.news)
                if received.push_back is not None:
                    self._push_back(received.push_back)
            if self._nothing_left():
                await sender
                return None
            return ConversationLost("the plugin ended the conversation before it had answered everything")
        except ConversationLost as lost:
            if self._fault is not None:
                raise self._fault from None
            return lost
        finally:
            if not sender.done():
                sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            await conversation.abandon()

    async def _send(self, conversation: Conversation) -> None:
        """Send whatever is ready, never waiting for more, until nothing is left to send or to wait for."""
        try:
            while True:
                self._bell.clear()
                if self._to_cancel:
                    attempts, self._to_cancel = self._to_cancel, []
                    await conversation.cancel(attempts)
                    continue
                part = self._next_part()
                if part:
                    await conversation.send(part, self._loop.time())
                    continue
                if self._nothing_left():
                    self._ended = True
                    self._arm(self._loop.time() + GRACE_AT_END)
                    self._watch_for_stuck(self._loop.time())
                    await conversation.end()
                    return
                await self._bell.wait()
        except ConversationLost:
            return  # the receiver tells
        except Exception as fault:  # a fault of ours: nobody waits for the sender, so the receiver has to learn of it
            self._fault = fault
            await conversation.abandon()

    def _next_part(self) -> list[Flight]:
        """Take what may be sent now into flight: as much as credit and one message allow."""
        now = self._loop.time()
        if now < self._paused_until:
            self._arm(self._paused_until)
            return []
        if self._suspects:
            if self._flying or self._running or self._zombies:
                return []
            part = [self._suspects.popleft()]
        else:
            limit = min(self._credit, self._rules.concurrency, int(self._allowed))
            count = min(limit - self._held, len(self._todo), RECORDS_A_MESSAGE)
            for membership in self._memberships:
                count = membership.room(count) if count > 0 else 0
            if count <= 0:
                return []
            take = self._todo.popleft
            part = [take() for _ in range(count)]
        self._launch(part, now)
        self._tell_pools()
        return part

    @property
    def _held(self) -> int:
        """Places taken at the plugin: trials that are given up still take one until they are answered."""
        return len(self._flying) + len(self._running) + len(self._zombies)

    def _tell_pools(self) -> None:
        for membership in self._memberships:
            membership.hold(self._held)

    def _leave_pools(self) -> None:
        for membership in self._memberships:
            membership.leave()
        self._memberships = []

    def _launch(self, part: list[Flight], now: float) -> None:
        """Take flights into the air. What only a failed attempt needs to know is left to the failure."""
        rules = self._rules
        first = rules.session * 1000 + 1
        limit = rules.timeout
        deadline = now + limit
        flying = self._flying
        for flight in part:
            flight.sent = now
            flight.deadline = deadline
            if flight.attempt:
                flight.attempt += 1
                flight.started = False
            else:
                flight.attempt = first
            flying[flight.trial.trial_id] = flight
            left = rules.trial_timeout if flight.budget is None else flight.budget
            if left < limit:
                flight.deadline = now + left
                self._serial += 1
                heapq.heappush(self._short, (flight.deadline, self._serial, flight, flight.attempt))
                self._arm(flight.deadline)
        self._arm(now + self._patience())

    def _patience(self) -> float:
        """Seconds after which the first flight could be due."""
        return min(self._rules.timeout, self._silence)

    def _nothing_left(self) -> bool:
        return self._finishing and not (
            self._todo or self._flying or self._running or self._later or self._suspects or self._to_cancel
        )

    # --- answers ------------------------------------------------------------------------------------------------

    def _settle(self, answers: Sequence[Answered]) -> None:
        """Match answers by (trial id, attempt), and hand on those that are final."""
        now = self._loop.time()
        final: list[Flight] = []
        flying, running = self._flying, self._running
        for trial_id, attempt, result, usage in answers:
            flight = flying.get(trial_id)
            place = flying
            if flight is None and running:
                flight = running.get(trial_id)
                place = running
            if flight is None or flight.attempt != attempt:
                self._stray((trial_id, attempt), result)
                continue
            del place[trial_id]
            flight.latency = now - flight.sent
            if isinstance(result, Failure):
                if self._failed(flight, result, usage, now):
                    final.append(flight)
            else:
                flight.result = result
                final.append(flight)
        self._progressed = True
        self._killers = 0
        if self._allowed < self._rules.concurrency:
            self._allowed = min(self._rules.concurrency, self._allowed + len(final) / self._allowed)
        self._tell_pools()
        self._bell.set()
        if final:
            self._done(final)

    def _stray(self, key: tuple[int, int], result: Result) -> None:
        """An answer that nobody waits for: it frees the credit of a flight that was given up, else it is a fault."""
        if key in self._zombies:
            self._zombies.discard(key)
            if not (self._cancelled or self._ended):
                self._stuck_since = None
            if isinstance(result, Failure):
                return
        self.faults += 1
        if str(self.faults).strip("0") == "1":  # 1, 10, 100: who floods the server does not flood its log
            name = self._plugin.info.name
            _log.warning("stray answer dropped", plugin=name, trial=key[0], attempt=key[1], so_far=self.faults)

    def _failed(self, flight: Flight, failure: Failure, usage: Usage | None, now: float) -> bool:
        """Note a failed attempt; whether it was the last one."""
        if failure.origin is FailureOrigin.UNSPECIFIED or not failure.reason:
            failure = replace(
                failure,
                origin=failure.origin or self._origin,
                reason=failure.reason or failure.category.name,
            )
        if failure.category is FailureCategory.CANCELLED and self._cancelled:
            return False  # cancelled for the whole run: the trial stays pending (O5)
        if flight.failures is None:
            flight.failures = []
        flight.failures.append(self._failed_attempt(flight, failure, usage, now))
        if usage is not None:
            flight.usage = usage if flight.usage is None else flight.usage + usage
        if flight.first_sent is None:
            flight.first_sent = flight.sent
            flight.budget = self._rules.trial_timeout
        assert flight.budget is not None
        flight.budget -= now - flight.sent
        wait = None if self._stopped else self._pause_before_retry(flight, failure, now)
        if wait is None:
            flight.result = failure
            return not self._stopped or not _retryable(failure)
        self._serial += 1
        heapq.heappush(self._later, (now + wait, self._serial, flight))
        self._arm(now + wait)
        return False

    def _failed_attempt(self, flight: Flight, failure: Failure, usage: Usage | None, now: float) -> FailedAttempt:
        duration = now - flight.sent
        return FailedAttempt(flight.attempt, failure, usage, time.time() - duration, duration)

    def _pause_before_retry(self, flight: Flight, failure: Failure, now: float) -> float | None:
        """Seconds until the next attempt; None if there is none (the table of contract.md)."""
        if not _retryable(failure) or (flight.budget is not None and flight.budget <= 0):
            return None
        backoff = min(0.2 * 2.0 ** min(flight.tries, 10), 30.0) * random.uniform(0.5, 1.5)
        if failure.category is FailureCategory.RATE_LIMITED:
            self._lower(now)
            asked = _asked(failure)
            wait = max(asked, backoff) + random.uniform(0, 0.2 + 0.25 * asked)
            waited = now + wait - (now if flight.first_sent is None else flight.first_sent)
            return wait if waited < self._rules.trial_timeout else None
        if flight.tries >= self._rules.retries:
            return None
        flight.tries += 1
        return max(_asked(failure), backoff)

    def _lower(self, now: float) -> None:
        """Ask for half as much at a time after a rate limit, but only once for all that were in flight then.

        Additive increase, multiplicative decrease, as TCP does (Chiu and Jain, 1989).
        """
        if now - self._lowered_at >= LOWERED_FOR:
            self._lowered_at = now
            self._allowed = max(self._allowed / 2, 1.0)

    # --- news and push-back -------------------------------------------------------------------------------------

    def _note(self, news: Sequence[TrialProgress]) -> None:
        now = self._loop.time()
        for entry in news:
            flight = self._flying.get(entry.trial_id) or self._running.get(entry.trial_id)
            if flight is None or flight.attempt != entry.attempt:
                continue
            if entry.kind is ProgressKind.STARTED and not flight.started:
                flight.started = True
                limit = self._rules.timeout
                limit = min(limit, self._rules.trial_timeout if flight.budget is None else flight.budget)
                flight.deadline = now + limit
                self._flying.pop(entry.trial_id, None)
                self._running[entry.trial_id] = flight  # at the end: it has the latest deadline
                if limit < self._rules.timeout:
                    self._serial += 1
                    heapq.heappush(self._short, (flight.deadline, self._serial, flight, flight.attempt))
            flight.heard = now
            if entry.kind is ProgressKind.STARTED and self._silence_is_short:
                self._serial += 1
                heapq.heappush(self._short, (now + self._silence, self._serial, flight, flight.attempt))
                self._arm(now + self._silence)
        if self._running:
            self._arm(next(iter(self._running.values())).deadline)

    def _push_back(self, push_back: PushBack) -> None:
        if push_back.max_in_flight is not None:
            self._credit = max(push_back.max_in_flight, 1)
        if push_back.pause > 0:
            self._paused_until = self._loop.time() + min(push_back.pause, LONGEST_RETRY_AFTER)
            self._arm(self._paused_until)
        self._bell.set()

    # --- time ---------------------------------------------------------------------------------------------------

    def _arm(self, when: float) -> None:
        """Make sure that the timer fires by *when*."""
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._tick)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        """Let due retries fly again, give up what is overdue, and set the timer for what comes next."""
        self._timer = None
        now = self._loop.time()
        while self._later and self._later[0][0] <= now:
            self._todo.append(heapq.heappop(self._later)[2])
        overdue = self._overdue(now)
        if overdue:
            self._give_up(overdue, now)
        self._watch_for_stuck(now)
        self._bell.set()
        upcoming = self._next_due(now)
        if upcoming is not None:
            self._arm(max(upcoming, now + 0.001))

    def _due_in_queue(self, flight: Flight) -> float:
        """When a flight that has not started is given up."""
        if self._reports_progress:  # it waits inside the plugin, and its clock has not begun
            quiet = max(flight.sent, self._last_heard) + self._silence
            return min(quiet, flight.sent + self._rules.trial_timeout)
        return flight.sent + self._patience()

    def _overdue(self, now: float) -> list[Flight]:
        overdue: list[Flight] = []
        for flight in self._flying.values():  # in the order of sending
            if self._due_in_queue(flight) > now:
                break
            overdue.append(flight)
        for flight in self._running.values():  # in the order of starting
            if flight.deadline > now:
                break
            overdue.append(flight)
        while self._short and self._short[0][0] <= now:
            _, _, flight, attempt = heapq.heappop(self._short)
            place = self._running if flight.started else self._flying
            if place.get(flight.trial.trial_id) is not flight or flight.attempt != attempt or flight in overdue:
                continue
            if flight.deadline <= now or (flight.started and flight.heard + self._silence <= now):
                overdue.append(flight)
            elif flight.started and self._silence_is_short:
                self._serial += 1
                heapq.heappush(self._short, (flight.heard + self._silence, self._serial, flight, attempt))
        return overdue

    def _give_up(self, overdue: list[Flight], now: float) -> None:
        final: list[Flight] = []
        for flight in overdue:
            trial_id = flight.trial.trial_id
            (self._running if flight.started else self._flying).pop(trial_id, None)
            key = (trial_id, flight.attempt)
            self._zombies.add(key)
            if self._cancels:
                self._to_cancel.append(key)
            flight.latency = now - flight.sent
            failure = Failure(
                FailureCategory.TIMEOUT, f"no answer within {flight.latency:.3g} s", "TIMEOUT", FailureOrigin.SERVER
            )
            if self._failed(flight, failure, None, now):
                final.append(flight)
        if final:
            self._done(final)

    def _watch_for_stuck(self, now: float) -> None:
        """Break a conversation off when given-up trials hold every credit, or keep the end waiting."""
        limit = min(self._credit, self._rules.concurrency)
        held = bool(self._zombies) and (len(self._zombies) >= limit or bool(self._suspects))
        if not (held or self._cancelled or self._ended):
            self._stuck_since = None
            return
        if self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since >= GRACE_AT_END and self._conversation is not None:
            self._stuck_since = None
            if self._cancelled:
                self._flying.clear()
                self._running.clear()
            _log.warning(
                "conversation broken off: the plugin holds trials it does not answer", plugin=self._plugin.info.name
            )
            self._abandoning = asyncio.ensure_future(self._conversation.abandon())

    def _next_due(self, now: float) -> float | None:
        dues: list[float] = []
        if self._later:
            dues.append(self._later[0][0])
        if self._short:
            dues.append(self._short[0][0])
        if self._flying:
            dues.append(self._due_in_queue(next(iter(self._flying.values()))))
        if self._running:
            dues.append(next(iter(self._running.values())).deadline)
        if self._paused_until > now:
            dues.append(self._paused_until)
        if self._stuck_since is not None:
            dues.append(self._stuck_since + GRACE_AT_END)
        return min(dues) if dues else None

    # --- losses -------------------------------------------------------------------------------------------------

    def _recover(self, lost: ConversationLost, words: str) -> None:
        """Put what was in flight back, find the one that breaks the plugin, or give the plugin up.

        Raises:
            Unreachable: it broke too often without answering anything, or would break again.
        """
        now = self._loop.time()
        self._recoveries += 1
        self._fruitless = 1 if self._progressed else self._fruitless + 1
        flights = [*self._flying.values(), *self._running.values()]
        self._flying.clear()
        self._running.clear()
        self._zombies.clear()
        self._to_cancel.clear()
        _log.warning(
            "conversation lost",
            plugin=self._plugin.info.name,
            status=lost.status,
            in_flight=len(flights),
            losses=self._recoveries,
        )
        if lost.hopeless:
            raise Unreachable(Reason.PLUGIN_UNREACHABLE, f"plugin {self._plugin.info.name!r}: {lost.message}{words}")
        alone = len(flights) == 1
        final: list[Flight] = []
        again: list[Flight] = []
        for flight in flights:
            flight.losses += 1
            if alone and flight.losses > (0 if lost.too_large else LOSSES_BEFORE_SUSPICION):
                flight.latency = now - flight.sent
                flight.result = self._loss_as_failure(lost, words)
                flight.failures = [
                    *(flight.failures or ()),
                    self._failed_attempt(flight, flight.result, None, now),
                ]
                final.append(flight)
            elif lost.too_large or flight.losses >= LOSSES_BEFORE_SUSPICION:
                self._suspects.append(flight)
            else:
                again.append(flight)
        self._todo.extendleft(reversed(again))
        if self._stopped:
            self._todo.clear()
            self._suspects.clear()
        if final:
            self._fruitless = 0
            self._killers += 1
            self._done(final)
        if (
            self._fruitless > RECOVERIES_WITHOUT_PROGRESS
            or self._killers > KILLERS_IN_A_ROW
            or self._recoveries > RECOVERIES
        ):
            raise Unreachable(
                Reason.PLUGIN_UNREACHABLE,
                f"plugin {self._plugin.info.name!r} broke {self._recoveries} times: {lost.message}{words}",
            )

    def _loss_as_failure(self, lost: ConversationLost, words: str) -> Failure:
        if lost.too_large:
            return Failure(FailureCategory.INVALID, lost.message, "MESSAGE_TOO_LARGE", self._origin, retryable=False)
        message = f"the plugin breaks whenever it is asked this trial: {lost.message}{words}"
        return Failure(FailureCategory.UNAVAILABLE, message, "PLUGIN_DIED", self._origin, retryable=False)


def _asked(failure: Failure) -> float:
    """Seconds that a failure asks to wait, within the ceiling."""
    return min(max(failure.retry_after or 0.0, 0.0), LONGEST_RETRY_AFTER)


def _retryable(failure: Failure) -> bool:
    if failure.retryable is not None:
        return failure.retryable
    return failure.category in _RETRIED or failure.category is FailureCategory.RATE_LIMITED
