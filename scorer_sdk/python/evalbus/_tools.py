"""The mock tools of a trial: prepared answers instead of the real tools, and a report on how they were used."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from evalbus import _json
from evalbus._draft import draft
from evalbus._errors import TrialFailed
from evalbus._failure import FailureCategory
from evalbus._item import ToolMock
from evalbus._output import Output, ToolCall, ToolMockFault, ToolMockFaultKind, ToolMockReport
from evalbus._value import Json

MAX_FAULTS = 100
"""How many faults a report keeps, the first ones: an agent may repeat a call for ever."""
_SHOWN = 200
"""Characters of the arguments in a message."""

_OutputDraft = draft(Output)


class ToolMockFailed(TrialFailed):
    """No prepared answer fits a call. Not caught, it fails the trial, which is not tried again."""

    def __init__(self, fault: ToolMockFault) -> None:
        """Say which call, and why."""
        shown = fault.arguments_json
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        super().__init__(
            _WHY[fault.kind].format(tool=fault.tool, arguments=shown),
            FailureCategory.INVALID,
            reason=f"TOOL_MOCK_{fault.kind.name}",
        )
        self.fault = fault

    @property
    def kind(self) -> ToolMockFaultKind:
        """Which of the three it is: MISMATCH, EXHAUSTED or NOT_DECLARED."""
        return self.fault.kind


class ToolFailed(TrialFailed):
    """The prepared answer is an error: what the real tool would have failed with.

    An agent is meant to cope with it. Not caught, it fails the trial, which is not tried again.
    """

    def __init__(self, tool: str, error: str) -> None:
        """Say which tool; *error* is the prepared text."""
        super().__init__(f"tool {tool!r} failed: {error}", FailureCategory.INVALID, reason="TOOL_FAILED")
        self.tool = tool
        self.error = error


_WHY = {
    ToolMockFaultKind.MISMATCH: "tool {tool!r} has mocks, but none for the arguments {arguments}",
    ToolMockFaultKind.EXHAUSTED: "tool {tool!r} has no mock left for the arguments {arguments}: each is used once",
    ToolMockFaultKind.NOT_DECLARED: "tool {tool!r} has no mock in this item",
}


class ToolBox:
    """The prepared tools of one trial. Each prepared answer is given out once. May be used from any thread."""

    def __init__(self, mocks: Sequence[ToolMock]) -> None:
        """Made for each trial from its item's mocks."""
        self._lock = threading.Lock()
        self._mocks = tuple(mocks)
        self._used = [False] * len(self._mocks)
        self._faults: list[ToolMockFault] = []
        self._calls: list[ToolCall] = []

    def __bool__(self) -> bool:
        """Whether the item has any mocks."""
        return bool(self._mocks)

    def __contains__(self, tool: object) -> bool:
        """Whether the item has mocks for this tool: what has none may be asked for real."""
        return any(mock.tool == tool for mock in self._mocks)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that have mocks, in the item's order."""
        return tuple(dict.fromkeys(mock.tool for mock in self._mocks))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls so far, also those that failed, as `Output(tool_calls=…)` takes them."""
        with self._lock:
            return tuple(self._calls)

    @property
    def report(self) -> ToolMockReport:
        """How the mocks were used so far. It gets into the output by itself."""
        with self._lock:
            used = sum(self._used)
            return ToolMockReport(used, len(self._mocks) - used, tuple(self._faults))

    def call(self, tool: str, arguments: Mapping[str, Json] | str | None = None) -> Any:
        """Call a tool: the first mock of it that is unused and fits gives the answer, and is used up.

        A mock fits if it has no arguments, or the same ones: in any order of keys, but `1` is not `"1"`.

        Args:
            tool: its name.
            arguments: a mapping, or the text of a JSON document; none is the same as `{}`.

        Returns:
            The prepared output: a str, Python objects, or bytes; None if the mock has none.

        Raises:
            ToolMockFailed: no mock fits; its `kind` is MISMATCH if the tool's mocks want other arguments, EXHAUSTED
                if those that fit are used up, NOT_DECLARED if the item has no mock of the tool.
            ToolFailed: the prepared answer is an error.
            ValueError: the arguments are not JSON.
        """
        if arguments is None:
            arguments = {}
        text = arguments if isinstance(arguments, str) else _json.dumps(dict(arguments))
        given = _json.loads(text)
        with self._lock:
            mock = self._take(tool, given, text)
            if isinstance(mock, ToolMockFault):
                problem: TrialFailed = ToolMockFailed(mock)
                if len(self._faults) < MAX_FAULTS:
                    self._faults.append(mock)
                self._calls.append(ToolCall(tool, text, error=problem.failure.message))
                raise problem
            self._calls.append(ToolCall(tool, text, result=mock.output, error=mock.error))
        if mock.error:
            raise ToolFailed(tool, mock.error)
        return None if mock.output is None else mock.output.data

    def _take(self, tool: str, given: Json, text: str) -> ToolMock | ToolMockFault:
        declared = fitting = False
        for index, mock in enumerate(self._mocks):
            if mock.tool != tool:
                continue
            declared = True
            if mock.arguments_json is None or _same(_json.loads(mock.arguments_json or "{}"), given):
                fitting = True
                if not self._used[index]:
                    self._used[index] = True
                    return mock
        kind = ToolMockFaultKind.NOT_DECLARED
        if declared:
            kind = ToolMockFaultKind.EXHAUSTED if fitting else ToolMockFaultKind.MISMATCH
        return ToolMockFault(tool, kind, text)


def reported(output: Output, box: ToolBox | None, mocks: Sequence[ToolMock]) -> Output:
    """The output with the report on the item's mocks in it; one that the target wrote itself stands."""
    if output.tool_mocks is not None:
        return output
    report = ToolMockReport(0, len(mocks)) if box is None else box.report
    made = _OutputDraft()
    for name in Output.__slots__:
        setattr(made, name, getattr(output, name))
    made.tool_mocks = report
    made.__class__ = Output
    whole: Output = made
    return whole


def _same(one: Json, other: Json) -> bool:
    """Whether two JSON documents say the same: keys in any order, numbers by value, true is not 1."""
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(_same(part, other[key]) for key, part in one.items())
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
