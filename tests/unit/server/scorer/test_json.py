"""Scorers of JSON documents and lists."""

from __future__ import annotations

import gc
import weakref
from decimal import Decimal
from importlib import import_module
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from evalbus import ScoreStatus, SettingsInvalid, Value
from evalbus_server.model.json_schema import MOST_FAULTS, SafeSchema
from evalbus_server.scorer.builtin.json_diff import Comparison
from evalbus_server.scorer.builtin.list_contains import _best_sum
from tests.unit.server.scorer.asking import failure_of, score_of, value_of

DEEP = "[" * 10_000 + "]" * 10_000
IMAGE = Value.blob(b"a", "image/png")


class _Part(dict[str, Any]):
    """A part of a document that can be looked after."""


class TestJsonValid:
    @pytest.mark.parametrize(
        ("output", "settings", "value"),
        [
            ('{"a": 1}', {}, 1),
            (" [1, 2]\n", {}, 1),
            ("7", {}, 1),
            ({"a": 1}, {"type": "object"}, 1),
            ("[1]", {"type": "object"}, 0),
            ("[1]", {"type": "array"}, 1),
            ("null", {"type": "object"}, 0),
            ("", {}, 0),
            ("nope", {}, 0),
            ("[1,]", {}, 0),
            ("NaN", {}, 0),
            ('{"a": 1, "a": 2}', {}, 0),
            ('```json\n{"a": 1}\n```', {}, 0),
            ("{'a': 1}", {}, 0),
            (DEEP, {}, 0),
        ],
    )
    async def test_what_is_json(self, output, settings, value):
        assert await value_of("json_valid", output, **settings) == value

    async def test_it_says_why_not(self):
        assert (await score_of("json_valid", "[1]", type="object")).explanation == "array, not object"
        assert (await score_of("json_valid", DEEP)).explanation.startswith("not JSON: nested deeper")
        assert failure_of(await score_of("json_valid", IMAGE)).reason == "NOT_TEXT"


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"$ref": "#/$defs/age"}},
    "required": ["name"],
    "patternProperties": {"^x-": {"type": "integer"}},
    "additionalProperties": False,
    "$defs": {"age": {"type": "integer", "minimum": 0}},
}


KINDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({"kind": st.sampled_from("abc")})


class TestJsonSchemaValid:
    @pytest.mark.parametrize(
        ("output", "where"),
        [
            ({"name": "Ann", "age": 3, "x-rank": 1}, None),
            ('{"name": "Ann"}', None),
            ({"age": 3}, "$: "),
            ({"name": "ann"}, "$.name: 'ann' does not match '^[A-Z]'"),
            ({"name": "Ann", "age": -1}, "$.age: "),
            ({"name": "Ann", "x-rank": "1"}, "$['x-rank']: "),
            ({"name": "Ann", "more": 1}, "$: additional properties are not allowed: 'more'"),
            ("Ann", "not JSON"),
            (DEEP, "not JSON: nested deeper"),
        ],
    )
    async def test_what_fits_and_where_it_does_not(self, output, where):
        score = await score_of("json_schema_valid", output, schema=PERSON)
        assert score.value == float(where is None)
        assert score.explanation.startswith(where or "")

    async def test_additional_properties_may_have_a_schema(self):
        schema = {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}
        assert await value_of("json_schema_valid", {"a": "x", "b": 1}, schema=schema) == 1.0
        assert await value_of("json_schema_valid", {"a": "x", "b": "y"}, schema=schema) == 0.0

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "objekt"},
            {"$ref": "https://example.com/schema.json"},
            {"properties": {"a": {"$ref": "other.json#/x"}}},
            {"$ref": "file:///etc/passwd"},
            {"$ref": "#/$defs/absent"},
            {"properties": {"a": {"pattern": "(a"}}},
            {"patternProperties": {"a(?=b)": {}}},
            {"patternProperties": {"a": {}}, "unevaluatedProperties": False},
        ],
    )
    async def test_a_schema_that_cannot_be_used_is_refused_before_the_run(self, schema):
        with pytest.raises(SettingsInvalid, match=r"settings\.schema"):
            await score_of("json_schema_valid", {}, schema=schema)

    async def test_a_schema_is_needed(self):
        with pytest.raises(SettingsInvalid, match=r"settings\.schema: missing"):
            await score_of("json_schema_valid", {})

    async def test_parts_with_an_id_of_their_own_may_be_referred_to(self):
        schema = {
            "$id": "https://example.com/root",
            "$ref": "part",
            "$defs": {"p": {"$id": "https://example.com/part", "type": "integer"}},
        }
        assert await value_of("json_schema_valid", 3, schema=schema) == 1.0
        assert await value_of("json_schema_valid", "x", schema=schema) == 0.0

    async def test_a_schema_may_refer_to_itself(self):
        schema = {"properties": {"next": {"$ref": "#"}}, "type": "object"}
        assert await value_of("json_schema_valid", {"next": {"next": {}}}, schema=schema) == 1.0
        assert await value_of("json_schema_valid", {"next": {"next": 1}}, schema=schema) == 0.0

    async def test_a_schema_that_goes_round_for_ever_is_errored(self):
        assert failure_of(await score_of("json_schema_valid", {}, schema={"$ref": "#"})).reason == "SCHEMA_ENDLESS"

    async def test_formats_are_checked_if_asked_for(self):
        schema = {"format": "date"}
        assert await value_of("json_schema_valid", '"tomorrow"', schema=schema) == 1.0
        assert await value_of("json_schema_valid", '"tomorrow"', schema=schema, formats=True) == 0.0

    async def test_a_bad_pattern_of_python_cannot_hang(self):
        schema = {"pattern": "^(a+)+$", "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}
        assert await value_of("json_schema_valid", f'"{"a" * 40}!"', schema=schema) == 0.0
        assert await value_of("json_schema_valid", {"a" * 40 + "!": 1}, schema=schema) == 0.0

    @pytest.mark.parametrize(
        ("entries", "value"),
        [
            ([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], 0.0),
            ([1, 1.0], 0.0),
            ([[-0.0], [0]], 0.0),
            ([1, True, "1", None, "null", [1], {"1": 1}], 1.0),
            ([10**30, 10**30 + 1], 1.0),
        ],
    )
    async def test_entries_are_the_same_as_json_schema_has_it(self, entries, value):
        assert await value_of("json_schema_valid", entries, schema={"uniqueItems": True}) == value
        assert await value_of("json_schema_valid", entries, schema={"uniqueItems": False}) == 1.0

    async def test_many_objects_are_not_compared_each_with_each(self):
        entries = [{"n": n} for n in range(60_000)]  # hours, if they were
        assert await value_of("json_schema_valid", entries, schema={"uniqueItems": True}) == 1.0

    @pytest.mark.parametrize(
        ("output", "value"),
        [(1.0, 1.0), (True, 0.0), ("1", 0.0), ({"b": [2], "a": 1.0}, 1.0), ({"a": 1}, 0.0), (None, 1.0), (0, 0.0)],
    )
    async def test_what_is_one_of_several_is_so_as_json_schema_has_it(self, output, value):
        schema = {"enum": [1, {"a": 1, "b": [2]}, None, False]}
        assert await value_of("json_schema_valid", [output], schema={"items": schema}) == value

    async def test_a_long_list_is_not_compared_with_each_of_many_words(self):
        schema = {"items": {"enum": list(range(-50_000, 0))}}  # hours, if it were
        score = await score_of("json_schema_valid", list(range(30_000)), schema=schema)
        assert score.value == 0.0
        assert score.explanation.endswith("is not one of -50000, -49999, -49998, -49997, -49996, …")

    @pytest.mark.parametrize("way", ["anyOf", "oneOf"])
    async def test_alternatives_that_double_with_each_level_are_followed_once(self, way):
        kinds = [{"properties": {"of": {"$ref": "#"}, "kind": {"const": kind}}, "required": ["kind"]} for kind in "ab"]
        right: dict[str, Any] = {"kind": "b"}
        wrong: dict[str, Any] = {"kind": "c"}
        for level in range(30):  # years, if they were not
            right, wrong = ({"of": inside, "kind": "ab"[level % 2]} for inside in (right, wrong))
        assert await value_of("json_schema_valid", right, schema={way: kinds}) == 1.0
        assert await value_of("json_schema_valid", wrong, schema={way: kinds}) == 0.0

    async def test_what_a_reference_came_to_is_remembered_for_one_part_and_one_document(self):
        number, text = {"type": "integer"}, {"type": "string"}
        schema = {
            "$defs": {"number": number, "text": text},
            "properties": {"a": {"$ref": "#/$defs/number"}, "b": {"$ref": "#/$defs/text"}},
            "additionalProperties": {"anyOf": [{"$ref": "#/$defs/number"}, {"$ref": "#/$defs/text"}]},
        }
        same = "x"
        for output, value in (
            ({"a": 1, "b": same, "c": 1, "d": same, "e": 1}, 1.0),
            ({"a": same, "b": same}, 0.0),
            ({"a": 1, "b": 1}, 0.0),
            ({"c": same, "d": 1, "e": None}, 0.0),
            ({"c": same, "d": 1, "e": same}, 1.0),
        ):
            assert await value_of("json_schema_valid", output, schema=schema) == value

    @given(
        st.recursive(KINDS, lambda inner: st.builds(dict, KINDS, of=inner | st.lists(inner, max_size=2)), max_leaves=6)
    )
    @pytest.mark.parametrize("way", ["anyOf", "oneOf"])
    def test_following_once_finds_what_following_each_time_does(self, way, document):
        kinds = [{"properties": {"of": {"$ref": "#/$defs/of"}, "kind": {"const": kind}}} for kind in "aab"]
        several = {"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}]}
        schema = {"$defs": {"of": several}, "type": "object", way: kinds}
        plain = Draft202012Validator(schema).is_valid(document)
        assert (not list(SafeSchema(schema).faults(document))) == plain

    def test_a_reference_gathers_no_more_faults_than_anybody_wants(self):
        schema = {"$ref": "#/$defs/texts", "$defs": {"texts": {"type": "array", "items": {"type": "string"}}}}
        wrong = [*map(str, range(50)), *range(10_000)]
        faults = list(SafeSchema(schema).faults(wrong))
        assert [fault.json_path for fault in faults] == [f"$[{place}]" for place in range(50, 50 + MOST_FAULTS)]

    @pytest.mark.parametrize("way", ["anyOf", "oneOf"])
    def test_alternatives_gather_no_more_faults_than_anybody_wants(self, way):
        texts, numbers = ({"type": "array", "items": {"type": kind}} for kind in ("string", "number"))
        (fault,) = SafeSchema({way: [texts, {"type": "null"}, numbers]}).faults([True] * 10_000)
        assert fault.context is not None
        assert [each.schema_path[0] for each in fault.context] == [0] * MOST_FAULTS + [1] + [2] * MOST_FAULTS

    @given(
        st.lists(st.just(0), max_size=4),
        st.lists(st.dictionaries(st.sampled_from(["minItems", "maxItems"]), st.integers(0, 4)), min_size=1, max_size=4),
    )
    @pytest.mark.parametrize("way", ["anyOf", "oneOf"])
    def test_alternatives_are_told_as_the_package_tells_them(self, way, document, ways):
        ours = [fault.message for fault in SafeSchema({way: ways}).faults(document)]
        assert ours == [fault.message for fault in Draft202012Validator({way: ways}).iter_errors(document)]

    def test_nothing_of_a_document_is_kept_once_it_is_checked(self):
        schema = SafeSchema({"additionalProperties": {"$ref": "#/$defs/text"}, "$defs": {"text": {"type": "string"}}})
        for stops in (False, True):
            part = _Part()
            seen = weakref.ref(part)
            faults = schema.faults({"a": part, "b": 1})
            assert next(faults).message
            if not stops:
                assert len(list(faults)) == 1
            del faults, part
            gc.collect()
            assert seen() is None

    async def test_references_by_their_caller_are_not_remembered(self):
        schema = {
            "$id": "https://example.com/strict",
            "$dynamicAnchor": "node",
            "type": "object",
            "properties": {"left": {"$dynamicRef": "#node"}, "right": {"$dynamicRef": "#node"}},
            "required": ["n"],
        }
        assert await value_of("json_schema_valid", {"n": 1, "left": {"n": 2}, "right": {"n": 3}}, schema=schema) == 1.0
        assert await value_of("json_schema_valid", {"n": 1, "left": {"n": 2, "right": {}}}, schema=schema) == 0.0

    async def test_more_references_than_any_document_needs_end(self, monkeypatch):
        module = import_module("evalbus_server.model.json_schema")
        monkeypatch.setattr(module, "MOST_REFERENCES", 100)
        schema = {"items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}
        assert await value_of("json_schema_valid", list(range(100)), schema=schema) == 1.0
        score = await score_of("json_schema_valid", list(range(101)), schema=schema)
        assert failure_of(score).reason == "SCHEMA_ENDLESS"

    async def test_a_number_that_is_too_large_is_errored_and_not_asked_again(self):
        score = await score_of("json_schema_valid", Value("1e999", "json"), schema={"multipleOf": 0.01})
        assert (failure_of(score).reason, failure_of(score).retryable) == ("NUMBER_TOO_LARGE", False)


class TestJsonDiff:
    @pytest.mark.parametrize(
        ("output", "expected", "value"),
        [
            ({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}, 1),
            ({"a": 1}, {"a": 1, "b": 2}, 0.5),
            ({"a": 1, "b": 2}, {"a": 1}, 0.5),
            ({}, {}, 1),
            ([], [[]], 1),
            ({}, {"a": 1}, 0),
            ({"a": True}, {"a": 1}, 0),
            ({"a": None}, {"a": 0}, 0),
            ({"a": "kitten"}, {"a": "sitting"}, 1 - 3 / 7),
            ("not JSON", {"a": 1}, 0),
            ("5", 5, 1),
            (5, "5.0", 1),
            (True, "true", 1),
            ("five", 5, 0),
            ('{"a": 1}', '{"a": 1.0}', 1),
            ({"a": 9}, [{"a": 100}, {"a": 10}], 1 - 1 / 19),
            (
                Value('{"a": 10000000000000000000000001}', "json"),
                Value('{"a": 10000000000000000000000001.0}', "json"),
                1,
            ),
        ],
    )
    async def test_how_much_is_as_expected(self, output, expected, value):
        assert await value_of("json_diff", output, expected) == pytest.approx(value, abs=1e-9)

    async def test_it_says_where_they_differ(self):
        found = await score_of("json_diff", {"a": {"b": [1, 2]}, "x": 1}, {"a": {"b": [1, 3]}, "y": 1})
        assert found.explanation == "differs at a.b[1], y (missing), x (not expected)"

    def test_case_sc_09_a_skipped_part_counts_nowhere(self):
        def of(document: Any) -> float | None:
            return Comparison(lambda actual, expected: expected == "skip").of(document, document)

        assert of({"a": "skip", "b": "same"}) == of(["skip", "same"]) == 1.0
        assert of(["skip"]) is None
        assert of({"a": ["skip"]}) is None

    async def test_a_placeholder_stands_for_any_value(self):
        expected = {"id": "<any>", "name": "Ann"}
        assert await value_of("json_diff", {"id": 7, "name": "Ann"}, expected, any_value=["<any>"]) == 1.0
        assert await value_of("json_diff", {"name": "Ann"}, expected, any_value=["<any>"]) == 1.0
        assert await value_of("json_diff", [1, "x"], [["<any>", "x"]], any_value=["<any>"]) == 1.0
        score = await score_of("json_diff", [1], [["<any>"]], any_value=["<any>"])
        assert score.status is ScoreStatus.SKIPPED

    async def test_keys_and_paths_may_be_left_out(self):
        output, expected = {"at": 1, "meta": {"id": 1, "n": 5}}, {"at": 2, "meta": {"id": 2, "n": 5}}
        assert await value_of("json_diff", output, expected, ignore=["at", "meta.id"]) == 1.0
        assert await value_of("json_diff", [output], [[expected]], ignore=["at", "meta.id"]) == 1.0
        assert (await score_of("json_diff", {"at": 1}, {"at": 2}, ignore=["at"])).status is ScoreStatus.SKIPPED

    async def test_texts_that_are_too_long_and_documents_that_are_too_deep_are_errored(self):
        long = {"a": "ab" * 100_000}
        assert failure_of(await score_of("json_diff", long, {"a": "cd" * 100_000})).reason == "TEXT_TOO_LONG"
        assert await value_of("json_diff", DEEP, {"a": 1}) == 0.0
        nested = Value("[" * 90 + "1" + "]" * 90, "json")
        assert await value_of("json_diff", nested, [nested.data]) == 1.0

    @given(st.integers(), st.integers())
    def test_numbers_have_all_their_digits(self, left, right):
        found = Comparison(lambda actual, expected: False).of(Decimal(left), Decimal(right))
        assert (found == 1.0) == (left == right)

    async def test_bytes_are_no_document(self):
        assert failure_of(await score_of("json_diff", IMAGE, {})).reason == "NOT_TEXT"
        assert failure_of(await score_of("json_diff", {}, IMAGE)).reason == "NOT_TEXT"


class TestListContains:
    @pytest.mark.parametrize(
        ("output", "expected", "settings", "value"),
        [
            (["a", "b"], ["b", "a"], {}, 1),
            (["a", "b"], [["b", "a"]], {}, 1),
            (["a", "b"], [["x", "y"], ["b", "a"]], {}, 1),
            (["a", "a"], ["a"], {}, 0.5),
            (["a"], ["a", "a"], {}, 0.5),
            (["a"], ["a", "b"], {"allow_extra": True}, 0.5),
            (["A "], ["a"], {"ignore_case": True}, 1),
            ('["a", 1]', ["a", 1], {}, 1),
            ([], ["a"], {}, 0),
            ("a", ["a"], {}, 0),
            ("a", "a", {}, 0),
            (["a"], "a", {}, 1),
            (["kitten"], ["sitting"], {}, 1 - 3 / 7),
            ([{"b": 1}], [{"b": 1}], {}, 1),
        ],
    )
    async def test_what_it_holds(self, output, expected, settings, value):
        assert await value_of("list_contains", output, expected, **settings) == pytest.approx(value, abs=1e-9)

    async def test_it_says_what_is_missing_and_what_is_too_much(self):
        score = await score_of("list_contains", ["a", "x"], ["a", "b"])
        assert score.explanation == "missing: 'b'; not expected: 'x'"

    async def test_lists_that_are_too_long_to_be_paired_are_errored(self):
        left, right = [f"left {n}" for n in range(300)], [f"right {n}" for n in range(300)]
        assert failure_of(await score_of("list_contains", left, right)).reason == "LIST_TOO_LONG"
        assert await value_of("list_contains", [*left, "x"], left) == pytest.approx(300 / 301)
        long = ["ab" * 100_000, "x"], ["cd" * 100_000, "y"]
        assert failure_of(await score_of("list_contains", *long)).reason == "TEXT_TOO_LONG"

    @given(
        st.integers(1, 4).flatmap(
            lambda n: st.lists(st.lists(st.floats(0, 1), min_size=n, max_size=n), min_size=1, max_size=4)
        )
    )
    def test_no_pairing_is_better(self, gains):
        short, long = (
            (gains, len(gains[0])) if len(gains) <= len(gains[0]) else (list(zip(*gains, strict=True)), len(gains))
        )
        best = max(
            sum(row[column] for row, column in zip(short, columns, strict=True))
            for columns in permutations(range(long), len(short))
        )
        assert _best_sum(gains) == pytest.approx(best, abs=1e-9)
