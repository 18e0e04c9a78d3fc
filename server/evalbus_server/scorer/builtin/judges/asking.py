"""One vote of a judge: the stages in order, a model's replies, and the formula."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalbus import ScoreStep, ScoreTask, Value
from evalbus import _json as json
from evalbus_server.scorer.builtin.judges.definition import Definition, Facts, Found, Stage
from evalbus_server.scorer.builtin.judges.material import PARTS, Part
from evalbus_server.scorer.builtin.judges.prompts import EXPLAIN, HEED, Plain, fill, placeholders
from evalbus_server.scorer.builtin.judges.settings import JudgeSettings, Juror
from evalbus_server.scorer.builtin.judges.shapes import Record, Text, read_reply
from evalbus_server.scorer.endpoint import Endpoint, Meter, Question, Reply

_EXPLANATION = Record({"explanation": Text("Why the score is what it is.")})


@dataclass(frozen=True, slots=True)
class Voter:
    """A model that is asked, and how."""

    juror: Juror
    endpoint: Endpoint
    meter: Meter
    seed: int | None
    remaining: Callable[[], float | None]
    """Seconds that are left."""


@dataclass(frozen=True, slots=True)
class Vote:
    """What one vote came to."""

    found: Sequence[Found]
    steps: Sequence[ScoreStep]
    model: str
    """As the endpoint names it."""
    fingerprint: str
    form: str


def material(definition: Definition, settings: Any, task: ScoreTask) -> dict[str, Part | Plain]:
    """The parts that the judge's prompts name, as far as they are there before anything was asked.

    Raises:
        TrialFailed: one is missing, or no text.
    """
    named = {name for stage in definition.stages for name in placeholders(prompt_of(definition, stage, settings))}
    named |= {stage.over for stage in definition.stages if stage.over}
    parts: dict[str, Part | Plain] = {name: PARTS[name](task) for name in PARTS if name in named}
    parts |= {name: Plain(text) for name, text in definition.given(settings).items()}
    parts["instructions"] = Plain(settings.instructions)
    return parts


def prompt_of(definition: Definition, stage: Stage, settings: JudgeSettings) -> str:
    """The template of a stage with these settings."""
    prompt = stage.prompt if definition.rewrite is None else definition.rewrite(stage, settings)
    return prompt + HEED if settings.instructions else prompt


async def vote(definition: Definition, settings: Any, given: Mapping[str, Part | Plain], voter: Voter) -> Vote:
    """Ask a model through all stages.

    Raises:
        TrialFailed: it gave no verdict; the failure says whether to ask again.
    """
    parts = dict(given)
    replies: dict[str, Any] = {}
    steps: list[ScoreStep] = []
    last: Reply | None = None
    for stage in definition.stages:
        shape = stage.wanted(Facts(settings, parts, replies))
        if shape is None:
            continue
        began = time.monotonic()
        last = await _asked(fill(prompt_of(definition, stage, settings), parts, shape.schema), shape, settings, voter)
        replies[stage.name] = found = read_reply(last.text, shape)
        if stage.made:
            parts[stage.made] = found[stage.made]
        steps.append(ScoreStep(stage.name, Value.of(found), time.monotonic() - began))
    result = definition.formula(Facts(settings, parts, replies))
    scores = [result] if isinstance(result, Found) else list(result)
    gave_it = any(stage.name == "score" for stage in definition.stages)  # then its step is there
    if scores[0].value is not None and not gave_it:
        steps.append(ScoreStep("score", Value.of({each.name or "value": each.value for each in scores})))
    if settings.explain and scores[0].value is not None:
        began = time.monotonic()
        shown: dict[str, Part | Plain] = {"verdicts": json.dumps(replies), "value": Plain(f"{scores[0].value:g}")}
        reply = await _asked(fill(EXPLAIN, shown, _EXPLANATION.schema), _EXPLANATION, settings, voter)
        words = read_reply(reply.text, _EXPLANATION)["explanation"]
        steps.append(ScoreStep("explain", Value(words), time.monotonic() - began))
        first = scores[0]
        scores[0] = Found(first.value, words, first.label, first.name, first.metadata)
    return Vote(
        scores,
        steps,
        last.model if last else voter.juror.model,
        last.fingerprint if last else "",
        last.form if last else "",
    )


async def _asked(messages: Sequence[Mapping[str, str]], shape: Record, settings: JudgeSettings, voter: Voter) -> Reply:
    question = Question(
        voter.juror.model,
        messages,
        schema=shape.schema,
        temperature=settings.temperature,
        seed=voter.seed,
        max_tokens=settings.max_tokens,
        extra=settings.extra,
        form=None if settings.reply_format == "auto" else settings.reply_format,
    )
    return await voter.endpoint.ask(question, voter.meter, within=voter.remaining())
