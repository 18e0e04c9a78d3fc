"""Rows become items: which cell is which field (I2, I3). Nothing is guessed, nothing is dropped.

A field that is mapped comes from its paths; any other one from the cell of its own name, unless that cell was mapped
elsewhere. What is left over becomes metadata.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from evalbus import Item, Value, _json
from evalbus_server.dataset import forms
from evalbus_server.dataset.cells import Row, cell_of, inside, object_of
from evalbus_server.dataset.refusal import RowRefused
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset_use import FieldSource
from evalbus_server.model.faults import suggestion
from evalbus_server.model.paths import Steps, parse_path

FIELDS = (
    "id",
    "input",
    "expected",
    "metadata",
    "tags",
    "choices",
    "messages",
    "tool_mocks",
    "scorers",
    "output",
)
_USUAL = frozenset({"id", "input", "expected"})
NULLABLE = ("input", "expected", "output")
"""Fields for which null is a value."""
LONGEST_ID = 512
MOST_TAGS = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class FieldMapping:
    """A mapping of fields, ready to make items of rows; it remembers which mapped columns it has seen."""

    def __init__(self, fields: Mapping[str, FieldSource], *, by_option: bool = False) -> None:
        """Prepare a mapping; *by_option*: it was given with `--map`, and advice is to be in those words.

        Raises:
            Invalid: it names a field that items have not.
        """
        self._by_option = by_option
        self.sources: dict[str, _Source] = {}
        self.metadata: dict[str, _Source] = {}
        for field, source in fields.items():
            if field.startswith("metadata."):
                self.metadata[field.removeprefix("metadata.")] = _Source(field, source)
            elif field in FIELDS:
                self.sources[field] = _Source(field, source)
            else:
                known = (*FIELDS, "metadata.<key>")
                where = f"--map {field}=…" if by_option else "dataset.fields"
                raise Invalid(
                    Reason.DATASET_INVALID,
                    f"{where}: items have no field {field!r}{suggestion(field, FIELDS, known)}",
                    field="dataset.fields",
                )
        everything = (*self.sources.values(), *self.metadata.values())
        used = {name for source in everything for name in source.whole}
        self.plain = tuple(field for field in FIELDS if field not in self.sources and field not in used)
        self.taken = frozenset((*self.plain, *used))
        """Columns that do not become metadata."""

    def unseen(self) -> list[tuple[str, str]]:
        """Mapped columns that no row had so far, each with its field."""
        sources = (*self.sources.values(), *self.metadata.values())
        return [(source.field, path) for source in sources for path in source.paths if path not in source.seen]

    def item(self, row: Row, make_id: Callable[[str], str]) -> Item:
        """The item of a row; *make_id* makes an id from a digest of the content where the row brings none.

        Raises:
            RowRefused: the row cannot become an item.
        """
        cells = self.fields_of(row)
        extra = {name: cell for name, cell in row.cells.items() if name not in self.taken}
        for key, source in self.metadata.items():
            found = source.find(row)
            if found is not None:
                if key in extra:
                    raise RowRefused("bad_field", f"metadata.{key} is mapped, and there is a column {key!r} too")
                extra[key] = found
        given = cells.get("input")
        if given is None:
            raise RowRefused("no_input", self.no_input(row))
        parts = _Fields(cells)
        id = parts.id()
        if not extra and cells.keys() <= _USUAL:
            usual = cells.get("expected")
            return Item(
                make_id(_digest(cells, extra)) if id is None else id,
                given if given.kind == "text" else parts.read("input", forms.value_of, given),
                usual if usual is None or usual.kind == "text" else parts.read("expected", forms.value_of, None),
            )
        return Item(
            make_id(_digest(cells, extra)) if id is None else id,
            parts.read("input", forms.value_of, Value("")),
            parts.read("expected", forms.value_of, None),
            metadata=_metadata(parts.read("metadata", forms.object_text, ""), extra),
            tags=parts.read("tags", _tags, ()),
            choices=parts.read("choices", forms.text_list, ()),
            messages=parts.read("messages", lambda cell: forms.list_of(cell, forms.message), ()),
            tool_mocks=parts.read("tool_mocks", lambda cell: forms.list_of(cell, forms.tool_mock), ()),
            scorers=parts.read("scorers", forms.text_list, None),
            output=parts.read("output", forms.output, None),
        )

    def fields_of(self, row: Row) -> dict[str, Value]:
        """The cells of the fields, by field; null is no value where a list or an object should stand."""
        cells = row.cells
        found = {field: cells[field] for field in self.plain if field in cells}
        for field, source in self.sources.items():
            cell = source.find(row)
            if cell is not None:
                found[field] = cell
        for field in [
            field
            for field, cell in found.items()
            if cell.kind == "json" and cell.body == "null" and field not in NULLABLE
        ]:
            del found[field]
        return found

    def no_input(self, row: Row) -> str:
        """What to do about a row without input."""
        names = ", ".join(list(row.cells)[:8]) or "nothing"
        if "input" in self.sources:
            wanted = " and ".join(map(repr, self.sources["input"].paths))
            return f"no input: {wanted} is absent or empty; there is {names}"
        say = "--map input=…" if self._by_option else "fields: {input: …}"
        return f"no input; there is {names}: say which with {say}"


class _Source:
    """Where a field comes from."""

    def __init__(self, field: str, source: FieldSource) -> None:
        self.field = field
        self.is_list = not isinstance(source.from_, str)
        self.paths = (source.from_,) if isinstance(source.from_, str) else source.from_
        self.as_json = source.as_ == "json"
        self.steps = {path: _steps(path) for path in self.paths}
        self.seen: set[str] = set()
        self.whole = {*self.paths, *(str(steps[0]) for steps in self.steps.values() if len(steps) == 1)}
        """Columns that are used up as a whole."""

    def find(self, row: Row) -> Value | None:
        found: dict[str, Value] = {}
        for path in self.paths:
            cell = row.cells.get(path)
            if cell is None:
                first, *rest = self.steps[path]
                outer = row.cells.get(str(first))
                cell = None if outer is None else inside(outer, tuple(rest))
            if cell is not None:
                self.seen.add(path)
                found[path] = self.parsed(path, cell)
        if not found:
            return None
        return cell_of(object_of(found)) if self.is_list else found[self.paths[0]]

    def parsed(self, path: str, cell: Value) -> Value:
        if not self.as_json or cell.kind != "text":
            return cell
        try:
            return cell_of(cell.text)
        except ValueError as error:
            raise RowRefused(
                "not_json", f"{path!r} is mapped as JSON to {self.field}, but is not JSON: {error}"
            ) from None


def _steps(path: str) -> Steps:
    """The steps of a path; a name that is none (a column called `a..b`) is one step."""
    try:
        return parse_path(path)
    except ValueError:
        return (path,)


class _Fields:
    """The cells of one row by field, read with their names in front of what is wrong."""

    def __init__(self, cells: dict[str, Value]) -> None:
        self.cells = cells

    def read(self, field: str, read: Callable[[Value], Any], default: Any) -> Any:
        """A field; *default* if it is absent."""
        cell = self.cells.get(field)
        if cell is None:
            return default
        try:
            return read(cell)
        except forms.FormRefused as error:
            text = str(error)
            hint = "; map it with {from: …, as: json} if the text is JSON" if cell.kind == "text" else ""
            raise RowRefused("bad_field", f"{field}{'' if text.startswith(('[', '.')) else ' '}{text}{hint}") from None

    def id(self) -> str | None:
        """The id as text; None if there is none."""
        cell = self.cells.get("id")
        if cell is None:
            return None
        id = str(cell.body)
        if cell.kind == "json" and id[0] not in "-0123456789":
            raise RowRefused("bad_id", f"the id must be text or a number, not {id[:40]}")
        if not id:
            raise RowRefused("bad_id", "the id is empty; leave it out to have one made")
        if len(id) > LONGEST_ID:
            raise RowRefused("bad_id", f"the id has {len(id)} characters; {LONGEST_ID} are allowed")
        if not id.isprintable() and _CONTROL.search(id):
            raise RowRefused("bad_id", f"the id {id!r} holds a control character")
        return id


def _tags(cell: Value) -> tuple[str, ...]:
    tags = forms.text_list(cell)
    if len(tags) > MOST_TAGS:
        raise forms.FormRefused(f"are {len(tags)}; {MOST_TAGS} are allowed")
    if len(set(tags)) != len(tags):
        raise forms.FormRefused("hold one twice")
    return tags


def _metadata(given: str, extra: dict[str, Value]) -> str:
    if not extra:
        return given
    more = object_of(extra)
    if not given:
        return more
    both = set(_json.loads(given)) & set(extra)
    if both:
        raise RowRefused("bad_field", f"metadata has {min(both)!r}, and there is a column {min(both)!r} too")
    return f"{given[:-1]},{more[1:]}"


def _digest(cells: dict[str, Value], extra: dict[str, Value]) -> str:
    """Of the content of a row, whatever the format it was read from."""
    content = [[field, cells[field].kind, cells[field].text] for field in sorted(cells) if field != "id"]
    content += [[f"metadata.{key}", cell.kind, cell.text] for key, cell in sorted(extra.items())]
    return hashlib.sha256(_json.dumps(content).encode()).hexdigest()
