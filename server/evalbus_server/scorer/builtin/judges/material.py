"""What a judge may look at: parts of item and output as texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evalbus import FailureCategory, Message, ScoreTask, ToolCall, TrialFailed, Value
from evalbus import _json as json
from evalbus_server.scorer.builtin._calls import calls_of
from evalbus_server.scorer.builtin._compared import accepted_of, actual_of
from evalbus_server.scorer.documents import SPACE, entries

Part = str | Sequence[str]

MOST_PASSAGES = 200


def output_of(task: ScoreTask) -> str:
    """What is judged."""
    return _text(actual_of(task), "output")


def input_of(task: ScoreTask) -> str:
    """What was asked: the mapped input, else the item's; a conversation as its messages."""
    mapped = task.inputs.get("input")
    if mapped is not None:
        return _text(mapped, "input")
    if task.item.messages and not task.item.input.body:
        return "\n\n".join(map(_message, task.item.messages))
    return _text(task.item.input, "input")


def expected_of(task: ScoreTask) -> Part:
    """The expected answer; several, of which any will do, as a sequence; () for none."""
    accepted = [_text(each, "expected answer") for each in accepted_of(task)]
    return accepted[0] if len(accepted) == 1 else accepted


def context_of(task: ScoreTask) -> Sequence[str]:
    """The passages that the target was given: the mapped context, else `context` of the item's metadata.

    Raises:
        TrialFailed: there is none.
    """
    context = task.inputs.get("context")
    if context is None:
        found = task.item.metadata.get("context")
        context = None if found is None else Value.of(found)
    if context is None:
        raise TrialFailed(
            "there is no context: map one, such as map: {context: item.metadata.passages}",
            FailureCategory.INVALID,
            reason="CONTEXT_MISSING",
        )
    passages = _entries(context)
    if len(passages) > MOST_PASSAGES:
        raise TrialFailed(
            f"more than {MOST_PASSAGES} passages are not judged", FailureCategory.INVALID, reason="LIST_TOO_LONG"
        )
    return [_text(each, "context") for each in passages]


def calls_as_texts(task: ScoreTask) -> Sequence[str]:
    """The tool calls, each as one JSON object."""
    return [_call(call) for call in calls_of(task.output)]


def tools_of(task: ScoreTask) -> str:
    """The tools that the target had: the mapped ones, else `tools` of the item's metadata; "" if nobody says."""
    return _optional(task, "tools")


def conversation_of(task: ScoreTask) -> Sequence[str]:
    """All turns: the output's messages; without any, those of the item, or its input, and the output."""
    if task.output.messages:
        return [_message(message) for message in task.output.messages]
    asked = list(map(_message, task.item.messages)) or [f"user:\n{input_of(task)}"]
    return [*asked, f"assistant:\n{output_of(task)}"]


def goal_of(task: ScoreTask) -> str:
    """What was to be reached: the mapped goal, else `goal` of the item's metadata; "" if nobody says."""
    return _optional(task, "goal")


def prompt_of(task: ScoreTask) -> str:
    """What the target was told: the mapped prompt, else the item's messages, else its input."""
    mapped = task.inputs.get("prompt")
    if mapped is not None:
        return _text(mapped, "prompt")
    if task.item.messages:
        return "\n\n".join(map(_message, task.item.messages))
    return input_of(task)


def baseline_of(task: ScoreTask) -> Part:
    """The answer without the noise: the mapped baseline, else the expected one."""
    mapped = task.inputs.get("baseline")
    return expected_of(task) if mapped is None else _text(mapped, "baseline")


def metadata_of(task: ScoreTask) -> str:
    """The item's metadata, as JSON."""
    return task.item.metadata_json or "{}"


def choices_of(task: ScoreTask) -> Sequence[str]:
    """The item's choices."""
    return list(task.item.choices)


def against_of(task: ScoreTask) -> str:
    """The output to compare with.

    Raises:
        TrialFailed: there is none.
    """
    mapped = task.inputs.get("against")
    if mapped is not None:
        return _text(mapped, "other output")
    if task.against is None:
        raise TrialFailed(
            "there is no output to compare with: say `against: RUN` beside `use`, or map one to `against`",
            FailureCategory.INVALID,
            reason="AGAINST_MISSING",
        )
    return _text(actual_of(ScoreTask(task.trial_id, task.attempt, task.item, task.against)), "other output")


PARTS: Mapping[str, Callable[[ScoreTask], Part]] = {
    "input": input_of,
    "output": output_of,
    "expected": expected_of,
    "context": context_of,
    "calls": calls_as_texts,
    "tools": tools_of,
    "conversation": conversation_of,
    "goal": goal_of,
    "prompt": prompt_of,
    "baseline": baseline_of,
    "metadata": metadata_of,
    "choices": choices_of,
    "against": against_of,
}
"""What a prompt may name."""


def _optional(task: ScoreTask, name: str) -> str:
    mapped = task.inputs.get(name)
    if mapped is not None:
        return _text(mapped, name)
    found = task.item.metadata.get(name)
    return "" if found is None else _text(Value.of(found), name)


def _entries(value: Value) -> list[Value]:
    if value.kind == "json" and value.text.strip(SPACE).startswith("["):
        return entries(value.text.strip(SPACE))
    return [value]


def _text(value: Value, what: str) -> str:
    if not isinstance(value.body, str):
        raise TrialFailed(f"the {what} is {value}, not text", FailureCategory.INVALID, reason="NOT_TEXT")
    return value.text


def _message(message: Message) -> str:
    name = f" ({message.name})" if message.name else ""
    parts = [part.text if isinstance(part.body, str) else f"[{part}]" for part in message.content]
    calls = [f"[calls] {_call(call)}" for call in message.tool_calls]
    return "\n".join([f"{message.role}{name}:", *parts, *calls])


def _call(call: ToolCall) -> str:
    """A call as JSON; arguments that are none stay the text that they are."""
    document: dict[str, object] = {"name": call.name}
    if call.arguments_json:
        try:
            document["arguments"] = json.loads(call.arguments_json)
        except ValueError:
            document["arguments"] = call.arguments_json
    if call.result is not None:
        document["result"] = call.result.text if isinstance(call.result.body, str) else str(call.result)
    if call.error:
        document["error"] = call.error
    return json.dumps(document)
