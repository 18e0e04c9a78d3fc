"""Secrets that stand in the environment and are called `${env:NAME}` elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.paths import format_path

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


def references(value: Any) -> Iterator[str]:
    """The names of the variables that `resolve_env` would replace."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from references(each)
    elif isinstance(value, str) and (match := _ENVIRONMENT.fullmatch(value)):
        yield match[1]


def is_reference(text: str) -> bool:
    """Whether a text only names a variable of the environment."""
    return _ENVIRONMENT.fullmatch(text) is not None


def _step(key: str) -> str:
    path = format_path((key,))
    return path if path.startswith("[") else f".{path}"
