"""The scorers that ship with the server. They are written with the SDK, as a plugin would be, and run in-process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalbus import Scorer
from evalbus_server.scorer.builtin.answer import answer
from evalbus_server.scorer.builtin.exact_match import exact_match
from evalbus_server.scorer.builtin.includes import includes
from evalbus_server.scorer.builtin.last_number import last_number
from evalbus_server.scorer.builtin.levenshtein import levenshtein
from evalbus_server.scorer.builtin.match import match
from evalbus_server.scorer.builtin.multiple_choice import multiple_choice
from evalbus_server.scorer.builtin.numeric_diff import numeric_diff
from evalbus_server.scorer.builtin.parts import ends_with, excludes, starts_with
from evalbus_server.scorer.builtin.regex import regex

_ALL: tuple[Scorer[Any, Any], ...] = (
    *(exact_match, includes, excludes, starts_with, ends_with, match, regex, answer, multiple_choice),
    *(levenshtein, numeric_diff, last_number),
)

BUILTINS: Mapping[str, Scorer[Any, Any]] = {builtin.name: builtin for builtin in _ALL}
"""By the name that an experiment uses."""
