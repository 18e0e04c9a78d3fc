"""Experiments as people write them: from a file, or from plain data, with single values set from outside."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.faults import kind_of, suggestion
from evalbus_server.model.paths import Steps, format_path, parse_path
from evalbus_server.runner.documents import DocumentError, read_document, read_yaml


def load(path: str | os.PathLike[str], overrides: Sequence[str] = (), tags: Sequence[str] = ()) -> Experiment:
    """The experiment of a YAML, JSON or TOML file.

    Each of *overrides* is `PATH=VALUE` (see `apply`); they are applied in order, before the experiment is checked.
    *tags* are added to the file's own. The folder of the file becomes the folder of dataset, target and scorers.

    Raises:
        Invalid: the file cannot be read, or does not hold an experiment; one line, with the file and mostly the place.
    """
    document = read_document(path, Reason.EXPERIMENT_INVALID)
    try:
        return from_mapping(document.data, Path(path).resolve().parent, overrides, tags)
    except Invalid as error:
        message = str(error) if str(error).startswith("--set") else f"{path}: {document.told(error.field)}{error}"
        raise Invalid(error.reason, message, field=error.field) from None


def from_mapping(
    document: Mapping[str, Any],
    folder: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> Experiment:
    """The experiment of plain data; paths in it are relative to *folder*.

    Raises:
        Invalid: it is no experiment.
    """
    data = copy.deepcopy(dict(document))
    places = [put(data, override) for override in overrides]
    if tags:
        own = data.get("tags")
        data["tags"] = [*own, *tags] if isinstance(own, list | tuple) else own or list(tags)
    for where, part in _placed_parts(data):
        if "folder" in part:
            raise Invalid(
                Reason.EXPERIMENT_INVALID,
                f"{where}.folder: unknown key; the folder is always the experiment's own",
                field=f"{where}.folder",
            )
        part["folder"] = os.fspath(folder)
    experiment = _parsed(data, overrides, places)
    if "target" not in data:  # who forgot it would only see that nothing was answered
        message = "target: missing; say what is asked, or `target: none` if the dataset brings the outputs"
        raise Invalid(Reason.EXPERIMENT_INVALID, message, field="target")
    return experiment


def from_document(experiment: Experiment, overrides: Sequence[str] = (), tags: Sequence[str] = ()) -> Experiment:
    """An experiment with single values set; its parts keep their folders.

    Raises:
        Invalid: it is none any more.
    """
    data = experiment.model_dump(mode="json", by_alias=True)
    places = [put(data, override) for override in overrides]
    data["tags"] = [*data["tags"], *tags]
    return _parsed(data, overrides, places)


def _parsed(data: dict[str, Any], overrides: Sequence[str], places: Sequence[Steps]) -> Experiment:
    """The experiment of data in which *overrides* were set at *places*; one of them answers for its own fault."""
    try:
        return Experiment.parse(data)
    except Invalid as error:
        field = parse_path(error.field) if error.field else ()
        for override, place in zip(reversed(overrides), reversed(places), strict=True):
            if field[: len(place)] == place:
                raise Invalid(error.reason, f"--set {override}: {error}", field=error.field) from None
        raise


def _placed_parts(data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The parts that have a folder, as far as they have their right form."""
    parts = [("dataset", data.get("dataset")), ("target", data.get("target"))]
    scorers = data.get("scorers")
    if isinstance(scorers, list | tuple):
        parts += [(f"scorers[{index}]", scorer) for index, scorer in enumerate(scorers)]
    return [(where, part) for where, part in parts if isinstance(part, dict)]


# --- values set from outside ------------------------------------------------------------------------------------


def put(data: dict[str, Any], override: str) -> Steps:
    """Set one value in plain data, and return its place, where entries of lists go by their numbers.

    *override* is `PATH=VALUE`: PATH is made of `.key`, `[n]` and, for scorers, their names
    (`scorers.tone.threshold=0.9`); VALUE is YAML. Mappings on the way are made where they are missing.

    Raises:
        Invalid: it is not such an override, or the path does not fit the data.
    """
    path, equals, value = override.partition("=")
    try:
        if not equals:
            raise ValueError("write PATH=VALUE, such as limits.concurrency=32")
        steps = parse_path(path.strip())
        if not isinstance(steps[0], str):
            raise ValueError("a path begins with a key, such as limits.concurrency")
        return _put(data, steps, read_yaml(value).data)
    except DocumentError as error:
        raise Invalid(Reason.EXPERIMENT_INVALID, f"--set {override}: in the value, {error}") from None
    except ValueError as error:
        raise Invalid(Reason.EXPERIMENT_INVALID, f"--set {override}: {error}") from None


def _put(data: Any, steps: Steps, value: Any) -> Steps:
    place = data
    taken: list[str | int] = []
    for depth, step in enumerate(steps):
        here = format_path(steps[:depth])
        key = _key_in(place, step, here)
        taken.append(key)
        if depth == len(steps) - 1:
            if isinstance(place, list) and key == len(place):
                place.append(value)
            else:
                place[key] = value
            break
        empty: Any = [] if isinstance(steps[depth + 1], int) else {}
        if isinstance(place, list):
            if key == len(place):
                place.append(empty)
        elif place.get(key) is None or (key == "target" and place[key] == "none"):
            place[key] = empty
        elif steps[: depth + 1] == ("epochs",) and isinstance(place[key], int):
            place[key] = {"count": place[key]}  # The short form.
        place = place[key]
    return tuple(taken)


def _key_in(place: Any, step: str | int, here: str) -> str | int:
    """The key or index in a mapping or list that a step of a path means."""
    if isinstance(place, dict):
        if isinstance(step, str):
            return step
        raise ValueError(f"{here} is a mapping, so [{step}] leads nowhere; name a key")
    if not isinstance(place, list):
        raise ValueError(f"{here} is {kind_of(place)}, so nothing can be set inside it")
    if isinstance(step, int):
        index = step if step >= 0 else len(place) + step
        if 0 <= index <= len(place):
            return index
        raise ValueError(f"{here} has {len(place)} entries, so there is no [{step}]")
    names = [_name_of(entry) for entry in place]
    if names.count(step) == 1:
        return names.index(step)
    if step in names:
        raise ValueError(f"{here} has {names.count(step)} entries called {step!r}; count them with [n] instead")
    known = [name for name in names if name is not None]
    nameless = [index for index, name in enumerate(names) if name is None]
    hint = suggestion(step, known, known) if known else ""
    if nameless and "did you mean" not in hint:
        hint = f"; one without a name or use goes by its number, as in {here}[{nameless[0]}]"
    raise ValueError(f"{here} has no entry called {step!r}{hint}")


def _name_of(entry: Any) -> str | None:
    """What an entry of a list is called: its name, else the builtin it uses."""
    if not isinstance(entry, dict):
        return None
    return next((entry[key] for key in ("name", "use") if isinstance(entry.get(key), str)), None)
