"""Items and trials to and from messages."""

from __future__ import annotations

import re
from typing import Any

from evalbus._draft import draft
from evalbus._errors import ContractBroken
from evalbus._item import Item, ItemDraft, ToolMock, Trial, TrialLimits
from evalbus._value import Value
from evalbus.v1 import item_pb2
from evalbus.wire._output import fill_output, output_from_proto
from evalbus.wire._value import (
    document_from_proto,
    duration_from_proto,
    fill_duration,
    fill_message,
    fill_value,
    message_from_proto,
    object_from_proto,
    value_from_proto,
)

MAX_ID = 512
"""Characters of an item's id."""
MAX_TAGS = 100

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TrialDraft = draft(Trial)


def fill_item(message: item_pb2.Item, item: Item) -> None:  # noqa: C901  # one branch a field
    """An item into a message."""
    message.id = item.id
    value = item.input
    if value.kind == "text":
        message.input.text = value.body  # type: ignore[assignment]  # text is a str, by construction
    else:
        fill_value(message.input, value)
    if item.expected is not None:
        fill_value(message.expected, item.expected)
    if item.metadata_json:
        message.metadata = item.metadata_json
    if item.tags:
        message.tags.extend(item.tags)
    if item.choices:
        message.choices.extend(item.choices)
    if item.messages:
        for spoken in item.messages:
            fill_message(message.messages.add(), spoken)
    if item.tool_mocks:
        for mock in item.tool_mocks:
            _fill_tool_mock(message.tool_mocks.add(), mock)
    if item.scorers is not None:
        message.scorers.SetInParent()
        message.scorers.names.extend(item.scorers)
    if item.output is not None:
        fill_output(message.output, item.output)


def item_to_proto(item: Item) -> item_pb2.Item:
    """An item as a message."""
    message = item_pb2.Item()
    fill_item(message, item)
    return message


def item_from_proto(message: item_pb2.Item) -> Item:
    """A message as an item.

    Raises:
        ContractBroken: it has no proper id or no input, or a part breaks a rule.
    """
    item = partial_item_from_proto(message, None)
    if item.input is None:
        raise ContractBroken(f"input of item {item.id!r} is missing")
    return item


def partial_item_from_proto(message: item_pb2.Item, left_out: Value | None) -> Item:
    """The same for an item whose input may be left out, as in a score task: it is *left_out* then."""
    made = ItemDraft()
    made.id = ""
    made.input = left_out
    made.expected = made.scorers = made.output = None
    made.metadata_json = ""
    made.tags = made.choices = made.messages = made.tool_mocks = ()
    # Only fields that are set are visited: asking after each of ten costs twice as much as the rest.
    for field, value in message.ListFields():
        number = field.number
        if number == 1:
            made.id = value
        elif number == 2:
            made.input = value_from_proto(value, "input of the item")
        elif number == 3:
            made.expected = value_from_proto(value, "expected of the item")
        else:
            _RARE.get(number, _ignore)(made, value)
    name = made.id
    if not 0 < len(name) <= MAX_ID or not (name.isprintable() or _CONTROL.search(name) is None):
        raise ContractBroken(f"the item's id {name[:80]!r} is not 1 to {MAX_ID} characters without control characters")
    made.__class__ = Item
    item: Item = made
    return item


def _metadata(made: Any, value: Any) -> None:
    made.metadata_json = object_from_proto(value, "metadata of the item")


def _tags(made: Any, value: Any) -> None:
    made.tags = tuple(value)
    if len(made.tags) > MAX_TAGS or len(set(made.tags)) != len(made.tags):
        raise ContractBroken(f"the item's tags: at most {MAX_TAGS}, and no two alike")


def _choices(made: Any, value: Any) -> None:
    made.choices = tuple(value)


def _messages(made: Any, value: Any) -> None:
    made.messages = tuple([message_from_proto(spoken) for spoken in value])


def _tool_mocks(made: Any, value: Any) -> None:
    made.tool_mocks = tuple([_tool_mock_from_proto(mock) for mock in value])


def _scorers(made: Any, value: Any) -> None:
    made.scorers = tuple(value.names)


def _output(made: Any, value: Any) -> None:
    made.output = output_from_proto(value)


def _ignore(made: Any, value: Any) -> None:
    """A field of a later revision."""


_RARE = {4: _metadata, 5: _tags, 6: _choices, 7: _messages, 8: _tool_mocks, 9: _scorers, 10: _output}


def _fill_tool_mock(message: item_pb2.ToolMock, mock: ToolMock) -> None:
    message.tool = mock.tool
    message.error = mock.error
    if mock.arguments_json is not None:
        message.arguments = mock.arguments_json
    if mock.output is not None:
        fill_value(message.output, mock.output)


def _tool_mock_from_proto(message: item_pb2.ToolMock) -> ToolMock:
    if not message.tool:
        raise ContractBroken("a tool mock has no tool")
    return ToolMock(
        message.tool,
        document_from_proto(message.arguments, f"arguments of a mock of tool {message.tool!r}")
        if message.HasField("arguments")
        else None,
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


def fill_trial(message: item_pb2.Trial, trial: Trial) -> None:
    """A trial into a message."""
    message.trial_id = trial.trial_id
    message.attempt = trial.attempt
    message.epoch = trial.epoch
    message.index = trial.index
    message.total = trial.total
    fill_item(message.item, trial.item)
    if trial.remaining is not None:
        fill_duration(message.remaining, trial.remaining)
    if trial.limits is not None:
        message.limits.CopyFrom(limits_to_proto(trial.limits))


def trial_to_proto(trial: Trial) -> item_pb2.Trial:
    """A trial as a message."""
    message = item_pb2.Trial()
    fill_trial(message, trial)
    return message


def trial_from_proto(message: item_pb2.Trial) -> Trial:
    """A message as a trial.

    Raises:
        ContractBroken: its item breaks a rule.
    """
    made = _TrialDraft()
    made.trial_id = message.trial_id
    made.attempt = message.attempt
    made.item = item_from_proto(message.item)
    made.epoch = message.epoch
    made.index = message.index
    made.total = message.total
    made.remaining = duration_from_proto(message.remaining) if message.HasField("remaining") else None
    made.limits = limits_from_proto(message.limits) if message.HasField("limits") else None
    made.__class__ = Trial
    trial: Trial = made
    return trial
