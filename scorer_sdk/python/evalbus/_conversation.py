"""One stream between the server and a plugin: reads trials, writes answers, from `open` to the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from evalbus import wire
from evalbus._definition import Opened, OpeningRefused, Plugin
from evalbus._errors import ContractBroken, SettingsInvalid
from evalbus._failure import Failure, FailureCategory
from evalbus._plugin import TrialProgress
from evalbus._records import RECORDS, Side
from evalbus._results import one_line
from evalbus._status import details
from evalbus.worker import Worker

Stream: TypeAlias = Any
"""A grpc.aio.ServicerContext that reads and writes bytes: requests are parsed here, where a fault can be answered."""

_log = logging.getLogger("evalbus.plugin")


class Ending:
    """Asks every conversation of a process to end."""

    def __init__(self) -> None:
        """Not yet."""
        self.asked = asyncio.Event()
        self.grace = 0.0
        """Seconds that what is in flight gets then."""

    def begin(self, grace: float) -> None:
        """Ask now."""
        self.grace = grace
        self.asked.set()


class Conversation:
    """One stream."""

    def __init__(self, side: Side, plugins: Mapping[str, Plugin[Any, Any]], stream: Stream, ending: Ending) -> None:
        """A stream that has just begun, to whichever of *plugins* it will ask for."""
        self._side = side
        self._plugins = plugins
        self._stream = stream
        self._ending = ending

    async def run(self) -> None:
        """Carry the conversation from its first message to its end."""
        first = await self._stream.read()
        if first is grpc.aio.EOF:
            return
        try:
            plugin, opened = await self._open(first)
        except OpeningRefused as refusal:
            await self._stream.write(self._side.refused(refusal.failure))
            return
        await self._stream.write(self._side.ready(opened.ready))
        await self._work(plugin, opened)

    # --- opening ------------------------------------------------------------------------------------------------

    async def _open(self, data: bytes) -> tuple[Plugin[Any, Any], Opened]:
        """The plugin that is asked for, opened.

        Raises:
            OpeningRefused: it cannot be.
        """
        try:
            request = self._side.request.FromString(data)
            if not request.HasField("open"):
                raise ContractBroken("the first message is not `open`")
            opening = wire.open_from_proto(request.open)
        except (DecodeError, ContractBroken) as error:
            raise _refused(f"{error}", "CONTRACT_BROKEN") from None
        plugin = self._find(opening.plugin)
        try:
            return plugin, await plugin.open(opening)
        except SettingsInvalid as error:
            raise _refused(str(error), "SETTINGS_INVALID", error.field) from None

    def _find(self, name: str) -> Plugin[Any, Any]:
        known = ", ".join(sorted(self._plugins))
        if not name:
            if len(self._plugins) == 1:
                return next(iter(self._plugins.values()))
            raise _refused(f"several plugins are served here: say which of {known}", "PLUGIN_UNKNOWN", "plugin")
        if name not in self._plugins:
            raise _refused(f"no plugin {name!r} is served here; there is {known}", "PLUGIN_UNKNOWN", "plugin")
        return self._plugins[name]

    # --- working ------------------------------------------------------------------------------------------------

    async def _work(self, plugin: Plugin[Any, Any], opened: Opened) -> None:
        outbox = Outbox(self._side, self._stream)
        worker = Worker(plugin, opened, outbox.answers, outbox.news)
        reader = asyncio.create_task(self._read(worker, outbox))
        writer = asyncio.create_task(outbox.run())
        stop = asyncio.create_task(self._ending.asked.wait())
        drained: asyncio.Task[None] | None = None
        try:
            await asyncio.wait({reader, writer, stop}, return_when=asyncio.FIRST_COMPLETED)
            drained = asyncio.create_task(worker.drain())
            if reader.done():
                reader.result()
                await asyncio.wait({drained, writer, stop}, return_when=asyncio.FIRST_COMPLETED)
            if stop.done() and not drained.done():
                await asyncio.wait({drained, writer}, timeout=self._ending.grace, return_when=asyncio.FIRST_COMPLETED)
            if stop.done() and not reader.done():
                # The other side asks again elsewhere, or when we are back, for what is unanswered.
                self._end(grpc.StatusCode.UNAVAILABLE, "PLUGIN_STOPPING", "the plugin is stopping")
            outbox.close()
            await writer
        except ContractBroken as error:
            self._end(grpc.StatusCode.INVALID_ARGUMENT, "CONTRACT_BROKEN", one_line(str(error)))
        finally:
            # One by one and at the end: cancelling a task that awaits the stream ends the stream.
            helpers = [task for task in (reader, writer, stop, drained) if task is not None]
            for task in helpers:
                task.cancel()
            await worker.close()
            await asyncio.gather(*helpers, return_exceptions=True)

    async def _read(self, worker: Worker, outbox: Outbox) -> None:
        side = self._side
        while (data := await self._stream.read()) is not grpc.aio.EOF:
            if self._ending.asked.is_set():
                continue
            try:
                request = side.request.FromString(data)
            except DecodeError:
                raise ContractBroken(f"a message of {len(data)} bytes is no {side.request.__name__}") from None
            kind = request.WhichOneof("message")
            if kind == side.batch:
                tasks, faults = side.read(request)
                worker.submit(tasks)
                if faults:
                    outbox.answers(faults)
            elif kind == "cancel":
                worker.cancel([(attempt.trial_id, attempt.attempt) for attempt in request.cancel.attempts])
            else:
                _log.warning("a message that is %s is ignored", kind or "empty")

    def _end(self, code: grpc.StatusCode, reason: str, text: str) -> None:
        self._stream.set_code(code)
        self._stream.set_details(text)
        self._stream.set_trailing_metadata(details(code, reason, text))


class Outbox:
    """What waits to be written. One task writes it all: whatever is ready goes into a message, nothing waits for more."""

    def __init__(self, side: Side, stream: Stream) -> None:
        """Nothing yet."""
        self._side = side
        self._stream = stream
        self._answers: list[Any] = []
        self._news: list[TrialProgress] = []
        self._bell = asyncio.Event()
        self._closed = False

    def answers(self, answers: Sequence[Any]) -> None:
        """Answers to be written."""
        self._answers.extend(answers)
        self._bell.set()

    def news(self, news: Sequence[TrialProgress]) -> None:
        """News to be written."""
        self._news.extend(news)
        self._bell.set()

    def close(self) -> None:
        """Let `run` end when everything is written."""
        self._closed = True
        self._bell.set()

    async def run(self) -> None:
        """Write until closed."""
        write = self._stream.write
        while True:
            while self._news:
                told, self._news = self._news[:RECORDS], self._news[RECORDS:]
                await write(self._side.progress(told))
            while self._answers and not self._news:  # news of a trial go before its answer
                part, self._answers = self._answers[:RECORDS], self._answers[RECORDS:]
                for data in self._side.pack(part):
                    await write(data)
            if self._news:
                continue
            if self._closed:
                return
            self._bell.clear()
            await self._bell.wait()


def _refused(text: str, reason: str, field: str = "") -> OpeningRefused:
    return OpeningRefused(Failure(FailureCategory.INVALID, one_line(text), reason, field=field))
