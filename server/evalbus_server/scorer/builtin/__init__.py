"""The scorers that ship with the server. They are written with the SDK, as a plugin would be, and run in-process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalbus import Scorer
from evalbus_server.scorer.builtin.answer_match import answer_match
from evalbus_server.scorer.builtin.combinations import combinations
from evalbus_server.scorer.builtin.coverage import completeness, keyword_coverage
from evalbus_server.scorer.builtin.embedding_similarity import embedding_similarity
from evalbus_server.scorer.builtin.exact_match import exact_match
from evalbus_server.scorer.builtin.includes import includes
from evalbus_server.scorer.builtin.json_diff import json_diff
from evalbus_server.scorer.builtin.json_schema_valid import json_schema_valid
from evalbus_server.scorer.builtin.json_valid import json_valid
from evalbus_server.scorer.builtin.judges import JUDGES
from evalbus_server.scorer.builtin.last_number import last_number
from evalbus_server.scorer.builtin.levenshtein import levenshtein
from evalbus_server.scorer.builtin.limits import cost_limit, latency_limit, token_limit
from evalbus_server.scorer.builtin.list_contains import list_contains
from evalbus_server.scorer.builtin.match import match
from evalbus_server.scorer.builtin.multiple_choice import multiple_choice
from evalbus_server.scorer.builtin.numeric_diff import numeric_diff
from evalbus_server.scorer.builtin.parts import ends_with, excludes, starts_with
from evalbus_server.scorer.builtin.prose import length, readability
from evalbus_server.scorer.builtin.regex import regex
from evalbus_server.scorer.builtin.similarity import similarity
from evalbus_server.scorer.builtin.text_overlap import content_similarity, textual_difference
from evalbus_server.scorer.builtin.tone import tone
from evalbus_server.scorer.builtin.tool_calls import (
    no_tool_errors,
    tool_arguments,
    tool_call_accuracy,
    tool_call_limit,
    tool_called,
    tool_not_called,
    tool_order,
)
from evalbus_server.scorer.builtin.trajectory import (
    tool_failures,
    trajectory,
    trajectory_blacklist,
    trajectory_efficiency,
)
from evalbus_server.scorer.builtin.translation import bleu, chrf
from evalbus_server.scorer.builtin.word_overlap import f1, rouge_l

_ALONE: Mapping[str, tuple[Scorer[Any, Any], ...]] = {
    "right or wrong": (
        *(exact_match, includes, excludes, starts_with, ends_with, match, regex, answer_match, multiple_choice),
    ),
    "numbers": (numeric_diff, last_number),
    "likeness of texts": (*(levenshtein, similarity, content_similarity, textual_difference, f1, rouge_l, bleu, chrf),),
    "JSON and lists": (json_valid, json_schema_valid, json_diff, list_contains),
    "coverage, tone, length": (keyword_coverage, completeness, tone, length, readability),
    "time, cost, tokens": (latency_limit, cost_limit, token_limit),
    "tool calls": (
        *(tool_called, tool_not_called, tool_order, tool_call_limit, no_tool_errors, tool_call_accuracy),
        tool_arguments,
    ),
    "trajectory": (trajectory, trajectory_efficiency, trajectory_blacklist, tool_failures),
    "meaning, by a model of embeddings": (embedding_similarity,),
    "judges: a model reads and says": tuple(JUDGES.values()),
}

ASKING = frozenset({*JUDGES, "embedding_similarity"})
"""Those that ask a model at an endpoint."""

GROUPS: Mapping[str, tuple[Scorer[Any, Any], ...]] = {
    **_ALONE,
    "made of other scorers": combinations([each for group in _ALONE.values() for each in group]),
}
"""All of them, by what they look at."""

BUILTINS: Mapping[str, Scorer[Any, Any]] = {each.name: each for group in GROUPS.values() for each in group}
"""By the name that an experiment uses."""
