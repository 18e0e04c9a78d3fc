"""Models that judge. Each judge is a definition: prompts, the shapes of replies, and a formula over verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalbus import Scorer
from evalbus_server.scorer.builtin.judges import claims, context, pairwise, rubrics, single, work
from evalbus_server.scorer.builtin.judges.definition import Definition
from evalbus_server.scorer.builtin.judges.scorers import as_scorer

DEFINITIONS: Mapping[str, Definition] = {
    definition.name: definition
    for module in (claims, context, single, work, rubrics, pairwise)
    for definition in module.DEFINITIONS
}
JUDGES: Mapping[str, Scorer[Any, Any]] = {name: as_scorer(definition) for name, definition in DEFINITIONS.items()}
"""By the name that an experiment uses."""
