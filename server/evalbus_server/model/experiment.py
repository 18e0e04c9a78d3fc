"""The one schema of an experiment: what files, the embedded call and the contract all become, with every default.

It reads no file and resolves no secret: paths stay as they were written, `${env:NAME}` stays `${env:NAME}`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, ValidationError, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from evalbus_server.errors import Reason
from evalbus_server.model.bounds import Criterion, Keep, Limits
from evalbus_server.model.dataset_use import DatasetUse
from evalbus_server.model.faults import invalid, suggestion
from evalbus_server.model.part import Part
from evalbus_server.model.plugin_use import ScorerUse, TargetUse
from evalbus_server.model.reducers import METRICS, REDUCERS_OF_K, parse_reducer
from evalbus_server.model.written import JsonObject, Many, Name, Text

MOST_TAGS = 100


class Epochs(Part):
    """Repetition, and how the values of an item's epochs become one."""

    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    reducer: str = "mean"

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("reducer")
    @classmethod
    def _known(cls, text: str) -> str:
        name, k = parse_reducer(text)
        return name if k is None else f"{name}({k})"

    @model_validator(mode="after")
    def _enough(self) -> Self:
        k = parse_reducer(self.reducer)[1]
        if k is not None and k > self.count:
            raise ValueError(f"{self.reducer} needs {k} epochs, but count is {self.count}; raise count or lower k")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 10_000}, handler(core)]}


def _no_target(value: object) -> object:
    return None if value == "none" else value


class Experiment(Part):
    """What is to be done: a dataset, a target, scorers, and what counts as good."""

    name: Name
    description: Text = ""
    dataset: DatasetUse
    target: Annotated[
        TargetUse | None,
        BeforeValidator(_no_target, json_schema_input_type=TargetUse | Literal["none"] | None),
    ] = None
    """None: the dataset brings the outputs along."""
    scorers: Many[ScorerUse] = ()
    scorers_from: Literal["run", "items"] = "run"
    """`run`: these scorers judge every trial; `items`: each item says who judges it, else the dataset."""
    epochs: Epochs = Field(default_factory=Epochs)
    limits: Limits = Field(default_factory=Limits)
    criteria: Many[Criterion] = ()
    tags: Many[Name] = ()
    metadata: JsonObject = Field(default_factory=dict)
    keep: Keep = Field(default_factory=Keep)
    cache: bool = False
    """The target is not asked again what it has answered before to just the same."""

    @field_validator("tags")
    @classmethod
    def _each_once(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if len(tags) > MOST_TAGS:
            raise ValueError(f"{len(tags):,} tags; {MOST_TAGS} are the most")
        return tuple(dict.fromkeys(tags))

    @model_validator(mode="before")
    @classmethod
    def _left_to_items(cls, value: object) -> object:
        """Without a word on scorers, the items say it; an empty list is a word: none."""
        if isinstance(value, Mapping) and value.get("scorers_from") is None:
            return {**value, "scorers_from": "run" if "scorers" in value else "items"}
        return value

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        named: dict[str, int] = {}
        for index, scorer in enumerate(self.scorers):
            if scorer.name is not None and named.setdefault(scorer.name, index) != index:
                raise ValueError(
                    f"scorers[{named[scorer.name]}] and scorers[{index}] are both called {scorer.name!r}; rename one"
                )
        if self.cache and self.target is None:
            raise ValueError("cache: there is no target whose answers could be remembered; leave it out")
        if self.cache and not self.keep.outputs:
            raise ValueError(
                "cache: outputs that keep.outputs leaves out cannot be remembered; keep them, or leave cache out"
            )
        made = {metric.called for scorer in self.scorers for metric in scorer.metrics}
        for index, criterion in enumerate(self.criteria):
            name = criterion.metric.split("(")[0]
            if criterion.metric not in METRICS and name not in REDUCERS_OF_K and criterion.metric not in made:
                known = [*METRICS, *(f"{each}(k)" for each in REDUCERS_OF_K), *sorted(made)]
                hint = suggestion(criterion.metric, (*METRICS, *REDUCERS_OF_K, *made), known)
                raise ValueError(f"criteria[{index}].metric: there is no metric {criterion.metric!r}{hint}")
            k = parse_reducer(criterion.metric)[1] if name in REDUCERS_OF_K else None
            if k is not None and k > self.epochs.count:
                raise ValueError(
                    f"criteria[{index}].metric: {criterion.metric} needs {k} epochs, but epochs is {self.epochs.count}"
                )
        return self

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Experiment:
        """An experiment from plain data.

        Raises:
            Invalid: it does not fit the schema; the message is one line, with the path of each fault.
        """
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise invalid(error, cls, Reason.EXPERIMENT_INVALID) from None

    @classmethod
    def from_json(cls, text: str) -> Experiment:
        """An experiment from its canonical JSON."""
        document: dict[str, Any] = json.loads(text)
        return cls.parse(document)

    def canonical_json(self) -> str:
        """Everything, defaults included, as JSON with sorted keys; the form in which it is stored."""
        return _canonical(self.model_dump(mode="json", by_alias=True))

    def digest(self) -> str:
        """SHA-256 of the canonical JSON without folders, hexadecimal: where the file lies defines nothing."""
        document = self.model_dump(mode="json", by_alias=True)
        for part in (document["dataset"], document["target"], *document["scorers"]):
            if part is not None:
                del part["folder"]
        return hashlib.sha256(_canonical(document).encode()).hexdigest()

    def over(self, name: str, version: int) -> Experiment:
        """The same over a version of a stored dataset, whatever it read its items from before."""
        use = self.dataset
        dataset = DatasetUse(
            name=name,
            version=version,
            items=use.items,
            tags=use.tags,
            shuffle=use.shuffle,
            limit=use.limit,
            scorers=use.scorers,
        )
        return self.model_copy(update={"dataset": dataset})

    def with_builtins(self, names: Sequence[str]) -> Experiment:
        """The same with these builtins as further scorers."""
        if not names:
            return self
        added = tuple(ScorerUse(use=name) for name in names)
        return self.model_copy(update={"scorers": (*self.scorers, *added)})


def caches(experiment_json: str) -> bool:
    """Whether a stored experiment remembers answers, read without the rest of it."""
    return bool(json.loads(experiment_json).get("cache")) if experiment_json else False


def _canonical(document: object) -> str:
    return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of experiment files, for editors."""
    schema = Experiment.model_json_schema(by_alias=True)
    schema["required"] = [*schema["required"], "target"]  # a file says `none`; a message of the contract leaves it out
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "evalbus experiment"}
