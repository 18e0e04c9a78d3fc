"""The words for reducing epochs and for a run's numbers, and how they are written."""

from __future__ import annotations

import re

from evalbus_server.model.faults import suggestion

REDUCERS = ("mean", "median", "mode", "max", "min", "all", "any", "majority")
"""How the values of an item's epochs become one (N4)."""
REDUCERS_OF_K = ("at_least", "pass_at", "pass_hat")
"""Those that are written with a k, such as `pass_at(3)`."""
METRICS = (
    "mean",
    "weighted",
    "pass_rate",
    "coverage",
    "error_rate",
    "min",
    "max",
    "median",
    "p95_latency_ms",
    "cost",
)
"""What a criterion may look at (G1), besides a reducer with a k."""
SHARES = ("pass_rate", "coverage", "error_rate")
"""Metrics that count trials, the errored ones among them: from 0 to 1."""
RUN_METRICS = ("weighted", "p95_latency_ms", "cost")
"""Those that only a run has, and no single score."""


def parse_reducer(text: str) -> tuple[str, int | None]:
    """A reducer's name and its k: `pass_at(3)` is ("pass_at", 3), `mean` is ("mean", None).

    Raises:
        ValueError: there is no such reducer, or its k is missing, 0, or too much.
    """
    match = re.fullmatch(r"([a-z_]+)(?:\(\s*(\d{1,9})\s*\))?", text.strip(), re.ASCII)
    name, k = (match[1], match[2]) if match else (text, None)
    if name in REDUCERS_OF_K:
        if k is None or int(k) == 0:
            raise ValueError(f"{name} needs a number of at least 1: write {name}(1)")
        return name, int(k)
    if name in REDUCERS:
        if k is not None:
            raise ValueError(f"{name} takes no number; write {name}")
        return name, None
    known = [*REDUCERS, *(f"{each}(k)" for each in REDUCERS_OF_K)]
    raise ValueError(f"there is no reducer {text!r}{suggestion(name, (*REDUCERS, *REDUCERS_OF_K), known)}")
