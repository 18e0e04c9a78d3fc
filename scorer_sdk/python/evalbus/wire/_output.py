"""Outputs to and from messages."""

from __future__ import annotations

from typing import Any

from evalbus._errors import ContractBroken
from evalbus._output import Output, OutputDraft, Timing, ToolMockFault, ToolMockFaultKind, ToolMockReport
from evalbus.v1 import output_pb2
from evalbus.wire._value import (
    duration_from_proto,
    enum_of,
    fill_duration,
    fill_message,
    fill_span,
    fill_usage,
    fill_value,
    message_from_proto,
    object_from_proto,
    span_from_proto,
    tool_call_from_proto,
    tool_call_to_proto,
    usage_from_proto,
    value_from_proto,
)


def fill_output(message: output_pb2.Output, output: Output) -> None:  # noqa: C901  # one branch a field
    """An output into a message."""
    content = output.content
    if content is None:
        message.SetInParent()
    elif content.kind == "text":
        message.content.text = content.body  # type: ignore[assignment]  # text is a str, by construction
    else:
        fill_value(message.content, content)
    if output.answer is not None:
        fill_value(message.answer, output.answer)
    if output.messages:
        for spoken in output.messages:
            fill_message(message.messages.add(), spoken)
    if output.tool_calls:
        message.tool_calls.extend([tool_call_to_proto(call) for call in output.tool_calls])
    if output.spans:
        for span in output.spans:
            fill_span(message.spans.add(), span)
    if output.usage is not None:
        fill_usage(message.usage, output.usage)
    if output.trace_ids:
        message.trace_ids.extend(output.trace_ids)
    if output.metadata_json:
        message.metadata = output.metadata_json
    if output.timing is not None:
        _fill_timing(message.timing, output.timing)
    if output.tool_mocks is not None:
        _fill_report(message.tool_mocks, output.tool_mocks)


def output_to_proto(output: Output) -> output_pb2.Output:
    """An output as a message."""
    message = output_pb2.Output()
    fill_output(message, output)
    return message


def output_from_proto(message: output_pb2.Output) -> Output:
    """A message as an output.

    Raises:
        ContractBroken: it has neither content nor messages, or a part breaks a rule.
    """
    output = partial_output_from_proto(message)
    if output.content is None and not output.messages:
        raise ContractBroken("the output has neither content nor messages")
    return output


def partial_output_from_proto(message: output_pb2.Output) -> Output:
    """The same for an output of which parts may have been left out, as in a score task."""
    made = OutputDraft()
    made.content = made.answer = made.usage = made.timing = made.tool_mocks = None
    made.messages = made.tool_calls = made.spans = made.trace_ids = ()
    made.metadata_json = ""
    # Only fields that are set are visited: asking after each of ten costs twice as much as the rest.
    for field, value in message.ListFields():
        number = field.number
        if number == 1:
            made.content = value_from_proto(value, "content of the output")
        elif number == 2:
            made.answer = value_from_proto(value, "answer of the output")
        else:
            _RARE.get(number, _ignore)(made, value)
    made.__class__ = Output
    output: Output = made
    return output


def _messages(made: Any, value: Any) -> None:
    made.messages = tuple([message_from_proto(entry) for entry in value])


def _tool_calls(made: Any, value: Any) -> None:
    made.tool_calls = tuple([tool_call_from_proto(call) for call in value])


def _spans(made: Any, value: Any) -> None:
    made.spans = tuple([span_from_proto(span) for span in value])


def _usage(made: Any, value: Any) -> None:
    made.usage = usage_from_proto(value)


def _trace_ids(made: Any, value: Any) -> None:
    made.trace_ids = tuple(value)


def _metadata(made: Any, value: Any) -> None:
    made.metadata_json = object_from_proto(value, "metadata of the output")


def _timing(made: Any, value: Any) -> None:
    made.timing = _timing_from_proto(value)


def _report(made: Any, value: Any) -> None:
    made.tool_mocks = _report_from_proto(value)


def _ignore(made: Any, value: Any) -> None:
    """A field of a later revision."""


_RARE = {3: _messages, 4: _tool_calls, 5: _spans, 6: _usage, 7: _trace_ids, 8: _metadata, 9: _timing, 10: _report}


def _fill_timing(message: output_pb2.Timing, timing: Timing) -> None:
    message.SetInParent()
    if timing.total is not None:
        fill_duration(message.total, timing.total)
    if timing.first_token is not None:
        fill_duration(message.first_token, timing.first_token)


def _timing_from_proto(message: output_pb2.Timing) -> Timing:
    return Timing(
        duration_from_proto(message.total) if message.HasField("total") else None,
        duration_from_proto(message.first_token) if message.HasField("first_token") else None,
    )


def _fill_report(message: output_pb2.ToolMockReport, report: ToolMockReport) -> None:
    message.SetInParent()
    message.used = report.used
    message.unused = report.unused
    for fault in report.faults:
        message.faults.add(tool=fault.tool, kind=int(fault.kind), arguments=fault.arguments_json)


def _report_from_proto(message: output_pb2.ToolMockReport) -> ToolMockReport:
    return ToolMockReport(
        message.used,
        message.unused,
        tuple(
            ToolMockFault(
                fault.tool, enum_of(ToolMockFaultKind, fault.kind, ToolMockFaultKind.MISMATCH), fault.arguments
            )
            for fault in message.faults
        ),
    )
