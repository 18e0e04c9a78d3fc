"""Whatever an output and an item hold, a builtin judges it, skips it, or says what is wrong: it never breaks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbus import (
    FailureCategory,
    Item,
    Message,
    Money,
    Output,
    ScorerBench,
    ScoreStatus,
    Span,
    Timing,
    ToolCall,
    Usage,
    Value,
)
from evalbus_server.scorer.builtin import BUILTINS
from tests.unit.server.scorer.asking import CALCULATED
from tests.unit.server.scorer.test_blocking import SETTINGS

TEXTS = st.one_of(
    st.text(max_size=12),
    st.text("aAbB 019.,-%$€[]{}\":'*_\n東カ🙂\N{MINUS SIGN}", max_size=16),
    st.sampled_from(
        ["", " ", "ANSWER: B", "A, C", "1e999999999", "-", "$", "[", "{}", "[[]]", "null", "NaN", "۳", "a" * 70]
    ),
)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
VALUES = st.one_of(
    TEXTS.map(Value),
    DOCUMENTS.map(Value.of),
    st.sampled_from(
        [Value("1e400", "json"), Value("1e99999999999999999999", "json"), Value.blob(b"\xff", "image/png")]
    ),
)
CALLS = st.builds(
    ToolCall,
    st.sampled_from(["a", "b", "search"]),
    st.none() | st.dictionaries(TEXTS, DOCUMENTS, max_size=2),
    result=st.none() | VALUES,
    error=st.sampled_from(["", "no"]),
    duration=st.none() | st.floats(0, 10),
)
SPANS = st.builds(
    Span,
    st.sampled_from("1234"),
    st.sampled_from("ab"),
    parent_id=st.sampled_from(["", "1", "2", "9"]),
    started_at=st.none() | st.floats(0, 10),
)
OUTPUTS = st.builds(
    Output,
    VALUES,
    answer=st.none() | VALUES,
    messages=st.lists(
        st.builds(Message, st.just("assistant"), TEXTS, tool_calls=st.lists(CALLS, max_size=1)), max_size=1
    ),
    tool_calls=st.lists(CALLS, max_size=4),
    spans=st.lists(SPANS, max_size=4, unique_by=lambda span: span.id),
    usage=st.none() | st.builds(Usage, st.integers(0, 99), st.integers(0, 99), cost=st.none() | st.just(Money(3))),
    timing=st.none() | st.builds(Timing, st.floats(0, 9)),
)
ITEMS = st.builds(Item, st.just("i1"), VALUES, st.none() | VALUES, choices=st.lists(TEXTS, max_size=4))
INPUTS = st.none() | st.fixed_dictionaries({}, optional={"output": VALUES, "expected": VALUES, "choices": VALUES})
MORE: dict[str, list[dict[str, Any]]] = {
    "regex": [{"match": "whole", "ignore_case": True}],
    "match": [{"numeric": True, "location": place} for place in ("begin", "end", "any", "exact")],
    "answer_match": [{"pattern": "(a)|(b)", "groups": "all", "which": "first"}],
    "exact_match": [{"words": True}, {"ignore_case": True, "normalize": "NFKC"}],
    "includes": [{"mode": "all"}],
    "last_number": [{"percent": "divide", "thousands": False, "currency": False}],
    "numeric_diff": [{"absolute": 0.1, "relative": 0.1, "outside": "zero"}],
    "similarity": [{"method": name} for name in ("jaro", "damerau_levenshtein", "sorted_words", "shared_words")],
    "bleu": [{"tokenize": "char", "order": 1}, {"tokenize": "none", "lowercase": True}],
    "chrf": [{"word_order": 2, "lowercase": True, "beta": 0.5}],
    "json_diff": [{"ignore": ["a"], "any_value": ["A"]}],
    "list_contains": [{"allow_extra": True, "ignore_case": True}],
    "tone": [{"compared_with": "expected"}, {"reference": "good"}],
    "length": [{"at_least": 2, "at_most": 3, "unit": "lines", "outside": "closeness"}],
    "readability": [{"formula": "flesch_kincaid_grade"}, {"formula": "automated_grade"}],
    "latency_limit": [{"seconds": 0, "outside": "closeness"}],
    "tool_call_accuracy": [{}, {"strict": True}],
    "tool_arguments": [{}, {"compare": "holds"}],
    "trajectory": [{}, {"read": "spans", "order": "strict"}, {"order": "unordered", "repeats": "penalized"}],
    "trajectory_efficiency": [{"max_steps": 0, "max_tokens": 0, "max_seconds": 0}],
}
EVERY = [(name, settings) for name in CALCULATED for settings in (SETTINGS.get(name, {}), *MORE.get(name, ()))]


@pytest.mark.parametrize(("name", "chosen"), EVERY, ids=lambda part: str(part)[:40])
@settings(max_examples=30)
@given(item=ITEMS, output=OUTPUTS, inputs=INPUTS)
async def test_a_builtin_never_breaks(name, chosen, item, output, inputs):
    bench = ScorerBench(BUILTINS[name], chosen)  # refuses what is out of range

    score = await bench.score(item, output, inputs=inputs)

    if score.status is ScoreStatus.ERRORED:
        assert score.failure is not None
        assert score.failure.category is FailureCategory.INVALID, score.failure
        assert score.failure.reason
    if score.status is ScoreStatus.SKIPPED:
        assert score.explanation
    assert len(score.explanation) < 1_000
