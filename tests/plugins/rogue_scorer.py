"""A scorer from the generated code alone with two scores, which misbehaves as its settings say: see rogue.py."""

import asyncio
import math
import sys
from pathlib import Path

from evalbus.v1 import plugin_pb2, score_pb2, scorer_pb2

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.plugins.rogue import MARK, NOT_UTF8, Plugin, describing, serve, way

SCORED = score_pb2.SCORE_STATUS_SCORED


class Scorer(Plugin):
    """Scores and their faults. Both are 1 where the output is the expected text; the other is 0 to 10."""

    service, method = "evalbus.v1.Scorer", "Score"
    request, response = scorer_pb2.ScoreRequest, scorer_pb2.ScoreResponse

    def declare(self, info):
        info.scorer.scores.add(name="same", minimum=0, maximum=1)
        info.scorer.scores.add(name="other", minimum=0, maximum=10)

    def records(self, request):
        return request.tasks.tasks

    def empty(self, task):
        return scorer_pb2.ScoreAnswer(trial_id=task.trial_id, attempt=task.attempt)

    def scored(self, task, value, explanation=""):
        answer = self.empty(task)
        answer.scores.add(name="same", status=SCORED, value=value, explanation=explanation)
        answer.scores.add(name="other", status=SCORED, value=value)
        return answer

    def with_text(self, task, text):
        return self.scored(task, 1.0, text)

    def honest(self, task):
        return self.scored(task, float(task.output.content.text == task.item.expected.text))

    def wrong(self, task):
        return self.scored(task, 0.0)

    def ready(self, way):
        made = plugin_pb2.Ready()
        if way in READIES:
            READIES[way](made)
        return made


READIES = {
    "ready_doubled": lambda ready: [ready.scores.add(name="a") for _ in range(2)],
    "ready_dotted": lambda ready: ready.scores.add(name="a.b"),
    "ready_upside_down": lambda ready: ready.scores.add(name="a", minimum=1, maximum=0),
    "ready_nan": lambda ready: ready.scores.add(name="a", minimum=math.nan),
    "ready_infinite": lambda ready: ready.scores.add(name="a", maximum=math.inf),
    "boundless": lambda ready: [ready.scores.add(name=name) for name in ("same", "other")],
}


@describing
async def describe_other_kind(response, context):
    response.plugins[0].target.isolation = 1


@describing
async def describe_no_score(response, context):
    del response.plugins[0].scorer.scores[:]


@describing
async def describe_doubled_score(response, context):
    response.plugins[0].scorer.scores.add(name="same")


@describing
async def describe_odd_schema(response, context):
    """JSON Schema, but not one that was thought of."""
    response.plugins[0].settings_schema = '{"properties": {"way": true, "at": {"default": []}, "log": false}}'


def value_way(name, value):
    """A way that gives the first score a value."""

    async def score_with_it(talk, task):
        answer = talk.honest(task)
        answer.scores[0].value = value
        await talk.send(answer)

    score_with_it.__name__ = name
    way(score_with_it)


value_way("nan", math.nan)
value_way("infinite", math.inf)
value_way("minus_infinite", -math.inf)
value_way("too_high", 1.0000001)
value_way("too_low", -0.1)
value_way("minus_zero", -0.0)
value_way("magic_number", 40404.0)


def score_way(name, change):
    """A way that changes the first of two scores."""

    async def score_with_it(talk, task):
        answer = talk.honest(task)
        change(answer.scores[0])
        await talk.send(answer)

    score_with_it.__name__ = name
    way(score_with_it)


def _status(number, *, value=None):
    def change(score):
        score.ClearField("value")
        score.status = number
        if value is not None:
            score.value = value

    return change


score_way("unknown_status", _status(99, value=1.0))
score_way("no_status", _status(0, value=1.0))
score_way("scored_without_value", _status(SCORED))
score_way("skipped_with_value", _status(score_pb2.SCORE_STATUS_SKIPPED, value=0.5))
score_way("skipped", _status(score_pb2.SCORE_STATUS_SKIPPED))
score_way("errored_without_failure", _status(score_pb2.SCORE_STATUS_ERRORED))
score_way("errored_with_value", _status(score_pb2.SCORE_STATUS_ERRORED, value=1.0))
score_way("listed_metadata", lambda score: setattr(score, "metadata", "[1]"))
score_way("answer_not_json", lambda score: setattr(score.answer, "json", "{oops"))
score_way("answer_of_no_kind", lambda score: score.answer.SetInParent())
score_way("undeclared_name", lambda score: setattr(score, "name", "sa\nme"))
score_way("no_name", lambda score: setattr(score, "name", ""))


@way
async def undeclared_besides(talk, task):
    answer = talk.honest(task)
    answer.scores.add(name="third", status=SCORED, value=1)
    await talk.send(answer)


@way
async def doubled_name(talk, task):
    answer = talk.honest(task)
    answer.scores[1].name = "same"
    await talk.send(answer)


@way
async def missing_name(talk, task):
    answer = talk.honest(task)
    del answer.scores[1]
    await talk.send(answer)


@way
async def scores_and_failure(talk, task):
    answer = talk.honest(task)
    answer.failure.reason = "ROGUE"
    await talk.send(answer)


@way
async def bad_utf8_in_a_name(talk, task):
    answer = talk.honest(task)
    answer.scores[0].name = MARK
    response = talk.plugin.response()
    response.answers.answers.append(answer)
    await talk.raw(response.SerializeToString().replace(MARK.encode(), NOT_UTF8))


@way
async def boundless(talk, task):
    """As large as a number can be, from a scorer that declares no bounds."""
    answer = talk.honest(task)
    answer.scores[0].value, answer.scores[1].value = 1.7e308, -1.7e308
    await talk.send(answer)


@way
async def huge_usage_in_a_score(talk, task):
    answer = talk.honest(task)
    for score in answer.scores:
        score.usage.output_tokens = 2**63 - 1
    await talk.send(answer)


if __name__ == "__main__":
    asyncio.run(serve(Scorer))
