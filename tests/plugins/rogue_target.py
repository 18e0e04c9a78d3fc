"""A target from the generated code alone that echoes its input, and misbehaves as its settings say: see rogue.py."""

import asyncio
import sys
from pathlib import Path

from google.protobuf import timestamp_pb2

from evalbus.v1 import target_pb2

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.plugins.rogue import Plugin, describing, serve, way


class Target(Plugin):
    """Answers and their faults."""

    service, method = "evalbus.v1.Target", "Answer"
    request, response = target_pb2.AnswerRequest, target_pb2.AnswerResponse

    def declare(self, info):
        info.target.isolation = 1

    def records(self, request):
        return request.trials.trials

    def empty(self, trial):
        return target_pb2.Answer(trial_id=trial.trial_id, attempt=trial.attempt)

    def with_text(self, trial, text):
        answer = self.empty(trial)
        answer.output.content.text = text
        return answer

    def honest(self, trial):
        return self.with_text(trial, trial.item.input.text)

    def wrong(self, trial):
        return self.with_text(trial, "wrong")


@describing
async def describe_other_kind(response, context):
    response.plugins[0].scorer.scores.add()


def json_way(name, document):
    """A way that answers with a JSON document that is none."""

    async def answer_with_it(talk, trial):
        answer = talk.plugin.empty(trial)
        answer.output.content.json = document
        await talk.send(answer)

    answer_with_it.__name__ = name
    way(answer_with_it)


json_way("not_json", "{oops")
json_way("no_json_at_all", "")
json_way("nan_json", '{"value": NaN}')
json_way("infinite_json", "[-Infinity]")
json_way("doubled_key_json", '{"a": 1, "a": 2}')
json_way("deep_json", "[" * 5000 + "]" * 5000)
json_way("surrogate_json", '"bad \\ud800 text"')
json_way("endless_number_json", "1" * 5000)


@way
async def no_content(talk, trial):
    answer = talk.plugin.empty(trial)
    answer.output.SetInParent()
    await talk.send(answer)


@way
async def no_kind(talk, trial):
    answer = talk.plugin.empty(trial)
    answer.output.content.SetInParent()
    await talk.send(answer)


@way
async def bare_bytes(talk, trial):
    answer = talk.plugin.empty(trial)
    answer.output.content.blob.data = b"\x00\xff"
    await talk.send(answer)


@way
async def listed_metadata(talk, trial):
    answer = talk.honest(trial)
    answer.output.metadata = "[1]"
    await talk.send(answer)


@way
async def nameless_tool(talk, trial):
    answer = talk.honest(trial)
    answer.output.tool_calls.add(arguments="{}")
    await talk.send(answer)


@way
async def nameless_span(talk, trial):
    answer = talk.honest(trial)
    answer.output.spans.add(name="x")
    await talk.send(answer)


@way
async def unheard_of_times(talk, trial):
    """A tool call long before the beginning of time, and one that has not ended at its end."""
    answer = talk.honest(trial)
    call = answer.output.tool_calls.add(name="clock", arguments="{}")
    call.started_at.CopyFrom(timestamp_pb2.Timestamp(seconds=2**62, nanos=2**31 - 1))
    call.duration.seconds = -(2**62)
    answer.output.timing.total.seconds = 2**62
    answer.output.spans.add(id="s", started_at=timestamp_pb2.Timestamp(seconds=-(2**62)))
    await talk.send(answer)


@way
async def huge_usage_in_an_output(talk, trial):
    answer = talk.honest(trial)
    answer.output.usage.output_tokens = 2**63 - 1
    await talk.send(answer)


@way
async def nul_and_controls(talk, trial):
    """Text that is odd but is text."""
    answer = talk.honest(trial)
    answer.output.content.text = "nul \x00 bell \x07 \ufeff \U0010ffff"
    await talk.send(answer)


if __name__ == "__main__":
    asyncio.run(serve(Target))
