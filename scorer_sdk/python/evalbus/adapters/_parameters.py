"""From the signature of a constructor to settings: what can be written as JSON, and of which type."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import json
import operator
import types
import typing
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, Union, get_args, get_origin

REQUIRED: Any = dataclasses.MISSING
"""The default of a parameter that has none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """One setting."""

    name: str
    annotation: Any = Any
    default: Any = None
    description: str = ""

    def is_given_in(self, settings: Any) -> bool:
        """Whether settings say anything else than the default."""
        if self.default is REQUIRED:
            return True
        value = getattr(settings, self.name)
        return type(value) is not type(self.default) or bool(value != self.default)


def parameters_of(function: Callable[..., Any], without: Collection[str] = ()) -> tuple[Parameter, ...]:
    """The parameters of a function or constructor that can be written as JSON.

    What only Python objects can be given for (clients, templates, callables) is left out, and so are those whose names
    begin with an underscore.
    """
    hints = hints_of(function)
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            continue
        if parameter.name.startswith("_") or parameter.name in without:
            continue
        annotation = writable(hints.get(parameter.name, Any))
        if annotation is None:
            continue
        default = REQUIRED if parameter.default is parameter.empty else parameter.default
        if default is not REQUIRED and not _is_json(default):
            default = None
        found.append(Parameter(parameter.name, annotation, default))
    return tuple(found)


def settings_class(name: str, parameters: Sequence[Parameter]) -> type:
    """A dataclass with these fields, which is what a plugin's settings are."""
    fields: list[Any] = []
    for each in sorted(parameters, key=lambda parameter: parameter.default is not REQUIRED):
        metadata = {"description": each.description} if each.description else {}
        annotation = each.annotation
        if each.default is REQUIRED:
            field = dataclasses.field(metadata=metadata)
        elif isinstance(each.default, (list, dict)):
            field = dataclasses.field(default_factory=_copier(each.default), metadata=metadata)
        else:
            field = dataclasses.field(default=each.default, metadata=metadata)
        if each.default is None and annotation is not Any:
            annotation = annotation | None
        fields.append((each.name, annotation, field))
    return dataclasses.make_dataclass(f"{name}Settings", fields, frozen=True)


def writable(annotation: Any) -> Any:
    """The part of an annotation that JSON has a form for; None if there is none. What is not understood is Any."""
    if annotation in (Any, inspect.Parameter.empty, dict, list, tuple):
        return Any
    if annotation in (str, int, float, bool, type(None)):
        return annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        parts = [part for part in map(writable, arguments) if part is not None]
        if Any in parts:
            return Any
        return functools.reduce(operator.or_, parts) if set(parts) - {type(None)} else None
    if origin is Literal:
        return annotation
    if origin in (list, tuple, set, typing.Sequence, dict) or _is_abstract(origin):
        return Any if origin is dict or writable(arguments[0] if arguments else Any) is Any else _listed(arguments)
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            return annotation
        return Any if hasattr(annotation, "model_validate") else None
    return None


def _listed(arguments: Sequence[Any]) -> Any:
    entry = writable(arguments[0])
    return None if entry is None else list[entry]  # type: ignore[valid-type]  # made at run time


def _is_abstract(origin: Any) -> bool:
    return getattr(origin, "__module__", "") == "collections.abc" and origin.__name__ in ("Sequence", "Iterable")


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function or constructor as objects, without those that nobody here understands."""
    plain: Any = function.__init__ if inspect.isclass(function) else inspect.unwrap(function)
    try:
        return typing.get_type_hints(plain)
    except Exception:  # names that exist for type checkers only
        return {
            key: annotation
            for key, annotation in getattr(plain, "__annotations__", {}).items()
            if not isinstance(annotation, str)
        }


def _is_json(value: Any) -> bool:
    if isinstance(value, enum.Enum):
        return True
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _copier(value: Any) -> Callable[[], Any]:
    return lambda: type(value)(value)
