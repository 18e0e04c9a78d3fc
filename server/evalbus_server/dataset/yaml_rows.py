"""Rows of a YAML file, such as the tests of promptfoo. It is read as a whole: such files are written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalbus_server.dataset.json_document import steps_of
from evalbus_server.dataset.refusal import FileRefused
from evalbus_server.model.yaml_text import YamlFault, read_yaml_text


def yaml_rows(text: str, place: str | None) -> list[Mapping[str, Any]]:
    """The mappings of a list, which is the document itself, or stands in it at *place*.

    Raises:
        FileRefused: it is not YAML, or no such list.
    """
    try:
        data = read_yaml_text(text)
    except YamlFault as fault:
        raise FileRefused(fault.place.line if fault.place else 0, "not_yaml", str(fault)) from None
    if not isinstance(data, list) and place is not None:
        for step in steps_of(place):
            try:
                data = data[step]
            except (KeyError, IndexError, TypeError):
                raise FileRefused(0, "no_records", f"the document has no {place!r}") from None
    if not isinstance(data, list):
        raise FileRefused(0, "not_a_list", "not a list of mappings; if the rows stand in it, say where with records")
    for number, each in enumerate(data, 1):
        if not isinstance(each, dict):
            raise FileRefused(0, "not_an_object", f"entry {number} is not a mapping of names")
    return data
