"""Every value of the contract, at random. Floats of times keep to what a Duration or Timestamp can hold exactly."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from evalbus import (
    Direction,
    Failure,
    FailureCategory,
    FailureOrigin,
    Isolation,
    Item,
    Message,
    Money,
    Need,
    Output,
    PluginInfo,
    Purpose,
    Score,
    ScoreDeclaration,
    ScorerInfo,
    ScoreStatus,
    ScoreStep,
    ScoreTask,
    Span,
    TargetInfo,
    Timing,
    ToolCall,
    ToolMock,
    Trial,
    TrialLimits,
    Usage,
    Value,
)
from evalbus._output import ToolMockFault, ToolMockFaultKind, ToolMockReport
from evalbus._plugin import Answer, Open, ProgressKind, Ready, ScoreAnswer, TrialProgress
from evalbus._results import one_line

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
counts = st.integers(0, 2**53)
small = st.integers(0, 2**31 - 1)
seconds = st.integers(0, 10**9).map(lambda micros: micros / 1_000_000)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, documents, max_size=3).map(lambda document: json.dumps(document) if document else "")
values = st.one_of(
    texts.map(Value),
    documents.map(Value.of),
    st.builds(Value, st.binary(max_size=20), st.just("blob"), names),
)
maybe_values = st.none() | values
maybe_seconds = st.none() | seconds
few_names = st.lists(names, max_size=3, unique=True).map(tuple)

consumed = st.integers(0, 2**48)
usages = st.builds(Usage, consumed, consumed, consumed, consumed, st.none() | st.builds(Money, consumed, texts))
tool_calls = st.builds(
    ToolCall,
    names,
    objects,
    result=maybe_values,
    error=texts,
    id=texts,
    started_at=maybe_seconds,
    duration=maybe_seconds,
)
messages = st.builds(
    Message,
    texts,
    st.lists(values, max_size=3).map(tuple),
    tool_calls=st.lists(tool_calls, max_size=2),
    tool_call_id=texts,
    name=texts,
    metadata=objects,
)
spans = st.builds(
    Span,
    names,
    texts,
    parent_id=texts,
    kind=texts,
    started_at=maybe_seconds,
    duration=maybe_seconds,
    attributes=objects,
)
reports = st.builds(
    ToolMockReport,
    small,
    small,
    st.lists(st.builds(ToolMockFault, texts, st.sampled_from(ToolMockFaultKind), objects), max_size=2).map(tuple),
)
outputs = st.builds(
    Output,
    values,
    answer=maybe_values,
    messages=st.lists(messages, max_size=2),
    tool_calls=st.lists(tool_calls, max_size=2),
    spans=st.lists(spans, max_size=2),
    usage=st.none() | usages,
    trace_ids=st.lists(texts, max_size=2),
    metadata=objects,
    timing=st.none() | st.builds(Timing, maybe_seconds, maybe_seconds),
    tool_mocks=st.none() | reports,
)
items = st.builds(
    Item,
    names,
    values,
    maybe_values,
    metadata=objects,
    tags=few_names,
    choices=st.lists(texts, max_size=3),
    messages=st.lists(messages, max_size=2),
    tool_mocks=st.lists(st.builds(ToolMock, names, st.none() | objects, maybe_values, texts), max_size=2),
    scorers=st.none() | few_names,
    output=st.none() | outputs,
)
limits = st.builds(TrialLimits, st.none() | counts, st.none() | counts, st.none() | counts)
trials = st.builds(Trial, counts, small, items, small, counts, counts, maybe_seconds, st.none() | limits)
tasks = st.builds(
    ScoreTask,
    counts,
    small,
    items,
    outputs,
    st.dictionaries(names, values, max_size=3),
    st.none() | outputs,
    small,
    maybe_seconds,
)
failures = st.builds(
    Failure,
    st.sampled_from(FailureCategory),
    texts.map(one_line),
    st.from_regex("[A-Z][A-Z0-9_]{0,63}", fullmatch=True),
    st.sampled_from(FailureOrigin),
    st.none() | st.booleans(),
    texts,
    maybe_seconds,
    objects,
)
_about_scores = {
    "name": texts,
    "label": texts,
    "answer": maybe_values,
    "explanation": texts,
    "metadata": objects,
    "steps": st.lists(st.builds(ScoreStep, texts, maybe_values, maybe_seconds), max_size=2),
    "usage": st.none() | usages,
    "trace_ids": st.lists(texts, max_size=2),
}
scores = st.one_of(
    st.builds(Score, st.just(ScoreStatus.SCORED), st.floats(allow_nan=False), **_about_scores),
    st.builds(Score, st.just(ScoreStatus.SKIPPED), **_about_scores),
    st.builds(Score, st.just(ScoreStatus.ERRORED), failure=failures, **_about_scores),
)
finite = st.floats(allow_nan=False, allow_infinity=False)
declarations = st.builds(
    ScoreDeclaration,
    names.filter(lambda name: "." not in name),
    st.none() | finite.map(lambda number: min(number, 0.0)),
    st.none() | finite.map(lambda number: max(number, 0.0)),
    st.sampled_from(Direction),
    texts,
    texts,
)
several_declarations = st.lists(declarations, min_size=1, max_size=3, unique_by=lambda declared: declared.name).map(
    tuple
)
infos = st.builds(
    PluginInfo,
    names.filter(lambda name: "." not in name),
    st.builds(TargetInfo, st.sampled_from(Isolation))
    | st.builds(
        ScorerInfo,
        several_declarations,
        st.lists(st.sampled_from(Need), unique=True).map(tuple),
        few_names,
        st.booleans(),
    ),
    version=texts,
    digest=texts,
    sdk=texts,
    language=texts,
    lowest_revision=small,
    highest_revision=small,
    capabilities=st.frozensets(names, max_size=3),
    max_in_flight=small,
    settings_schema=objects,
    description=texts,
)
openings = st.builds(
    Open,
    texts,
    small,
    texts,
    texts,
    st.sampled_from(Purpose),
    objects,
    st.lists(texts, max_size=3).map(tuple),
    maybe_seconds,
)
readies = st.builds(Ready, small, st.just(()) | several_declarations)
news = st.builds(TrialProgress, counts, small, st.sampled_from(ProgressKind), counts, counts, st.none() | usages, texts)
answers = st.builds(Answer, counts, small, outputs) | st.builds(Answer, counts, small, failures, st.none() | usages)
score_answers = st.builds(ScoreAnswer, counts, small, st.lists(scores, min_size=1, max_size=3).map(tuple)) | st.builds(
    ScoreAnswer, counts, small, failures, st.none() | usages
)
