"""Where the items of an experiment come from, and which of them are asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema

from evalbus_server.model.faults import kind_of
from evalbus_server.model.part import Part
from evalbus_server.model.written import LARGEST, DatasetName, JsonObject, Many, Name, Text

Form: TypeAlias = Literal[
    "inspect_ai", "promptfoo", "openai_evals", "voltagent", "mastra", "results", "chat_completions"
]
"""Forms of other systems that rows of a dataset may have."""


class FieldSource(Part):
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


class DatasetUse(Part):
    """The items: a file, a stored dataset, records in place, or a command that prints JSON lines."""

    FIRST_KEY = "path"

    path: Text | None = None
    """A file, relative to the experiment's folder."""
    name: DatasetName | None = None
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


def in_folder(path: str, folder: str) -> Path:
    """Where a path of an experiment leads: it is relative to the experiment's folder."""
    return Path(folder, path)
