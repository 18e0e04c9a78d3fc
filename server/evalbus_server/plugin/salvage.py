"""What can be saved of a response that protobuf refuses as a whole.

One text that is not UTF-8 makes protobuf refuse the whole message, with up to 256 answers in it. It is a fault of its
own record alone, so that one is found and the others are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from evalbus.wire.framing import fields

# Fields of the responses, by the names that target.proto and scorer.proto give them: the same in both.
_ANSWERS = 3
_PROGRESS = 4
_RECORD = 1
_TRIAL_ID = 1
_ATTEMPT = 2


class Unreadable(NamedTuple):
    """A message as it came, and why protobuf does not read it."""

    encoded: bytes
    why: str


class Lost(NamedTuple):
    """An answer that cannot be read, except for what it answers."""

    trial_id: int
    attempt: int
    why: str

    @property
    def not_unicode(self) -> bool:
        """Whether a text in it is at fault, and not its whole form."""
        return "UTF-8" in self.why


def readable(message: Any) -> Callable[[bytes], Any]:
    """How a message of this class is read. Never raises: gRPC would log that, and show it as the end of the stream."""

    def read(encoded: bytes) -> Any:
        try:
            return message.FromString(encoded)
        except DecodeError as error:
            return Unreadable(encoded, str(error).rpartition(": ")[2])

    return read


def salvage(unreadable: Unreadable, record: Any) -> list[Any] | None:
    """The answers of an unreadable response: messages of the class *record*, and Lost ones. News are left out.

    None if it is no response at all.
    """
    try:
        found: list[Any] = []
        for number, value in fields(unreadable.encoded):
            if number == _ANSWERS and isinstance(value, bytes):
                found.extend(_records(value, record))
            elif number != _PROGRESS:
                return None
    except ValueError:
        return None
    return found


def _records(batch: bytes, record: Any) -> Iterator[Any]:
    for number, value in fields(batch):
        if number == _RECORD and isinstance(value, bytes):
            read = readable(record)(value)
            yield _lost(value, read.why) if isinstance(read, Unreadable) else read


def _lost(encoded: bytes, why: str) -> Lost:
    trial_id = attempt = 0
    for number, value in fields(encoded):
        if isinstance(value, int):
            if number == _TRIAL_ID:
                trial_id = value
            elif number == _ATTEMPT:
                attempt = value
    return Lost(trial_id, attempt, why)
