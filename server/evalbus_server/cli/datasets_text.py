"""Texts and documents that several commands of `evalbus dataset` read and print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalbus import Value, _json
from evalbus_server.cli.figures import NONE, count, plain
from evalbus_server.cli.report import console, print_json
from evalbus_server.dataset.cells import compact
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset import DatasetInfo, Edited, Tally

SHORT = 60
"""Characters of a content in a table."""


def info_document(info: DatasetInfo) -> dict[str, Any]:
    return {
        "description": info.description or None,
        "metadata": _json.loads(info.metadata_json) if info.metadata_json else None,
        "input_schema": _json.loads(info.input_schema) if info.input_schema else None,
        "expected_schema": _json.loads(info.expected_schema) if info.expected_schema else None,
        "scorers": list(info.scorers),
        "origin": info.origin or None,
    }


def print_edited(edited: Edited, ids: Sequence[str], *, as_json: bool) -> None:
    dataset, tally = edited.dataset, edited.tally
    if as_json:
        document: dict[str, Any] = {
            "dataset": dataset.name,
            "version": dataset.version,
            "items": dataset.items,
            "added": tally.added,
            "changed": tally.changed,
            "removed": tally.removed,
        }
        if ids:
            document |= {"ids": list(ids), "replayed": [ids[place] for place in edited.replayed]}
        if edited.missing:
            document["missing"] = list(edited.missing)
        print_json(document)
        return
    what = tally_text(tally) if edited.changed else "nothing has changed"
    console().print(
        f"{plain(dataset.name)} version {dataset.version}: {items_text(dataset.items)}; {what}", markup=False
    )


def metadata_text(text: str) -> str:
    """The text of a JSON object, as it is stored.

    Raises:
        Invalid: it is none.
    """
    if not text:
        return ""
    try:
        document = _json.loads(text)
    except ValueError as error:
        raise Invalid(Reason.REQUEST_INVALID, f"--metadata is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Invalid(Reason.REQUEST_INVALID, "--metadata must be a JSON object")
    return compact(text) if document else ""


def json_value(text: str, option: str) -> Value:
    try:
        made = Value.json(text)
    except ValueError as error:
        raise Invalid(Reason.REQUEST_INVALID, f"{option} is not JSON: {error}") from None
    return made if made.kind == "text" else Value(compact(made.text), "json")


def tally_text(tally: Tally) -> str:
    told = [f"{count(number)} {kind}" for kind, number in tally._asdict().items() if number]
    return ", ".join(told) or "items have another order"


def items_text(number: int) -> str:
    return "1 item" if number == 1 else f"{count(number)} items"


def short(value: Value | None) -> str:
    if value is None:
        return NONE
    text = str(value)
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"
