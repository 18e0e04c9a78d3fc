"""Values of this package <-> messages of the contract, checked in both directions. No IO.

Every `…_to_proto` raises ValueError for what has no form on the wire (a lone surrogate); every
`…_from_proto` raises ContractBroken for a message that breaks a field rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from evalbus import _json
from evalbus._errors import ContractBroken
from evalbus._failure import Failure, FailureCategory, FailureOrigin
from evalbus._item import Item, ScoreTask, ToolMock, Trial, TrialLimits
from evalbus._output import (
    Message,
    Money,
    Output,
    Span,
    Timing,
    ToolCall,
    ToolMockFault,
    ToolMockFaultKind,
    ToolMockReport,
    Usage,
)
from evalbus._plugin import (
    Answer,
    Isolation,
    Need,
    Open,
    PluginInfo,
    ProgressKind,
    Purpose,
    Ready,
    ScoreAnswer,
    ScorerInfo,
    TargetInfo,
    TrialProgress,
)
from evalbus._score import Direction, Score, ScoreDeclaration, ScoreStatus, ScoreStep
from evalbus._value import Value
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

E_ = TypeVar("E_")

_STATUS = (None, ScoreStatus.SCORED, ScoreStatus.SKIPPED, ScoreStatus.ERRORED)
_CATEGORIES = {int(category): category for category in FailureCategory}
_ORIGINS = {int(origin): origin for origin in FailureOrigin}
_SHORTEST_DURATION = 0.0


# --- lengths and points of time ---------------------------------------------------------------------------------


def duration_to_proto(seconds: float) -> Duration:
    """A length of time from seconds, to the nanosecond.

    Raises:
        ValueError: it is not finite.
    """
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is not a length of time")
    whole = math.trunc(seconds)
    return Duration(seconds=whole, nanos=round((seconds - whole) * 1e9))


def duration_from_proto(message: Duration) -> float:
    """A length of time in seconds."""
    return message.seconds + message.nanos / 1e9


def time_to_proto(seconds: float) -> Timestamp:
    """A point in time from seconds since 1970, to the microsecond."""
    micros = round(seconds * 1e6)
    return Timestamp(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)


def time_from_proto(message: Timestamp) -> float:
    """A point in time in seconds since 1970."""
    return message.seconds + message.nanos / 1e9


# --- content ----------------------------------------------------------------------------------------------------


def value_to_proto(value: Value) -> value_pb2.Value:
    """A value as a message."""
    if value.kind == "text":
        return value_pb2.Value(text=value.body)  # type: ignore[arg-type]  # text is a str, by construction
    if value.kind == "json":
        return value_pb2.Value(json=value.body)  # type: ignore[arg-type]
    return value_pb2.Value(blob=value_pb2.Blob(media_type=value.media_type, data=value.body))  # type: ignore[arg-type]


def value_from_proto(message: value_pb2.Value, what: str = "value") -> Value:
    """A message as a value. JSON is checked, and a JSON string becomes a text.

    Raises:
        ContractBroken: nothing is set, the JSON is not JSON, or a blob has no media type.
    """
    kind = message.WhichOneof("kind")
    if kind == "text":
        return Value(message.text)
    if kind == "json":
        try:
            return Value.json(message.json)
        except ValueError as error:
            raise ContractBroken(f"{what}: not a JSON document: {error}") from None
    if kind == "blob":
        if not message.blob.media_type:
            raise ContractBroken(f"{what}: bytes without a media type")
        return Value(message.blob.data, "blob", message.blob.media_type)
    raise ContractBroken(f"{what}: neither text, json nor blob is set")


def _object_from_proto(text: str, what: str) -> str:
    """The text of a JSON object, checked; "" stays ""."""
    if not text:
        return ""
    try:
        if not isinstance(_json.loads(text), dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise ContractBroken(f"{what}: not a JSON object: {error}") from None
    return text


# --- parts of outputs -------------------------------------------------------------------------------------------


def tool_call_to_proto(call: ToolCall) -> value_pb2.ToolCall:
    """A tool call as a message."""
    message = value_pb2.ToolCall(id=call.id, name=call.name, arguments=call.arguments_json, error=call.error)
    if call.result is not None:
        message.result.CopyFrom(value_to_proto(call.result))
    if call.started_at is not None:
        message.started_at.CopyFrom(time_to_proto(call.started_at))
    if call.duration is not None:
        message.duration.CopyFrom(duration_to_proto(call.duration))
    return message


def tool_call_from_proto(message: value_pb2.ToolCall) -> ToolCall:
    """A message as a tool call."""
    if not message.name:
        raise ContractBroken("a tool call has no name")
    if message.arguments:
        try:
            _json.loads(message.arguments)
        except ValueError as error:
            raise ContractBroken(f"arguments of tool call {message.name!r}: not a JSON document: {error}") from None
    return ToolCall(
        message.name,
        message.arguments,
        result=value_from_proto(message.result, "a tool's result") if message.HasField("result") else None,
        error=message.error,
        id=message.id,
        started_at=time_from_proto(message.started_at) if message.HasField("started_at") else None,
        duration=duration_from_proto(message.duration) if message.HasField("duration") else None,
    )


def message_to_proto(spoken: Message) -> value_pb2.Message:
    """A message of a conversation as a message of the contract."""
    return value_pb2.Message(
        role=spoken.role,
        content=[value_to_proto(part) for part in spoken.content],
        tool_calls=[tool_call_to_proto(call) for call in spoken.tool_calls],
        tool_call_id=spoken.tool_call_id,
        name=spoken.name,
        metadata=spoken.metadata_json,
    )


def message_from_proto(message: value_pb2.Message) -> Message:
    """A message of the contract as a message of a conversation."""
    return Message(
        message.role,
        tuple(value_from_proto(part, "a part of a message") for part in message.content),
        tool_calls=tuple(tool_call_from_proto(call) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        name=message.name,
        metadata=_object_from_proto(message.metadata, "a message's metadata"),
    )


def span_to_proto(span: Span) -> value_pb2.Span:
    """A span as a message."""
    message = value_pb2.Span(
        id=span.id, parent_id=span.parent_id, name=span.name, kind=span.kind, attributes=span.attributes_json
    )
    if span.started_at is not None:
        message.started_at.CopyFrom(time_to_proto(span.started_at))
    if span.duration is not None:
        message.duration.CopyFrom(duration_to_proto(span.duration))
    return message


def span_from_proto(message: value_pb2.Span) -> Span:
    """A message as a span."""
    return Span(
        message.id,
        message.name,
        parent_id=message.parent_id,
        kind=message.kind,
        started_at=time_from_proto(message.started_at) if message.HasField("started_at") else None,
        duration=duration_from_proto(message.duration) if message.HasField("duration") else None,
        attributes=_object_from_proto(message.attributes, "a span's attributes"),
    )


def usage_to_proto(usage: Usage) -> value_pb2.Usage:
    """Usage as a message."""
    message = value_pb2.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        calls=usage.calls,
    )
    if usage.cost is not None:
        message.cost.CopyFrom(value_pb2.Money(micros=usage.cost.micros, currency=usage.cost.currency))
    return message


def usage_from_proto(message: value_pb2.Usage) -> Usage:
    """A message as usage.

    Raises:
        ContractBroken: a count is below zero.
    """
    usage = Usage(
        message.input_tokens,
        message.output_tokens,
        message.cached_tokens,
        message.calls,
        Money(message.cost.micros, message.cost.currency) if message.HasField("cost") else None,
    )
    if min(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.calls) < 0:
        raise ContractBroken("usage: a count is below zero")
    return usage


# --- items and trials -------------------------------------------------------------------------------------------


def item_to_proto(item: Item) -> item_pb2.Item:
    """An item as a message."""
    message = item_pb2.Item(
        id=item.id,
        input=value_to_proto(item.input),
        expected=None if item.expected is None else value_to_proto(item.expected),
        metadata=item.metadata_json,
    )
    if item.tags:
        message.tags.extend(item.tags)
    if item.choices:
        message.choices.extend(item.choices)
    if item.messages:
        message.messages.extend(message_to_proto(spoken) for spoken in item.messages)
    if item.tool_mocks:
        message.tool_mocks.extend(_tool_mock_to_proto(mock) for mock in item.tool_mocks)
    if item.scorers is not None:
        message.scorers.CopyFrom(item_pb2.ScorerNames(names=item.scorers))
    if item.output is not None:
        message.output.CopyFrom(output_to_proto(item.output))
    return message


def item_from_proto(message: item_pb2.Item) -> Item:
    """A message as an item."""
    return Item(
        message.id,
        value_from_proto(message.input, f"input of item {message.id!r}"),
        value_from_proto(message.expected, f"expected of item {message.id!r}")
        if message.HasField("expected")
        else None,
        metadata=_object_from_proto(message.metadata, f"metadata of item {message.id!r}"),
        tags=message.tags,
        choices=message.choices,
        messages=[message_from_proto(spoken) for spoken in message.messages],
        tool_mocks=[_tool_mock_from_proto(mock) for mock in message.tool_mocks],
        scorers=message.scorers.names if message.HasField("scorers") else None,
        output=output_from_proto(message.output) if message.HasField("output") else None,
    )


def _tool_mock_to_proto(mock: ToolMock) -> item_pb2.ToolMock:
    message = item_pb2.ToolMock(tool=mock.tool, error=mock.error)
    if mock.arguments_json is not None:
        message.arguments = mock.arguments_json
    if mock.output is not None:
        message.output.CopyFrom(value_to_proto(mock.output))
    return message


def _tool_mock_from_proto(message: item_pb2.ToolMock) -> ToolMock:
    if not message.tool:
        raise ContractBroken("a tool mock has no tool")
    return ToolMock(
        message.tool,
        message.arguments if message.HasField("arguments") else None,
        value_from_proto(message.output, "a tool mock's output") if message.HasField("output") else None,
        message.error,
    )


def limits_to_proto(limits: TrialLimits) -> item_pb2.TrialLimits:
    """Limits of a trial as a message."""
    return item_pb2.TrialLimits(messages=limits.messages, tokens=limits.tokens, steps=limits.steps)


def limits_from_proto(message: item_pb2.TrialLimits) -> TrialLimits:
    """A message as limits of a trial."""
    return TrialLimits(
        message.messages if message.HasField("messages") else None,
        message.tokens if message.HasField("tokens") else None,
        message.steps if message.HasField("steps") else None,
    )


def trial_to_proto(trial: Trial) -> item_pb2.Trial:
    """A trial as a message."""
    return item_pb2.Trial(
        trial_id=trial.trial_id,
        attempt=trial.attempt,
        item=item_to_proto(trial.item),
        epoch=trial.epoch,
        index=trial.index,
        total=trial.total,
        remaining=None if trial.remaining is None else duration_to_proto(trial.remaining),
        limits=None if trial.limits is None else limits_to_proto(trial.limits),
    )


def trial_from_proto(message: item_pb2.Trial) -> Trial:
    """A message as a trial."""
    return Trial(
        message.trial_id,
        message.attempt,
        item_from_proto(message.item),
        message.epoch,
        message.index,
        message.total,
        duration_from_proto(message.remaining) if message.HasField("remaining") else None,
        limits_from_proto(message.limits) if message.HasField("limits") else None,
    )


# --- outputs ----------------------------------------------------------------------------------------------------


def output_to_proto(output: Output) -> output_pb2.Output:
    """An output as a message."""
    message = output_pb2.Output(
        content=None if output.content is None else value_to_proto(output.content),
        answer=None if output.answer is None else value_to_proto(output.answer),
        metadata=output.metadata_json,
    )
    if output.messages:
        message.messages.extend(message_to_proto(spoken) for spoken in output.messages)
    if output.tool_calls:
        message.tool_calls.extend(tool_call_to_proto(call) for call in output.tool_calls)
    if output.spans:
        message.spans.extend(span_to_proto(span) for span in output.spans)
    if output.usage is not None:
        message.usage.CopyFrom(usage_to_proto(output.usage))
    if output.trace_ids:
        message.trace_ids.extend(output.trace_ids)
    if output.timing is not None:
        message.timing.CopyFrom(_timing_to_proto(output.timing))
    if output.tool_mocks is not None:
        message.tool_mocks.CopyFrom(_mock_report_to_proto(output.tool_mocks))
    return message


def output_from_proto(message: output_pb2.Output) -> Output:
    """A message as an output.

    Raises:
        ContractBroken: it has neither content nor messages, or a part breaks a rule.
    """
    content = value_from_proto(message.content, "content of the output") if message.HasField("content") else None
    spoken = message.messages
    if content is None and not spoken:
        raise ContractBroken("the output has neither content nor messages")
    return Output(
        content,
        answer=value_from_proto(message.answer, "answer of the output") if message.HasField("answer") else None,
        messages=[message_from_proto(entry) for entry in spoken],
        tool_calls=[tool_call_from_proto(call) for call in message.tool_calls],
        spans=[span_from_proto(span) for span in message.spans],
        usage=usage_from_proto(message.usage) if message.HasField("usage") else None,
        trace_ids=message.trace_ids,
        metadata=_object_from_proto(message.metadata, "metadata of the output"),
        timing=_timing_from_proto(message.timing) if message.HasField("timing") else None,
        tool_mocks=_mock_report_from_proto(message.tool_mocks) if message.HasField("tool_mocks") else None,
    )


def _timing_to_proto(timing: Timing) -> output_pb2.Timing:
    return output_pb2.Timing(
        total=None if timing.total is None else duration_to_proto(timing.total),
        first_token=None if timing.first_token is None else duration_to_proto(timing.first_token),
    )


def _timing_from_proto(message: output_pb2.Timing) -> Timing:
    return Timing(
        duration_from_proto(message.total) if message.HasField("total") else None,
        duration_from_proto(message.first_token) if message.HasField("first_token") else None,
    )


def _mock_report_to_proto(report: ToolMockReport) -> output_pb2.ToolMockReport:
    return output_pb2.ToolMockReport(
        used=report.used,
        unused=report.unused,
        faults=[
            output_pb2.ToolMockFault(tool=fault.tool, kind=int(fault.kind), arguments=fault.arguments_json)  # type: ignore[arg-type]
            for fault in report.faults
        ],
    )


def _mock_report_from_proto(message: output_pb2.ToolMockReport) -> ToolMockReport:
    return ToolMockReport(
        message.used,
        message.unused,
        tuple(
            ToolMockFault(fault.tool, _enum(ToolMockFaultKind, fault.kind, ToolMockFaultKind.MISMATCH), fault.arguments)
            for fault in message.faults
        ),
    )


# --- failures and scores ----------------------------------------------------------------------------------------


def failure_to_proto(failure: Failure) -> failure_pb2.Failure:
    """A failure as a message; an empty reason becomes the category's name."""
    return failure_pb2.Failure(
        origin=int(failure.origin),  # type: ignore[arg-type]
        category=int(failure.category),  # type: ignore[arg-type]
        retryable=failure.retryable,
        reason=failure.reason or failure.category.name,
        field=failure.field,
        retry_after=None if failure.retry_after is None else duration_to_proto(failure.retry_after),
        message=failure.message,
        details=failure.details_json,
    )


def failure_from_proto(message: failure_pb2.Failure) -> Failure:
    """A message as a failure; an unknown category is read as INTERNAL, details that are no JSON object are dropped."""
    category = _CATEGORIES.get(message.category, FailureCategory.INTERNAL)
    try:
        details = _object_from_proto(message.details, "details")
    except ContractBroken:
        details = ""
    return Failure(
        category,
        message.message,
        message.reason or category.name,
        _ORIGINS.get(message.origin, FailureOrigin.UNSPECIFIED),
        message.retryable if message.HasField("retryable") else None,
        message.field,
        duration_from_proto(message.retry_after) if message.HasField("retry_after") else None,
        details,
    )


def score_to_proto(score: Score) -> score_pb2.Score:
    """A score as a message."""
    message = score_pb2.Score(
        name=score.name,
        status=int(score.status),  # type: ignore[arg-type]
        value=score.value,
        label=score.label,
        explanation=score.explanation,
        metadata=score.metadata_json,
    )
    if score.answer is not None:
        message.answer.CopyFrom(value_to_proto(score.answer))
    if score.failure is not None:
        message.failure.CopyFrom(failure_to_proto(score.failure))
    if score.steps:
        message.steps.extend(_step_to_proto(step) for step in score.steps)
    if score.usage is not None:
        message.usage.CopyFrom(usage_to_proto(score.usage))
    if score.trace_ids:
        message.trace_ids.extend(score.trace_ids)
    return message


def score_from_proto(message: score_pb2.Score) -> Score:
    """A message as a score. Whether the value is finite and in range is judged by the server, not here.

    Raises:
        ContractBroken: the status is unknown, or does not agree with value and failure.
    """
    number = message.status
    status = _STATUS[number] if 0 <= number <= 3 else None
    if status is None:
        raise ContractBroken(f"score {message.name!r}: unknown status {number}")
    scored = status is ScoreStatus.SCORED
    if scored is not message.HasField("value"):
        raise ContractBroken(f"score {message.name!r}: {status.name} {'without' if scored else 'with'} a value")
    errored = status is ScoreStatus.ERRORED
    if errored is not message.HasField("failure"):
        raise ContractBroken(f"score {message.name!r}: {status.name} {'without' if errored else 'with'} a failure")
    return Score(
        status,
        message.value if scored else None,
        name=message.name,
        label=message.label,
        answer=value_from_proto(message.answer, "answer of the score") if message.HasField("answer") else None,
        explanation=message.explanation,
        failure=failure_from_proto(message.failure) if errored else None,
        metadata=_object_from_proto(message.metadata, "metadata of the score"),
        steps=[_step_from_proto(step) for step in message.steps],
        usage=usage_from_proto(message.usage) if message.HasField("usage") else None,
        trace_ids=message.trace_ids,
    )


def _step_to_proto(step: ScoreStep) -> score_pb2.ScoreStep:
    return score_pb2.ScoreStep(
        name=step.name,
        result=None if step.result is None else value_to_proto(step.result),
        duration=None if step.duration is None else duration_to_proto(step.duration),
    )


def _step_from_proto(message: score_pb2.ScoreStep) -> ScoreStep:
    return ScoreStep(
        message.name,
        value_from_proto(message.result, "result of a step") if message.HasField("result") else None,
        duration_from_proto(message.duration) if message.HasField("duration") else None,
    )


def declaration_to_proto(declaration: ScoreDeclaration) -> score_pb2.ScoreDeclaration:
    """A score declaration as a message."""
    return score_pb2.ScoreDeclaration(
        name=declaration.name,
        minimum=declaration.minimum,
        maximum=declaration.maximum,
        direction=int(declaration.direction),  # type: ignore[arg-type]
        unit=declaration.unit,
        description=declaration.description,
    )


def declaration_from_proto(message: score_pb2.ScoreDeclaration) -> ScoreDeclaration:
    """A message as a score declaration.

    Raises:
        ContractBroken: the range is not a range, or the name holds a dot.
    """
    minimum = message.minimum if message.HasField("minimum") else None
    maximum = message.maximum if message.HasField("maximum") else None
    if any(bound is not None and not math.isfinite(bound) for bound in (minimum, maximum)):
        raise ContractBroken(f"declared score {message.name!r}: a bound is not finite; leave it out instead")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ContractBroken(f"declared score {message.name!r}: minimum {minimum} is above maximum {maximum}")
    if "." in message.name:
        raise ContractBroken(f"declared score {message.name!r}: a name holds no dot")
    return ScoreDeclaration(
        message.name,
        minimum,
        maximum,
        _enum(Direction, message.direction, Direction.HIGHER_IS_BETTER),
        message.unit,
        message.description,
    )


# --- describing and opening -------------------------------------------------------------------------------------


def plugin_info_to_proto(info: PluginInfo) -> plugin_pb2.PluginInfo:
    """What a plugin says of itself as a message."""
    message = plugin_pb2.PluginInfo(
        name=info.name,
        version=info.version,
        digest=info.digest,
        sdk=info.sdk,
        language=info.language,
        lowest_revision=info.lowest_revision,
        highest_revision=info.highest_revision,
        capabilities=sorted(info.capabilities),
        max_in_flight=info.max_in_flight,
        settings_schema=info.settings_schema,
        description=info.description,
    )
    if isinstance(info.kind, TargetInfo):
        message.target.CopyFrom(plugin_pb2.TargetInfo(isolation=int(info.kind.isolation)))  # type: ignore[arg-type]
    else:
        message.scorer.CopyFrom(
            plugin_pb2.ScorerInfo(
                needs=[int(need) for need in info.kind.needs],  # type: ignore[misc]
                inputs=info.kind.inputs,
                deterministic=info.kind.deterministic,
                scores=[declaration_to_proto(declaration) for declaration in info.kind.scores],
            )
        )
    return message


def plugin_info_from_proto(message: plugin_pb2.PluginInfo) -> PluginInfo:
    """A message as what a plugin says of itself.

    Raises:
        ContractBroken: it has no name or kind, a scorer declares no score or one twice, or the schema is no JSON object.
    """
    if not message.name:
        raise ContractBroken("a plugin has no name")
    which = message.WhichOneof("kind")
    kind: TargetInfo | ScorerInfo
    if which == "target":
        kind = TargetInfo(_enum(Isolation, message.target.isolation, Isolation.SHARED))
    elif which == "scorer":
        kind = ScorerInfo(
            _declarations(message.scorer.scores, message.name),
            tuple(need for number in message.scorer.needs if (need := _enum(Need, number, None)) is not None),
            tuple(message.scorer.inputs),
            message.scorer.deterministic,
        )
        if not kind.scores:
            raise ContractBroken(f"scorer {message.name!r} declares no score")
    else:
        raise ContractBroken(f"plugin {message.name!r} says neither target nor scorer")
    return PluginInfo(
        message.name,
        kind,
        message.version,
        message.digest,
        message.sdk,
        message.language,
        message.lowest_revision,
        message.highest_revision,
        frozenset(message.capabilities),
        max(message.max_in_flight, 0),
        _object_from_proto(message.settings_schema, f"settings schema of plugin {message.name!r}"),
        message.description,
    )


def _declarations(messages: Iterable[score_pb2.ScoreDeclaration], plugin: str) -> tuple[ScoreDeclaration, ...]:
    declared = tuple(declaration_from_proto(message) for message in messages)
    if len({declaration.name for declaration in declared}) != len(declared):
        raise ContractBroken(f"scorer {plugin!r} declares a score twice")
    return declared


def open_to_proto(opening: Open) -> plugin_pb2.Open:
    """The opening of a conversation as a message."""
    return plugin_pb2.Open(
        plugin=opening.plugin,
        revision=opening.revision,
        session_id=opening.session_id,
        run_id=opening.run_id,
        purpose=int(opening.purpose),  # type: ignore[arg-type]
        settings=opening.settings_json,
        tags=opening.tags,
        silence=None if opening.silence is None else duration_to_proto(opening.silence),
    )


def open_from_proto(message: plugin_pb2.Open) -> Open:
    """A message as the opening of a conversation."""
    return Open(
        message.plugin,
        message.revision,
        message.session_id,
        message.run_id,
        _enum(Purpose, message.purpose, Purpose.OFFLINE),
        _object_from_proto(message.settings, "settings"),
        tuple(message.tags),
        duration_from_proto(message.silence) if message.HasField("silence") else None,
    )


def ready_to_proto(ready: Ready) -> plugin_pb2.Ready:
    """Readiness as a message."""
    return plugin_pb2.Ready(
        max_in_flight=ready.max_in_flight, scores=[declaration_to_proto(declaration) for declaration in ready.scores]
    )


def ready_from_proto(message: plugin_pb2.Ready) -> Ready:
    """A message as readiness."""
    return Ready(max(message.max_in_flight, 0), _declarations(message.scores, "of this conversation"))


def progress_to_proto(progress: TrialProgress) -> plugin_pb2.TrialProgress:
    """News of a trial as a message."""
    return plugin_pb2.TrialProgress(
        trial_id=progress.trial_id,
        attempt=progress.attempt,
        kind=int(progress.kind),  # type: ignore[arg-type]
        steps=progress.steps,
        messages=progress.messages,
        usage=None if progress.usage is None else usage_to_proto(progress.usage),
        note=progress.note,
    )


def progress_from_proto(message: plugin_pb2.TrialProgress) -> TrialProgress:
    """A message as news of a trial."""
    return TrialProgress(
        message.trial_id,
        message.attempt,
        _enum(ProgressKind, message.kind, ProgressKind.HEARTBEAT),
        message.steps,
        message.messages,
        usage_from_proto(message.usage) if message.HasField("usage") else None,
        message.note,
    )


# --- answers and score tasks ------------------------------------------------------------------------------------


def answer_to_proto(answer: Answer) -> target_pb2.Answer:
    """A target's answer as a message."""
    if isinstance(answer.result, Output):
        return target_pb2.Answer(
            trial_id=answer.trial_id, attempt=answer.attempt, output=output_to_proto(answer.result)
        )
    return target_pb2.Answer(
        trial_id=answer.trial_id,
        attempt=answer.attempt,
        failure=failure_to_proto(answer.result),
        usage=None if answer.usage is None else usage_to_proto(answer.usage),
    )


def answer_result_from_proto(message: target_pb2.Answer) -> Output | Failure:
    """The output or the failure of an answer.

    Raises:
        ContractBroken: it holds neither, or a part breaks a rule.
    """
    which = message.WhichOneof("result")
    if which == "output":
        return output_from_proto(message.output)
    if which == "failure":
        return failure_from_proto(message.failure)
    raise ContractBroken("an answer holds neither output nor failure")


def task_to_proto(task: ScoreTask) -> scorer_pb2.ScoreTask:
    """A score task as a message."""
    message = scorer_pb2.ScoreTask(
        trial_id=task.trial_id,
        attempt=task.attempt,
        item=item_to_proto(task.item),
        output=output_to_proto(task.output),
        epoch=task.epoch,
    )
    if task.inputs:
        message.inputs.extend(
            value_pb2.NamedValue(name=name, value=value_to_proto(value)) for name, value in task.inputs.items()
        )
    if task.against is not None:
        message.against.CopyFrom(output_to_proto(task.against))
    if task.remaining is not None:
        message.remaining.CopyFrom(duration_to_proto(task.remaining))
    return message


def task_from_proto(message: scorer_pb2.ScoreTask) -> ScoreTask:
    """A message as a score task."""
    return ScoreTask(
        message.trial_id,
        message.attempt,
        item_from_proto(message.item),
        output_from_proto(message.output),
        {entry.name: value_from_proto(entry.value, f"input {entry.name!r}") for entry in message.inputs},
        output_from_proto(message.against) if message.HasField("against") else None,
        message.epoch,
        duration_from_proto(message.remaining) if message.HasField("remaining") else None,
    )


def score_answer_to_proto(answer: ScoreAnswer) -> scorer_pb2.ScoreAnswer:
    """A scorer's answer as a message."""
    if isinstance(answer.result, Failure):
        return scorer_pb2.ScoreAnswer(
            trial_id=answer.trial_id,
            attempt=answer.attempt,
            failure=failure_to_proto(answer.result),
            usage=None if answer.usage is None else usage_to_proto(answer.usage),
        )
    return scorer_pb2.ScoreAnswer(
        trial_id=answer.trial_id,
        attempt=answer.attempt,
        scores=[score_to_proto(score) for score in answer.result],
    )


def score_answer_result_from_proto(message: scorer_pb2.ScoreAnswer) -> tuple[Score, ...] | Failure:
    """The scores or the failure of a scorer's answer.

    Raises:
        ContractBroken: it holds both, or a score breaks a rule.
    """
    if message.HasField("failure"):
        if message.scores:
            raise ContractBroken("an answer holds both scores and a failure")
        return failure_from_proto(message.failure)
    return tuple(score_from_proto(score) for score in message.scores)


def _enum(kind: Any, number: int, fallback: E_) -> Any | E_:
    """The member with this number; *fallback* for zero and unknown numbers."""
    try:
        return kind(number)
    except ValueError:
        return fallback
