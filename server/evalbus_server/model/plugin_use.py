"""Plugins of an experiment: how to reach them, and what a scorer's scores count for."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema

from evalbus._adapted import adapter_command, is_adapted
from evalbus_server.model.part import Part
from evalbus_server.model.reducers import METRICS, REDUCERS, REDUCERS_OF_K
from evalbus_server.model.written import (
    DotlessName,
    Duration,
    JsonObject,
    Many,
    MetricPath,
    Name,
    NumberOrMap,
    Sampling,
    Text,
    ValuePath,
    WeightOrMap,
)


class Tls(Part):
    """How to trust a server."""

    root_certificates: Text = ""
    """A PEM file, relative to the experiment's folder; "" for the usual ones."""
    server_name: Text = ""


class PluginUse(Part):
    """A plugin and how to reach it: by a command, an address, or as one that ships with the server."""

    FIRST_KEY = "use"

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


class MetricUse(Part):
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
