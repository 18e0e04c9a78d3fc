"""A target written from the generated code alone, without the SDK: it answers with the input in capitals."""

import asyncio
import sys

import grpc

from evalbus.v1 import plugin_pb2, target_pb2, target_pb2_grpc


class Shouter(target_pb2_grpc.TargetServicer):
    async def Describe(self, request, context):
        info = plugin_pb2.PluginInfo(name="shouter", version="1.0.0", lowest_revision=1, highest_revision=1)
        info.target.isolation = plugin_pb2.ISOLATION_FRESH
        return plugin_pb2.DescribeResponse(plugins=[info])

    async def Answer(self, requests, context):
        async for request in requests:
            if request.HasField("open"):
                yield target_pb2.AnswerResponse(ready=plugin_pb2.Ready())
            elif request.HasField("trials"):
                response = target_pb2.AnswerResponse()
                for trial in request.trials.trials:
                    answer = response.answers.answers.add(trial_id=trial.trial_id, attempt=trial.attempt)
                    answer.output.content.text = trial.item.input.text.upper()
                yield response


async def main(address):
    server = grpc.aio.server()
    target_pb2_grpc.add_TargetServicer_to_server(Shouter(), server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
