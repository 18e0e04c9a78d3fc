"""The steps of a target's work, as scorers see them: tool calls, or spans; and which steps are expected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evalbus import Output, ScoreTask, SettingsInvalid, Span, ToolCall, Value
from evalbus._json import loads
from evalbus_server.scorer.builtin._compared import accepted_of


@dataclass(frozen=True, slots=True)
class Step:
    """Something that was done, or is expected to be done."""

    name: str
    arguments: Any = None
    """A JSON document; None: none, or any will do."""
    steps: tuple[Step, ...] = ()
    """What was done, or is expected, inside of it."""


def calls_of(output: Output) -> Sequence[ToolCall]:
    """The tool calls of an output; those of its messages if it has no others."""
    if output.tool_calls or not output.messages:
        return output.tool_calls
    return [call for message in output.messages for call in message.tool_calls]


def arguments_of(call: ToolCall) -> Any:
    """The arguments as a document; as the text that they are if they are no JSON."""
    if not call.arguments_json:
        return {}
    try:
        return loads(call.arguments_json)
    except ValueError:
        return call.arguments_json


def steps_of_calls(output: Output) -> list[Step]:
    """A step for each tool call."""
    return [Step(call.name, arguments_of(call)) for call in calls_of(output)]


def steps_of_spans(output: Output) -> list[Step]:
    """A step for each span, those inside of others within them, in the order of their beginnings."""
    known = {span.id for span in output.spans}
    inside: dict[str, list[Span]] = {}
    for span in output.spans:
        parent = span.parent_id if span.parent_id in known and span.parent_id != span.id else ""
        inside.setdefault(parent, []).append(span)

    def made(parent: str, depth: int) -> tuple[Step, ...]:
        if depth > _DEEPEST:
            return ()
        spans = inside.get(parent, [])
        if all(span.started_at is not None for span in spans):
            spans = sorted(spans, key=lambda span: span.started_at or 0.0)
        return tuple(Step(span.name, None, made(span.id, depth + 1)) for span in spans)

    return list(made("", 0))


_DEEPEST = 50


def expected_step(written: Any) -> Step:
    """A step from a name, or an object with `name`, `arguments` and `steps`.

    Raises:
        ValueError: it is none.
    """
    return _expected_step(written, 0)


def _expected_step(written: Any, depth: int) -> Step:
    if isinstance(written, str) and written:
        return Step(written)
    if not isinstance(written, dict) or depth > _DEEPEST:
        raise ValueError("a step is a name, or an object with a name")
    unknown = sorted(written.keys() - {"name", "arguments", "steps"})
    if unknown:
        raise ValueError(f"{unknown[0]!r} is unknown in a step; known are name, arguments, steps")
    name, inside = written.get("name"), written.get("steps", [])
    if not isinstance(name, str) or not name:
        raise ValueError("a step has a name")
    if not isinstance(inside, list):
        raise ValueError(f"the steps of {name!r} are a list")
    return Step(name, written.get("arguments"), tuple(_expected_step(each, depth + 1) for each in inside))


def steps_setting(written: Sequence[Any] | None, path: str) -> list[Step] | None:
    """Expected steps of the settings.

    Raises:
        SettingsInvalid: one is none.
    """
    if written is None:
        return None
    steps = []
    for place, each in enumerate(written):
        try:
            steps.append(expected_step(each))
        except ValueError as error:
            raise SettingsInvalid(f"{path}[{place}]: {error}", f"{path}[{place}]") from None
    return steps


def expected_steps(task: ScoreTask) -> list[list[Step]]:
    """The expected answers as lists of steps, of which any will do.

    A list in the list, or an object with `steps`, is a list of steps; anything else one step.

    Raises:
        ValueError: one of them is none.
    """
    return [_steps(each) for each in accepted_of(task)]


def has_own_steps(task: ScoreTask) -> bool:
    """Whether the task brings steps for sure: mapped ones, or an expected object with `steps`.

    An item's expected answer is more often what its target should say.
    """
    if task.inputs and "expected" in task.inputs:
        return True
    expected = task.item.expected
    if expected is None or expected.kind != "json":
        return False
    document = expected.data
    return isinstance(document, dict) and "steps" in document


def _steps(expected: Value) -> list[Step]:
    document = expected.data
    if isinstance(document, dict) and "name" not in document and "steps" in document:
        document = document["steps"]
    if isinstance(document, list):
        return [expected_step(each) for each in document]
    return [expected_step(document)]


def same(actual: Any, expected: Any) -> bool:
    """Whether two documents say the same: the order of keys does not matter, and true is not 1."""
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and actual.keys() == expected.keys()
            and all(same(actual[key], expected[key]) for key in expected)
        )
    if isinstance(expected, list):
        return isinstance(actual, list) and len(actual) == len(expected) and all(map(same, actual, expected))
    return isinstance(actual, bool) == isinstance(expected, bool) and bool(actual == expected)


def holds(actual: Any, expected: Any) -> bool:
    """The same, but an object may have more keys than expected."""
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(key in actual and holds(actual[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return isinstance(actual, list) and len(actual) == len(expected) and all(map(holds, actual, expected))
    return same(actual, expected)


COMPARE: dict[str, Callable[[Any, Any], bool]] = {"same": same, "holds": holds}
