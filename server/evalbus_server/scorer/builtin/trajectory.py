"""How a target went about it: the steps it took, beside those expected, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from evalbus import Output, Score, ScoreTask, SettingsInvalid, scorer
from evalbus_server.scorer.builtin._calls import (
    COMPARE,
    Step,
    calls_of,
    expected_steps,
    has_own_steps,
    same,
    steps_of_calls,
    steps_of_spans,
    steps_setting,
)
from evalbus_server.scorer.builtin._compared import (
    FULL,
    NO_EXPECTED,
    THREADS,
    quoted,
    setting,
    setting_list,
    unjudged,
)
from evalbus_server.scorer.builtin._pairing import MOST_PAIRS, TooManyPairs, in_any_order, in_order

MOST_STEPS = 10_000
"""More steps than this are not compared."""
_NAMED = 10
_REPEATED = 0.1
"""What each tool that is called again takes off."""
_REDUNDANT = 0.2
"""What each call that only says the last one again takes off."""
_RETRIED = 0.2
"""What each retry beyond the allowed ones takes off."""
_INSIDE = 0.3
"""The share of the steps inside of steps."""

READ: dict[str, Callable[[Output], list[Step]]] = {"tool_calls": steps_of_calls, "spans": steps_of_spans}


# --- beside the expected steps ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrajectorySettings:
    """Which steps are expected, and how they are compared."""

    steps: list[Any] | None = setting(
        None,
        "The expected steps, names or objects with name, arguments and steps, for items without steps of their own.",
    )
    order: Literal["relaxed", "strict", "unordered"] = setting(
        "relaxed", "relaxed: in this order, others between; strict: these and no others; unordered: in any order."
    )
    repeats: Literal["free", "penalized"] = setting("free", "Whether each tool that is called again takes 0.1 off.")
    read: Literal["tool_calls", "spans"] = setting("tool_calls", "What the steps are: tool calls, or spans.")
    compare: Literal["same", "holds"] = setting(
        "same", "same: arguments are those expected; holds: there may be more keys than these."
    )


def _expected(settings: TrajectorySettings) -> list[Step] | None:
    return steps_setting(settings.steps, "settings.steps")


@scorer("trajectory", version="1.0.0", inputs=("expected",), deterministic=True, setup=_expected, threads=THREADS)
def trajectory(task: ScoreTask, settings: TrajectorySettings, state: list[Step] | None) -> Score:
    """The share of the expected steps that the target took, in the order that is asked for.

    `relaxed` looks for each expected step after the one found last; `strict` compares place by place, and more steps
    than expected count against it. Arguments are compared where a step expects some. Steps that are expected inside of
    a step count 0.3 of the whole. The expected steps are those of a mapped `expected`, or of an item that expects an
    object with `steps`; else those of the settings; else the item's expected answer, a list of steps in a list.
    """
    try:
        wanted = expected_steps(task) if state is None or has_own_steps(task) else [state]
    except ValueError as error:
        return unjudged("EXPECTED_INVALID", f"the expected answer holds no steps: {error}")
    if not wanted:
        return NO_EXPECTED
    taken = READ[settings.read](task.output)
    if max(len(taken), *map(len, wanted)) > MOST_STEPS:
        return unjudged("TOO_MANY_STEPS", f"more than {MOST_STEPS:,} steps are not compared")
    work = MOST_PAIRS // len(wanted)
    try:
        return max((_compared(taken, each, settings, work) for each in wanted), key=lambda score: score.value or 0.0)
    except TooManyPairs as error:
        return error.score()


def _compared(taken: Sequence[Step], wanted: Sequence[Step], settings: TrajectorySettings, work: int) -> Score:
    value, missing = _share(taken, wanted, settings, work)
    told = f"missing: {', '.join(missing[:_NAMED])}"[:500] if missing else ""
    if settings.repeats == "penalized":
        counts = Counter(step.name for step in wanted)
        again = [name for name, count in Counter(step.name for step in taken).items() if count > max(counts[name], 1)]
        value = max(0.0, value - _REPEATED * len(again))
        told = "; ".join(filter(None, (told, f"again: {', '.join(again[:_NAMED])}"[:500] if again else "")))
    return Score.scored(value, told)


def _share(
    taken: Sequence[Step], wanted: Sequence[Step], settings: TrajectorySettings, work: int
) -> tuple[float, list[str]]:
    """The share of the steps wanted that were taken, and the names of the others."""
    if not wanted:
        extra = settings.order == "strict" and len(taken) > 0
        return (0.0 if extra else 1.0), []
    found = _FIND[settings.order](taken, wanted, settings.compare, work)
    missing = [step.name for step, match in zip(wanted, found, strict=True) if match is None]
    total = max(len(wanted), len(taken)) if settings.order == "strict" else len(wanted)
    value = (len(wanted) - len(missing)) / total
    inside = [
        _share(match.steps, step.steps, settings, work)
        for step, match in zip(wanted, found, strict=True)
        if match is not None and step.steps
    ]
    if inside:
        value = (1 - _INSIDE) * value + _INSIDE * sum(each for each, _ in inside) / len(inside)
        missing += [name for _, names in inside for name in names]
    return value, missing


def _place_by_place(taken: Sequence[Step], wanted: Sequence[Step], compare: str, work: int) -> list[Step | None]:
    alike = COMPARE[compare]
    found: list[Step | None] = []
    for place, step in enumerate(wanted):
        match = taken[place] if place < len(taken) and taken[place].name == step.name else None
        if match is not None and step.arguments is not None and not alike(match.arguments, step.arguments):
            match = None
        found.append(match)
    return found


_FIND = {"strict": _place_by_place, "relaxed": in_order, "unordered": in_any_order}


# --- what it cost -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrajectoryEfficiencySettings:
    """How much work is enough."""

    max_steps: int | None = setting(None, "So many tool calls.")
    max_tokens: int | None = setting(None, "So many tokens, read and written.")
    max_seconds: float | None = setting(None, "So many seconds: of the output, else of its tool calls together.")
    redundancy: bool = setting(True, "Whether calls count that only say the last one again.")

    def __post_init__(self) -> None:
        """Refuse budgets that are none."""
        for name in ("max_steps", "max_tokens", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} is at least 0 and finite, not {value}")
        if not self.redundancy and self.max_steps is self.max_tokens is self.max_seconds is None:
            raise ValueError("nothing is left to be judged: set a budget, or redundancy")


@scorer("trajectory_efficiency", version="1.0.0", deterministic=True, threads=THREADS)
def trajectory_efficiency(task: ScoreTask, settings: TrajectoryEfficiencySettings) -> Score:
    """How little work the target needed: the mean over the budgets that are set, and over redundancy.

    A budget that is kept scores 1, else 1 - what is too much / the budget, not below 0. Redundancy takes 0.2 off for
    each call that is the same as the one before. A budget for what the output does not tell is left out.
    """
    calls = calls_of(task.output)
    parts = []
    told = []
    if settings.max_steps is not None:
        parts.append(_kept(len(calls), settings.max_steps))
        told.append(f"{len(calls)} steps")
    usage = task.output.usage
    if settings.max_tokens is not None and usage is not None:
        tokens = usage.input_tokens + usage.output_tokens
        parts.append(_kept(tokens, settings.max_tokens))
        told.append(f"{tokens:,} tokens")
    seconds = _seconds(task.output) if settings.max_seconds is not None else None
    if settings.max_seconds is not None and seconds is not None:
        parts.append(_kept(seconds, settings.max_seconds))
        told.append(f"{seconds:.3f} s")
    if settings.redundancy:
        steps = steps_of_calls(task.output)
        again = sum(
            1 for before, step in pairwise(steps) if step.name == before.name and same(step.arguments, before.arguments)
        )
        parts.append(max(0.0, 1 - _REDUNDANT * again))
        told.append(f"{again} redundant")
    if not parts:
        return Score.skipped("the output does not tell what the budgets are for")
    return Score.scored(sum(parts) / len(parts), ", ".join(told))


def _kept(found: float, budget: float) -> float:
    if found <= budget:
        return 1.0
    return max(0.0, 1 - (found - budget) / budget) if budget else 0.0


def _seconds(output: Output) -> float | None:
    if output.timing is not None and output.timing.total is not None:
        return output.timing.total
    known = [call.duration for call in calls_of(output) if call.duration is not None]
    return sum(known) if known else None


# --- what must not be -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrajectoryBlacklistSettings:
    """What must not be done."""

    tools: list[str] = setting_list("Tools that must not be called.")
    sequences: list[list[str]] = setting_list("Runs of calls that must not come directly one after the other.")


def _check_blacklist(settings: TrajectoryBlacklistSettings) -> None:
    if not settings.tools and not settings.sequences:
        raise SettingsInvalid("settings.tools: name a tool here, or calls in sequences", "settings.tools")
    if [] in settings.sequences:
        raise SettingsInvalid("settings.sequences: one is empty", "settings.sequences")


@scorer("trajectory_blacklist", version="1.0.0", deterministic=True, setup=_check_blacklist, mode="inline")
def trajectory_blacklist(task: ScoreTask, settings: TrajectoryBlacklistSettings) -> Score:
    """1 if the target called no blacklisted tool and no blacklisted run of tools, else 0."""
    names = [call.name for call in calls_of(task.output)]
    for name in names:
        if name in settings.tools:
            return Score.scored(0.0, f"{quoted(name)} was called")
    for sequence in settings.sequences:
        for start in range(len(names) - len(sequence) + 1):
            if names[start : start + len(sequence)] == sequence:
                return Score.scored(0.0, f"called one after the other: {', '.join(sequence)}"[:500])
    return FULL


@dataclass(frozen=True, slots=True)
class ToolFailuresSettings:
    """How much trying again is fine."""

    max_retries: int = setting(2, "So many retries of one tool in a row are free.")

    def __post_init__(self) -> None:
        """Refuse what is no number of retries."""
        if self.max_retries < 0:
            raise ValueError(f"max_retries is at least 0, not {self.max_retries}")


@scorer("tool_failures", version="1.0.0", deterministic=True, mode="inline")
def tool_failures(task: ScoreTask, settings: ToolFailuresSettings) -> Score:
    """How well the target dealt with tools that fail: each retry in a row beyond the free ones takes 0.2 off.

    A retry is a call of the tool that has just failed. Going on to another tool is none.
    """
    too_many = 0
    told: dict[str, int] = {}
    retries, failed = 0, ""
    for call in calls_of(task.output):
        retries = retries + 1 if call.name == failed else 0
        if retries:
            told[call.name] = max(told.get(call.name, 0), retries)
            too_many += retries > settings.max_retries
        failed = call.name if call.error else ""
    named = ", ".join(f"{name} tried again {count} times" for name, count in list(told.items())[:_NAMED])[:500]
    return Score.scored(max(0.0, 1 - _RETRIED * too_many), named)
