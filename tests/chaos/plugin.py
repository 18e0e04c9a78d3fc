"""A target or a scorer of the chaos suite, from the generated code alone: it does what the seed says, and writes down all.

    plugin.py target|scorer [SOCKET]      listens where the server says, or at a socket

Each line of the log is one write: `word run trial attempt pid time more`, word being asked, answered, cancelled, over
(more trials were held than granted), or crowded (more were held than the pool has places, by all runs in it).
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

sys.path.insert(0, str(Path(__file__).parents[2]))
from evalbus.v1 import failure_pb2, plugin_pb2, score_pb2, scorer_pb2, target_pb2
from tests.chaos.behaviour import HONEST, Attempt, Manners, answer_of, explanation_of, mark_of, score_of

FOREIGN = 4_000_000
_LOGS: dict[str, int] = {}
_POOLED: set[Talk] = set()
"""Open conversations of runs that share a pool."""
_KINDS = {
    "unavailable": failure_pb2.FAILURE_CATEGORY_UNAVAILABLE,
    "internal": failure_pb2.FAILURE_CATEGORY_INTERNAL,
    "rate_limited": failure_pb2.FAILURE_CATEGORY_RATE_LIMITED,
    "refused": failure_pb2.FAILURE_CATEGORY_REFUSED,
}


class Over(Exception):
    """The conversation is ended, in order."""


class Aborted(Exception):
    """The conversation is ended with a status."""


class Talk:
    """One conversation."""

    def __init__(self, role: Role, context: Any, opened: Any) -> None:
        settings = json.loads(opened.settings)
        self.role = role
        self.context = context
        self.run = opened.run_id
        self.manners = Manners(settings["seed"], settings["weights"], settings["poison"], settings["pace"])
        self.patience = settings["timeout"]
        self.grant = settings["grant"]
        self.places = settings["places"]
        self.mark = mark_of(self.run)
        self.log = _LOGS.setdefault(settings["log"], -1)
        if self.log < 0:
            self.log = _LOGS[settings["log"]] = os.open(settings["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.held: dict[tuple[int, int], asyncio.Task[None]] = {}
        self.unanswered: set[tuple[int, int]] = set()
        self.turn = asyncio.Lock()
        self.broken: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.closed = False

    def note(self, word: str, key: tuple[int, int], more: str = "") -> None:
        """One line, in one write, so that lines of several processes do not mix."""
        line = f"{word} {self.run} {key[0]} {key[1]} {os.getpid()} {time.time():.4f} {more}"
        os.write(self.log, (line.rstrip() + "\n").encode())

    async def send(self, **fields: Any) -> None:
        async with self.turn:
            await self.context.write(self.role.response(**fields))

    async def send_answers(self, *answers: Any) -> None:
        response = self.role.response()
        response.answers.answers.extend(answers)
        async with self.turn:
            self.unanswered.difference_update((answer.trial_id, answer.attempt) for answer in answers)
            await self.context.write(response)

    def take(self, records: Any) -> None:
        """Begin work on trials."""
        for record in records:
            key = (record.trial_id, record.attempt)
            self.note("asked", key, self.role.seen(record))
            self.unanswered.add(key)
            self.held[key] = asyncio.create_task(self.work(record, key))
        if len(self.unanswered) > self.grant:
            self.note("over", (len(self.unanswered), self.grant))
        held = sum(len(talk.unanswered) for talk in _POOLED)
        if self in _POOLED and held > self.places:
            self.note("crowded", (held, self.places))

    def cancel(self, pairs: Any) -> None:
        """Stop trials; each answers in its own way."""
        for pair in pairs:
            if (task := self.held.get((pair.trial_id, pair.attempt))) is not None:
                task.cancel()

    def close(self) -> None:
        """Nobody listens any more."""
        self.closed = True
        _POOLED.discard(self)
        for task in self.held.values():
            task.cancel()

    async def work(self, record: Any, key: tuple[int, int]) -> None:
        attempt = Attempt(self.role.name, record.item.id, record.epoch, record.attempt)
        kind = self.manners.kind(attempt)
        try:
            try:
                await asyncio.sleep(self.manners.draw(attempt, "pace") ** 3 * self.manners.pace)
                await self.act(kind, attempt, record)
                self.note("answered", key, kind)
            except asyncio.CancelledError:
                if self.closed:
                    raise
                # The server has cancelled it: some answer all the same, since they were about to, some say CANCELLED.
                self.note("cancelled", key, kind)
                if self.manners.draw(attempt, "crossing") < 0.3 and kind == HONEST:
                    await self.send_answers(self.role.honest(record, attempt, self))
                else:
                    await self.send_answers(self.failed(record, attempt, failure_pb2.FAILURE_CATEGORY_CANCELLED))
        except Exception as error:  # it is to be broken off, or is broken already
            self.break_off(error)
        finally:
            self.held.pop(key, None)

    def break_off(self, error: Exception) -> None:
        """End the conversation because of what a trial did."""
        _POOLED.discard(self)
        if not self.broken.done():
            self.broken.set_result(error)

    async def act(self, kind: str, attempt: Attempt, record: Any) -> None:
        """Answer in the way that *kind* says."""
        how = getattr(self, f"_{kind}", None)
        if how is not None:
            await how(attempt, record)
        elif kind in _KINDS:
            await self.send_answers(self.failed(record, attempt, _KINDS[kind]))
        else:
            await self.send_answers(self.role.honest(record, attempt, self))

    def failed(self, record: Any, attempt: Attempt, category: Any) -> Any:
        answer = self.role.empty(record)
        words = f"as the seed says of {attempt.item} {record.item.input.text.rpartition(' ')[2]} {self.mark}"
        answer.failure.CopyFrom(failure_pb2.Failure(category=category, reason="CHAOS", message=words))
        if category == failure_pb2.FAILURE_CATEGORY_RATE_LIMITED:
            answer.failure.retry_after.nanos = int(self.manners.draw(attempt, "wait") * 1e8)
        fill_usage(answer.usage, attempt, self.manners)
        return answer

    async def _beats(self, attempt: Attempt, record: Any) -> None:
        for kind in (plugin_pb2.PROGRESS_KIND_STARTED, *[plugin_pb2.PROGRESS_KIND_HEARTBEAT] * 3):
            news = plugin_pb2.TrialProgress(trial_id=record.trial_id, attempt=record.attempt, kind=kind, steps=1)
            await self.send(progress=plugin_pb2.Progress(trials=[news]))
            await asyncio.sleep(self.patience / 8)
        await self.send_answers(self.role.honest(record, attempt, self))

    async def _late(self, attempt: Attempt, record: Any) -> None:
        until = time.monotonic() + self.patience * (1.05 + self.manners.draw(attempt, "late") / 2)
        while (left := until - time.monotonic()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:  # it does not listen
                if self.closed:
                    raise
                self.note("cancelled", (record.trial_id, record.attempt), "late")
        await self.send_answers(self.role.honest(record, attempt, self))

    async def _doubled(self, attempt: Attempt, record: Any) -> None:
        await self.send_answers(self.role.honest(record, attempt, self), self.role.wrong(record))
        await self.send_answers(self.role.wrong(record))

    async def _foreign(self, attempt: Attempt, record: Any) -> None:
        stranger, earlier = self.role.wrong(record), self.role.wrong(record)
        stranger.trial_id += FOREIGN
        earlier.attempt -= 1
        await self.send_answers(stranger, earlier, self.role.honest(record, attempt, self))

    async def _out_of_place(self, attempt: Attempt, record: Any) -> None:
        await self.send(ready=plugin_pb2.Ready(max_in_flight=1))
        await self.send()
        kind = plugin_pb2.PROGRESS_KIND_STARTED
        news = plugin_pb2.TrialProgress(trial_id=record.trial_id + FOREIGN, attempt=record.attempt, kind=kind)
        await self.send(progress=plugin_pb2.Progress(trials=[news]))
        await self.send_answers(self.role.honest(record, attempt, self))

    async def _broken(self, attempt: Attempt, record: Any) -> None:
        await self.send_answers(self.role.against_the_contract(record))

    async def _silent(self, attempt: Attempt, record: Any) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.closed:
                    raise
                self.note("cancelled", (record.trial_id, record.attempt), "silent")

    async def _stalls(self, attempt: Attempt, record: Any) -> None:
        time.sleep(self.patience * self.manners.draw(attempt, "stall"))  # noqa: ASYNC251  # nobody else gets a turn
        await self.send_answers(self.role.honest(record, attempt, self))

    async def _fewer(self, attempt: Attempt, record: Any) -> None:
        asked = plugin_pb2.PushBack(max_in_flight=1 + int(self.manners.draw(attempt, "fewer") * self.grant))
        asked.pause.nanos = int(self.manners.draw(attempt, "pause") * 5e7)
        await self.send(push_back=asked)
        await self.send_answers(self.role.honest(record, attempt, self))

    async def _ends(self, attempt: Attempt, record: Any) -> None:
        raise Over

    async def _aborts(self, attempt: Attempt, record: Any) -> None:
        raise Aborted

    async def _dies(self, attempt: Attempt, record: Any) -> None:
        os._exit(137)


class Role:
    """What differs between a target and a scorer."""

    name: str
    service: str
    method: str
    request: Any
    response: Any

    def declare(self, info: Any) -> None:
        raise NotImplementedError

    def records(self, request: Any) -> Any:
        raise NotImplementedError

    def seen(self, record: Any) -> str:
        """What the log says of a trial beside its number."""
        raise NotImplementedError

    def empty(self, record: Any) -> Any:
        raise NotImplementedError

    def honest(self, record: Any, attempt: Attempt, talk: Talk) -> Any:
        raise NotImplementedError

    def wrong(self, record: Any) -> Any:
        raise NotImplementedError

    def against_the_contract(self, record: Any) -> Any:
        raise NotImplementedError

    async def describe(self, request: Any, context: Any) -> Any:
        info = plugin_pb2.PluginInfo(
            name=f"chaos-{self.name}", version="1.0.0", digest="chaos", lowest_revision=1, highest_revision=1
        )
        info.capabilities.extend(os.environ.get("CHAOS_CAPABILITIES", "cancel progress").split())
        self.declare(info)
        return plugin_pb2.DescribeResponse(plugins=[info])

    async def converse(self, requests: Any, context: Any) -> None:
        """Talk, until the server has ended its side and all is answered, or a trial breaks it off."""
        opened = await anext(requests)
        talk = Talk(self, context, opened.open)
        guard = asyncio.create_task(_end_when_broken(talk, asyncio.current_task()))
        try:
            if talk.places:
                _POOLED.add(talk)
            await talk.send(ready=plugin_pb2.Ready(max_in_flight=talk.grant))
            async for request in requests:
                if request.HasField("cancel"):
                    talk.cancel(request.cancel.attempts)
                else:
                    talk.take(self.records(request))
            while talk.held:
                await asyncio.wait(set(talk.held.values()))
        except asyncio.CancelledError:
            if not talk.broken.done():
                raise
            if isinstance(talk.broken.result(), Aborted):
                await context.abort(grpc.StatusCode.UNAVAILABLE, "as the seed says")
        finally:
            guard.cancel()
            talk.close()


async def _end_when_broken(talk: Talk, handler: Any) -> None:
    await talk.broken
    handler.cancel()


class Target(Role):
    name, service, method = "target", "evalbus.v1.Target", "Answer"
    request, response = target_pb2.AnswerRequest, target_pb2.AnswerResponse

    def declare(self, info: Any) -> None:
        info.target.isolation = 1

    def records(self, request: Any) -> Any:
        return request.trials.trials

    def seen(self, record: Any) -> str:
        return f"{record.item.id} {record.item.input.text.rpartition(' ')[2]}"

    def empty(self, record: Any) -> Any:
        return target_pb2.Answer(trial_id=record.trial_id, attempt=record.attempt)

    def honest(self, record: Any, attempt: Attempt, talk: Talk) -> Any:
        answer = self.empty(record)
        answer.output.content.text = answer_of(attempt, record.item.input.text.rpartition(" ")[2], talk.mark)
        fill_usage(answer.output.usage, attempt, talk.manners)
        return answer

    def wrong(self, record: Any) -> Any:
        answer = self.empty(record)
        answer.output.content.text = "wrong"
        return answer

    def against_the_contract(self, record: Any) -> Any:
        answer = self.empty(record)
        answer.output.content.json = "{oops"
        return answer


class Scorer(Role):
    name, service, method = "scorer", "evalbus.v1.Scorer", "Score"
    request, response = scorer_pb2.ScoreRequest, scorer_pb2.ScoreResponse

    def declare(self, info: Any) -> None:
        info.scorer.scores.add(minimum=0, maximum=1)

    def records(self, request: Any) -> Any:
        return request.tasks.tasks

    def seen(self, record: Any) -> str:
        return str(record.output.content.text)

    def empty(self, record: Any) -> Any:
        return scorer_pb2.ScoreAnswer(trial_id=record.trial_id, attempt=record.attempt)

    def honest(self, record: Any, attempt: Attempt, talk: Talk) -> Any:
        content = record.output.content.text
        answer = self.empty(record)
        score = answer.scores.add(status=score_pb2.SCORE_STATUS_SCORED, value=score_of(content))
        score.explanation = explanation_of(content, attempt.number)
        fill_usage(score.usage, attempt, talk.manners)
        return answer

    def wrong(self, record: Any) -> Any:
        answer = self.empty(record)
        answer.scores.add(status=score_pb2.SCORE_STATUS_SCORED, value=0.999, explanation="wrong")
        return answer

    def against_the_contract(self, record: Any) -> Any:
        answer = self.empty(record)
        answer.scores.add(status=score_pb2.SCORE_STATUS_SCORED, value=float("nan"))
        return answer


def fill_usage(message: Any, attempt: Attempt, manners: Manners) -> None:
    """What the attempt says it has used."""
    message.input_tokens = manners.tokens(attempt)
    message.calls = 1
    micros = manners.micros(attempt)
    if micros is not None:
        message.cost.micros, message.cost.currency = micros, "USD"


async def main(role: Role, socket: str) -> None:
    """Listen until the process is ended."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # a full disk is the server's trouble, not the log's
    server = grpc.aio.server()
    methods = {
        "Describe": grpc.unary_unary_rpc_method_handler(
            role.describe,
            request_deserializer=plugin_pb2.DescribeRequest.FromString,
            response_serializer=plugin_pb2.DescribeResponse.SerializeToString,
        ),
        role.method: grpc.stream_stream_rpc_method_handler(
            role.converse,
            request_deserializer=role.request.FromString,
            response_serializer=role.response.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(role.service, methods),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(
        main({"target": Target, "scorer": Scorer}[sys.argv[1]](), [*sys.argv, ""][2] or os.environ["EVALBUS_SOCKET"])
    )
