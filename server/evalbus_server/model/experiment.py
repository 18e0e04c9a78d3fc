"""The one schema of an experiment: what files, the embedded call and the contract all become, with every default.

It reads no file and resolves no secret: paths stay as they were written, `${env:NAME}` stays `${env:NAME}`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema

from evalbus._adapted import adapter_command, is_adapted
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.faults import invalid, kind_of, suggestion
from evalbus_server.model.paths import format_path
from evalbus_server.model.reducers import METRICS, REDUCERS, REDUCERS_OF_K, RUN_METRICS, SHARES, parse_reducer
from evalbus_server.model.written import (
    LARGEST,
    DotlessName,
    Duration,
    JsonObject,
    Many,
    MetricPath,
    Name,
    Number,
    NumberOrMap,
    Sampling,
    Share,
    Text,
    ValuePath,
    WeightOrMap,
    WrittenErrorLimit,
)

Form: TypeAlias = Literal[
    "inspect_ai", "promptfoo", "openai_evals", "voltagent", "mastra", "results", "chat_completions"
]
"""Forms of other systems that rows of a dataset may have."""


class _Part(BaseModel):
    """Frozen, strict about types (text is no number), and closed: an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_by_alias=True, validate_by_name=True)


class FieldSource(_Part):
    """Where a field of an item comes from: a path into the row, or a list of paths that becomes a JSON object."""

    from_: Annotated[str | Many[str], Field(alias="from")]
    as_: Annotated[Literal["text", "json"], Field(alias="as")] = "text"
    """`json`: the text found there is a JSON document."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, str | list | tuple):
            value = {"from": value}
        if not isinstance(value, dict | FieldSource):
            raise ValueError(
                f"must be a column, a list of columns, or {{from: column, as: json}}, not {kind_of(value)}"
            )
        if isinstance(value, dict):
            source = value.get("from", "x")
            listed = source if isinstance(source, list | tuple) else [source]
            if not listed or not all(isinstance(path, str) and path for path in listed):
                raise ValueError("must name a column, or a list of columns")
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        column = {"type": "string", "minLength": 1}
        return {"anyOf": [column, {"type": "array", "items": column, "minItems": 1}, handler(core)]}


class DatasetUse(_Part):
    """The items: a file, a stored dataset, records in place, or a command that prints JSON lines."""

    path: Text | None = None
    """A file, relative to the experiment's folder."""
    name: Name | None = None
    """Alone: a dataset that is stored. Beside another source: the name to store it under."""
    version: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Of a stored dataset; None: the newest when the run starts."""
    records: Text | Many[JsonObject] | None = None
    """The items in place; or, with a path or a command, where the rows stand in its JSON document."""
    command: Annotated[Many[Text], Field(min_length=1)] | None = None
    fields: dict[Name, FieldSource] = Field(default_factory=dict)
    """Which parts of a row become which fields of an item."""
    join: Text | None = None
    """A second file, relative to the experiment's folder, whose rows are joined to those of the first by their ids."""
    from_: Annotated[Form | None, Field(alias="from")] = None
    """The form of another system that rows have."""
    shuffle_choices: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    """A seed: the choices of each item are put in another order, and letters in `expected` follow them."""
    items: Many[Text] = ()
    """Globs on the id; () selects all."""
    tags: Many[Text] = ()
    """Tags that an item has to have, all of them."""
    shuffle: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    """A seed: items are asked in the order of `random.Random(seed).shuffle`, and `limit` takes the first of these."""
    limit: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    format: Literal["jsonl", "json", "csv", "tsv", "yaml", "parquet"] | None = None
    """None: the file's suffix says it."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    encoding: Text | None = None
    """None: UTF-8, anything else is refused."""
    ids: Literal["content", "position"] = "content"
    """What ids are made of where a row brings none."""
    scorers: Many[Name] | None = None
    """Names of those that judge items which name none of their own; None: those of the stored dataset."""
    folder: SkipJsonSchema[str] = ""
    """The experiment's folder; filled in when a file is read."""

    @property
    def file(self) -> Path:
        """The file of a path."""
        return in_folder(self.path or "", self.folder)

    @property
    def source(self) -> Literal["path", "stored", "records", "command"]:
        """Which of the four it is."""
        if self.path is not None:
            return "path"
        if self.command is not None:
            return "command"
        return "stored" if self.records is None else "records"

    @property
    def in_place(self) -> Sequence[dict[str, Any]]:
        """The records that stand in the experiment."""
        return () if self.records is None or isinstance(self.records, str) else self.records

    @property
    def inside(self) -> str | None:
        """Where the rows stand in the document of a path or a command; None: it is no such document."""
        return self.records if isinstance(self.records, str) else None

    @property
    def joined(self) -> Path | None:
        """The second file."""
        return None if self.join is None else in_folder(self.join, self.folder)

    @property
    def chooses(self) -> bool:
        """Whether it takes other items than the first ones, or in another order."""
        return bool(self.items or self.tags) or self.shuffle is not None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = [key for key in ("path", "records", "command") if getattr(self, key) is not None]
        if isinstance(self.records, str):
            sources.remove("records")
            if not sources:
                raise ValueError("records is a path inside a document, but no path or command brings one; write a list")
        if len(sources) > 1:
            raise ValueError(f"{' and '.join(sources)} exclude each other; keep one")
        if not sources and self.name is None:
            raise ValueError("says no items; give path, name, records or command")
        if sources and self.version is not None:
            raise ValueError(f"version goes with a stored dataset, not with {sources[0]}; leave one of them out")
        reading = [key for key in ("fields", "format", "delimiter", "encoding", "join", "from_") if getattr(self, key)]
        if self.shuffle_choices is not None:
            reading.append("shuffle_choices")
        if not sources and reading:
            read = reading[0].removesuffix("_")
            raise ValueError(f"{read} says how to read a file, but the dataset is stored; leave it out")
        return self


class Tls(_Part):
    """How to trust a server."""

    root_certificates: Text = ""
    """A PEM file, relative to the experiment's folder; "" for the usual ones."""
    server_name: Text = ""


class PluginUse(_Part):
    """A plugin and how to reach it: by a command, an address, or as one that ships with the server."""

    command: Annotated[Many[Text], Field(min_length=1)] | None = None
    address: Name | None = None
    use: Name | None = None
    """The name of a builtin, or of a scorer of another library: `LIBRARY.NAME`, or `python:MODULE.FUNCTION`."""
    python: Text = ""
    """The interpreter for a scorer of another library, relative to the folder; "" for the server's own."""
    plugin: Text = ""
    """Which plugin of that process; "" if it serves just one of the kind."""
    settings: JsonObject = Field(default_factory=dict)
    env: dict[Name, Text] = Field(default_factory=dict)
    tls: Tls | None = None
    token: Text = ""
    folder: SkipJsonSchema[str] = ""
    """The working folder of the command; filled in when a file is read."""
    start_limit: Duration = 30.0

    @field_validator("address")
    @classmethod
    def _no_url(cls, address: str | None) -> str | None:
        scheme, url, place = (address or "").partition("://")
        if url and scheme in ("http", "https", "grpc", "grpcs"):
            hint = " with tls: {}" if scheme in ("https", "grpcs") else ""
            raise ValueError(f"{address!r} is a URL; write host:port, as in {place.rstrip('/')}{hint}")
        return address

    @field_validator("env")
    @classmethod
    def _names_of_variables(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if "=" in name or "\0" in value:
                raise ValueError(f"{name!r} cannot be a variable of an environment")
        return env

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [key for key in ("command", "address", "use") if getattr(self, key) is not None]
        if not ways:
            raise ValueError("says no way to the plugin; give use, command or address")
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} exclude each other; keep one")
        way = ways[0] if self.launched is None else "command"
        for key, needs in (("env", "command"), ("tls", "address"), ("token", "address")):
            if getattr(self, key) and way != needs:
                raise ValueError(f"{key} goes with {needs}, not with {ways[0]}; leave it out")
        if self.python and not is_adapted(self.use):
            raise ValueError("python goes with a scorer of another library in use; leave it out")
        return self

    @property
    def launched(self) -> tuple[str, ...] | None:
        """Program and arguments of what has to be started for it; None if nothing has."""
        if self.use is not None and is_adapted(self.use):
            return adapter_command(self.use, self.python)
        return self.command


class TargetUse(PluginUse):
    """The system under test."""

    @field_validator("use")
    @classmethod
    def _no_scorer(cls, use: str | None) -> str | None:
        if is_adapted(use):
            raise ValueError(f"{use!r} is a scorer, not a target")
        return use


class MetricUse(_Part):
    """A number over all trials of a scorer, made once the run is complete."""

    use: Name
    """One that the scorer declares, or a builtin."""
    name: DotlessName | None = None
    """None: as in `use`."""
    settings: JsonObject = Field(default_factory=dict)
    map: dict[Name, MetricPath] = Field(default_factory=dict)
    """Named inputs, each a path into item, output, trial or score."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"use": value} if isinstance(value, str) else value

    @property
    def called(self) -> str:
        """Its name in this experiment."""
        return self.name or self.use

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(core)]}


class ScorerUse(PluginUse):
    """A judge."""

    name: DotlessName | None = None
    """None: the plugin's name, with the settings that differ if it is used more than once."""
    threshold: NumberOrMap | None = None
    """One number for all of its scores, or a map by score. None: they have no verdict of their own."""
    weight: WeightOrMap | None = None
    map: dict[Name, ValuePath] = Field(default_factory=dict)
    """Named inputs, each a path into item, output or trial."""
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 10
    timeout: Duration | None = None
    """For one attempt; None: the run's."""
    sampling: Sampling = 1.0
    """The share of trials that it scores; the others are SKIPPED."""
    metrics: Many[MetricUse] = ()
    """Numbers over all trials of each of its scores."""
    against: Name | None = None
    """The run whose outputs those of this one are compared with. None: the scorer compares nothing."""

    @field_validator("metrics")
    @classmethod
    def _told_apart(cls, metrics: tuple[MetricUse, ...]) -> tuple[MetricUse, ...]:
        seen: set[str] = set()
        for metric in metrics:
            if metric.called in METRICS or metric.called in (*REDUCERS, *REDUCERS_OF_K):
                raise ValueError(f"{metric.called} is a number that every score has; give the metric another name")
            if metric.called in seen:
                raise ValueError(f"two metrics are called {metric.called!r}; give one a name")
            seen.add(metric.called)
        return metrics

    @model_validator(mode="after")
    def _compares_with_one(self) -> Self:
        if self.against is not None and "against" in self.map:
            raise ValueError("against and map.against both say what is compared with; leave one out")
        return self

    def threshold_of(self, score: str) -> float | None:
        """The threshold of one of its scores."""
        return _number_for(score, self.threshold)

    def weight_of(self, score: str) -> float | None:
        """The weight of one of its scores."""
        return _number_for(score, self.weight)


def _number_for(score: str, numbers: float | dict[str, float] | None) -> float | None:
    """The number of a score; in a map, "" is for each score that has no entry of its own."""
    return numbers.get(score, numbers.get("")) if isinstance(numbers, dict) else numbers


class Epochs(_Part):
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


class TrialBounds(_Part):
    """What each trial may take; None does not bound. The target is told, and one that takes more is ERRORED."""

    messages: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    tokens: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    steps: Annotated[int, Field(ge=1, le=LARGEST)] | None = None


class PoolUse(_Part):
    """Places that the targets of all runs share which name this pool."""

    name: Name
    concurrency: Annotated[int, Field(ge=1, le=10_000)]
    """How many there are; the run that started last says it."""


class Limits(_Part):
    """Bounds on time, work and trouble. Lengths of time are in seconds."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 10
    timeout: Duration = 60.0
    trial_timeout: Duration = 600.0
    silence: Duration = 120.0
    deadline: Duration | None = None
    retries: Annotated[int, Field(ge=0, le=1000)] = 2
    max_errors: WrittenErrorLimit | None = None
    tokens: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    cost: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"
    trial: TrialBounds = Field(default_factory=TrialBounds)
    pool: PoolUse | None = None
    """Shared with other runs; None: the target's places are the run's own."""

    @field_validator("cost")
    @classmethod
    def _whole_micros(cls, cost: float | None) -> float | None:
        if cost is not None and Decimal(repr(cost)) * 1_000_000 % 1:
            raise ValueError(f"must have at most six decimals, not {cost!r}")
        return cost

    @property
    def cost_micros(self) -> int | None:
        """The budget in millionths of the currency's unit."""
        return None if self.cost is None else int(Decimal(repr(self.cost)) * 1_000_000)


class Criterion(_Part):
    """One condition on a run's numbers."""

    metric: str
    scorer: Name | None = None
    """A score key; None: the run's own number."""
    min: Number | None = None
    max: Number | None = None
    label: Text = ""
    severity: Literal["error", "warn"] = "error"
    min_coverage: Share = 1.0
    baseline: Name | None = None
    """A run to compare with."""
    max_drop: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    @field_validator("metric")
    @classmethod
    def _known(cls, text: str) -> str:
        text = text.strip()
        if text.split("(")[0] in REDUCERS_OF_K:
            return "{}({})".format(*parse_reducer(text))
        return text  # the experiment knows which a scorer makes

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.scorer is not None and self.metric in RUN_METRICS:
            raise ValueError(f"{self.metric} is a number of the run, not of one score; leave scorer out")
        if (self.baseline is None) != (self.max_drop is None):
            raise ValueError("baseline and max_drop go together; give both or neither")
        if self.min is None and self.max is None and self.baseline is None:
            raise ValueError("says no condition; give min, max, or baseline with max_drop")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}, so it never holds")
        if self.metric in SHARES or self.metric.split("(")[0] in REDUCERS_OF_K:
            for key, bound in (("min", self.min), ("max", self.max)):
                if bound is not None and not 0 <= bound <= 1:
                    per_cent = f"; write {bound / 100:g} for {bound:g} %" if 1 < bound <= 100 else ""
                    raise ValueError(f"{key} {bound:g}: {self.metric} is a share, from 0 to 1{per_cent}")
        return self


class Keep(_Part):
    """What is kept of a run once it is over; its numbers and the outcomes of its trials are in any case."""

    outputs: bool = True
    """False: of its outputs, and of what was said about them, no word is kept."""
    scores: bool = True
    """False: of its scores only the summary is kept."""

    @property
    def everything(self) -> bool:
        """Whether nothing is to be taken out."""
        return self.outputs and self.scores

    @classmethod
    def of(cls, experiment_json: str) -> Keep:
        """What a stored experiment keeps."""
        return cls.model_validate(json.loads(experiment_json).get("keep") or {})


def _no_target(value: object) -> object:
    return None if value == "none" else value


class Experiment(_Part):
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


def in_folder(path: str, folder: str) -> Path:
    """Where a path of an experiment leads: it is relative to the experiment's folder."""
    return Path(folder, path)


# --- secrets ----------------------------------------------------------------------------------------------------

_ENVIRONMENT = re.compile(r"\$\{env:([^{}]+)\}")


def resolve_env(value: Any, environ: Mapping[str, str], where: str = "") -> Any:
    """A copy in which each text that is as a whole `${env:NAME}` is replaced by that variable. Never store it.

    Raises:
        Invalid: a variable is not set; the message says which and where it is asked for.
    """
    if isinstance(value, dict):
        return {key: resolve_env(each, environ, where + _step(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(resolve_env(each, environ, f"{where}[{index}]") for index, each in enumerate(value))
    match = _ENVIRONMENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    if match[1] not in environ:
        raise Invalid(
            Reason.EXPERIMENT_INVALID,
            f"{where or 'experiment'}: the environment has no variable {match[1]}; set it and start again",
            field=where,
        )
    return environ[match[1]]


def _step(key: str) -> str:
    path = format_path((key,))
    return path if path.startswith("[") else f".{path}"
