"""`includes`: whether the expected text stands somewhere in the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evalbus import Score, ScoreTask, scorer
from evalbus_server.scorer.builtin._compared import (
    CASE,
    FULL,
    INPUTS,
    NO_EXPECTED,
    NORMALIZE,
    Normalize,
    Prepare,
    accepted_of,
    actual_of,
    not_text,
    preparation,
    read_too_often,
    setting,
)

_SHOWN = 100


@dataclass(frozen=True, slots=True)
class IncludesSettings:
    """How texts are looked for."""

    ignore_case: bool = setting(True, CASE)
    mode: Literal["any", "all"] = setting("any", "Of several expected texts any one must be there, or all of them.")
    normalize: Normalize = setting("none", NORMALIZE)


def _set_up(settings: IncludesSettings) -> Prepare:
    return preparation(ignore_case=settings.ignore_case, normalize=settings.normalize)


@scorer("includes", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_set_up, mode="inline")
def includes(task: ScoreTask, settings: IncludesSettings, state: Prepare) -> Score:
    """1 if the output holds the expected text, else 0; of several expected texts any one, or all of them.

    JSON is searched as it is written. An empty expected text, which every output holds, asks for an empty output.
    """
    accepted = accepted_of(task)
    if not accepted:
        return NO_EXPECTED
    actual = actual_of(task)
    if not isinstance(actual.body, str):
        return not_text(actual, "output")
    often = read_too_often(actual.body, len(accepted))
    if often is not None:
        return often
    text = state(actual.body)
    missing = ""
    for expected in accepted:
        if not isinstance(expected.body, str):
            return not_text(expected, "expected answer")
        wanted = state(expected.body)
        if wanted in text if wanted else not text:
            if settings.mode == "any":
                return FULL
        elif settings.mode == "all":
            return Score.scored(0.0, f"missing: {expected.body[:_SHOWN]!r}")
        else:
            missing = expected.body
    if settings.mode == "all":
        return FULL
    told = f"missing: {missing[:_SHOWN]!r}" if len(accepted) == 1 else f"none of the {len(accepted)} texts is there"
    return Score.scored(0.0, told)
