"""What a library's scorer is given: parts of the item and the output by default, or whatever an experiment maps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from evalbus._errors import TrialFailed
from evalbus._failure import FailureCategory
from evalbus._item import ScoreTask
from evalbus._score import Direction, Score, ScoreDeclaration, ScoreStatus
from evalbus._value import Value

NO_EXPECTED = "the item has no expected answer"

_CONTEXTS = ("retrieval_context", "retrieved_contexts", "contexts", "context")
_ALSO = {
    "retrieval_context": _CONTEXTS,
    "retrieved_contexts": ("retrieved_contexts", "retrieval_context", "contexts", "context"),
    "context": ("context", "contexts"),
}
"""Names by which metadata may hold an input, the nearest first: libraries call the same thing differently."""


def input_of(task: ScoreTask, name: str = "input") -> Value:
    """What was asked."""
    return task.inputs.get(name) or task.item.input


def output_of(task: ScoreTask, name: str = "output") -> Value:
    """What is judged: the mapped value, else the part of the output that counts, else its content."""
    mapped = task.inputs.get(name)
    if mapped is not None:
        return mapped
    output = task.output
    if output.answer is not None:
        return output.answer
    return output.content if output.content is not None else Value(output.text)


def accepted_of(task: ScoreTask, name: str = "expected") -> list[Value]:
    """The expected answers of which any will do: those mapped, else the item's."""
    mapped = task.inputs.get(name)
    expected = task.item.expected if mapped is None else mapped
    if expected is None:
        return []
    if expected.kind == "json" and isinstance(found := expected.data, list):
        return [Value.of(entry) for entry in found]
    return [expected]


def more_of(task: ScoreTask, name: str) -> Any:
    """Any other input as Python data: the mapped value, else of the output's metadata, else of the item's.

    None if there is none: an input that is JSON null is none either.
    """
    mapped = task.inputs.get(name)
    if mapped is not None:
        return mapped.data
    for metadata in (task.output.metadata, task.item.metadata):
        for key in _ALSO.get(name, (name,)):
            if metadata.get(key) is not None:
                return metadata[key]
    return None


def text_of(value: Value, what: str) -> str:
    """A value as text; JSON as it is written.

    Raises:
        TrialFailed: it is neither.
    """
    if isinstance(value.body, str):
        return value.body
    raise TrialFailed(f"the {what} is {value}, not text", FailureCategory.INVALID, reason="NOT_TEXT")


def plain_text(data: Any) -> str:
    """Python data as text; anything but a text as JSON."""
    return data if isinstance(data, str) else Value.of(data).text


def texts_of(data: Any) -> list[str]:
    """Python data as a list of texts: one text is a list of it."""
    return [plain_text(each) for each in data] if isinstance(data, list) else [plain_text(data)]


def missing(name: str) -> NoReturn:
    """Say that an input is not there.

    Raises:
        TrialFailed: always.
    """
    text = (
        f"nothing is known for the input `{name}`: map it, as in map: {{{name}: item.metadata.{name}}}, "
        f"or let the target put it into its output's metadata"
    )
    raise TrialFailed(text, FailureCategory.INVALID, reason="INPUT_MISSING")


async def best_of(
    accepted: list[Value], judge: Callable[[Value], Awaitable[Score]], promised: ScoreDeclaration
) -> Score:
    """The best score against any of the expected answers, which are judged one after the other up to the first with
    the best possible value. One that cannot be judged ends the search.
    """
    if not accepted:
        return Score.skipped(NO_EXPECTED)
    lower = promised.direction is Direction.LOWER_IS_BETTER
    ideal = promised.minimum if lower else promised.maximum
    best: Score | None = None
    for expected in accepted:
        score = await judge(expected)
        if score.status is ScoreStatus.ERRORED or (score.value is not None and score.value == ideal):
            return score
        best = score if best is None or _is_better(score.value, best.value, lower=lower) else best
    assert best is not None
    return best


def _is_better(value: float | None, than: float | None, *, lower: bool) -> bool:
    if value is None or than is None:
        return than is None and value is not None
    return value < than if lower else value > than


def messages_of(task: ScoreTask) -> list[tuple[str, str]]:
    """The conversation: role and text of each message, the output's own, else the item's and the output."""
    if task.output.messages:
        return [(message.role, message.text) for message in task.output.messages]
    asked = [(message.role, message.text) for message in task.item.messages]
    if not asked:
        asked = [("user", text_of(task.item.input, "input"))]
    return [*asked, ("assistant", text_of(output_of(task), "output"))]
