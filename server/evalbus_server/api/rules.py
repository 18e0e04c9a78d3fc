"""What an experiment of a caller may make this server do. An embedded run has no such rules: its author starts it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evalbus_server.errors import Denied, Invalid, Reason
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.plugin_use import PluginUse
from evalbus_server.runner.crew import not_started

_VARIABLE = re.compile(r"\$\{env:([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class AllowedCommand:
    """A command of the server's own configuration."""

    argv: tuple[str, ...]
    folder: str
    """Where it is started, whatever an experiment says: a name such as `target.py` means that file and no other."""
    variables: frozenset[str] = frozenset()
    """Variables of its environment that an experiment may set; with others it could be made another program."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The bounds of experiments that come over the wire."""

    commands: tuple[AllowedCommand, ...] = ()
    environment: frozenset[str] = frozenset()
    """Variables of the server's environment that an experiment may name: what it names it can send anywhere."""
    concurrency: int = 10_000

    def admit(self, experiment: Experiment) -> Experiment:
        """The experiment as it may run here: its commands are started where the configuration says.

        Raises:
            Denied: COMMAND_NOT_ALLOWED.
            Invalid: it names a variable that is not for callers, or asks for too much at a time.
        """
        for where, number in _concurrencies(experiment):
            if number > self.concurrency:
                message = f"{where}: this server works on at most {self.concurrency:,} at a time, not {number:,}"
                raise Invalid(Reason.EXPERIMENT_INVALID, message, field=where)
        target = experiment.target and self._admit(experiment.target, "target")
        scorers = tuple(self._admit(use, f"scorers[{index}]") for index, use in enumerate(experiment.scorers))
        return experiment.model_copy(update={"target": target, "scorers": scorers})

    def _admit(self, use: PluginUse, where: str) -> PluginUse:
        for path, name in _variables({"settings": use.settings, "env": use.env, "token": use.token}, where):
            if name not in self.environment:
                message = f"{path}: this server keeps its variable {name} to itself; `env` of its configuration lists those it does not"
                raise Invalid(Reason.EXPERIMENT_INVALID, message, field=path)
        if use.launched is None:
            return use
        found = next((each for each in self.commands if each.argv == use.launched), None)
        if found is None:
            raise not_started(use, where)
        for name in use.env:
            if name not in found.variables:
                message = f"{where}.env.{name}: this server lets nobody set it; `commands` of its configuration lists what may be set"
                raise Denied(Reason.COMMAND_NOT_ALLOWED, message, field=f"{where}.env.{name}")
        return use.model_copy(update={"folder": found.folder})


def _concurrencies(experiment: Experiment) -> Iterator[tuple[str, int]]:
    yield "limits.concurrency", experiment.limits.concurrency
    for index, use in enumerate(experiment.scorers):
        yield f"scorers[{index}].concurrency", use.concurrency


def _variables(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """The variables that a value names, each with its path."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _variables(each, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _variables(each, f"{where}[{index}]")
    elif isinstance(value, str) and (match := _VARIABLE.fullmatch(value)) is not None:
        yield where, match[1]
