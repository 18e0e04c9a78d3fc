"""Weighted means of scores whose ranges are not alike: N8 takes the values as they are, and this says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalbus.kit._ranges import UNLIKE_PARTS, unlike
from evalbus_server.model.bounds import Criterion
from evalbus_server.model.run import ScoreKey


def warnings_about(keys: Sequence[ScoreKey], criteria: Sequence[Criterion]) -> Iterator[str]:
    """A sentence for each mean that mixes scores of unlike ranges, where somebody asks for it.

    That is `weighted`, if scores have weights or a criterion names it, and every blend whose declaration tells it.
    """
    if any(key.weight is not None for key in keys) or any(each.metric == "weighted" for each in criteria):
        counted = {key.key: key.declaration for key in keys if key.weight is None or key.weight > 0}
        if ranges := unlike(counted):
            yield f"weighted mixes scores of unlike ranges, as they are: {ranges}"
    for key in keys:
        if key.declaration.description.startswith(UNLIKE_PARTS):
            yield f"{key.key} is {key.declaration.description}"
