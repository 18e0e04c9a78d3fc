"""Group commit: what happens to the trials of a run is gathered and stored in few transactions, on the event loop.

Not in a thread: a thread that hands rows to SQLite must win the interpreter back at every row, and starves behind a busy
loop. A commit holds the loop for a few milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from evalbus import Failure, Message, Output, Score, ToolCall, Value
from evalbus._output import only_text
from evalbus_server.errors import Reason, ServerError, StoreTrouble
from evalbus_server.model.run import Run
from evalbus_server.model.trial import AttemptRecord, Changes, OutputRecord, ResultRecord, ScoreRecord
from evalbus_server.store.commit import Committed

_MOST_TRIALS = 256
_MOST_OTHERS = 1024
_MOST_BYTES = 1 << 20
_PATIENCE = 10.0
"""Seconds for which another program may lock the file before the log gives up."""
_MOMENT = 0.002
"""Seconds after which a commit that would have waited is tried again."""
_LONGEST_MOMENT = 0.1
"""The same once it has been tried for long."""
_ROW = 100
"""About so many bytes a record takes beside its content."""


class CommittingStore(Protocol):
    """What the log asks of the store."""

    def commit(self, run_id: str, changes: Changes, *, at_once: bool) -> Committed:
        """Store changes of a run, all or nothing; *at_once*: fail, and do not wait, while somebody else writes."""
        ...

    @property
    def next_commit(self) -> float:
        """When the next commit may begin, on the clock of time.monotonic."""
        ...

    @property
    def excludes_commits(self) -> bool:
        """Whether a commit would wait now, and hold the loop."""
        ...


class RunLog:
    """Stores what happens to the trials of one run, in the order in which it is told."""

    def __init__(
        self,
        store: CommittingStore,
        run: Run,
        committed: Callable[[Changes, Committed], None],
        failed: Callable[[StoreTrouble], None],
    ) -> None:
        """*committed* is called on the loop after each commit; *failed* once, when a write has failed for good."""
        self._store = store
        self._run_id = run.id
        self._committed = committed
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Changes, _Load]] = deque()
        self._load = _Load(0, 0, 0, 0)
        self._next: asyncio.Handle | None = None
        self._soon = False
        self._locked_since: float | None = None
        self._trouble: StoreTrouble | None = None

    def add(
        self,
        outputs: Sequence[OutputRecord] = (),
        scores: Sequence[ScoreRecord] = (),
        attempts: Sequence[AttemptRecord] = (),
        results: Sequence[ResultRecord] = (),
    ) -> None:
        """Store these with the next commit. After a failed write nothing is stored any more."""
        if self._trouble is not None:
            return
        changes = Changes(list(outputs), list(scores), list(attempts), list(results))
        load = _load_of(changes)
        if not load.bytes:
            return
        for part in [(changes, load)] if load.fits else _split(changes):
            self._waiting.append(part)
            self._load = self._load.plus(part[1])
        self._schedule()

    async def flush(self) -> None:
        """Wait until all that was added is stored.

        Raises:
            StoreTrouble: it is not, and will not be.
        """
        while self._waiting and self._trouble is None:
            if self._locked_since is not None or self._store.excludes_commits:
                await asyncio.sleep(_MOMENT)
            else:
                self._commit()
                await asyncio.sleep(0)
        if self._trouble is not None:
            raise self._trouble

    def _schedule(self) -> None:
        """Commit in this turn of the loop if the last commit is long enough ago or much is waiting, else later."""
        if self._soon or not self._waiting or self._locked_since is not None:
            return
        when = self._store.next_commit
        self._soon = self._load.full or when <= time.monotonic()
        if self._soon:
            self._cancel()
            self._next = self._loop.call_soon(self._commit)
        elif self._next is None:
            self._next = self._loop.call_later(when - time.monotonic(), self._commit)

    def _cancel(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _commit(self) -> None:
        self._cancel()
        self._soon = False
        if not self._waiting or self._trouble is not None:
            return
        if self._store.excludes_commits:
            self._soon = True
            self._next = self._loop.call_later(_MOMENT, self._commit)
            return
        taken = self._take()
        changes = _together(taken)
        try:
            committed = self._store.commit(self._run_id, changes, at_once=True)
        except ServerError as error:
            self._meet(error, taken)
            return
        self._locked_since = None
        try:
            self._committed(changes, committed)
        finally:
            self._schedule()

    def _take(self) -> list[tuple[Changes, _Load]]:
        """The first parts that fit into one commit."""
        taken = [self._waiting.popleft()]
        load = taken[0][1]
        while self._waiting and load.plus(self._waiting[0][1]).fits:
            taken.append(self._waiting.popleft())
            load = load.plus(taken[-1][1])
        self._load = self._load.minus(load)
        return taken

    def _meet(self, error: ServerError, taken: list[tuple[Changes, _Load]]) -> None:
        """Try again later if the file is only locked; give up otherwise."""
        now = time.monotonic()
        since = self._locked_since or now
        if error.reason is Reason.DATABASE_LOCKED and now - since < _PATIENCE:
            self._locked_since = since
            self._waiting.extendleft(reversed(taken))
            for _, load in taken:
                self._load = self._load.plus(load)
            moment = min(max(_MOMENT, (now - since) / 10), _LONGEST_MOMENT)
            self._next = self._loop.call_later(moment, self._commit)
            return
        self._waiting.clear()
        self._trouble = error if isinstance(error, StoreTrouble) else StoreTrouble(error.reason, str(error))
        self._failed(self._trouble)


class _Load(NamedTuple):
    """How much work changes are for one commit."""

    outputs: int
    results: int
    others: int
    bytes: int

    @property
    def fits(self) -> bool:
        return (
            self.outputs <= _MOST_TRIALS
            and self.results <= _MOST_TRIALS
            and self.others <= _MOST_OTHERS
            and self.bytes <= _MOST_BYTES
        )

    @property
    def full(self) -> bool:
        return (
            self.outputs >= _MOST_TRIALS
            or self.results >= _MOST_TRIALS
            or self.others >= _MOST_OTHERS
            or self.bytes >= _MOST_BYTES
        )

    def plus(self, more: _Load) -> _Load:
        return _Load(*(a + b for a, b in zip(self, more, strict=True)))

    def minus(self, less: _Load) -> _Load:
        return _Load(*(a - b for a, b in zip(self, less, strict=True)))


def _load_of(changes: Changes) -> _Load:
    outputs, scores, attempts, results = changes
    size = _ROW * (len(outputs) + len(scores) + len(attempts) + len(results))
    for output_record in outputs:
        text = only_text(output_record.output)
        size += _output_bytes(output_record.output) if text is None else len(text)
    for score_record in scores:
        score = score_record.score
        if score.explanation or score.failure or score.metadata_json or score.steps or score.answer is not None:
            size += _score_bytes(score)
    for attempt in attempts:
        size += _failure_bytes(attempt.failure)
    for result in results:
        if result.failure is not None:
            size += _failure_bytes(result.failure)
    return _Load(len(outputs), len(results), len(scores) + len(attempts), size)


def _split(changes: Changes) -> Iterator[tuple[Changes, _Load]]:
    """Parts that fit into a commit, as far as single records do; a result never comes before its scores."""
    part, load = Changes([], [], [], []), _Load(0, 0, 0, 0)
    kinds: Any = changes
    for kind, records in enumerate(kinds):
        for record in records:
            alone: Any = Changes([], [], [], [])
            alone[kind].append(record)
            more = _load_of(alone)
            if not load.plus(more).fits and any(part):
                yield part, load
                part, load = Changes([], [], [], []), _Load(0, 0, 0, 0)
            target: Any = part[kind]
            target.append(record)
            load = load.plus(more)
    if any(part):
        yield part, load


def _together(parts: list[tuple[Changes, _Load]]) -> Changes:
    if len(parts) == 1:
        return parts[0][0]
    return Changes(
        [record for changes, _ in parts for record in changes.outputs],
        [record for changes, _ in parts for record in changes.scores],
        [record for changes, _ in parts for record in changes.attempts],
        [record for changes, _ in parts for record in changes.results],
    )


def _output_bytes(output: Output) -> int:
    size = _value_bytes(output.content) + len(output.metadata_json)
    if output.answer is not None:
        size += _value_bytes(output.answer)
    if output.messages:
        size += sum(_message_bytes(message) for message in output.messages)
    if output.tool_calls:
        size += _calls_bytes(output.tool_calls)
    if output.spans:
        size += sum(_ROW + len(span.name) + len(span.attributes_json) for span in output.spans)
    return size


def _message_bytes(message: Message) -> int:
    content = sum(_value_bytes(part) for part in message.content)
    return _ROW + content + len(message.metadata_json) + _calls_bytes(message.tool_calls)


def _calls_bytes(calls: Iterable[ToolCall]) -> int:
    return sum(_ROW + len(call.arguments_json) + _value_bytes(call.result) + len(call.error) for call in calls)


def _score_bytes(score: Score) -> int:
    size = len(score.explanation) + len(score.metadata_json)
    if score.answer is not None:
        size += _value_bytes(score.answer)
    if score.steps:
        size += sum(_ROW + _value_bytes(step.result) for step in score.steps)
    if score.failure is not None:
        size += _failure_bytes(score.failure)
    return size


def _failure_bytes(failure: Failure) -> int:
    return len(failure.message) + len(failure.details_json)


def _value_bytes(value: Value | None) -> int:
    return 0 if value is None else len(value.body)
