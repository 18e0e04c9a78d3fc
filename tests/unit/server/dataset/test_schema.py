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
        (
            '{"properties": {"a": {"$ref": "other.json#/x"}}}',
            "the reference 'other.json#/x' leads out of the schema, or nowhere",
        ),
        ('{"$schema": "http://json-schema.org/draft-07/schema#"}', "is another draft"),
        ('{"pattern": "(?=x)"}', "'(?=x)' is no pattern: invalid perl operator: (?="),
        ('{"patternProperties": {"(?<!x)": {}}}', "the syntax is RE2's"),
        ('{"properties": {"a": {"type": "nonsense"}}}', ": /properties/a/type: "),
        ('{"$ref": "#/$defs/none"}', "the reference '#/$defs/none' leads out of the schema, or nowhere"),
        ('{"$ref": "#/mine/a", "mine": {"a": {"pattern": "("}}}', "'(' is no pattern"),
        ('{"patternProperties": {"a": {}}, "unevaluatedProperties": false}', "do not go together here"),
    ],
)
def test_what_is_no_schema_here_is_refused(schema, said):
    with pytest.raises(Invalid) as caught:
        checked_schema(schema, "input_schema")
    assert said in str(caught.value)
    assert caught.value.field == "input_schema"


def test_a_schema_that_goes_round_is_told_once():
    check = checker(DatasetInfo(LATEST, input_schema=checked_schema('{"$ref": "#"}', "x")))
    assert check is not None

    (fault,) = check([Item("i", 1), Item("j", 1)])

    assert (fault.id, fault.path, fault.message) == ("i", "input", "the schema goes round in circles")


def test_what_only_looks_like_a_reference_is_data():
    schema = {"properties": {"$ref": {"type": "string"}}, "default": {"$ref": "https://example.org/"}}

    assert not faults(Item("i", {"$ref": "x"}), schema)
    assert faults(Item("i", {"$ref": 1}), schema)[0].path == "input/$ref"


def test_schemas_stand_wherever_a_reference_leads():
    schema = {"definitions": {"word": {"pattern": "^[a-z]+$"}}, "mine": {"a": {"$ref": "#/definitions/word"}}}

    assert not faults(Item("i", "abc"), schema | {"$ref": "#/mine/a"})
    assert faults(Item("i", "a1"), schema | {"$ref": "#/mine/a"})


def test_patterns_may_be_what_only_re2_knows():
    assert not faults(Item("i", "größe"), {"pattern": r"^\p{L}+$"})
    assert faults(Item("i", "1"), {"pattern": r"^\p{L}+$"})


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("date-time", "2026-02-28T23:59:60.5+01:00", "2026-02-30T10:00:00Z"),
        ("date-time", "2026-02-28t10:00:00z", "2026-02-28 10:00:00Z"),
        ("time", "10:00:00Z", "10:00:00"),
        ("duration", "P1Y2M3DT4H5M6S", "P"),
        ("duration", "P4W", "P1YT"),
        ("hostname", "a-1.example", "-a.example"),
        ("hostname", "localhost", "a" * 64),
        ("uri", "https://user@example.org:80/a?b#c", "/a/b"),
        ("uri", "urn:isbn:0451450523", "https://example.org/a b"),
        ("uri", "http://[2001:db8::7]/", "http://[nonsense]/"),
        ("uri", "mailto:a@example.org", "https://example.org/%zz"),
        ("uri-reference", "../a?b", "a\\b"),
        ("uri-reference", "", "1:2"),
        ("iri", "https://example.org/größe", "größe"),
        ("json-pointer", "/a~1b/~0/0", "a"),
        ("json-pointer", "", "/~2"),
        ("relative-json-pointer", "1/a", "-1"),
        ("email", "a@example.org", "a"),
        ("ipv4", "127.0.0.1", "127.0.0.256"),
        ("uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08"),
    ],
)
def test_the_formats_of_the_draft_are_checked(name, right, wrong):
    assert not faults(Item("i", right), {"format": name})
    assert faults(Item("i", wrong), {"format": name})
    assert not faults(Item("i", 5), {"format": name})


def test_no_pattern_hangs():
    begun = time.monotonic()

    assert faults(Item("i", "a" * 50_000 + "!"), {"pattern": "^(a+)+$"})
    assert faults(Item("i", {"a" * 30 + "!": 1}), {"patternProperties": {"^(a+)+!$": {"type": "string"}}})
    closed = {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}
    assert faults(Item("i", {"a" * 50 + "!": 1}), closed)
    assert not faults(Item("i", [{"a": n} for n in range(40_000)]), {"uniqueItems": True})
    assert time.monotonic() - begun < 60
