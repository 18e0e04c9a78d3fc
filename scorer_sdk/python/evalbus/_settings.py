"""A plugin's settings: from a dataclass or a pydantic model to a JSON Schema, and from JSON to an object of it.

Pydantic is never imported here: whoever passes a model has imported it already.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, Union, get_args, get_origin

from evalbus import _json
from evalbus._errors import PluginInvalid, SettingsInvalid
from evalbus._value import object_data

Names: TypeAlias = Mapping[str, Any]
"""Names of the place where a plugin is defined, by which annotations written as text are understood."""

Fields: TypeAlias = Sequence[tuple[dataclasses.Field[Any], Any]]
"""Fields of a dataclass, each with its annotation as an object."""

SUPPORTED = "str, int, float, bool, Literal, Optional and unions, list, tuple, dict, Enum, a dataclass, Any"


class SettingsType(Protocol):
    """What a plugin takes as settings."""

    @property
    def schema(self) -> str:
        """The JSON Schema as text; "" when the plugin takes none."""

    def read(self, text: str) -> Any:
        """Settings from the text of a JSON object; "" stands for {}.

        Raises:
            SettingsInvalid: they do not fit; it names the field.
        """


def settings_type(annotation: Any, names: Names, owner: str) -> SettingsType:
    """The settings type behind an annotation.

    Raises:
        PluginInvalid: it is none; the text says what would be.
    """
    if annotation in (dict, Mapping, Any) or get_origin(annotation) in (dict, Mapping):
        return FreeSettings()
    if hasattr(annotation, "__pydantic_validator__") and "pydantic" in sys.modules:
        return PydanticSettings(annotation)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return DataclassSettings(annotation, names)
    raise PluginInvalid(
        f"{owner}: annotate settings with a dataclass, a pydantic model or dict, not with {annotation!r}"
    )


def settings_text(settings: object) -> str:
    """The JSON text of settings given as a mapping, a dataclass or a pydantic model; "" for None.

    Raises:
        TypeError: they are none of these, or hold something that JSON has no form for.
        ValueError: a number in them is not finite.
    """
    if settings is None:
        return ""
    if hasattr(settings, "model_dump_json"):
        return str(settings.model_dump_json(by_alias=True))
    plain = _plain(settings)
    if not isinstance(plain, dict):
        raise TypeError(f"settings are a mapping, a dataclass or a pydantic model, not {type(settings).__name__}")
    return _json.dumps(plain)


class NoSettings:
    """The plugin takes no settings, and says so if it gets any."""

    schema = ""

    def read(self, text: str) -> None:
        """None, for no settings."""
        for key in _object(text):
            raise SettingsInvalid(f"settings.{key}: this plugin takes no settings", f"settings.{key}")


class FreeSettings:
    """Any JSON object, which the plugin reads by itself."""

    schema = '{"type":"object"}'

    def read(self, text: str) -> dict[str, Any]:
        """The object as a dict."""
        return _object(text)


class DataclassSettings:
    """A dataclass, whose field types are the schema."""

    def __init__(self, kind: type, names: Names) -> None:
        """Make the schema.

        Raises:
            PluginInvalid: a field has a type that has no schema.
        """
        maker = _Schema(names)
        self.schema = _json.dumps(maker.of(kind, kind.__name__))
        self._kind = kind
        self._reader = _Reader(maker.fields)

    def read(self, text: str) -> Any:
        """The dataclass from its JSON object."""
        return self._reader.read(self._kind, _object(text), "settings")


class PydanticSettings:
    """A pydantic model, or a dataclass made by pydantic."""

    def __init__(self, kind: Any) -> None:
        """Make the schema."""
        adapter = sys.modules["pydantic"].TypeAdapter(kind)
        config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
        self._adapter = adapter
        # Unknown keys are refused unless the author says otherwise; pydantic by itself would ignore them.
        self._strict = "extra" not in config
        document = adapter.json_schema()
        if self._strict:
            document.setdefault("additionalProperties", False)
        self._keys = list(document.get("properties", ()))
        self.schema = json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    def read(self, text: str) -> Any:
        """The model from its JSON object."""
        given = _object(text)
        if self._strict:
            _refuse_unknown(given, self._keys, "settings")
        try:
            return self._adapter.validate_json(text or "{}")
        except ValueError as error:  # pydantic's ValidationError is one
            raise _from_pydantic(error) from None


def _from_pydantic(error: ValueError) -> SettingsInvalid:
    faults = error.errors() if hasattr(error, "errors") else []
    if not faults:
        return SettingsInvalid(f"settings: {error}")
    texts = []
    for fault in faults:
        path = "settings" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault["loc"])
        texts.append((f"{path}: {fault['msg']}", path))
    shown = "; ".join(text for text, _ in texts[:3])
    more = f"; and {len(texts) - 3} more" if len(texts) > 3 else ""
    return SettingsInvalid(shown + more, texts[0][1])


class _Schema:
    """Makes a JSON Schema (draft 2020-12) from type annotations."""

    _SIMPLE: typing.ClassVar[dict[Any, str]] = {
        str: "string",
        int: "integer",
        float: "number",
        bool: "boolean",
        type(None): "null",
    }

    def __init__(self, names: Names) -> None:
        self._names = names
        self._open: list[type] = []
        self.fields: dict[type, Fields] = {}
        """Of each dataclass that was met."""

    def of(self, kind: Any, where: str) -> dict[str, Any]:
        if kind is Any:
            return {}
        if kind in self._SIMPLE:
            return {"type": self._SIMPLE[kind]}
        shape, parts = _shape(kind)
        if shape == "union":
            return {"anyOf": [self.of(part, where) for part in parts]}
        if shape == "literal":
            return {"enum": list(parts)}
        if shape == "list":
            return {"type": "array", "items": self.of(parts[0], where)}
        if shape == "dict":
            return {"type": "object", "additionalProperties": self.of(parts[0], where)}
        if shape == "enum":
            return {"enum": [member.value for member in kind]}
        if shape == "dataclass":
            return self._object(kind, where)
        raise PluginInvalid(f"settings field {where}: {kind!r} is not supported; use {SUPPORTED}, or a pydantic model")

    def _object(self, kind: type, where: str) -> dict[str, Any]:
        if kind in self._open:
            raise PluginInvalid(f"settings field {where}: {kind.__name__} holds itself; use a pydantic model")
        self._open.append(kind)
        properties: dict[str, Any] = {}
        required = []
        self.fields[kind] = _fields(kind, self._names)
        for field, annotation in self.fields[kind]:
            properties[field.name] = self.of(annotation, f"{where}.{field.name}")
            if "description" in field.metadata:
                properties[field.name]["description"] = str(field.metadata["description"])
            default = _default(field)
            if default is dataclasses.MISSING:
                required.append(field.name)
            else:
                properties[field.name]["default"] = _plain(default)
        self._open.pop()
        document: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        return document | ({"required": required} if required else {})


class _Reader:
    """Reads JSON into annotated types, and says where it does not fit."""

    def __init__(self, fields: Mapping[type, Fields]) -> None:
        self._fields = fields

    def read(self, kind: Any, value: Any, path: str) -> Any:
        if kind is Any:
            return value
        if kind in _SCALARS:
            return _SCALARS[kind](value, path)
        shape, parts = _shape(kind)
        return getattr(self, f"_{shape}")(kind, parts, value, path)

    def _union(self, _: Any, parts: Sequence[Any], value: Any, path: str) -> Any:
        if value is None and type(None) in parts:
            return None
        choices = [part for part in parts if part is not type(None)]
        if len(choices) == 1:
            return self.read(choices[0], value, path)
        faults = []
        for part in choices:
            try:
                return self.read(part, value, path)
            except SettingsInvalid as fault:
                faults.append(str(fault).removeprefix(f"{path}: "))
        raise SettingsInvalid(f"{path}: " + "; or ".join(faults), path)

    def _literal(self, _: Any, parts: Sequence[Any], value: Any, path: str) -> Any:
        for part in parts:
            if type(part) is type(value) and part == value:
                return part
        raise _unexpected("one of " + ", ".join(map(_quote, parts)) + _hint(value, parts), value, path)

    def _enum(self, kind: type[enum.Enum], _: Sequence[Any], value: Any, path: str) -> Any:
        values = [member.value for member in kind]
        return kind(self._literal(None, values, value, path))

    def _list(self, kind: Any, parts: Sequence[Any], value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise _unexpected("a list", value, path)
        made = [self.read(parts[0], entry, f"{path}[{index}]") for index, entry in enumerate(value)]
        return tuple(made) if (get_origin(kind) or kind) is tuple else made

    def _dict(self, _: Any, parts: Sequence[Any], value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _unexpected("an object", value, path)
        return {key: self.read(parts[0], entry, f"{path}.{key}") for key, entry in value.items()}

    def _dataclass(self, kind: type, _: Sequence[Any], value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _unexpected("an object", value, path)
        fields = self._fields[kind]
        _refuse_unknown(value, [field.name for field, _ in fields], path)
        made = {}
        for field, annotation in fields:
            if field.name in value:
                made[field.name] = self.read(annotation, value[field.name], f"{path}.{field.name}")
            elif _default(field) is dataclasses.MISSING:
                raise SettingsInvalid(f"{path}.{field.name}: missing", f"{path}.{field.name}")
        try:
            return kind(**made)
        except (ValueError, TypeError) as error:  # the author's own check in __post_init__
            raise SettingsInvalid(f"{path}: {error}", path) from None


def _text(value: Any, path: str) -> str:
    if isinstance(value, str):
        return value
    raise _unexpected("a text", value, path)


def _integer(value: Any, path: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():  # JSON does not tell 3 from 3.0
        return int(value)
    raise _unexpected("an integer", value, path)


def _number(value: Any, path: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise _unexpected("a number", value, path)


def _boolean(value: Any, path: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _unexpected("true or false", value, path)


def _null(value: Any, path: str) -> None:
    if value is not None:
        raise _unexpected("null", value, path)


_SCALARS: dict[Any, Callable[[Any, str], Any]] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _boolean,
    type(None): _null,
}


def _shape(kind: Any) -> tuple[str, Sequence[Any]]:
    """How an annotation is read, and the annotations or values inside it."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, types.UnionType):
        return "union", arguments
    if origin is Literal:
        return "literal", arguments
    bare = origin or kind
    if bare in (list, Sequence) or (bare is tuple and (not arguments or arguments[1:] == (...,))):
        return "list", arguments[:1] or (Any,)
    if bare in (dict, Mapping) and (not arguments or arguments[0] is str):
        return "dict", arguments[1:] or (Any,)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "enum", ()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return "dataclass", ()
    return "", ()


def _fields(kind: type, names: Names) -> Fields:
    try:
        hints = typing.get_type_hints(kind, localns=dict(names))
    except (NameError, TypeError) as error:
        raise PluginInvalid(f"settings {kind.__name__}: an annotation is not understood: {error}") from None
    return [(field, hints[field.name]) for field in dataclasses.fields(kind) if field.init]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _plain(value: Any) -> Any:
    """A default as JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return value


def _object(text: str) -> dict[str, Any]:
    try:
        return object_data(text)
    except ValueError as error:
        raise SettingsInvalid(f"settings: {error}") from None


def _refuse_unknown(given: Mapping[str, Any], known: Sequence[str], path: str) -> None:
    for key in given:
        if key not in known:
            allowed = _hint(key, known) or (f"; known are {', '.join(known)}" if known else "; there are none")
            raise SettingsInvalid(f"{path}.{key}: unknown setting{allowed}", f"{path}.{key}")


def _hint(value: Any, known: Sequence[Any]) -> str:
    names = [name for name in known if isinstance(name, str)]
    near = difflib.get_close_matches(value, names, n=1) if isinstance(value, str) else []
    return f" (did you mean {near[0]!r}?)" if near else ""


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _unexpected(wanted: str, value: Any, path: str) -> SettingsInvalid:
    shown = json.dumps(value, ensure_ascii=False, default=repr)
    return SettingsInvalid(f"{path}: expected {wanted}, got {shown if len(shown) <= 80 else shown[:77] + '…'}", path)
