"""Paths into documents, as people write them: `output.content.total[0]["odd.key"]`. Nothing is evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Steps: TypeAlias = tuple[str | int, ...]
"""A parsed path: keys as str, list indexes as int."""


class Place(NamedTuple):
    """A place in a file, from 1."""

    line: int
    column: int


Places: TypeAlias = dict[Steps, Place]
"""Where what a path leads to stands in its document."""

_STEP = re.compile(r'\.?([^.\[\]"]+)|\[(-?\d+)\]|\["((?:[^"\\]|\\.)*)"\]')


def parse_path(text: str) -> Steps:
    """The steps of a path such as `output.content.total[0]["odd.key"]`.

    Raises:
        ValueError: it is not a path.
    """
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        bare = match is not None and match[1] is not None
        if match is None or (bare and (text[position] == ".") != (position > 0)):
            raise ValueError(f'not a path: {text!r} at character {position + 1}; write a.b, a[0] or a["odd.key"]')
        if bare:
            steps.append(match[1])
        elif match[2] is not None:
            steps.append(int(match[2]))
        else:
            steps.append(str(json.loads(f'"{match[3]}"')))
        position = match.end()
    if not steps:
        raise ValueError("a path must not be empty")
    return tuple(steps)


def format_path(steps: Sequence[str | int]) -> str:
    """A path as people read it: `scorers[1].settings["odd.key"]`."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r'[^.\[\]"]+', step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return text
