"""The shapes of a judge's replies: their JSON Schema for the endpoint, and a strict reader for what comes.

A word is on the menu as a whole or not at all, a number is a whole number text or a JSON number, and each of the things
that were to be judged is judged exactly once. Whatever else comes is no verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from evalbus import FailureCategory, TrialFailed
from evalbus import _json as json

_SHOWN = 80
_FENCED = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(.*)\r?\n[ \t]*```", re.DOTALL)
_THOUGHTS = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d{1,300}(?:\.\d{0,300})?|\.\d{1,300})(?:[eE][+-]?\d{1,3})?", re.ASCII)


class Shape(Protocol):
    """Something that a reply holds."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema, in the part of the language that endpoints hold models to."""

    def read(self, value: Any, path: str) -> Any:
        """The value, if it is one.

        Raises:
            ValueError: it is not; the text begins with the path.
        """


def read_reply(text: str, shape: Shape) -> Any:
    """What a model replied: one JSON document, maybe after its thoughts, maybe in a code block, and nothing else.

    Raises:
        TrialFailed: it is none, or has another shape.
    """
    try:
        return shape.read(json.loads(_document(text)), "")
    except ValueError as error:
        raise TrialFailed(
            f"the judge's reply is no verdict: {error}: {_quoted(text)}",
            FailureCategory.INVALID,
            reason="REPLY_INVALID",
        ) from None


def _document(text: str) -> str:
    text = text.strip()
    thoughts = _THOUGHTS.match(text)
    if thoughts:
        text = text[thoughts.end() :].strip()
    fenced = _FENCED.fullmatch(text)
    return fenced[1] if fenced and "```" not in fenced[1] else text


@dataclass(frozen=True, slots=True)
class Text:
    """Any text."""

    about: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """A string."""
        return _described({"type": "string"}, self.about)

    def read(self, value: Any, path: str) -> str:
        """The text."""
        if not isinstance(value, str):
            raise _unfit(path, "a text", value)
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One word of a menu; case and outer space do not count."""

    menu: tuple[str, ...]
    about: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """An enumeration."""
        return _described({"type": "string", "enum": list(self.menu)}, self.about)

    def read(self, value: Any, path: str) -> str:
        """The word, as the menu has it."""
        if isinstance(value, str):
            said = value.strip().casefold()
            for word in self.menu:
                if word.casefold() == said:
                    return word
        raise _unfit(path, "one of " + ", ".join(self.menu), value)


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a range, ends included. A text that is nothing but a number is one."""

    low: float
    high: float
    about: str = ""
    whole: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """A number; the range stands in words, since not every endpoint takes it."""
        about = f"{self.about} From {self.low:g} to {self.high:g}.".strip()
        return _described({"type": "integer" if self.whole else "number"}, about)

    def read(self, value: Any, path: str) -> float:
        """The number."""
        if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            value = float(value.strip())
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _unfit(path, "a number", value)
        if not self.low <= value <= self.high or not math.isfinite(value):
            raise _unfit(path, f"a number from {self.low:g} to {self.high:g}", value)
        if self.whole and value != int(value):
            raise _unfit(path, "a whole number", value)
        return float(value) + 0.0  # -0.0 becomes 0.0


@dataclass(frozen=True, slots=True)
class Many:
    """A list."""

    of: Shape
    about: str = ""
    most: int = 1_000

    @property
    def schema(self) -> dict[str, Any]:
        """An array."""
        return _described({"type": "array", "items": self.of.schema}, self.about)

    def read(self, value: Any, path: str) -> list[Any]:
        """The entries."""
        if not isinstance(value, list):
            raise _unfit(path, "a list", value)
        if len(value) > self.most:
            raise ValueError(f"{path or 'the reply'}: more than {self.most:,} entries")
        return [self.of.read(each, f"{path}[{place}]") for place, each in enumerate(value)]


@dataclass(frozen=True, slots=True)
class Record:
    """An object with these members; others are not read."""

    members: Mapping[str, Shape]
    about: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """An object that has all its members and no others, as strict endpoints want it."""
        return _described(
            {
                "type": "object",
                "properties": {name: shape.schema for name, shape in self.members.items()},
                "required": list(self.members),
                "additionalProperties": False,
            },
            self.about,
        )

    def read(self, value: Any, path: str) -> dict[str, Any]:
        """The members."""
        if not isinstance(value, dict):
            raise _unfit(path, "an object", value)
        found = {}
        for name, shape in self.members.items():
            inside = f"{path}.{name}" if path else name
            if name not in value:
                raise ValueError(f"{inside}: missing")
            found[name] = shape.read(value[name], inside)
        return found


@dataclass(frozen=True, slots=True)
class Each:
    """A list with one record for each of *count* numbered things, in any order; they are read in the order of numbers."""

    count: int
    record: Record
    about: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """An array of objects with a `number`."""
        numbered = Record({"number": Number(1, max(self.count, 1), whole=True), **self.record.members})
        return _described({"type": "array", "items": numbered.schema}, self.about)

    def read(self, value: Any, path: str) -> list[dict[str, Any]]:
        """The records, each for its thing."""
        if not isinstance(value, list):
            raise _unfit(path, "a list", value)
        number = Number(1, max(self.count, 1), whole=True)
        found: dict[int, dict[str, Any]] = {}
        for place, each in enumerate(value):
            here = f"{path}[{place}]"
            if not isinstance(each, dict) or "number" not in each:
                raise ValueError(f"{here}.number: missing")
            which = int(number.read(each["number"], f"{here}.number"))
            if which in found:
                raise ValueError(f"{here}: number {which} is judged twice")
            found[which] = self.record.read(each, here)
        missing = [which for which in range(1, self.count + 1) if which not in found]
        if missing:
            raise ValueError(f"{path}: number {missing[0]} of {self.count} is not judged")
        return [found[which] for which in range(1, self.count + 1)]


def menu_of(words: Sequence[str]) -> tuple[str, ...]:
    """A menu of words that cannot be taken for one another.

    Raises:
        ValueError: two of them can, one says nothing, or there are fewer than two.
    """
    plain = [word.strip().casefold() for word in words]
    if len(words) < 2:
        raise ValueError("at least two choices are needed")
    if not all(plain):
        raise ValueError("a choice is not empty")
    if len(set(plain)) < len(plain):
        raise ValueError("two choices are the same but for case or outer space")
    return tuple(words)


def _described(schema: dict[str, Any], about: str) -> dict[str, Any]:
    return {**schema, "description": about} if about else schema


def _unfit(path: str, wanted: str, value: Any) -> ValueError:
    return ValueError(f"{path or 'the reply'}: expected {wanted}, got {_quoted(value)}")


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
