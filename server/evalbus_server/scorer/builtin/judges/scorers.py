"""Judges as scorers: from a definition to something that an experiment can use."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from evalbus import (
    Context,
    Failure,
    FailureCategory,
    Money,
    Need,
    Score,
    ScoreDeclaration,
    Scorer,
    ScoreStep,
    ScoreTask,
    TrialFailed,
    Usage,
    scorer,
)
from evalbus_server.scorer.builtin._compared import NO_EXPECTED, accepted_of
from evalbus_server.scorer.builtin.judges.asking import Vote, Voter, material, vote
from evalbus_server.scorer.builtin.judges.definition import Definition, Found
from evalbus_server.scorer.builtin.judges.jury import Verdict, decide, told
from evalbus_server.scorer.builtin.judges.material import Part
from evalbus_server.scorer.builtin.judges.prompts import Plain
from evalbus_server.scorer.builtin.judges.settings import JudgeSettings, Juror
from evalbus_server.scorer.endpoint import Endpoint, Meter, connect

LOST = frozenset({"REPLY_INVALID", "REPLY_CUT_OFF", "MODEL_REFUSED"})
"""Reasons of failures that cost a jury one vote; any other fails the task, which is then asked again as a whole."""
_LONGEST = 4_000
"""Characters of an explanation."""


@dataclass(frozen=True, slots=True)
class Court:
    """What a conversation with a judge holds: its models, and the endpoints that run them."""

    jurors: Sequence[tuple[Juror, Endpoint]]

    @classmethod
    def convene(cls, jurors: Sequence[Juror]) -> Court:
        """All models, those of one endpoint behind one client.

        Raises:
            SettingsInvalid: there is no such endpoint, or no key to it.
        """
        endpoints: dict[tuple[str, str], Endpoint] = {}
        for juror in jurors:
            key = (juror.base_url, juror.api_key)
            if key not in endpoints:
                endpoints[key] = connect(*key)
        return cls([(juror, endpoints[juror.base_url, juror.api_key]) for juror in jurors])


def as_scorer(definition: Definition) -> Scorer[Any, Any]:
    """The scorer that a definition describes."""

    def set_up(settings: JudgeSettings) -> Court:
        if definition.check is not None:
            definition.check(settings)
        return Court.convene(settings.jurors)

    def declare(settings: JudgeSettings) -> Sequence[ScoreDeclaration]:
        assert definition.scores is not None
        return definition.scores(settings)

    async def judge(task: ScoreTask, settings: JudgeSettings, state: Court, ctx: Context) -> Sequence[Score]:
        if Need.EXPECTED in definition.needs and not accepted_of(task):
            return [NO_EXPECTED]
        given = material(definition, settings, task)
        for name, why in definition.requires.items():
            if not given[name]:
                return [Score.skipped(why)]
        return await Trial(definition, given, settings, state, ctx).scores()

    for function in (set_up, declare, judge):
        function.__annotations__["settings"] = definition.settings
    judge.__doc__ = definition.about
    judge.__name__ = judge.__qualname__ = definition.name
    declared = (ScoreDeclaration(direction=definition.direction),)
    return scorer(
        definition.name,
        version=definition.version,
        scores=declared if definition.scores is None else declare,
        needs=definition.needs,
        inputs=definition.inputs,
        setup=set_up,
        digest=definition.digest,
    )(judge)


class Trial:
    """One output before the court."""

    def __init__(
        self,
        definition: Definition,
        given: Mapping[str, Part | Plain],
        settings: JudgeSettings,
        court: Court,
        ctx: Context,
    ) -> None:
        """Nothing is asked yet."""
        self._definition = definition
        self._given = given
        self._settings = settings
        seats = [(seat, number) for number in range(settings.votes) for seat in court.jurors]
        self._voters = [
            Voter(
                juror,
                endpoint,
                Meter(juror.prices or settings.prices, lambda _: ctx.progress(usage=self._usage())),
                None if settings.seed is None else settings.seed + number,
                ctx.time_remaining,
            )
            for (juror, endpoint), number in seats
        ]

    async def scores(self) -> list[Score]:
        """All scores.

        Raises:
            TrialFailed: the model cannot be asked, or gave no verdict.
        """
        async with AsyncExitStack() as open_endpoints:
            for endpoint in {voter.endpoint for voter in self._voters}:
                await open_endpoints.enter_async_context(endpoint.lease())
            asked = (vote(self._definition, self._settings, self._given, voter) for voter in self._voters)
            results = await asyncio.gather(*asked, return_exceptions=True)
        votes = _votes(results)
        verdicts = decide(votes, self._definition.vote)
        failed = [verdict.failure for verdict in verdicts if verdict.failure is not None]
        if len(failed) == len(verdicts):
            raise _again(failed[0])
        return [self._score(verdict, votes, place) for place, verdict in enumerate(verdicts)]

    def _score(self, verdict: Verdict, votes: Sequence[Vote | Failure], place: int) -> Score:
        first = place == 0
        usage = self._usage() if first else None
        steps = _steps(votes) if first else ()
        cast = next(each for each in votes if isinstance(each, Vote))
        name = cast.found[place].name
        metadata = self._metadata(votes, place, cast)
        if verdict.found is None:
            assert verdict.failure is not None
            return Score.errored(verdict.failure, name=name, metadata=metadata, usage=usage, steps=steps)
        found: Found = verdict.found
        metadata |= found.metadata
        explanation = found.explanation if len(found.explanation) <= _LONGEST else found.explanation[:_LONGEST] + "…"
        if found.value is None:
            return Score.skipped(explanation, name=name, metadata=metadata, usage=usage, steps=steps)
        return Score.scored(
            found.value, explanation, name=name, label=found.label, metadata=metadata, usage=usage, steps=steps
        )

    def _metadata(self, votes: Sequence[Vote | Failure], place: int, cast: Vote) -> dict[str, Any]:
        settings = self._settings
        judged = {
            "prompt": f"{self._definition.name} {self._definition.version}",
            "model": cast.model,
            "fingerprint": cast.fingerprint,
            "temperature": settings.temperature,
            "seed": settings.seed,
            "reply_format": cast.form,
        }
        metadata: dict[str, Any] = {"judge": {name: each for name, each in judged.items() if each not in (None, "")}}
        if len(votes) > 1:
            metadata["votes"] = told(votes, [voter.juror.model for voter in self._voters], place)
        return metadata

    def _usage(self) -> Usage:
        """What all votes have consumed; the cost is known only if that of each is, in one currency."""
        used = [voter.meter.usage for voter in self._voters if voter.meter.usage.calls]
        total = sum(used, Usage())
        costs = [each.cost for each in used]
        known = [cost for cost in costs if cost is not None]
        if len(known) < len(costs) or len({cost.currency for cost in known}) != 1:
            return replace(total, cost=None)
        return replace(total, cost=Money(sum(cost.micros for cost in known), known[0].currency))


def _votes(results: Sequence[Vote | BaseException]) -> list[Vote | Failure]:
    """The votes, those lost as failures.

    Raises:
        TrialFailed: one could not be cast, for a reason that has nothing to do with the verdict.
    """
    votes: list[Vote | Failure] = []
    for result in results:
        if isinstance(result, Vote):
            votes.append(result)
        elif isinstance(result, TrialFailed) and result.failure.reason in LOST:
            votes.append(result.failure)
    if len(votes) < len(results):
        failed = [result for result in results if not isinstance(result, Vote)]
        # The one with the longest wait, so that all can be asked again after it.
        raise max((each for each in failed if not _is_lost(each)), key=_wait)
    return votes


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, TrialFailed) and error.failure.reason in LOST


def _wait(error: BaseException) -> float:
    return (error.failure.retry_after or 0.0) if isinstance(error, TrialFailed) else math.inf


def _again(failure: Failure) -> TrialFailed:
    return TrialFailed(
        failure.message, FailureCategory(failure.category), reason=failure.reason, retryable=failure.retryable
    )


def _steps(votes: Sequence[Vote | Failure]) -> list[ScoreStep]:
    if len(votes) == 1:
        return [step for each in votes if isinstance(each, Vote) for step in each.steps]
    return [
        replace(step, name=f"vote {number} {step.name}")
        for number, each in enumerate(votes, 1)
        if isinstance(each, Vote)
        for step in each.steps
    ]
