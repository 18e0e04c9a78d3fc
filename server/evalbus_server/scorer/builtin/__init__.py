"""The scorers that ship with the server. They are written with the SDK, as a plugin would be, and run in-process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalbus import Scorer
from evalbus_server.scorer.builtin.exact_match import exact_match
from evalbus_server.scorer.builtin.includes import includes
from evalbus_server.scorer.builtin.levenshtein import levenshtein
from evalbus_server.scorer.builtin.numeric_diff import numeric_diff

BUILTINS: Mapping[str, Scorer[Any, Any]] = {
    builtin.name: builtin for builtin in (exact_match, includes, levenshtein, numeric_diff)
}
"""By the name that an experiment uses."""
