"""The experiment of a run as JSON shows it: in the words of a file, every default filled in, what has no value left out."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from evalbus_server.model.environment import is_reference
from evalbus_server.model.run import Run
from evalbus_server.model.secrets import HIDDEN

Document: TypeAlias = dict[str, Any]

_FREE = ("settings", "metadata", "env")
"""What these hold is not ours to leave out."""
_SAYING = ("tls", "scorers")
"""These say something also when they are empty."""


def settings_document(run: Run) -> Document | None:
    """What a run was started with; None if it is not known. Folders are left out, since they define nothing."""
    return experiment_document(run.experiment_json) if run.experiment_json else None


def experiment_document(experiment_json: str) -> Document:
    """An experiment, from its canonical JSON."""
    document: Document = json.loads(experiment_json)
    for part in (document.get("dataset"), document.get("target"), *(document.get("scorers") or ())):
        if part is not None:
            part.pop("folder", None)
            if part.get("token") and not is_reference(part["token"]):
                part["token"] = HIDDEN
    found: Document = _without_empty(document)
    return {**found, "target": found.get("target", "none")}


def _without_empty(value: Any) -> Any:
    """The same without keys that say nothing."""
    if isinstance(value, list):
        return [_without_empty(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: each if key in _FREE else _without_empty(each) for key, each in value.items()}
    return {
        key: each for key, each in kept.items() if each is not None and (key in _SAYING or each not in ("", [], {}))
    }
