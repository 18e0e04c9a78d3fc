"""Flights <-> messages of the two plugin services. The only difference between targets and scorers is here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from evalbus import ContractBroken, Failure, FailureCategory, FailureOrigin, Output, TrialLimits, wire
from evalbus._plugin import Open
from evalbus.v1 import item_pb2, plugin_pb2, scorer_pb2, scorer_pb2_grpc, target_pb2, target_pb2_grpc, value_pb2
from evalbus_server.model.trial import epoch_of, position_of
from evalbus_server.plugin.port import Answered, Flight, PushBack, Received

LARGEST_OUTPUT = 2 * 1024 * 1024


class Codec(Protocol):
    """How one kind of plugin is spoken to."""

    origin: FailureOrigin

    def describe(self, channel: grpc.aio.Channel) -> Any:
        """The Describe method on a channel."""
        ...

    def converse(self, channel: grpc.aio.Channel) -> Any:
        """The streaming method on a channel."""
        ...

    def opening(self, opening: Open) -> Any:
        """The first request."""
        ...

    def request(self, flights: Sequence[Flight], now: float) -> Any:
        """A request that asks for flights."""
        ...

    def cancel(self, attempts: Sequence[tuple[int, int]]) -> Any:
        """A request that cancels (trial id, attempt) pairs."""
        ...

    def read(self, response: Any) -> Received:
        """What a response after the first one holds. A record that breaks the contract becomes its failure."""
        ...


class TargetCodec:
    """Trials and answers."""

    origin = FailureOrigin.TARGET

    def __init__(self, total: int = 0, limits: TrialLimits | None = None) -> None:
        """*total* is the number of items of the run, for display; *limits* is what each trial is asked to keep to."""
        self._total = total
        self._limits = None if limits is None else wire.limits_to_proto(limits)

    def describe(self, channel: grpc.aio.Channel) -> Any:
        """Target.Describe."""
        return target_pb2_grpc.TargetStub(channel).Describe

    def converse(self, channel: grpc.aio.Channel) -> Any:
        """Target.Answer."""
        return target_pb2_grpc.TargetStub(channel).Answer

    def opening(self, opening: Open) -> target_pb2.AnswerRequest:
        """A request with `open`."""
        return target_pb2.AnswerRequest(open=wire.open_to_proto(opening))

    def request(self, flights: Sequence[Flight], now: float) -> target_pb2.AnswerRequest:
        """A request with a batch of trials."""
        remaining = _Remaining(now)
        total = self._total
        trials = []
        for flight in flights:
            trial_id = flight.trial.trial_id
            trials.append(
                item_pb2.Trial(
                    trial_id=trial_id,
                    attempt=flight.attempt,
                    item=wire.item_to_proto(flight.trial.item),
                    epoch=epoch_of(trial_id),
                    index=position_of(trial_id),
                    total=total,
                    remaining=remaining.until(flight.deadline),
                    limits=self._limits,
                )
            )
        return target_pb2.AnswerRequest(trials=target_pb2.TrialBatch(trials=trials))

    def cancel(self, attempts: Sequence[tuple[int, int]]) -> target_pb2.AnswerRequest:
        """A request with `cancel`."""
        return target_pb2.AnswerRequest(cancel=_cancel(attempts))

    def read(self, response: target_pb2.AnswerResponse) -> Received:
        """Answers, news or push-back."""
        which = response.WhichOneof("message")
        if which != "answers":
            return _other(response, which)
        answers = []
        large = response.ByteSize() > LARGEST_OUTPUT
        from_proto = wire.answer_result_from_proto
        for answer in response.answers.answers:
            try:
                if large and answer.ByteSize() > LARGEST_OUTPUT:
                    raise _too_large(answer.ByteSize())
                result: Output | Failure = from_proto(answer)
                usage = wire.usage_from_proto(answer.usage) if answer.HasField("usage") else None
            except ContractBroken as broken:
                result, usage = _broken(broken, self.origin), None
            answers.append(Answered(answer.trial_id, answer.attempt, result, usage))
        return Received(answers)


class ScorerCodec:
    """Score tasks and scores."""

    origin = FailureOrigin.SCORER

    def describe(self, channel: grpc.aio.Channel) -> Any:
        """Scorer.Describe."""
        return scorer_pb2_grpc.ScorerStub(channel).Describe

    def converse(self, channel: grpc.aio.Channel) -> Any:
        """Scorer.Score."""
        return scorer_pb2_grpc.ScorerStub(channel).Score

    def opening(self, opening: Open) -> scorer_pb2.ScoreRequest:
        """A request with `open`."""
        return scorer_pb2.ScoreRequest(open=wire.open_to_proto(opening))

    def request(self, flights: Sequence[Flight], now: float) -> scorer_pb2.ScoreRequest:
        """A request with a batch of score tasks."""
        remaining = _Remaining(now)
        tasks = []
        for flight in flights:
            trial = flight.trial
            assert trial.output is not None
            task = scorer_pb2.ScoreTask(
                trial_id=trial.trial_id,
                attempt=flight.attempt,
                item=wire.item_to_proto(trial.item),
                output=wire.output_to_proto(trial.output),
                epoch=epoch_of(trial.trial_id),
                remaining=remaining.until(flight.deadline),
            )
            if flight.inputs:
                task.inputs.extend(
                    value_pb2.NamedValue(name=name, value=wire.value_to_proto(value))
                    for name, value in flight.inputs.items()
                )
            tasks.append(task)
        return scorer_pb2.ScoreRequest(tasks=scorer_pb2.ScoreTaskBatch(tasks=tasks))

    def cancel(self, attempts: Sequence[tuple[int, int]]) -> scorer_pb2.ScoreRequest:
        """A request with `cancel`."""
        return scorer_pb2.ScoreRequest(cancel=_cancel(attempts))

    def read(self, response: scorer_pb2.ScoreResponse) -> Received:
        """Answers, news or push-back."""
        which = response.WhichOneof("message")
        if which != "answers":
            return _other(response, which)
        answers = []
        large = response.ByteSize() > LARGEST_OUTPUT
        from_proto = wire.score_answer_result_from_proto
        for answer in response.answers.answers:
            try:
                if large and answer.ByteSize() > LARGEST_OUTPUT:
                    raise _too_large(answer.ByteSize())
                result = from_proto(answer)
                usage = wire.usage_from_proto(answer.usage) if answer.HasField("usage") else None
            except ContractBroken as broken:
                result, usage = _broken(broken, self.origin), None
            answers.append(Answered(answer.trial_id, answer.attempt, result, usage))
        return Received(answers)


class _Remaining:
    """Lengths of time until deadlines; flights of one batch nearly always share one message."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._deadline = -1.0
        self._message: Duration | None = None

    def until(self, deadline: float) -> Duration | None:
        if deadline != self._deadline:
            self._deadline = deadline
            self._message = wire.duration_to_proto(max(deadline - self._now, 0.001))
        return self._message


def _cancel(attempts: Sequence[tuple[int, int]]) -> plugin_pb2.Cancel:
    return plugin_pb2.Cancel(
        attempts=[plugin_pb2.AttemptRef(trial_id=trial_id, attempt=attempt) for trial_id, attempt in attempts]
    )


def _other(response: Any, which: str | None) -> Received:
    """A response that holds no answers."""
    if which == "progress":
        news = []
        for entry in response.progress.trials:
            try:
                news.append(wire.progress_from_proto(entry))
            except ContractBroken:
                continue  # news of no use; the trial itself is still to be answered
        return Received(news=news)
    if which == "push_back":
        asked = response.push_back
        limit = asked.max_in_flight if asked.HasField("max_in_flight") else None
        pause = wire.duration_from_proto(asked.pause) if asked.HasField("pause") else 0.0
        return Received(push_back=PushBack(limit, pause))
    return Received()


def _broken(broken: ContractBroken, origin: FailureOrigin) -> Failure:
    reason = "MESSAGE_TOO_LARGE" if isinstance(broken, _TooLarge) else "CONTRACT_BROKEN"
    return Failure(FailureCategory.INVALID, str(broken), reason, origin, retryable=False)


class _TooLarge(ContractBroken):
    """An answer is over the limit."""


def _too_large(size: int) -> _TooLarge:
    return _TooLarge(f"the answer has {size} bytes; the limit is {LARGEST_OUTPUT}")
