"""The JSON that scripts read: keys that are never renamed, null for numbers without a value, content as it is."""

from __future__ import annotations

import json

from evalbus import (
    Item,
    Message,
    Money,
    Output,
    Score,
    ScoreStep,
    Span,
    Timing,
    ToolCall,
    ToolMock,
    ToolMockFault,
    ToolMockFaultKind,
    ToolMockReport,
    Usage,
    Value,
)
from evalbus_server.dataset.read import inline
from evalbus_server.model.event import Event, StateChanged, TrialsEnded
from evalbus_server.model.run import Counts, Outcome, RunState, Verdict
from evalbus_server.model.trial import StoredScore, trial_id_of
from evalbus_server.wire.contentform import item_document, message_document, value_data
from evalbus_server.wire.jsonform import (
    dataset_document,
    event_document,
    result_document,
    run_document,
    summary_document,
)
from tests.unit.server.wire.samples import ERRORED, RESULT, RUN, SUMMARY

COUNTS = {"planned": 4, "passed": 1, "failed": 1, "errored": 1, "skipped": 1, "pending": 0}


def test_a_run_with_its_numbers_has_the_keys_of_the_rules():
    document = summary_document(SUMMARY)

    assert list(document)[:11] == [
        "run",
        "name",
        "state",
        "reason",
        "verdict",
        "partial",
        "counts",
        "pass_rate",
        "coverage",
        "weighted",
        "scores",
    ]
    assert set(document) >= {"criteria", "latency_ms", "usage", "dataset", "digest", "duration_s"}
    assert document["run"] == "r1"
    assert document["state"] == "COMPLETED"
    assert document["reason"] is None
    assert document["verdict"] == "FAIL"
    assert document["partial"] is False
    assert document["counts"] == COUNTS
    assert document["weighted"] is None
    assert document["dataset"] == {"name": "support", "version": 3, "digest": "d" * 64}
    assert (document["duration_s"], document["work_s"]) == (2.5, 1.5)
    assert document["latency_ms"] == {"mean": 10.0, "p50": 9.0, "p90": 19.0, "p95": 19.5, "p99": 19.9}
    assert document["usage"] == {
        "input_tokens": 10,
        "output_tokens": 20,
        "cached_tokens": 3,
        "calls": 4,
        "cost": {"amount": 1.25, "micros": 1_250_000, "currency": "USD"},
        "priced_share": 0.5,
    }
    assert document["failures"] == {"TIMEOUT": 1}
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_the_numbers_of_a_score_are_null_where_they_have_no_value():
    scores = summary_document(SUMMARY)["scores"]

    assert list(scores["exact_match"]) == [
        "n",
        "n_trials",
        "mean",
        "median",
        "min",
        "max",
        "sum",
        "std",
        "stderr",
        "interval",
        "pass_rate",
        "coverage",
        "threshold",
        "errored",
        "skipped",
        "distribution",
        "metrics",
    ]
    assert scores["exact_match"]["interval"] == [0.1, 0.9]
    assert scores["exact_match"]["distribution"]["values"][0] == {"value": 1.0, "count": 2, "share": 0.66}
    assert scores["tone.warm"]["mean"] is None
    assert scores["tone.warm"]["interval"] is None
    assert scores["tone.warm"]["skipped"] == 4


def test_a_criterion_is_shown_with_what_it_asked():
    criteria = summary_document(SUMMARY)["criteria"]

    assert [
        criteria[0][key] for key in ("label", "metric", "scorer", "value", "min", "max", "severity", "outcome")
    ] == [
        None,
        "mean",
        "exact_match",
        0.5,
        0.7,
        None,
        "error",
        "FAIL",
    ]
    assert criteria[1]["label"] == "nearly all"
    assert criteria[1]["severity"] == "warn"
    assert (criteria[2]["value"], criteria[2]["baseline"], criteria[2]["max_drop"]) == (None, "r0", 0.5)


def test_a_run_alone_says_when_and_over_what():
    document = run_document(RUN)

    assert document["created_at"] == "2023-11-14T22:13:20.250Z"
    assert document["tags"] == ["nightly"]
    assert document["duration_s"] == 2.5
    assert dataset_document(RUN.dataset)["items"] == 10


def test_a_result_leaves_out_content_that_is_absent_and_keeps_null():
    document = result_document(RESULT, RUN)

    assert document == {
        "item": "a1",
        "epoch": 2,
        "outcome": "FAILED",
        "input": {"n": 2**70},
        "output": "out",
        "answer": None,
        "usage": {"input_tokens": 1, "output_tokens": 2, "cached_tokens": 0, "calls": 0, "cost": None},
        "scores": {
            "exact_match": {
                "status": "SCORED",
                "value": 0.0,
                "label": "wrong",
                "explanation": "differs",
                "threshold": 1.0,
                "passed": False,
                "answer": "ou",
            },
            "tone.warm": {
                "status": "SKIPPED",
                "value": None,
                "label": None,
                "explanation": "no tone",
                "threshold": None,
                "passed": None,
            },
        },
        "weighted": 0.0,
        "attempts": 1,
        "latency_ms": 250.0,
        "trace_ids": ["t1"],
    }
    assert '{"n": 1180591620717411303424}' in json.dumps(document)


def test_a_result_has_all_that_was_told_of_the_output_and_of_its_scores():
    said = Output(
        "out",
        spans=[Span("s", "n", attributes={"a": 1})],
        metadata={"seed": 7},
        timing=Timing(1.5, 0.25),
    )
    steps = [ScoreStep("split", Value.of(["a"]), 0.5), ScoreStep("explain")]
    judged = Score.scored(1, usage=Usage(5), steps=steps, trace_ids=["t2"], metadata={"m": None})
    item = Item("a1", "in", metadata={"topic": "tea"}, tags=["small"])
    document = result_document(RESULT._replace(item=item, output=said, scores={0: StoredScore(judged, True)}), RUN)

    assert (document["metadata"], document["tags"]) == ({"topic": "tea"}, ["small"])
    assert document["spans"] == [{"id": "s", "name": "n", "attributes": {"a": 1}}]
    assert document["output_metadata"] == {"seed": 7}
    assert document["timing"] == {"total": 1.5, "first_token": 0.25}
    score = document["scores"]["exact_match"]
    assert score["steps"] == [{"name": "split", "result": ["a"], "duration": 0.5}, {"name": "explain"}]
    assert (score["usage"]["input_tokens"], score["trace_ids"], score["metadata"]) == (5, ["t2"], {"m": None})


def test_a_result_that_errored_says_why():
    assert result_document(ERRORED, RUN) == {
        "item": "a0",
        "epoch": 1,
        "outcome": "ERRORED",
        "input": "",
        "expected": "",
        "scores": {},
        "weighted": None,
        "failure": {
            "origin": "SERVER",
            "category": "TIMEOUT",
            "reason": "TIMEOUT",
            "message": "no answer within 60 s",
        },
        "attempts": 3,
        "latency_ms": None,
    }


def test_events_are_told_with_their_sequence():
    changed = Event(1, 1.5, StateChanged(RunState.ABORTED, Counts(4), "BUDGET: spent", Verdict.INCONCLUSIVE))
    ended = Event(2, 2.0, TrialsEnded(((trial_id_of(3, 2), Outcome.PASSED),), Counts(4, 1)))

    assert event_document(changed) == {
        "sequence": 1,
        "time": "1970-01-01T00:00:01.500Z",
        "kind": "state",
        "state": "ABORTED",
        "reason": "BUDGET: spent",
        "verdict": "INCONCLUSIVE",
        "counts": {"planned": 4, "passed": 0, "failed": 0, "errored": 0, "skipped": 0, "pending": 4},
    }
    assert event_document(ended)["trials"] == [
        {"trial": trial_id_of(3, 2), "position": 3, "epoch": 2, "outcome": "PASSED"}
    ]


def test_bytes_are_an_object_of_media_type_and_base64():
    assert value_data(Value.blob(b"\0\1", "image/png")) == {"media_type": "image/png", "base64": "AAE="}


def test_one_part_that_is_a_list_is_told_from_a_list_of_parts():
    assert message_document(Message("user", [1, 2]))["content"] == [[1, 2]]
    assert message_document(Message("user", (Value("a"), Value("b"))))["content"] == ["a", "b"]
    assert message_document(Message("user", "a"))["content"] == "a"
    assert "content" not in message_document(Message("user", ()))


def test_an_item_is_written_as_it_is_read():
    item = Item(
        "a",
        {"q": [1, None]},
        None,
        metadata={"n": 1},
        tags=["t"],
        choices=["A"],
        messages=[
            Message("user", (Value("a"), Value.blob(b"x", "image/png")), name="n", metadata={"m": 1}),
            Message(
                "assistant", (), tool_calls=[ToolCall("t", {"a": 1}, result=[1], id="c", started_at=1.5, duration=2.0)]
            ),
            Message("tool", [1], tool_call_id="c"),
        ],
        tool_mocks=[ToolMock("t", '{"a":1}', Value("x")), ToolMock("t", error="gone")],
        scorers=[],
        output=Output(
            {"content": 1},
            answer="a",
            messages=[Message("user", "x")],
            tool_calls=[ToolCall("t", error="gone")],
            spans=[Span("s", "n", kind="tool", duration=1.0, attributes={"a": 1})],
            usage=Usage(1, 2, 3, 4, Money(5, "EUR")),
            trace_ids=["x"],
            metadata={"m": 1},
            timing=Timing(1.0),
            tool_mocks=ToolMockReport(1, 2, (ToolMockFault("t", ToolMockFaultKind.MISMATCH, '{"a":1}'),)),
        ),
    )

    assert inline([json.loads(json.dumps(item_document(item)))]) == (item,)
