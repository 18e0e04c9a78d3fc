"""Strategies for every kind of value that is stored."""

from __future__ import annotations

from hypothesis import strategies as st

from evalbus import (
    Direction,
    Failure,
    FailureCategory,
    FailureOrigin,
    Item,
    Message,
    Money,
    Output,
    Score,
    ScoreDeclaration,
    ScoreStatus,
    ScoreStep,
    Span,
    Timing,
    ToolCall,
    ToolMock,
    Usage,
    Value,
)
from evalbus._output import ToolMockFault, ToolMockFaultKind, ToolMockReport
from evalbus_server.model.run import Outcome, ScoreKey

texts = st.text(max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**63 - 1)
objects = st.sampled_from(["", "{}", '{"a": 1.0}', '{"b":[null, 12345678901234567890123],"a":"é\\u0000"}'])
documents = st.sampled_from(["null", "true", "-0", "1E400", "12345678901234567890123", '{ "b": 1, "a": [ ] }', "[]"])


def several(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(strategy, max_size=2).map(tuple)


def maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


values = (
    st.builds(Value, texts)
    | documents.map(lambda text: Value(text, "json"))
    | st.builds(Value.blob, st.binary(max_size=6), st.sampled_from(["image/png", "json", "x/y; a=b"]))
)
usages = st.builds(
    Usage, counts, counts, counts, counts, maybe(st.builds(Money, st.integers(-(2**63), 2**63 - 1), texts))
)
tool_calls = st.builds(
    ToolCall,
    texts,
    objects,
    result=maybe(values),
    error=texts,
    id=texts,
    started_at=maybe(numbers),
    duration=maybe(numbers),
)
messages = st.builds(
    Message,
    texts,
    several(values),
    tool_calls=several(tool_calls),
    tool_call_id=texts,
    name=texts,
    metadata=objects,
)
spans = st.builds(
    Span,
    texts,
    texts,
    parent_id=texts,
    kind=texts,
    started_at=maybe(numbers),
    duration=maybe(numbers),
    attributes=objects,
)
faults = st.builds(ToolMockFault, texts, st.sampled_from(ToolMockFaultKind), objects)
outputs = st.builds(
    Output,
    maybe(values),
    answer=maybe(values),
    messages=several(messages),
    tool_calls=several(tool_calls),
    spans=several(spans),
    usage=maybe(usages),
    trace_ids=several(texts),
    metadata=objects,
    timing=maybe(st.builds(Timing, maybe(numbers), maybe(numbers))),
    tool_mocks=maybe(st.builds(ToolMockReport, counts, counts, several(faults))),
)
items = st.builds(
    Item,
    texts,
    values,
    maybe(values),
    metadata=objects,
    tags=several(texts),
    choices=several(texts),
    messages=several(messages),
    tool_mocks=several(st.builds(ToolMock, texts, maybe(objects), maybe(values), texts)),
    scorers=maybe(several(texts)),
    output=maybe(outputs),
)
failures = st.builds(
    Failure,
    st.sampled_from(FailureCategory),
    texts,
    texts,
    st.sampled_from(FailureOrigin),
    maybe(st.booleans()),
    texts,
    maybe(numbers),
    objects,
)
more_of_scores = st.fixed_dictionaries(
    {
        "name": texts,
        "label": texts,
        "answer": maybe(values),
        "explanation": texts,
        "metadata": objects,
        "steps": several(st.builds(ScoreStep, texts, maybe(values), maybe(numbers))),
        "usage": maybe(usages),
        "trace_ids": several(texts),
    }
)
scores = (
    st.builds(lambda value, more: Score(ScoreStatus.SCORED, value, **more), numbers, more_of_scores)
    | st.builds(lambda value, text: Score.scored(value, text), numbers, texts)
    | st.builds(lambda more: Score(ScoreStatus.SKIPPED, **more), more_of_scores)
    | st.builds(lambda failure, more: Score(ScoreStatus.ERRORED, failure=failure, **more), failures, more_of_scores)
)
declarations = st.builds(
    ScoreDeclaration, texts, maybe(numbers), maybe(numbers), st.sampled_from(Direction), texts, texts
)
score_keys = st.builds(ScoreKey, texts, st.integers(0, 60), declarations, maybe(numbers), maybe(numbers))
outcomes = st.sampled_from(Outcome)
