"""`multiple_choice`: whether the choices that the output names are the right ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import NamedTuple

from evalbus import Score, ScoreTask, SettingsInvalid, Value, scorer
from evalbus_server.scorer.builtin._compared import (
    INPUTS,
    NO_EXPECTED,
    THREADS,
    accepted_of,
    actual_of,
    not_text,
    quoted,
    setting,
    unjudged,
)


@dataclass(frozen=True, slots=True)
class MultipleChoiceSettings:
    """Where the choices are named."""

    marker: str = setting("ANSWER", "The word before the colon that the letters follow, where there is more text.")


class _Marked(NamedTuple):
    """Find what stands after the marker: beside it, or in the line below."""

    beside: re.Pattern[str]
    below: re.Pattern[str]


def _set_up(settings: MultipleChoiceSettings) -> _Marked:
    if not settings.marker.strip():
        raise SettingsInvalid("settings.marker: it is empty", "settings.marker")
    marker = rf"{re.escape(settings.marker.strip())}\s{{0,10}}:"
    return _Marked(
        re.compile(rf"{marker}[^\S\n]*+([^\n]++)", re.IGNORECASE),
        re.compile(rf"{marker}[*_]*+[^\S\n]*+\n\s*+([^\n]++)", re.IGNORECASE),
    )


@scorer(
    "multiple_choice", version="1.0.0", inputs=(*INPUTS, "choices"), deterministic=True, setup=_set_up, threads=THREADS
)
def multiple_choice(task: ScoreTask, state: _Marked) -> Score:
    """1 if the output names the expected choices of the item, all of them and no other; else 0.

    Choices are named by letter (A to Z, then 1, 2, …) or by their text, in the whole output, after `ANSWER:` or in
    the line below it. Several that belong together are written `A, C`, or as a list in a list; a list of answers means that any of them will do.
    `answer` holds the letters. An output that names no choice scores 0.
    """
    accepted = accepted_of(task)
    if not accepted:
        return NO_EXPECTED
    choices = _choices(task)
    if not choices:
        return Score.skipped("the item has no choices")
    wanted = []
    for each in accepted:
        if not isinstance(each.body, str):
            return not_text(each, "expected answer")
        named = _named(each.body, choices, _entries(each))
        if named is None:
            message = f"the expected answer names none of the item's {len(choices)} choices: {quoted(each)}"
            return unjudged("EXPECTED_INVALID", message)
        wanted.append(named)
    actual = actual_of(task)
    if not isinstance(actual.body, str):
        return not_text(actual, "output")
    said = _said(actual, choices, state)
    if said is None:
        return Score.scored(0.0, "the output names no choice")
    answer = Value(", ".join(label(place) for place in sorted(said)))
    if said in wanted:
        return Score.scored(1.0, answer=answer)
    return Score.scored(0.0, f"the output names {answer}", answer=answer)


def label(place: int) -> str:
    """How the choice at a place, from 0, is called: A to Z, then 1, 2, …"""
    return ascii_uppercase[place] if place < 26 else str(place - 25)


def place_of(name: str) -> int | None:
    """The place of a choice by its name; None if it is no name of one."""
    if len(name) == 1 and name.isascii() and name.isalpha():
        return ascii_uppercase.index(name.upper())
    if name.isascii() and name.isdecimal() and len(name) < 6 and int(name) > 0:
        return 25 + int(name)
    return None


def _choices(task: ScoreTask) -> Sequence[str]:
    mapped = task.inputs.get("choices") if task.inputs else None
    if mapped is None:
        return task.item.choices
    found = mapped.data if mapped.kind == "json" else None
    return [str(Value.of(each)) for each in found] if isinstance(found, list) else ()


def _entries(value: Value) -> list[str] | None:
    """The entries of a JSON list; None if it is none."""
    found = value.data if value.kind == "json" else None
    return [str(Value.of(each)) for each in found] if isinstance(found, list) else None


def _said(actual: Value, choices: Sequence[str], marked: _Marked) -> frozenset[int] | None:
    text = str(actual.body)
    for pattern in marked:
        found = None
        for match in pattern.finditer(text):
            named = _named(match[1], choices)
            found = named if named is not None else found
        if found is not None:
            return found
    return _named(text, choices, _entries(actual)) if len(text) <= _LONGEST else None


def _named(text: str, choices: Sequence[str], entries: list[str] | None = None) -> frozenset[int] | None:
    """The places of the choices that a text, or the entries of a list, name; None if there is anything else."""
    if entries is not None:
        return _places(entries, choices)
    bare = text.strip().strip(_AROUND)
    whole = _place(bare, choices)
    if whole is not None:
        return frozenset((whole,))
    for split in _SPLITS:
        parts = split(bare)
        if 1 < len(parts) <= 2 * len(choices):
            found = _places(parts, choices)
            if found is not None:
                return found
    return _opening(bare, choices)


def _places(parts: Sequence[str], choices: Sequence[str]) -> frozenset[int] | None:
    places = [_place(part.strip().strip(_AROUND), choices) for part in parts]
    found = frozenset(place for place in places if place is not None)
    return found if places and None not in places else None


def _opening(bare: str, choices: Sequence[str]) -> frozenset[int] | None:
    """The choice that a text begins with, by letter and text, as in `B) Rome, of course`."""
    match = _OPENING.match(bare)
    place = None if match is None else place_of(match[1])
    if match is None or place is None or place >= len(choices):
        return None
    wanted = choices[place].strip().casefold()
    said = bare[match.end() :].lstrip(_AROUND)[: len(wanted) + 10].casefold()
    return frozenset((place,)) if wanted and said.startswith(wanted) else None


def _place(name: str, choices: Sequence[str]) -> int | None:
    place = place_of(name)
    if place is not None and place < len(choices):
        return place
    folded = name.casefold()
    for number, choice in enumerate(choices):
        if choice.strip().strip(_AROUND).casefold() == folded and folded:
            return number
    return None


_LONGEST = 100_000
_AROUND = "*_`\"'()[]{}.:;!? \t\n"
_COMMAS = re.compile("[,;&]")
_WORDS_BETWEEN = re.compile(r"[,;&]|\band\b|\bor\b", re.IGNORECASE)
_OPENING = re.compile(r"([A-Za-z]|[1-9][0-9]{0,3})[).:]")


def _letters(text: str) -> list[str]:
    """What stands between spaces, if it is nothing but letters of choices."""
    parts = [part for part in text.split() if part.lower() not in ("and", "or", "&")]
    return parts if all(place_of(part.strip(_AROUND + ",;")) is not None for part in parts) else []


# One after the other, until all parts are choices: a choice may hold the word `and`.
_SPLITS: tuple[Callable[[str], list[str]], ...] = (
    lambda text: [part for part in _COMMAS.split(text) if part.strip()],
    lambda text: [part for part in _WORDS_BETWEEN.split(text) if part.strip()],
    lambda text: [part.strip(",;") for part in _letters(text)],
)
