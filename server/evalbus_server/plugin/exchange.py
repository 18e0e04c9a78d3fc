"""The exchange of trials with one plugin: what is sent, answered, and handed on. Lists move, not tasks.

One exchange serves one plugin for one run. Trials go from the queue (`sending.py`) into the table of what is in flight
(`in_flight.py`), and from there (`settling.py`) to *done* or back to the queue: after a pause (`retries.py`), or because
the conversation broke (`losses.py`). How many may be in flight is said by the `allowance.py`, when one is given up by
the `deadlines.py`. It never touches the store, and knows neither gRPC nor what the trials are for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

import structlog

from evalbus import FailureOrigin, Usage
from evalbus._plugin import Open, ProgressKind, Ready, TrialProgress
from evalbus_server.plugin.allowance import Allowance, Pools
from evalbus_server.plugin.deadlines import Alarm, Deadlines
from evalbus_server.plugin.in_flight import InFlight
from evalbus_server.plugin.losses import Losses
from evalbus_server.plugin.port import Conversation, ConversationLost, Flight, Plugin, Received
from evalbus_server.plugin.retries import Retries
from evalbus_server.plugin.rules import Rules
from evalbus_server.plugin.sending import Sending
from evalbus_server.plugin.settling import Settling

GRACE_AT_END = 5.0
"""Seconds that unanswered, given-up trials get before their stream is broken off."""

_log = structlog.get_logger("evalbus.plugin")


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
        self._left: Callable[[list[Flight]], None] | None = None
        self._in_flight = InFlight()
        self._allowance = Allowance(rules.concurrency)
        self._retries = Retries(rules, origin, self._allowance.lower)
        self._losses = Losses(plugin.info.name, origin, self._retries)
        self._deadlines = Deadlines(self._in_flight, rules, progress="progress" in plugin.info.capabilities)
        self._sending = Sending(self._in_flight, self._allowance, self._deadlines, rules)
        self._settling = Settling(self._in_flight, self._retries, plugin.info.name)
        self._settling.limits = rules.trial
        self._alarm = Alarm(self._tick)
        self._bell = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._cancels = "cancel" in plugin.info.capabilities
        self._finishing = False
        self._ended = False
        self._stuck_since: float | None = None
        self._conversation: Conversation | None = None
        self._connecting: asyncio.Future[Conversation] | None = None
        self._abandoning: asyncio.Future[None] | None = None
        self._fault: Exception | None = None
        self.ready: Ready | None = None

    # --- what the line calls ------------------------------------------------------------------------------------

    def offer(self, flights: Iterable[Flight]) -> None:
        """Take flights to be asked, in this order; after `stop` they are forgotten like those before it."""
        if self._settling.stopped:
            return
        self._sending.todo.extend(flights)
        self._bell.set()

    @property
    def concurrency(self) -> int:
        """Trials that may be in flight at most, whatever the plugin grants."""
        return self._rules.concurrency

    @property
    def in_flight(self) -> int:
        """Trials at the plugin now."""
        return len(self._in_flight)

    @property
    def unfinished(self) -> int:
        """Trials that were offered and have no final result."""
        return len(self._sending) + len(self._in_flight) + len(self._retries)

    @property
    def faults(self) -> int:
        """Answers that nobody waited for: late, doubled, foreign."""
        return self._settling.faults

    def tell_of_failed(self, spent: Callable[[Usage], None]) -> None:
        """Tell what failed attempts took as soon as they have failed, and not only with the final answer."""
        self._retries.spent = spent

    def tell_of_left(self, left: Callable[[list[Flight]], None]) -> None:
        """Hand on flights of which attempts have failed, and that get no final result now: they wait for their next
        attempt, which they may never see, or the run ends first.
        """
        self._left = left

    def sift_with(self, sift: Callable[[list[Flight]], list[Flight]]) -> None:
        """Let *sift* say of flights that are about to be sent which ones still are to be; it sees to the others."""
        self._sending.sift = sift

    def share(self, pools: Pools) -> None:
        """Share places with other exchanges: *pools* gives the pools, once the plugin has granted a limit."""
        self._allowance.pools = pools

    def change(self, rules: Rules) -> None:
        """Go on by other rules; what is in flight keeps its deadlines."""
        self._rules = self._sending.rules = self._retries.rules = rules
        self._allowance.change(rules.concurrency)
        self._deadlines.change(rules)
        self._settling.limits = rules.trial
        self._bell.set()

    def finish(self) -> None:
        """Nothing more will be offered: `run` returns once everything is answered."""
        self._finishing = True
        self._bell.set()

    def stop(self) -> None:
        """Send nothing more, and forget what was not sent; what is in flight may finish. `run` returns then."""
        self._settling.stopped = self._finishing = True
        self._let_go([*self._sending.clear(), *self._retries.clear()])
        self._bell.set()

    def cancel(self) -> None:
        """Stop, and cancel what is in flight: answers that were quicker stand, the rest stays unanswered."""
        self.stop()
        self._settling.cancelled = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._cancels:
            flights = self._in_flight.flights
            self._sending.to_cancel.extend((flight.trial.trial_id, flight.attempt) for flight in flights)
            self._watch_for_stuck(self._loop.time())
        else:
            self._forget()
            self._allowance.holds(self._in_flight.held)
        self._bell.set()

    def _forget(self) -> None:
        """Wait for nothing any more."""
        self._settling.forget(self._loop.time())
        self._let_go_left()

    def _let_go_left(self) -> None:
        flights, self._settling.left = self._settling.left, []
        self._let_go(flights)

    def _let_go(self, flights: Iterable[Flight]) -> None:
        """These flights get no final result now, or never: what their failed attempts took is not kept for later."""
        failed = [flight for flight in flights if flight.failures]
        if failed and self._left is not None:
            self._left(failed)

    # --- conversations ------------------------------------------------------------------------------------------

    async def open(self) -> Ready:
        """Open the conversation, so that settings are judged before the first trial.

        Raises:
            Unreachable: the plugin cannot be reached or started.
            Unfit: the plugin refused.
        """
        self._take(await self._plugin.converse(self._opening))
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
                self._losses.begun()
                lost = await self._converse(self._conversation)
                self._conversation = None
                if lost is None or self._nothing_left():
                    return
                self._recover(lost, await self._plugin.last_words())
                await self._plugin.restart()
                if self._nothing_left():
                    return
                if pause := self._losses.pause:
                    await asyncio.sleep(pause)
        finally:
            self._alarm.off()
            self._allowance.leave()
            if self._in_flight:
                self._forget()

    async def close(self) -> None:
        """Break off whatever is open."""
        self._alarm.off()
        self._allowance.leave()
        if self._conversation is not None:
            conversation, self._conversation = self._conversation, None
            await conversation.abandon()
        if self._abandoning is not None:
            await self._abandoning

    async def _reopen(self) -> bool:
        """Open the conversation again; False if the run was cancelled meanwhile: nobody waits for a lost plugin then."""
        self._connecting = asyncio.ensure_future(self._plugin.converse(self._opening))
        try:
            self._take(await self._connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._settling.cancelled and (task is None or not task.cancelling()):
                return False
            self._connecting.cancel()
            raise
        finally:
            self._connecting = None
        return True

    def _take(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.ready = conversation.ready
        self._in_flight.given_up.clear()
        self._stuck_since = None
        self._ended = False
        self._deadlines.heard = self._loop.time()
        self._allowance.granted(self._plugin.info.max_in_flight, conversation.ready.max_in_flight, self._bell.set)

    async def _converse(self, conversation: Conversation) -> ConversationLost | None:
        """Send and receive until all is done (None) or the conversation is lost."""
        sender = asyncio.ensure_future(self._send(conversation))
        try:
            while (received := await conversation.receive()) is not None:
                self._take_in(received, self._loop.time())
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

    def _recover(self, lost: ConversationLost, words: str) -> None:
        """Put what was in flight back, find the one that breaks the plugin, or give the plugin up.

        Raises:
            Unreachable: it broke too often without answering anything, or would break again.
        """
        losses = self._losses
        _log.log(
            logging.INFO if losses.count else logging.WARNING,  # people hear of it once
            "conversation lost",
            plugin=self._plugin.info.name,
            status=lost.status,
            process=words.partition(";")[0].strip(" ()"),
            in_flight=len(self._in_flight),
            losses=losses.count + 1,
        )
        losses.lost(lost, words)
        flights = self._in_flight.lose()
        self._sending.to_cancel.clear()
        now = self._loop.time()
        over = self._settling.end_over(flights, now)
        again, suspects, final = losses.sort([one for one in flights if one.over is None], lost, words, now)
        if not self._settling.stopped:
            self._sending.todo.extendleft(reversed(again))
            self._sending.suspects.extend(suspects)
        self._let_go([*again, *suspects])
        if final or over:
            self._done([*over, *final])
        losses.judge(lost, words)
        self._allowance.holds(self._in_flight.held)
        self._allowance.rest()

    # --- sending ------------------------------------------------------------------------------------------------

    async def _send(self, conversation: Conversation) -> None:
        """Send whatever is ready, never waiting for more, until nothing is left to send or to wait for."""
        sending = self._sending
        try:
            while True:
                self._bell.clear()
                if sending.to_cancel:
                    attempts, sending.to_cancel = sending.to_cancel, []
                    await conversation.cancel(attempts)
                    continue
                part = sending.next_part(self._loop.time(), self._alarm.by)
                if part:
                    await conversation.send(part, self._loop.time())
                    continue
                if self._nothing_left():
                    self._ended = True
                    self._watch_for_stuck(self._loop.time())
                    await conversation.end()
                    return
                if sending.starved and self._in_flight.given_up:
                    self._watch_for_stuck(self._loop.time())
                await self._bell.wait()
        except ConversationLost:
            return  # the receiver tells
        except Exception as fault:  # a fault of ours: nobody waits for the sender, so the receiver has to learn of it
            self._fault = fault
            await conversation.abandon()

    def _nothing_left(self) -> bool:
        return self._finishing and not (self._sending or self._in_flight or self._retries or self._sending.to_cancel)

    # --- receiving ----------------------------------------------------------------------------------------------

    def _take_in(self, received: Received, now: float) -> None:
        """Take what a message of the plugin holds."""
        self._deadlines.heard = now
        if received.answers:
            given_up = len(self._in_flight.given_up)
            final = self._settling.settle(received.answers, now)
            if len(self._in_flight.given_up) < given_up and not (self._settling.cancelled or self._ended):
                self._stuck_since = None
            self._losses.answered()
            if self._allowance.lowered:
                self._allowance.answered(len(final))
            if self._retries:
                self._alarm.by(self._retries.next())
            self._allowance.holds(self._in_flight.held)
            self._bell.set()
            if final:
                self._done(final)
            if self._settling.left:
                self._let_go_left()
        if received.news:
            self._note(received.news, now)
        if received.push_back is not None:
            self._allowance.push_back(received.push_back, now)
            self._bell.set()

    def _note(self, news: Sequence[TrialProgress], now: float) -> None:
        for entry in news:
            flight = self._in_flight.find(entry.trial_id, entry.attempt)
            if flight is None:
                continue
            flight.heard = now
            if entry.kind is ProgressKind.STARTED and not flight.started:
                self._alarm.by(self._deadlines.started(flight, now))
            if self._settling.news(entry, flight):
                self._call_off(flight, now)

    def _call_off(self, flight: Flight, now: float) -> None:
        """Cancel a trial that has taken more than it may; its answer says what it took in all, if it comes soon."""
        if self._cancels:
            self._sending.to_cancel.append((flight.trial.trial_id, flight.attempt))
            self._bell.set()
        self._deadlines.shorten(flight, min(flight.deadline, now + (GRACE_AT_END if self._cancels else 0.0)))
        self._alarm.by(flight.deadline)

    # --- time ---------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Let due retries fly again, give up what is overdue, and set the alarm for what comes next."""
        now = self._loop.time()
        overdue = self._deadlines.overdue(now)
        if overdue:
            final, given_up = self._settling.give_up(overdue, now)
            if self._cancels:
                self._sending.to_cancel.extend(given_up)
            if final:
                self._done(final)
            self._let_go_left()
        self._sending.todo.extend(self._retries.due(now))
        self._watch_for_stuck(now)
        self._bell.set()
        upcoming = min(self._deadlines.next(), self._retries.next())
        if self._allowance.paused_until > now:
            upcoming = min(upcoming, self._allowance.paused_until)
        if self._stuck_since is not None:
            upcoming = min(upcoming, self._stuck_since + GRACE_AT_END)
        if upcoming < float("inf"):
            self._alarm.by(max(upcoming, now + 0.001))

    def _watch_for_stuck(self, now: float) -> None:
        """Break a conversation off when given-up trials hold every place, or keep the end waiting."""
        given_up = self._in_flight.given_up
        held = bool(given_up) and (
            len(given_up) >= self._allowance.most or bool(self._sending.suspects) or self._sending.starved
        )
        if not (held or self._settling.cancelled or self._ended):
            self._stuck_since = None
            return
        if self._stuck_since is None:
            self._stuck_since = now
            self._alarm.by(now + GRACE_AT_END)
        elif now - self._stuck_since >= GRACE_AT_END and self._conversation is not None:
            self._stuck_since = None
            if self._settling.cancelled:
                self._forget()
            _log.warning(
                "conversation broken off: the plugin holds trials it does not answer", plugin=self._plugin.info.name
            )
            self._abandoning = asyncio.ensure_future(self._conversation.abandon())
