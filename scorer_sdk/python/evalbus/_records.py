"""The two kinds of conversation as records: what a request holds, and how answers are packed into messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from evalbus import wire
from evalbus._definition import Plugin, Scorer, Target
from evalbus._errors import ContractBroken
from evalbus._failure import Failure, FailureCategory
from evalbus._plugin import Answer, Ready, ScoreAnswer, TrialProgress
from evalbus._results import one_line
from evalbus.v1 import plugin_pb2, scorer_pb2, target_pb2
from evalbus.wire.framing import submessage, tag

RECORDS = 256
"""Records in a message, at most."""
BYTES = 1024 * 1024
"""Bytes of a message, at most; a larger record travels alone."""
RECORD_BYTES = 2 * 1024 * 1024
"""Bytes of a record, at most."""


@dataclass(frozen=True, slots=True)
class Side:
    """What differs between a conversation with a target and one with a scorer."""

    service: str
    method: str
    plugin: type[Plugin[Any, Any]]
    request: type[Any]
    response: type[Any]
    batch: str
    """The name of the request's batch."""
    records: Callable[[Any], Sequence[Any]]
    """The records of a request that holds a batch."""
    decode: Callable[[Any], Any]
    answer: type[Answer] | type[ScoreAnswer]
    encode: Callable[[Any], bytes]
    """An answer as an encoded message; raises what values without a form on the wire raise."""
    result: Callable[[Any], Any]
    """The result of an answer's message; raises ContractBroken."""

    def read(self, request: Any) -> tuple[list[Any], list[Any]]:
        """The trials or tasks of a batch, and the answers for those that break the contract."""
        good, bad = [], []
        decode = self.decode
        for record in self.records(request):
            try:
                good.append(decode(record))
            except ContractBroken as error:
                failure = Failure(FailureCategory.INVALID, one_line(str(error)), "CONTRACT_BROKEN")
                bad.append(self.answer(record.trial_id, record.attempt, failure))
        return good, bad

    def pack(self, answers: Sequence[Any]) -> list[bytes]:
        """Answers as messages, each at most BYTES or of one record. An answer that cannot travel becomes a failure."""
        messages: list[bytes] = []
        records: list[bytes] = []
        total = 0
        for answer in answers:
            record = self._record(answer)
            total += len(record)
            if records and total > BYTES - _ENVELOPE:
                messages.append(submessage(_ANSWERS, b"".join(records)))
                records, total = [], len(record)
            records.append(record)
        messages.append(submessage(_ANSWERS, b"".join(records)))
        return messages

    def travelled(self, answers: Sequence[Any]) -> list[Any]:
        """Answers as they would arrive over a socket: one that cannot travel, or breaks the contract, is a failure.

        For plugins that are asked without a socket, so that they get away with no more than others.
        """
        arrived = []
        for data in self.pack(answers):
            for record in self.response.FromString(data).answers.answers:
                usage = None
                try:
                    result = self.result(record)
                    usage = wire.usage_from_proto(record.usage) if record.HasField("usage") else None
                except ContractBroken as error:
                    result = Failure(FailureCategory.INVALID, one_line(str(error)), "CONTRACT_BROKEN")
                arrived.append(self.answer(record.trial_id, record.attempt, result, usage))
        return arrived

    def ready(self, ready: Ready) -> bytes:
        """The message that says that the conversation is open."""
        data: bytes = self.response(ready=wire.ready_to_proto(ready)).SerializeToString()
        return data

    def refused(self, failure: Failure) -> bytes:
        """The message that says that it is not."""
        refused = plugin_pb2.Refused(failure=wire.failure_to_proto(failure))
        data: bytes = self.response(refused=refused).SerializeToString()
        return data

    def progress(self, news: Sequence[TrialProgress]) -> bytes:
        """A message with news of trials."""
        response = self.response()
        response.progress.SetInParent()
        for entry in news:
            try:
                message = wire.progress_to_proto(entry)
            except Exception:  # an author's note or usage that has no form on the wire: the news is that it goes on
                message = wire.progress_to_proto(TrialProgress(entry.trial_id, entry.attempt, entry.kind))
            response.progress.trials.append(message)
        data: bytes = response.SerializeToString()
        return data

    def _record(self, answer: Any) -> bytes:
        """An answer as a field of its batch."""
        try:
            encoded = self.encode(answer)
        except Exception as error:  # the values in it are an author's, and may be anything
            reason = "NOT_UNICODE" if isinstance(error, UnicodeError) else "RESULT_INVALID"
            text = one_line(f"the answer has no form on the wire: {error}")
            encoded = self._failed(answer, Failure(FailureCategory.INTERNAL, text, reason))
        if len(encoded) > RECORD_BYTES:
            text = f"the answer has {len(encoded):,} bytes, which is over the limit of {RECORD_BYTES:,}"
            encoded = self._failed(answer, Failure(FailureCategory.INVALID, text, "MESSAGE_TOO_LARGE"))
        return submessage(_RECORD, encoded)

    def _failed(self, answer: Any, failure: Failure) -> bytes:
        return self.encode(self.answer(answer.trial_id, answer.attempt, failure))


_ANSWERS = tag(3, delimited=True)
"""The batch of answers in a response of either kind."""
_RECORD = tag(1, delimited=True)
"""An answer in its batch."""
_ENVELOPE = 8
"""Bytes around a batch in its message, at most."""

TARGET = Side(
    service="evalbus.v1.Target",
    method="Answer",
    plugin=Target,
    request=target_pb2.AnswerRequest,
    response=target_pb2.AnswerResponse,
    batch="trials",
    records=attrgetter("trials.trials"),
    decode=wire.trial_from_proto,
    answer=Answer,
    encode=wire.encode_answer,
    result=wire.answer_result_from_proto,
)
SCORER = Side(
    service="evalbus.v1.Scorer",
    method="Score",
    plugin=Scorer,
    request=scorer_pb2.ScoreRequest,
    response=scorer_pb2.ScoreResponse,
    batch="tasks",
    records=attrgetter("tasks.tasks"),
    decode=wire.task_from_proto,
    answer=ScoreAnswer,
    encode=wire.encode_score_answer,
    result=wire.score_answer_result_from_proto,
)
SIDES = (TARGET, SCORER)


def side_of(plugin: Plugin[Any, Any]) -> Side:
    """The kind of conversation that a plugin has."""
    return next(side for side in SIDES if isinstance(plugin, side.plugin))
