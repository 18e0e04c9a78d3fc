"""Items checked by JSON Schema: where the fault is, what is refused as a schema, and that nothing hangs or is fetched."""

from __future__ import annotations

import json
import time

import pytest

from evalbus import Item
from evalbus_server.dataset.schema import checked_schema, checker
from evalbus_server.errors import Invalid
from evalbus_server.model.dataset import DatasetInfo, Fault
from evalbus_server.model.run import DatasetVersion

LATEST = DatasetVersion("d", 1, 0, "", 0.0)
SCHEMA = {
    "type": "object",
    "required": ["a"],
    "properties": {"a": {"type": "number"}, "addr": {"properties": {"city": {"type": "string"}}}},
}


def faults(item: Item, input: object = None, expected: object = None) -> list[Fault]:
    texts = ["" if schema is None else checked_schema(json.dumps(schema), "x") for schema in (input, expected)]
    check = checker(DatasetInfo(LATEST, input_schema=texts[0], expected_schema=texts[1]))
    assert check is not None
    return check([item])


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (Item("i", {"a": "x"}), "input/a"),
        (Item("i", {}), "input"),
        (Item("i", {"a": 1, "addr": {"city": 3}}), "input/addr/city"),
        (Item("i", {"a": 1}, 5), "expected"),
        (Item("i", "text"), "input"),
    ],
)
def test_a_fault_has_the_pointer_of_its_place(item, path):
    """The cases of a system of the field (mastra: schemaValidation), with the field in front."""
    (fault,) = faults(item, SCHEMA, {"type": "string"})

    assert (fault.place, fault.id, fault.reason, fault.path) == (0, "i", "SCHEMA", path)


def test_what_fits_or_is_absent_has_no_fault():
    assert faults(Item("i", {"a": 1}), SCHEMA, {"type": "string"}) == []
    assert (
        faults(Item("i", {"a/b": {"~": 1}}), {"properties": {"a/b": {"properties": {"~": {"type": "string"}}}}})[0].path
        == "input/a~1b/~0"
    )


def test_formats_are_checked():
    schema = {"type": "string", "format": "date"}

    assert faults(Item("i", "2026-02-30"), schema)
    assert not faults(Item("i", "2026-02-28"), schema)


def test_a_schema_of_its_own_parts_is_followed():
    schema = {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}

    assert not faults(Item("i", [[], [[]]]), schema)
    assert faults(Item("i", [[], [5]]), schema)[0].path == "input/1/0"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "no schema that can be used"),
        ("[]", "a schema is a JSON object"),
        ('{"type": "nonsense"}', "is not valid under any of the given schemas"),
        ('{"$ref": "https://example.org/s.json"}', "leads out of the schema"),
        ('{"properties": {"a": {"$ref": "other.json#/x"}}}', "/properties/a/$ref: the reference"),
        ('{"$schema": "http://json-schema.org/draft-07/schema#"}', "is another draft"),
        ('{"pattern": "(?=x)"}', "is none of RE2's"),
        ('{"patternProperties": {"(?<!x)": {}}}', "is none of RE2's"),
    ],
)
def test_what_is_no_schema_here_is_refused(schema, said):
    with pytest.raises(Invalid) as caught:
        checked_schema(schema, "input_schema")
    assert said in str(caught.value)
    assert caught.value.field == "input_schema"


def test_a_schema_that_goes_round_or_leads_nowhere_is_a_fault():
    assert faults(Item("i", 1), {"$ref": "#"})[0].message == "the schema goes round in circles"
    assert "cannot be used" in faults(Item("i", 1), {"$ref": "#/$defs/none"})[0].message


def test_no_pattern_hangs():
    begun = time.monotonic()

    assert faults(Item("i", "a" * 50_000 + "!"), {"pattern": "^(a+)+$"})
    assert faults(Item("i", {"a" * 30 + "!": 1}), {"patternProperties": {"^(a+)+!$": {"type": "string"}}})
    assert time.monotonic() - begun < 60
