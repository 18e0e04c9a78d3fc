"""A scorer written from the generated code alone, without the SDK: 1 if the output is the expected text, else 0."""

import asyncio
import sys

import grpc

from evalbus.v1 import plugin_pb2, score_pb2, scorer_pb2, scorer_pb2_grpc


class Same(scorer_pb2_grpc.ScorerServicer):
    async def Describe(self, request, context):
        info = plugin_pb2.PluginInfo(name="same", version="1.0.0", lowest_revision=1, highest_revision=1)
        info.scorer.scores.add(minimum=0, maximum=1)
        return plugin_pb2.DescribeResponse(plugins=[info])

    async def Score(self, requests, context):
        async for request in requests:
            if request.HasField("open"):
                yield scorer_pb2.ScoreResponse(ready=plugin_pb2.Ready())
            elif request.HasField("tasks"):
                response = scorer_pb2.ScoreResponse()
                for task in request.tasks.tasks:
                    answer = response.answers.answers.add(trial_id=task.trial_id, attempt=task.attempt)
                    same = task.output.content.text == task.item.expected.text
                    answer.scores.add(status=score_pb2.SCORE_STATUS_SCORED, value=same)
                yield response


async def main(address):
    server = grpc.aio.server()
    scorer_pb2_grpc.add_ScorerServicer_to_server(Same(), server)  # type: ignore[abstract]  # without Reduce
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
