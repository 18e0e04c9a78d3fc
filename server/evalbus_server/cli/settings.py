"""What a run was told to do, for people: a line for each part, and only what is not as it would be anyway."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from evalbus_server.cli.figures import plain
from evalbus_server.model.bounds import Keep, Limits
from evalbus_server.model.dataset_use import DatasetUse
from evalbus_server.model.experiment import Epochs
from evalbus_server.model.part import Part
from evalbus_server.model.plugin_use import ScorerUse

Document: TypeAlias = Mapping[str, Any]

WIDEST = 160
"""Characters of one value; a prompt in the settings is not printed whole."""

_WAYS = ("command", "address", "use")
_SECRET = ("token", "env", "tls")
"""Of these it is told that they are there, and no more."""


def told_settings(experiment: Document | None, changed: Document | None = None) -> Iterator[tuple[str, str]]:
    """Lines, each with its label, from the `experiment` of a run's document; none if it is not known.

    *changed* are its limits that were set anew, by path: the experiment has their values.
    """
    if experiment is None:
        return
    chosen = {key: value for key, value in experiment["dataset"].items() if key not in ("name", "version")}
    rows = [
        ("items", _differing(chosen, DatasetUse(name="any"))),
        (
            "target",
            _plugin(experiment["target"]) if experiment["target"] != "none" else ["none: the dataset has outputs"],
        ),
        *(("scorer", _plugin(scorer)) for scorer in experiment["scorers"]),
        ("scorers", ["each item says who judges it"] if experiment.get("scorers_from") == "items" else []),
        ("epochs", _differing(experiment.get("epochs", {}), Epochs())),
        ("limits", _differing(_by_path(experiment.get("limits", {})), Limits())),
        ("changed", [f"{path} {_text(value)}" for path, value in (changed or {}).items()]),
        ("keep", _differing(experiment.get("keep", {}), Keep())),
        ("cache", ["on"] if experiment.get("cache") else []),
        ("tags", [", ".join(experiment.get("tags", ()))]),
    ]
    seen = ""
    for label, parts in rows:
        if text := "   ".join(_short(plain(part)) for part in parts if part):
            yield ("" if label == seen else label), text
            seen = label


def _plugin(use: Document) -> list[str]:
    """A target or a scorer: its name, how it is reached, and its settings."""
    way = next(key for key in _WAYS if key in use)
    place = shlex.join(use[way]) if way == "command" else str(use[way])
    rest = {key: value for key, value in use.items() if key not in (*_WAYS, *_SECRET, "name")}
    hidden = [f"{key} {', '.join(use[key])}" if key == "env" else f"with {key}" for key in _SECRET if key in use]
    named = f"{use['name']}: {place}" if use.get("name", place) != place else place
    return [named, *_differing(rest, ScorerUse(use="any")), *hidden]


def _differing(written: Document, usual: Part) -> list[str]:
    """`key value` for each value that is not the usual one."""
    defaults = usual.model_dump(mode="json", by_alias=True)
    return [f"{key} {_text(value)}" for key, value in written.items() if value != defaults.get(key)]


def _by_path(limits: Document) -> Document:
    """Limits by the paths below `limits` that set them."""
    flat: dict[str, Any] = {}
    for key, value in limits.items():
        parts = value if isinstance(value, Mapping) else {"": value}
        flat.update({f"{key}.{part}" if part else key: each for part, each in parts.items()})
    return flat


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
