"""The server's side of a conversation, as far as tests of plugins need it, and processes that hold the other side."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from evalbus import Item, ScoreTask, Trial, wire
from evalbus._plugin import Open, TrialProgress
from evalbus.v1 import plugin_pb2, scorer_pb2, scorer_pb2_grpc, target_pb2, target_pb2_grpc

ROOT = Path(__file__).parents[2]
CHANNEL_OPTIONS = [("grpc.max_receive_message_length", 64 * 1024 * 1024)]


class Talk:
    """One conversation over a channel."""

    def __init__(
        self, channel: grpc.aio.Channel, kind: str = "target", metadata: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.is_target = kind == "target"
        self.Request: Any = target_pb2.AnswerRequest if self.is_target else scorer_pb2.ScoreRequest
        method = (
            target_pb2_grpc.TargetStub(channel).Answer if self.is_target else scorer_pb2_grpc.ScorerStub(channel).Score
        )
        self.call: Any = method(metadata=tuple(metadata))
        self.news: list[TrialProgress] = []
        self.results: dict[int, Any] = {}
        self.messages: list[int] = []

    async def open(self, plugin: str = "", **more: Any) -> Any:
        """Open, and return what came: Ready, or the Failure."""
        await self.call.write(self.Request(open=wire.open_to_proto(Open(plugin=plugin, run_id="r", **more))))
        return await self.opened()

    async def opened(self) -> Any:
        response = await self.call.read()
        assert response is not grpc.aio.EOF, await self.call.code()
        if response.HasField("ready"):
            return wire.ready_from_proto(response.ready)
        return wire.failure_from_proto(response.refused.failure)

    async def ask(self, *inputs: str, first: int = 0, remaining: float | None = None) -> None:
        trials = [
            Trial(first + n, 1001, Item(f"q{first + n}", text), remaining=remaining) for n, text in enumerate(inputs)
        ]
        await self.send(trials)

    async def send(self, records: Sequence[Trial | ScoreTask]) -> None:
        request = self.Request()
        for record in records:
            if isinstance(record, Trial):
                wire.fill_trial(request.trials.trials.add(), record)
            else:
                wire.fill_task(request.tasks.tasks.add(), record)
        await self.call.write(request)

    async def cancel(self, *trial_ids: int) -> None:
        attempts = [plugin_pb2.AttemptRef(trial_id=number, attempt=1001) for number in trial_ids]
        await self.call.write(self.Request(cancel=plugin_pb2.Cancel(attempts=attempts)))

    async def until(self, count: int) -> dict[int, Any]:
        """Read until so many trials have been answered in all."""
        while len(self.results) < count:
            assert await self.read(), f"ended with {await self.call.code()} after {len(self.results)} answers"
        return self.results

    async def read(self) -> bool:
        """Read one message; False at the end."""
        try:
            response = await self.call.read()
        except grpc.aio.AioRpcError:  # the status says it too
            return False
        if response is grpc.aio.EOF:
            return False
        self.messages.append(response.ByteSize())
        self.news += [wire.progress_from_proto(entry) for entry in response.progress.trials]
        from_proto: Any = wire.answer_result_from_proto if self.is_target else wire.score_answer_result_from_proto
        for answer in response.answers.answers:
            assert answer.trial_id not in self.results, "answered twice"
            self.results[answer.trial_id] = from_proto(answer)
        return True

    async def end(self) -> grpc.StatusCode:
        """Half-close, read what is left, and return the status."""
        await self.call.done_writing()
        while await self.read():
            pass
        return await self.call.code()


class Process:
    """A plugin's process."""

    def __init__(self, address: str, process: subprocess.Popen[str]) -> None:
        self.address = address
        self.process = process

    def stop(self, timeout: float = 60) -> tuple[int, str, str]:
        """Ask it to end; its exit code, stdout and stderr."""
        self.process.terminate()
        return self.wait(timeout)

    def first_line(self) -> str:
        """What it says first on stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def wait(self, timeout: float = 60) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


def start(socket: Path | None, *, script: Path | None = None, **environment: Any) -> Process:
    """Start the plugins of this folder, or another script with the address as its argument."""
    address = f"unix:{socket}" if socket else ""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVALBUS_")}
    if script is None and socket is not None:
        kept["EVALBUS_SOCKET"] = str(socket)
    command = [
        sys.executable,
        str(script or Path(__file__).with_name("sdk_plugins.py")),
        *([address] if script else []),
    ]
    process = subprocess.Popen(
        command, env=kept | environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return Process(address, process)


@contextlib.asynccontextmanager
async def connected(address: str, *, wait: bool = True) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        if wait:
            await asyncio.wait_for(channel.channel_ready(), 60)
        yield channel
