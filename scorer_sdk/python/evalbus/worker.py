"""Runs a plugin's function over trials: concurrently, each answered exactly once, none harming another.

Knows nothing of sockets: `serve()` puts it behind one, the bench and the server use it directly.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from evalbus._context import Ticket
from evalbus._definition import Call, Opened, Plugin, Target
from evalbus._failure import Failure, FailureCategory
from evalbus._item import ScoreTask, Trial
from evalbus._plugin import Answer, AnswerDraft, ProgressKind, ScoreAnswer, ScoreAnswerDraft, TrialProgress
from evalbus._pool import Pool

Deliver: TypeAlias = Callable[[list[Any]], None]
"""Takes answers, as many as are ready: Answer of a target, ScoreAnswer of a scorer."""
News: TypeAlias = Callable[[list[TrialProgress]], None]

STARTED_AFTER = 0.05
"""Seconds: only a trial that runs longer than this is worth the news that it has begun."""
GRACE = 5.0
"""Seconds that a cancelled coroutine gets to end; then it is answered for."""
CLOSING_GRACE = 0.5
"""The same when the conversation is over."""
SLICE = 0.002
"""Seconds that inline functions may hold the loop at a time."""

_log = logging.getLogger("evalbus.plugin")


class Worker:
    """One conversation's work."""

    def __init__(self, plugin: Plugin[Any, Any], opened: Opened, deliver: Deliver, news: News) -> None:
        """Ready to work on the running loop. *deliver* and *news* are called on it, and never wait."""
        self._loop = asyncio.get_running_loop()
        self._plugin = plugin
        self._opened = opened
        self._deliver = deliver
        self._news = news
        self._call: Call = plugin.bind(opened, _log.info)
        is_target = isinstance(plugin, Target)
        self._draft: type[Any] = AnswerDraft if is_target else ScoreAnswerDraft
        self._answer: type[Any] = Answer if is_target else ScoreAnswer
        self._tickets: dict[tuple[int, int], Ticket] = {}
        self._ready: list[Any] = []
        self._flushing = False
        self._closed = False
        self._empty: asyncio.Event = asyncio.Event()
        self._empty.set()
        self._strays: set[asyncio.Task[None]] = set()
        silence = opened.opening.silence
        self._heartbeat = silence / 4 if silence else None
        self._tick_every = min(STARTED_AFTER, max(self._heartbeat or STARTED_AFTER, 0.005))
        self._tick: asyncio.TimerHandle | None = None
        self._pool: Pool | None = None
        self._line: deque[Ticket] | None = None
        if not plugin.is_async:
            if plugin.options.mode == "inline":
                self._line = deque()
            else:
                self._pool = Pool(self._run_sync, self._finish_all, plugin.options.threads)

    @property
    def unanswered(self) -> int:
        """How many trials are held."""
        return len(self._tickets)

    def submit(self, tasks: Sequence[Trial | ScoreTask]) -> None:
        """Take trials on. One that is held already is not taken twice."""
        if self._closed:
            return
        held = self._tickets
        fresh = []
        for task in tasks:
            key = (task.trial_id, task.attempt)
            if key not in held:
                held[key] = ticket = Ticket(task, key)
                fresh.append(ticket)
        if not fresh:
            return
        self._empty.clear()
        if self._pool is not None:
            self._pool.submit(fresh)
        elif self._line is not None:
            if not self._line:
                self._loop.call_soon(self._run_slice)
            self._line.extend(fresh)
        else:
            self._start(fresh)
        if self._tick is None:
            self._tick = self._loop.call_later(self._tick_every, self._look)

    def cancel(self, keys: Iterable[tuple[int, int]]) -> None:
        """Stop trials, named by (trial id, attempt). Those that are not held are ignored."""
        tickets = {ticket for key in keys if (ticket := self._tickets.get(key)) is not None and not ticket.stopped}
        self._stop(tickets, "cancelled")

    async def drain(self) -> None:
        """Wait until everything that was taken on is answered, and the answers are delivered."""
        await self._empty.wait()
        self._flush()

    async def close(self) -> None:
        """Stop everything; nothing is delivered any more."""
        self._closed = True
        if self._tick is not None:
            self._tick.cancel()
        tickets = list(self._tickets.values())
        for ticket in tickets:
            ticket.stopped = ticket.stopped or "cancelled"
        if self._line is not None:
            self._line.clear()
        if self._pool is not None:
            self._pool.close()
        jobs = self._strays | {ticket.job for ticket in tickets if ticket.job is not None}
        for job in jobs:
            job.cancel()
        if jobs:
            _, left = await asyncio.wait(jobs, timeout=CLOSING_GRACE)
            if left:
                _log.warning("%s: %d trials do not end although they were cancelled", self._plugin.name, len(left))
        self._tickets.clear()
        self._empty.set()
        self._plugin.release(self._opened)

    # --- async functions: a task a trial ------------------------------------------------------------------------

    def _start(self, tickets: Sequence[Ticket]) -> None:
        now = time.monotonic()
        create = self._loop.create_task
        for ticket in tickets:
            ticket.begun = now
            if ticket.task.remaining is not None:
                ticket.deadline = now + ticket.task.remaining
            ticket.job = create(self._run_async(ticket))

    async def _run_async(self, ticket: Ticket) -> None:
        try:
            result = self._plugin.result(await self._call(ticket), ticket)
        # Everything is caught, also SystemExit: plugin code ends here, and its end must not be the loop's.
        except BaseException as error:
            result = self._raised(ticket, error)
        self._finish(ticket, result)

    # --- sync functions: threads, or inline ---------------------------------------------------------------------

    def _run_sync(self, ticket: Ticket) -> Any:
        remaining = ticket.task.remaining
        if remaining is not None:
            ticket.deadline = (ticket.begun or 0.0) + remaining
        try:
            result = self._plugin.result(self._call(ticket), ticket)
        except BaseException as error:
            result = self._raised(ticket, error)
        return result

    def _run_slice(self) -> None:
        line = self._line
        if not line:
            return
        monotonic = time.monotonic
        end = monotonic() + SLICE
        while line:
            ticket = line.popleft()
            if ticket.stopped:
                continue  # answered when it was cancelled
            ticket.begun = now = monotonic()
            self._finish(ticket, self._run_sync(ticket), flush=False)
            if now > end:
                break
        if line:
            self._loop.call_soon(self._run_slice)
        self._flush()

    # --- ends ---------------------------------------------------------------------------------------------------

    def _raised(self, ticket: Ticket, error: BaseException) -> Any:
        return _stopped(ticket) if ticket.stopped else self._plugin.raised(error, self._opened)

    def _finish_all(self, finished: list[tuple[Ticket, Any]]) -> None:
        for ticket, result in finished:
            self._finish(ticket, result, flush=False)
        self._flush()

    def _finish(self, ticket: Ticket, result: Any, flush: bool = True) -> None:
        if self._tickets.get(ticket.key) is not ticket:
            return  # answered for, or closed
        del self._tickets[ticket.key]
        answer = self._draft()
        answer.usage = None
        if ticket.stopped == "timeout" and type(result) is not Failure:
            result = _stopped(ticket)
        if ticket.figures is not None:
            if type(result) is Failure:
                answer.usage = ticket.figures.usage
            elif ticket.figures.fresh and getattr(ticket.task, "limits", None) is not None:
                self._news([_progress(ticket, ProgressKind.HEARTBEAT)])  # so that they are held against what it took
        answer.trial_id, answer.attempt = ticket.key
        answer.result = result
        answer.__class__ = self._answer
        self._ready.append(answer)
        if flush and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)  # once a turn of the loop: what else is ready goes along

    def _flush(self) -> None:
        self._flushing = False
        if self._ready and not self._closed:
            ready, self._ready = self._ready, []
            self._deliver(ready)
        if not self._tickets:
            self._empty.set()

    # --- stopping, and the clock --------------------------------------------------------------------------------

    def _stop(self, tickets: set[Ticket], why: str) -> None:
        now = time.monotonic()
        for ticket in tickets:
            ticket.stopped = why
            ticket.stopped_at = now
        if self._pool is not None:
            waiting = {ticket for ticket in tickets if ticket.begun is None}
            unbegun: Iterable[Ticket] = self._pool.withdraw(waiting) if waiting else ()
        elif self._line is not None:
            unbegun = tickets  # inline functions are never seen at work
        else:
            unbegun = ()
            for ticket in tickets:
                ticket.job.cancel()
                if ticket.job not in self._strays:
                    ticket.job.add_done_callback(lambda _, ticket=ticket: self._finish(ticket, _stopped(ticket)))
        for ticket in unbegun:
            self._finish(ticket, _stopped(ticket))

    def _look(self) -> None:
        """The one clock of the conversation: deadlines, `started`, heartbeats; it runs while anything is held."""
        self._tick = None
        now = time.monotonic()
        late: set[Ticket] = set()
        news: list[TrialProgress] = []
        for ticket in list(self._tickets.values()):
            if ticket.begun is None:
                continue
            if ticket.stopped:
                self._abandon(ticket, now)
            elif ticket.deadline is not None and now >= ticket.deadline:
                late.add(ticket)
            elif (kind := self._news_of(ticket, now)) is not None:
                news.append(_progress(ticket, kind))
                ticket.heard = now
        if late:
            self._stop(late, "timeout")
        if news:
            self._news(news)
        if self._tickets:
            self._tick = self._loop.call_later(self._tick_every, self._look)

    def _news_of(self, ticket: Ticket, now: float) -> ProgressKind | None:
        told = ticket.figures is not None and ticket.figures.fresh
        if ticket.heard is None:
            begun = ticket.begun or now
            return ProgressKind.STARTED if told or now - begun >= STARTED_AFTER else None
        due = self._heartbeat is not None and now - ticket.heard >= self._heartbeat
        return ProgressKind.HEARTBEAT if told or due else None

    def _abandon(self, ticket: Ticket, now: float) -> None:
        """Answer for a coroutine that was cancelled and does not end."""
        if ticket.job is None or now - ticket.stopped_at < GRACE:
            return
        self._strays.add(ticket.job)
        ticket.job.add_done_callback(self._strays.discard)
        _log.warning("%s: trial %d/%d does not end although it was cancelled", self._plugin.name, *ticket.key)
        self._finish(ticket, _stopped(ticket))


def _stopped(ticket: Ticket) -> Failure:
    if ticket.stopped == "timeout":
        remaining = ticket.task.remaining or 0.0
        return Failure(FailureCategory.TIMEOUT, f"not done within {remaining:.3g} s")
    return Failure(FailureCategory.CANCELLED, "cancelled before it was done")


def _progress(ticket: Ticket, kind: ProgressKind) -> TrialProgress:
    trial_id, attempt = ticket.key
    figures = ticket.figures
    if figures is None:
        return TrialProgress(trial_id, attempt, kind)
    figures.fresh = False
    return TrialProgress(trial_id, attempt, kind, figures.steps, figures.messages, figures.usage, figures.note)
