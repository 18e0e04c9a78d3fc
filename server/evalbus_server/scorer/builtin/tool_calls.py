"""Whether a target called the tools that it should, how often, in which order, with which arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from evalbus import Score, ScoreTask, SettingsInvalid, scorer
from evalbus_server.scorer.builtin._calls import (
    Step,
    arguments_of,
    calls_of,
    expected_steps,
    steps_setting,
)
from evalbus_server.scorer.builtin._compared import FULL, NO_EXPECTED, THREADS, quoted, setting, unjudged
from evalbus_server.scorer.builtin._pairing import MOST_PAIRS, TooManyPairs, in_any_order

EXPECTED = ("expected",)
_NAMED = 10


def names_of(task: ScoreTask) -> list[str]:
    """The tools that were called, in order."""
    return [call.name for call in calls_of(task.output)]


def told(names: Sequence[str]) -> str:
    """The calls for an explanation."""
    if not names:
        return "no tool was called"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"called: {', '.join(names[:_NAMED])}{more}"[:500]


# --- how often --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCalledSettings:
    """Which tool, and how often."""

    tool: str = field(metadata={"description": "The tool's name."})
    at_least: int = setting(1, "So many calls at least.")
    at_most: int | None = setting(None, "So many calls at most.")

    def __post_init__(self) -> None:
        """Refuse what no number of calls can meet."""
        if self.at_least < 0 or (self.at_most is not None and self.at_most < self.at_least):
            raise ValueError("at_least is from 0 to at_most")


@scorer("tool_called", version="1.0.0", deterministic=True, mode="inline")
def tool_called(task: ScoreTask, settings: ToolCalledSettings) -> Score:
    """1 if the target called the tool as often as it should, else 0."""
    names = names_of(task)
    count = names.count(settings.tool)
    if count >= settings.at_least and (settings.at_most is None or count <= settings.at_most):
        return FULL
    return Score.scored(0.0, f"{quoted(settings.tool)} was called {count} times; {told(names)}")


def _check_named(tools: Sequence[str] | None) -> None:
    """Refuse what every output meets."""
    if tools is not None and not tools:
        raise SettingsInvalid("settings.tools: name at least one tool", "settings.tools")


@dataclass(frozen=True, slots=True)
class ToolNotCalledSettings:
    """Which tools."""

    tools: list[str] = field(metadata={"description": "The tools that must not be called."})


def _check_not_called(settings: ToolNotCalledSettings) -> None:
    _check_named(settings.tools)


@scorer("tool_not_called", version="1.0.0", deterministic=True, setup=_check_not_called, mode="inline")
def tool_not_called(task: ScoreTask, settings: ToolNotCalledSettings) -> Score:
    """1 if the target called none of the tools, else 0."""
    for name in names_of(task):
        if name in settings.tools:
            return Score.scored(0.0, f"{quoted(name)} was called")
    return FULL


@dataclass(frozen=True, slots=True)
class ToolCallLimitSettings:
    """How many calls."""

    at_most: int = field(metadata={"description": "So many calls at most, of any tool; 0: no tool may be called."})
    tool: str | None = setting(None, "Only calls of this tool count.")

    def __post_init__(self) -> None:
        """Refuse what no number of calls can meet."""
        if self.at_most < 0:
            raise ValueError(f"at_most is at least 0, not {self.at_most}")


@scorer("tool_call_limit", version="1.0.0", deterministic=True, mode="inline")
def tool_call_limit(task: ScoreTask, settings: ToolCallLimitSettings) -> Score:
    """1 if the target called tools no more often than it may, else 0."""
    names = names_of(task)
    count = len(names) if settings.tool is None else names.count(settings.tool)
    if count <= settings.at_most:
        return FULL
    return Score.scored(0.0, f"{count} calls, {settings.at_most} allowed; {told(names)}")


@dataclass(frozen=True, slots=True)
class NoToolErrorsSettings:
    """What counts as an error."""

    require_result: bool = setting(False, "Whether a call without a result counts as an error too.")


@scorer("no_tool_errors", version="1.0.0", deterministic=True, mode="inline")
def no_tool_errors(task: ScoreTask, settings: NoToolErrorsSettings) -> Score:
    """1 if no tool call failed, else 0. Without any call it is 1."""
    for call in calls_of(task.output):
        if call.error:
            return Score.scored(0.0, f"{quoted(call.name)} failed: {quoted(call.error)}")
        if settings.require_result and call.result is None:
            return Score.scored(0.0, f"{quoted(call.name)} has no result")
    return FULL


# --- which, and in which order ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolOrderSettings:
    """The order."""

    tools: list[str] = field(metadata={"description": "The tools in the order in which they should be called."})


def _check_order(settings: ToolOrderSettings) -> None:
    _check_named(settings.tools)


@scorer("tool_order", version="1.0.0", deterministic=True, setup=_check_order, mode="inline")
def tool_order(task: ScoreTask, settings: ToolOrderSettings) -> Score:
    """1 if the tools were called in this order, with any others before, between and after; else 0."""
    names = names_of(task)
    return FULL if _in_order(names, settings.tools) else Score.scored(0.0, told(names))


@dataclass(frozen=True, slots=True)
class ToolCallAccuracySettings:
    """Which calls are expected, and whether there may be others."""

    tools: list[str] | None = setting(None, "The expected calls in order; without it the item's expected answer.")
    strict: bool = setting(False, "Whether there may be no other call.")


def _check_accuracy(settings: ToolCallAccuracySettings) -> None:
    _check_named(settings.tools)


@scorer(
    "tool_call_accuracy", version="1.0.0", inputs=EXPECTED, deterministic=True, setup=_check_accuracy, mode="inline"
)
def tool_call_accuracy(task: ScoreTask, settings: ToolCallAccuracySettings) -> Score:
    """1 if the expected tools were called in order, else 0; `strict`: these calls and no other.

    The expected answer is one tool's name, or a list of names in a list; of several any will do.
    """
    names = names_of(task)
    if settings.tools is not None:
        wanted = [settings.tools]
    else:
        try:
            wanted = [[step.name for step in steps] for steps in expected_steps(task)]
        except ValueError as error:
            return unjudged("EXPECTED_INVALID", f"the expected answer names no tools: {error}")
        if not wanted:
            return NO_EXPECTED
    for each in wanted:
        if names == each if settings.strict else _in_order(names, each):
            return FULL
    return Score.scored(0.0, told(names))


def _in_order(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the names wanted come in this order, with others between."""
    left = iter(names)
    return all(name in left for name in wanted)


# --- with which arguments ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolArgumentsSettings:
    """Which calls are expected, and how their arguments are compared."""

    calls: list[Any] | None = setting(
        None, "Expected calls, each with name and arguments; without it the item's expected answer."
    )
    compare: Literal["same", "holds"] = setting(
        "same", "same: the arguments are these; holds: there may be more keys than these."
    )


def _expected_calls(settings: ToolArgumentsSettings) -> list[Step] | None:
    steps = steps_setting(settings.calls, "settings.calls")
    if steps == []:
        raise SettingsInvalid("settings.calls: name at least one call", "settings.calls")
    return steps


@scorer("tool_arguments", version="1.0.0", inputs=EXPECTED, deterministic=True, setup=_expected_calls, threads=THREADS)
def tool_arguments(task: ScoreTask, settings: ToolArgumentsSettings, state: list[Step] | None) -> Score:
    """The share of the expected calls that were made with their arguments, in any order, each call counted once.

    Arguments are compared as JSON: the order of keys does not matter. An expected call without arguments takes any. The
    expected answer is one call, or a list of calls in a list; of several the best counts.
    """
    if state is not None:
        wanted = [state]
    else:
        try:
            wanted = expected_steps(task)
        except ValueError as error:
            return unjudged("EXPECTED_INVALID", f"the expected answer holds no calls: {error}")
        if not wanted:
            return NO_EXPECTED
    made = [Step(call.name, arguments_of(call)) for call in calls_of(task.output)]
    work = MOST_PAIRS // len(wanted)
    try:
        return max((_made(made, each, settings.compare, work) for each in wanted), key=lambda score: score.value or 0.0)
    except TooManyPairs as error:
        return error.score()


def _made(made: Sequence[Step], wanted: Sequence[Step], compare: str, work: int) -> Score:
    if not wanted:
        return FULL if not made else Score.scored(0.0, told([step.name for step in made]))
    found = in_any_order(made, wanted, compare, work)
    missing = [step.name for step, match in zip(wanted, found, strict=True) if match is None]
    if not missing:
        return FULL
    return Score.scored(1 - len(missing) / len(wanted), f"not called so: {', '.join(missing[:_NAMED])}"[:500])
