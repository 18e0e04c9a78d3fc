"""The same plugins without SDK: the generated stubs and nothing else. `bare_plugins.py (target|exact|levenshtein) SOCKET`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from rapidfuzz.distance import Levenshtein
from work import answer

from evalbus.v1 import output_pb2, score_pb2, scorer_pb2, scorer_pb2_grpc, target_pb2, target_pb2_grpc, value_pb2


class Target(target_pb2_grpc.TargetServicer):
    """Answers each batch with one batch."""

    async def Describe(self, request: Any, context: Any) -> Any:
        raise NotImplementedError  # nobody asks: the bare line knows its plugins

    async def Answer(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            answers = []
            for trial in request.trials.trials:
                content = value_pb2.Value(text=answer(trial.index, trial.item.expected.text))
                output = output_pb2.Output(content=content)
                answers.append(target_pb2.Answer(trial_id=trial.trial_id, attempt=trial.attempt, output=output))
            yield target_pb2.AnswerResponse(answers=target_pb2.AnswerBatch(answers=answers))


class Scorer(scorer_pb2_grpc.ScorerServicer):
    """Scores each batch with one batch."""

    async def Describe(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    def __init__(self, exact: bool) -> None:
        self._exact = exact

    async def Score(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            answers = []
            for task in request.tasks.tasks:
                said, expected = task.output.content.text, task.item.expected.text
                value = float(said == expected) if self._exact else Levenshtein.normalized_similarity(said, expected)
                score = score_pb2.Score(status=score_pb2.SCORE_STATUS_SCORED, value=value)
                answers.append(scorer_pb2.ScoreAnswer(trial_id=task.trial_id, attempt=task.attempt, scores=[score]))
            yield scorer_pb2.ScoreResponse(answers=scorer_pb2.ScoreAnswerBatch(answers=answers))


async def main(kind: str, socket: str) -> None:
    """Serve until the process is ended."""
    server = grpc.aio.server()
    if kind == "target":
        target_pb2_grpc.add_TargetServicer_to_server(Target(), server)
    else:
        scorer_pb2_grpc.add_ScorerServicer_to_server(Scorer(kind == "exact"), server)  # type: ignore[abstract]  # no Reduce
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
