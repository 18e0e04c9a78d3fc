"""Ranges of scores, in words, and whether scores that are to be averaged are measured alike."""

from __future__ import annotations

from collections.abc import Mapping

from evalbus._score import Direction, ScoreDeclaration

UNLIKE_PARTS = "a mean of parts with unlike ranges: "
"""With these words a declaration tells of it, wherever the scorer is made."""


def told(declaration: ScoreDeclaration) -> str:
    """A declared range as people read it."""
    low, high = declaration.minimum, declaration.maximum
    if low is None and high is None:
        text = "any number"
    elif high is None:
        text = f"{low:g} or more"
    else:
        text = f"up to {high:g}" if low is None else f"{low:g} to {high:g}"
    return f"{text} {declaration.unit}".rstrip()


def unlike(declarations: Mapping[str, ScoreDeclaration]) -> str:
    """The ranges of scores by their names, if they are not all the same range in the same direction; else ""."""
    measured = {(each.minimum, each.maximum, each.direction) for each in declarations.values()}
    if len(measured) < 2:
        return ""
    directed = len({each.direction for each in declarations.values()}) > 1
    parts = []
    for name, each in declarations.items():
        lower = directed and each.direction is Direction.LOWER_IS_BETTER
        parts.append(f"{name} {told(each)}{' (lower is better)' if lower else ''}")
    return ", ".join(parts)
