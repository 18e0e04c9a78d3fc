"""What is wrong with rows of a dataset, by line and kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evalbus_server.errors import Invalid, Reason

SHOWN = 5
"""Reading stops after so many refused rows: they are enough to see what is wrong."""


class Refusal(NamedTuple):
    """One row that cannot become an item."""

    line: int
    """The physical line of the file where the row begins, or the number of the record; from 1. 0: the whole file."""
    kind: str
    """A constant for programs: `not_json`, `ragged`, `duplicate_id` …"""
    message: str


class RowRefused(ValueError):
    """A row cannot become an item."""

    def __init__(self, kind: str, message: str) -> None:
        """*kind* is a constant for programs, *message* one line for people."""
        super().__init__(message)
        self.kind = kind


class FileRefused(RowRefused):
    """A file cannot be read on: nothing after *line* can be trusted."""

    def __init__(self, line: int, kind: str, message: str) -> None:
        """*line* is 0 if no line is at fault."""
        super().__init__(kind, message)
        self.line = line

    @property
    def refusal(self) -> Refusal:
        """As a value."""
        return Refusal(self.line, self.kind, str(self))


class DatasetInvalid(Invalid):
    """A dataset was refused as a whole; nothing of it counts."""

    def __init__(self, name: str, refusals: Sequence[Refusal], *, unit: str = "line", more: bool = False) -> None:
        """Say what is wrong with the dataset of this *name*, in one line; *more*: there may be further faults."""
        lines: dict[str, list[int]] = {}
        for each in refusals:
            lines.setdefault(each.message, []).append(each.line)
        faults = [_placed(unit, numbers, message) for message, numbers in lines.items()]
        if more:
            faults.append("further rows were not looked at")
        joint = " " if refusals[0].line else ": "
        super().__init__(Reason.DATASET_INVALID, f"{name}{joint}{'; '.join(faults)}")
        self.refusals = tuple(refusals)


def _placed(unit: str, numbers: list[int], message: str) -> str:
    if not numbers[0]:
        return message
    return f"{unit}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}: {message}"
