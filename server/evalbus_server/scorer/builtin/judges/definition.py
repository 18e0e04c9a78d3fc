"""What a judge is: the stages in which a model is asked, and the formula that makes a value of its replies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from evalbus import Direction, Need, ScoreDeclaration
from evalbus import _json as json
from evalbus_server.scorer.builtin.judges.material import Part
from evalbus_server.scorer.builtin.judges.prompts import EXPLAIN, FORMAT, HEED, RULES, Plain
from evalbus_server.scorer.builtin.judges.settings import JudgeSettings
from evalbus_server.scorer.builtin.judges.shapes import Each, Record, Shape

ENGINE = 1
"""The way in which prompts are filled, replies read and votes counted; changed when any of it means something else."""

Replies: TypeAlias = Mapping[str, Any]
"""By stage, what the model replied."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One question to the model. Exactly one of `reply`, `each` and `chosen` says what it replies."""

    name: str
    prompt: str
    """With `{{parts}}`: of the material, of earlier replies by `made`, of the settings."""
    reply: Record | None = None
    each: Record | None = None
    """The verdict on each entry of the list `over`; the reply has them as `verdicts`. Without entries nothing is asked."""
    over: str = ""
    also: Mapping[str, Shape] = field(default_factory=dict)
    """Members beside the verdicts, for which the model is asked even if there is nothing to give verdicts on."""
    chosen: Callable[[Any], Record] | None = None
    """From settings."""
    made: str = ""
    """A list of texts in the reply that later prompts may name, under this name."""

    def wanted(self, facts: Facts) -> Record | None:
        """The shape of the reply; None if there is nothing to ask."""
        if self.chosen is not None:
            return self.chosen(facts.settings)
        if self.each is None:
            return self.reply
        count = len(facts.listed(self.over))
        if not count and not self.also:
            return None
        return Record({"verdicts": Each(count, self.each), **self.also})

    @property
    def told(self) -> list[object]:
        """Everything of it that the model is told, whatever the settings."""
        shapes = [None if shape is None else shape.schema for shape in (self.reply, self.each, Record(self.also))]
        return [self.name, self.prompt, shapes, self.over, self.made]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the stages so far have brought."""

    settings: Any
    parts: Mapping[str, Part | Plain]
    replies: Replies

    def listed(self, name: str) -> Sequence[str]:
        """A list among the parts."""
        part = self.parts[name]
        if isinstance(part, str):
            return (part,)
        return () if isinstance(part, Plain) else part

    def verdicts(self, stage: str) -> list[dict[str, Any]]:
        """The verdicts of a stage; none if it was left out."""
        found: list[dict[str, Any]] = self.replies.get(stage, {}).get("verdicts", [])
        return found


@dataclass(frozen=True, slots=True)
class Found:
    """What a formula makes of the replies: one score."""

    value: float | None
    """None: there is nothing to score, and `explanation` says why."""
    explanation: str = ""
    label: str = ""
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definition:
    """A judge that is ready to be used."""

    name: str
    about: str
    """What the value says, then how it comes about and from where the method is; the first sentence stands alone."""
    stages: Sequence[Stage]
    formula: Callable[[Facts], Found | Sequence[Found]]
    version: str = "1.0.0"
    settings: type[JudgeSettings] = JudgeSettings
    direction: Direction = Direction.HIGHER_IS_BETTER
    scores: Callable[[Any], Sequence[ScoreDeclaration]] | None = None
    """From settings; None: one from 0 to 1."""
    needs: Sequence[Need] = ()
    vote: Literal["majority", "median"] = "median"
    """How a jury's votes become one: the label that most of all votes have, or the middle of the values."""
    given: Callable[[Any], Mapping[str, str]] = lambda settings: {}
    """Texts of the settings that prompts may name."""
    check: Callable[[Any], None] | None = None
    """Raises SettingsInvalid for settings that only the judge can find wrong."""
    rewrite: Callable[[Stage, Any], str] | None = None
    """The prompt of a stage, where settings bring it."""
    requires: Mapping[str, str] = field(default_factory=dict)
    """Parts without which there is nothing to judge, each with what is said then."""
    inputs: Sequence[str] = ("input", "output")

    @property
    def digest(self) -> str:
        """A digest of everything that is the same for all settings: prompts, shapes, formula, version, and the engine's own
        words. What settings add to a prompt is part of the experiment's digest."""
        told: list[object] = [
            ENGINE,
            RULES,
            FORMAT,
            HEED,
            EXPLAIN,
            self.name,
            self.version,
            self.direction.name,
            self.vote,
        ]
        told += [stage.told for stage in self.stages]
        told.append(inspect.getsource(self.formula))
        told += [repr(cell.cell_contents) for cell in getattr(self.formula, "__closure__", None) or ()]
        return blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()
