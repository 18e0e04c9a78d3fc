"""The mock tool box: which mock answers a call, the three faults, and the report that gets into the output."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import (
    NULL,
    Context,
    Failure,
    FailureCategory,
    Item,
    Output,
    TargetBench,
    ToolBox,
    ToolFailed,
    ToolMock,
    ToolMockFailed,
    ToolMockFault,
    ToolMockFaultKind,
    ToolMockReport,
    Value,
    target,
)
from evalbus._tools import MAX_FAULTS

MISMATCH, EXHAUSTED, NOT_DECLARED = ToolMockFaultKind.MISMATCH, ToolMockFaultKind.EXHAUSTED, ToolMockFaultKind.NOT_DECLARED  # fmt: skip


def mock(tool: str, arguments: str | None, output: Any = None, error: str = "") -> ToolMock:
    return ToolMock(tool, arguments, None if output is None else Value.of(output), error)


def outcomes(mocks: list[ToolMock], *calls: tuple[str, Any]) -> tuple[list[Any], ToolBox]:
    """What each call gives: the output, or the kind of the fault."""
    box = ToolBox(mocks)
    found: list[Any] = []
    for tool, arguments in calls:
        try:
            found.append(box.call(tool, arguments))
        except ToolMockFailed as failed:
            found.append(failed.kind)
    return found, box


@pytest.mark.parametrize(
    ("mocks", "calls", "expected"),
    [
        ([mock("w", '{"city":"A"}', 1)], [("w", {"city": "A"})], [1]),
        ([mock("w", '{"city":"A"}', 1)], [("w", {"city": "A"})] * 2, [1, EXHAUSTED]),
        ([mock("w", '{"city":"A"}', 1), mock("w", '{"city":"A"}', 2)], [("w", {"city": "A"})] * 2, [1, 2]),
        ([], [("other", {})], [NOT_DECLARED]),
        ([mock("w", '{"a":1,"b":2}', 1)], [("w", {"b": 2, "a": 1})], [1]),
        ([mock("w", '{"a":1}', 1)], [("w", {"a": "1"}), ("w", {"a": True}), ("w", {"a": 1.0})], [MISMATCH, MISMATCH, 1]),
        # One call that no mock fits does not spoil those after it: the agent was told, and may do better.
        ([mock("w", '{"a":1}', 1), mock("x", "{}", 2)], [("w", {"a": 9}), ("x", {}), ("w", {"a": 1})], [MISMATCH, 2, 1]),
        # Without arguments a mock fits whatever comes, each once.
        ([mock("w", None, 1), mock("w", None, 2)], [("w", {"a": 9}), ("w", None), ("w", {})], [1, 2, EXHAUSTED]),
        # Used mocks still tell which arguments were foreseen.
        ([mock("w", '{"a":1}', 1)], [("w", {"a": 1}), ("w", {"a": 2})], [1, MISMATCH]),
        ([mock("w", '{"a":1}', 1), mock("w", '{"a":2}', 2)], [("w", {"a": 1})] * 2, [1, EXHAUSTED]),
        # The first that fits, also before a closer one.
        ([mock("w", None, "any"), mock("w", '{"a":1}', "one")], [("w", {"a": 1})] * 2, ["any", "one"]),
        ([mock("w", '{"a":[1,{"b":null}]}', 1)], [("w", '{"a": [1, {"b": null}]}')], [1]),
        ([mock("w", "{}", 1)], [("w", {"a": None}), ("w", None)], [MISMATCH, 1]),
    ],
)  # fmt: skip
def test_which_mock_answers(mocks: list[ToolMock], calls: list[Any], expected: list[Any]) -> None:
    found, box = outcomes(mocks, *calls)

    assert found == expected
    served = sum(not isinstance(each, ToolMockFaultKind) for each in found)
    assert (box.report.used, box.report.unused) == (served, len(mocks) - served)
    assert [fault.kind for fault in box.report.faults] == [e for e in expected if isinstance(e, ToolMockFaultKind)]


TOOLS = st.sampled_from(["a", "b"])
ARGUMENTS = st.sampled_from([{}, {"n": 1}, {"n": 2}])


@given(
    st.lists(st.tuples(TOOLS, st.sampled_from([None, "{}", '{"n":1}'])), max_size=6),
    st.lists(st.tuples(TOOLS, ARGUMENTS), max_size=8),
)
def test_each_mock_answers_at_most_once_and_each_call_is_in_the_report(mocks: list[Any], calls: list[Any]) -> None:
    found, box = outcomes([mock(tool, text, n) for n, (tool, text) in enumerate(mocks)], *calls)

    served = [each for each in found if not isinstance(each, ToolMockFaultKind)]
    assert len(set(served)) == len(served) == box.report.used
    assert box.report.used + box.report.unused == len(mocks)
    assert len(served) + len(box.report.faults) == len(calls) == len(box.calls)


def test_what_a_mock_gives() -> None:
    mocks = [ToolMock("t", None, NULL), ToolMock("t", None), ToolMock("t", None, Value.blob(b"x", "image/png"))]

    assert outcomes(mocks, *[("t", {})] * 3)[0] == [None, None, b"x"]
    with pytest.raises(ToolFailed, match="tool 't' failed: out of order") as failed:
        ToolBox([mock("t", None, error="out of order")]).call("t")
    assert failed.value.error == "out of order"
    with pytest.raises(ValueError, match="Expecting"):
        ToolBox([mock("t", None)]).call("t", "{oops")


def test_a_box_tells_what_it_holds() -> None:
    box = ToolBox([mock("a", None), mock("b", None), mock("a", None)])

    assert (bool(box), box.names, "a" in box, "c" in box, bool(ToolBox([]))) == (True, ("a", "b"), True, False, False)


def test_an_agent_that_repeats_itself_makes_no_endless_report() -> None:
    _, box = outcomes([], *[("t", {})] * (MAX_FAULTS + 10))

    assert len(box.report.faults) == MAX_FAULTS


@target("agent")
async def agent(item: Item, ctx: Context) -> Output:
    """Calls each tool that its input names, and goes on after a fault."""
    found: list[Any] = []
    for name in item.input.text.split():
        try:
            found.append(ctx.tools.call(name, {"n": 1}))
        except (ToolMockFailed, ToolFailed) as error:
            found.append(type(error).__name__)
    return Output(found, tool_calls=ctx.tools.calls)


@target("careless")
def careless(item: Item, ctx: Context) -> str:
    """Takes what a tool says for the answer."""
    return str(ctx.tools.call(item.input.text))


def ask(plugin: Any, item: Item) -> Any:
    return asyncio.run(TargetBench(plugin).answer(item))


def test_the_report_is_in_the_output() -> None:
    mocks = [mock("find", '{"n":1}', {"found": True}), mock("book", None, error="full"), mock("pay", None, 1)]

    output = ask(agent, Item("q", "find book find cancel", tool_mocks=mocks))

    assert output.content.data == [{"found": True}, "ToolFailed", "ToolMockFailed", "ToolMockFailed"]
    assert output.tool_mocks == ToolMockReport(
        2, 1, (ToolMockFault("find", EXHAUSTED, '{"n":1}'), ToolMockFault("cancel", NOT_DECLARED, '{"n":1}'))
    )
    assert [(call.name, call.error) for call in output.tool_calls][:2] == [("find", ""), ("book", "full")]
    assert output.tool_calls[0].result == Value('{"found":true}', "json")


def test_mocks_that_nobody_asked_for_are_left_over_and_without_mocks_there_is_no_report() -> None:
    assert ask(agent, Item("q", "", tool_mocks=[mock("find", None)])).tool_mocks == ToolMockReport(0, 1)
    assert ask(agent, Item("q", "find")).tool_mocks is None


def test_a_report_of_the_targets_own_stands() -> None:
    @target("own")
    def own(item: Item) -> Output:
        return Output("x", tool_mocks=ToolMockReport(7))

    assert ask(own, Item("q", tool_mocks=[mock("t", None)])).tool_mocks == ToolMockReport(7)


@pytest.mark.parametrize(
    ("mocks", "reason"),
    [
        ([mock("t", '{"a":1}')], "TOOL_MOCK_MISMATCH"),
        ([mock("u", None)], "TOOL_MOCK_NOT_DECLARED"),
        ([mock("t", None, error="down")], "TOOL_FAILED"),
    ],
)
def test_a_fault_that_is_not_caught_fails_the_trial_for_good(mocks: list[ToolMock], reason: str) -> None:
    failure = ask(careless, Item("q", "t", tool_mocks=mocks))

    assert isinstance(failure, Failure)
    assert (failure.category, failure.reason) == (FailureCategory.INVALID, reason)
    assert "'t'" in failure.message


def test_every_trial_has_a_box_of_its_own() -> None:
    item = Item("q", "find", tool_mocks=[mock("find", None, 1)])

    outputs = asyncio.run(TargetBench(agent).answer_many([item] * 20))

    assert [isinstance(output, Output) and output.tool_mocks for output in outputs] == [ToolMockReport(1, 0)] * 20
