"""Values and messages, to and fro: nothing is lost, and nothing that breaks the contract comes through."""

import math
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalbus import (
    ContractBroken,
    Failure,
    FailureCategory,
    Item,
    Output,
    Score,
    ScoreStatus,
    ScoreTask,
    Usage,
    Value,
    wire,
)
from evalbus._plugin import Answer, ScoreAnswer
from evalbus._score import plain_scores
from evalbus.v1 import (
    failure_pb2,
    item_pb2,
    output_pb2,
    plugin_pb2,
    score_pb2,
    scorer_pb2,
    target_pb2,
    value_pb2,
)

from .. import strategies as some

PAIRS: dict[str, tuple[Any, Any, Any]] = {
    "value": (some.values, wire.value_to_proto, wire.value_from_proto),
    "tool call": (some.tool_calls, wire.tool_call_to_proto, wire.tool_call_from_proto),
    "message": (some.messages, wire.message_to_proto, wire.message_from_proto),
    "span": (some.spans, wire.span_to_proto, wire.span_from_proto),
    "usage": (some.usages, wire.usage_to_proto, wire.usage_from_proto),
    "item": (some.items, wire.item_to_proto, wire.item_from_proto),
    "limits": (some.limits, wire.limits_to_proto, wire.limits_from_proto),
    "trial": (some.trials, wire.trial_to_proto, wire.trial_from_proto),
    "output": (some.outputs, wire.output_to_proto, wire.output_from_proto),
    "failure": (some.failures, wire.failure_to_proto, wire.failure_from_proto),
    "score": (some.scores, wire.score_to_proto, wire.score_from_proto),
    "declaration": (some.declarations, wire.declaration_to_proto, wire.declaration_from_proto),
    "plugin": (some.infos, wire.plugin_info_to_proto, wire.plugin_info_from_proto),
    "opening": (some.openings, wire.open_to_proto, wire.open_from_proto),
    "ready": (some.readies, wire.ready_to_proto, wire.ready_from_proto),
    "progress": (some.news, wire.progress_to_proto, wire.progress_from_proto),
    "task": (some.tasks, wire.task_to_proto, wire.task_from_proto),
}


@pytest.mark.parametrize("what", PAIRS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_value_comes_back_as_it_went(what: str, data: st.DataObject) -> None:
    strategy, to_proto, from_proto = PAIRS[what]
    value = data.draw(strategy)
    message = to_proto(value)

    back = from_proto(type(message).FromString(message.SerializeToString()))
    assert back == value
    assert hash(type(back)) == hash(type(value))  # frozen, not a draft


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some.answers)
def test_an_answer_comes_back_as_it_went(answer: Answer) -> None:
    message = target_pb2.Answer.FromString(wire.answer_to_proto(answer).SerializeToString())

    usage = wire.usage_from_proto(message.usage) if message.HasField("usage") else None
    assert Answer(message.trial_id, message.attempt, wire.answer_result_from_proto(message), usage) == answer


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some.score_answers)
def test_an_answer_of_a_scorer_comes_back_as_it_went(answer: ScoreAnswer) -> None:
    message = scorer_pb2.ScoreAnswer.FromString(wire.score_answer_to_proto(answer).SerializeToString())

    usage = wire.usage_from_proto(message.usage) if message.HasField("usage") else None
    assert ScoreAnswer(message.trial_id, message.attempt, wire.score_answer_result_from_proto(message), usage) == answer


plain_answers = st.builds(Answer, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.builds(Output, some.texts))
plain_scores_answers = st.builds(
    ScoreAnswer,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.floats(allow_nan=True).map(plain_scores),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(some.answers, plain_answers))
def test_an_answer_put_together_by_hand_is_what_its_message_would_be(answer: Answer) -> None:
    read = target_pb2.Answer.FromString(wire.encode_answer(answer))
    assert read.SerializeToString() == wire.answer_to_proto(answer).SerializeToString()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(some.score_answers, plain_scores_answers))
def test_an_answer_of_a_scorer_put_together_by_hand_is_what_its_message_would_be(answer: ScoreAnswer) -> None:
    read = scorer_pb2.ScoreAnswer.FromString(wire.encode_score_answer(answer))
    assert read.SerializeToString() == wire.score_answer_to_proto(answer).SerializeToString()


@pytest.mark.parametrize("result", [(Score.scored(0.5, "half"),), (Score.scored(0.5, name="a"),), plain_scores(0.5)])
def test_only_a_value_and_nothing_else_is_plain(result: tuple[Score, ...]) -> None:
    message = scorer_pb2.ScoreAnswer.FromString(wire.encode_score_answer(ScoreAnswer(-1, -1, result)))

    assert (message.trial_id, message.attempt) == (-1, -1)
    assert wire.score_answer_result_from_proto(message) == result


@pytest.mark.parametrize("whole", [0.0, 1.5, -2.25, 0.9999999999, -0.9999999999, 1e-9, 315576000000.0])
def test_a_length_of_time_keeps_its_nanoseconds(whole: float) -> None:
    message = wire.duration_to_proto(whole)

    assert wire.duration_from_proto(message) == pytest.approx(whole, abs=1e-9)
    assert abs(message.nanos) < 10**9


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_not_finite_has_no_form(seconds: float) -> None:
    with pytest.raises(ValueError, match="not a length of time"):
        wire.duration_to_proto(seconds)
    with pytest.raises(ValueError, match="not a point in time"):
        wire.time_to_proto(seconds)


def test_absent_null_and_empty_stay_three_things() -> None:
    items = [Item("q", "?", expected) for expected in (None, Value.json("null"), "")]

    back = [wire.item_from_proto(wire.item_to_proto(item)).expected for item in items]
    assert back == [None, Value("null", "json"), Value("")]


def test_digits_and_order_of_json_are_kept() -> None:
    written = '{"b": 1.10, "a": 12345678901234567890123, "c": 1e2}'

    assert wire.value_from_proto(wire.value_to_proto(Value.json(written))).text == written


def test_a_usage_of_nothing_is_not_no_usage() -> None:
    message = wire.output_to_proto(Output("x", usage=Usage()))

    assert wire.output_from_proto(message).usage == Usage()


def test_a_lone_surrogate_has_no_form() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        wire.output_to_proto(Output("\ud800"))


def test_parts_of_a_task_may_be_left_out() -> None:
    message = scorer_pb2.ScoreTask(trial_id=1, attempt=1, item=item_pb2.Item(id="q"), output=output_pb2.Output())

    assert wire.task_from_proto(message) == ScoreTask(1, 1, Item("q", ""), Output(), epoch=0)


def _text(text: str = "x") -> value_pb2.Value:
    return value_pb2.Value(text=text)


@pytest.mark.parametrize(
    ("from_proto", "message", "fault"),
    [
        (wire.value_from_proto, value_pb2.Value(), "neither text, json nor blob"),
        (wire.value_from_proto, value_pb2.Value(json="{"), "not a JSON document"),
        (wire.value_from_proto, value_pb2.Value(json='{"a":1,"a":2}'), "comes twice"),
        (wire.value_from_proto, value_pb2.Value(json="NaN"), "not JSON"),
        (wire.value_from_proto, value_pb2.Value(json="[" * 101 + "]" * 101), "nested deeper"),
        (wire.value_from_proto, value_pb2.Value(blob=value_pb2.Blob(data=b"x")), "media type"),
        (wire.item_from_proto, item_pb2.Item(id="q"), "input"),
        (wire.item_from_proto, item_pb2.Item(input=_text()), "id"),
        (wire.item_from_proto, item_pb2.Item(id="a\nb", input=_text()), "control characters"),
        (wire.item_from_proto, item_pb2.Item(id="a" * 513, input=_text()), "512"),
        (wire.item_from_proto, item_pb2.Item(id="q", input=_text(), metadata="[1]"), "not a JSON object"),
        (wire.item_from_proto, item_pb2.Item(id="q", input=_text(), tags=["a", "a"]), "no two alike"),
        (wire.item_from_proto, item_pb2.Item(id="q", input=_text(), tool_mocks=[item_pb2.ToolMock()]), "no tool"),
        (wire.tool_call_from_proto, value_pb2.ToolCall(), "no name"),
        (wire.tool_call_from_proto, value_pb2.ToolCall(name="t", arguments="{"), "arguments of tool call 't'"),
        (wire.span_from_proto, value_pb2.Span(name="x"), "no id"),
        (wire.usage_from_proto, value_pb2.Usage(calls=-1), "below zero"),
        (wire.output_from_proto, output_pb2.Output(), "neither content nor messages"),
        (wire.output_from_proto, output_pb2.Output(content=_text(), metadata="x"), "metadata of the output"),
        (wire.score_from_proto, score_pb2.Score(value=1), "unknown status 0"),
        (wire.score_from_proto, score_pb2.Score(status=9, value=1), "unknown status 9"),  # type: ignore[arg-type]
        (wire.score_from_proto, score_pb2.Score(status=score_pb2.SCORE_STATUS_SCORED), "SCORED without a value"),
        (
            wire.score_from_proto,
            score_pb2.Score(status=score_pb2.SCORE_STATUS_SKIPPED, value=0),
            "SKIPPED with a value",
        ),
        (wire.score_from_proto, score_pb2.Score(status=score_pb2.SCORE_STATUS_ERRORED), "ERRORED without a failure"),
        (
            wire.score_from_proto,
            score_pb2.Score(status=score_pb2.SCORE_STATUS_SCORED, value=1, failure=failure_pb2.Failure()),
            "SCORED with a failure",
        ),
        (wire.declaration_from_proto, score_pb2.ScoreDeclaration(minimum=math.nan), "not finite"),
        (wire.declaration_from_proto, score_pb2.ScoreDeclaration(minimum=2, maximum=1), "above maximum"),
        (wire.declaration_from_proto, score_pb2.ScoreDeclaration(name="a.b"), "no dot"),
        (wire.plugin_info_from_proto, plugin_pb2.PluginInfo(), "no name"),
        (wire.plugin_info_from_proto, plugin_pb2.PluginInfo(name="a.b", target=plugin_pb2.TargetInfo()), "dots"),
        (wire.plugin_info_from_proto, plugin_pb2.PluginInfo(name="p"), "neither target nor scorer"),
        (wire.plugin_info_from_proto, plugin_pb2.PluginInfo(name="p", scorer=plugin_pb2.ScorerInfo()), "no score"),
        (wire.answer_result_from_proto, target_pb2.Answer(), "neither output nor failure"),
        (wire.score_answer_result_from_proto, scorer_pb2.ScoreAnswer(), "neither scores nor a failure"),
        (
            wire.score_answer_result_from_proto,
            scorer_pb2.ScoreAnswer(scores=[score_pb2.Score()], failure=failure_pb2.Failure()),
            "both",
        ),
        (
            wire.task_from_proto,
            scorer_pb2.ScoreTask(item=item_pb2.Item(id="q"), inputs=[value_pb2.NamedValue(value=_text())]),
            "no name",
        ),
    ],
)
def test_what_breaks_the_contract_is_named(from_proto: Any, message: Any, fault: str) -> None:
    with pytest.raises(ContractBroken, match=fault):
        from_proto(message)


def test_a_json_string_is_always_a_text() -> None:
    assert wire.value_from_proto(value_pb2.Value(json='"hello"')) == Value("hello")


def test_what_is_unknown_has_a_reading() -> None:
    failure = wire.failure_from_proto(failure_pb2.Failure(category=77, origin=77, details="{"))  # type: ignore[arg-type]

    assert failure == Failure(FailureCategory.INTERNAL, "", "INTERNAL")


def test_fields_of_a_later_revision_are_ignored() -> None:
    later = b"\xc2\x3e\x05later"  # field 1000, a text

    item = item_pb2.Item.FromString(wire.item_to_proto(Item("q", "?")).SerializeToString() + later)
    score = score_pb2.Score.FromString(wire.score_to_proto(Score.scored(1)).SerializeToString() + later)
    output = output_pb2.Output.FromString(wire.output_to_proto(Output("x")).SerializeToString() + later)
    assert wire.item_from_proto(item) == Item("q", "?")
    assert wire.score_from_proto(score) == Score(ScoreStatus.SCORED, 1.0)
    assert wire.output_from_proto(output) == Output("x")


def _fill_at_random(message: Any, draw: Any, depth: int = 0) -> None:
    """Any fields with anything in them, whatever the contract says."""
    for field in message.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        entry: Any
        for _ in range(draw(st.integers(0, 2)) if field.is_repeated else 1):
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                sub = getattr(message, field.name)
                entry = sub.add() if field.is_repeated else sub
                if not field.is_repeated:
                    entry.SetInParent()
                if depth < 3:
                    _fill_at_random(entry, draw, depth + 1)
                continue
            entry = draw(_ANYTHING[field.type])
            if field.is_repeated:
                getattr(message, field.name).append(entry)
            else:
                setattr(message, field.name, entry)


_ANYTHING: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: some.texts | st.sampled_from(["{}", "[", "NaN", '{"a":', "\0", "x" * 600]),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=9),
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_ENUM: st.integers(-3, 12),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
}


@pytest.mark.parametrize(
    ("kind", "from_proto"),
    [
        (item_pb2.Trial, wire.trial_from_proto),
        (scorer_pb2.ScoreTask, wire.task_from_proto),
        (target_pb2.Answer, wire.answer_result_from_proto),
        (scorer_pb2.ScoreAnswer, wire.score_answer_result_from_proto),
        (plugin_pb2.Open, wire.open_from_proto),
        (plugin_pb2.PluginInfo, wire.plugin_info_from_proto),
        (plugin_pb2.Ready, wire.ready_from_proto),
        (plugin_pb2.TrialProgress, wire.progress_from_proto),
    ],
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_message_is_a_value_or_a_broken_contract(kind: Any, from_proto: Any, data: st.DataObject) -> None:
    message = kind()
    _fill_at_random(message, data.draw)

    try:
        from_proto(message)
    except ContractBroken as error:
        assert str(error)
