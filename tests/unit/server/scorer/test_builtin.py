"""The scorers that ship with the server."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import (
    Item,
    Message,
    Output,
    Score,
    ScorerBench,
    ScorerInfo,
    ScoreStatus,
    ScoreTask,
    SettingsInvalid,
    Value,
)
from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.scorer.builtin._compared import preparation
from evalbus_server.scorer.builtin.numeric_diff import NumericDiffSettings, numeric_diff
from tests.unit.server.scorer.asking import CALCULATED, failure_of, score_of, value_of

COMPARING = (
    "exact_match",
    "includes",
    "starts_with",
    "ends_with",
    "match",
    "levenshtein",
    "numeric_diff",
    "last_number",
)
"""Those that compare an output with expected answers of which any will do."""


@pytest.mark.parametrize("name", CALCULATED)
class TestAll:
    def test_each_says_what_it_is(self, name):
        info = BUILTINS[name].info
        assert (info.name, info.version) == (name, "1.0.0")
        assert isinstance(info.kind, ScorerInfo)
        assert info.kind.deterministic
        assert info.description.endswith(".")

    async def test_an_unknown_setting_is_refused_by_name(self, name):
        with pytest.raises(SettingsInvalid, match="no_such_setting"):
            await score_of(name, "5", "5", no_such_setting=True)

    def test_each_setting_says_what_it_does(self, name):
        schema = BUILTINS[name].info.settings_schema
        for setting in json.loads(schema)["properties"].values() if schema else ():
            assert setting["description"].endswith(".")


@pytest.mark.parametrize("name", COMPARING)
class TestComparing:
    async def test_without_an_expected_answer_it_skips_and_says_so(self, name):
        score = await score_of(name, "5")
        assert score.status is ScoreStatus.SKIPPED
        assert score.explanation == "the item has no expected answer"

    async def test_an_empty_list_is_no_expected_answer(self, name):
        assert (await score_of(name, "5", [])).status is ScoreStatus.SKIPPED
        item = Item("i1", "", Value("\n[ ]", "json"))
        assert (await ScorerBench(BUILTINS[name]).score(item, "5")).status is ScoreStatus.SKIPPED

    async def test_of_several_expected_answers_the_best_counts(self, name):
        assert await value_of(name, "5", ["12", 5, "7"]) == 1.0

    async def test_an_answer_comes_before_the_content(self, name):
        assert await value_of(name, Output("I would say it is seven", answer="5"), "5") == 1.0

    async def test_mapped_inputs_come_before_all(self, name):
        assert await value_of(name, Output("7", answer="8"), "6", inputs={"output": "5", "expected": "5"}) == 1.0

    async def test_a_mapped_expected_answer_needs_none_in_the_item(self, name):
        assert await value_of(name, "5", inputs={"expected": ["4", "5"]}) == 1.0

    async def test_an_output_of_messages_is_judged_by_the_last_one(self, name):
        said = Output(messages=[Message("assistant", "7"), Message("assistant", "5")])
        assert await value_of(name, said, "5") == 1.0


class TestExactMatch:
    @pytest.mark.parametrize(
        ("output", "expected", "value"),
        [
            ("Paris", "Paris", 1),
            ("Paris\n", " Paris", 1),
            ("paris", "Paris", 0),
            ("", "", 1),
            ("", " ", 1),
            ("a", "", 0),
            (None, None, 1),
            ("null", None, 1),
            ("", None, 0),
            (True, 1, 0),
            (False, None, 0),
            ({"a": 1, "b": [1, 2]}, {"b": [1.0, 2], "a": 1}, 1),
            ({"a": 1}, {"a": 1, "b": None}, 0),
            ([1, 2], [[1, 2]], 1),
            ([1, 2], [[2, 1]], 0),
            ([1, 2], [1, 2], 0),
            ('{"a": [1, true]}', {"a": [1, True]}, 1),
            ({"a": 1}, '{ "a" : 1 }', 1),
            ({"a": " x"}, {"a": "x "}, 1),
            ("05", 5, 0),
            ("5.0", 5, 1),
            ("NaN", 5, 0),
            ("[" * 5000, {"a": 1}, 0),
        ],
    )
    async def test_what_is_the_same(self, output, expected, value):
        assert await value_of("exact_match", output, expected) == value

    async def test_the_list_of_expected_answers_is_none_of_them_and_it_says_how_to_expect_it(self):
        for expected in ([1, 2], Value("[2, 3.0]", "json")):
            score = await score_of("exact_match", Value.of(expected), expected)
            assert (score.value, "write [[…]]" in score.explanation) == (0.0, True)
        mapped = await score_of("exact_match", [1], inputs={"expected": [1.0]})
        assert "write [[…]]" in mapped.explanation
        assert (await score_of("exact_match", [1, 3], [1, 2])).explanation == "expected '1' or 1 other, got '[1,3]'"
        assert (await score_of("exact_match", "x", list("abc"))).explanation == "expected 'a' or 2 others, got 'x'"

    async def test_every_digit_counts(self):
        big = Value("123456789012345678901234567890", "json")
        other = Value("123456789012345678901234567891", "json")
        assert await value_of("exact_match", big, other) == 0.0
        assert (
            await value_of("exact_match", Value("[0.1000000000000000000001]", "json"), Value("[[0.1]]", "json")) == 0.0
        )
        assert await value_of("exact_match", Value("1e400", "json"), Value("10e399", "json")) == 1.0

    async def test_a_number_beyond_all_sense_is_compared_as_it_is_written(self):
        absurd = "1e99999999999999999999"
        assert await value_of("exact_match", Value(absurd, "json"), Value(absurd, "json")) == 1.0
        assert await value_of("exact_match", Value(absurd, "json"), Value("1", "json")) == 0.0

    async def test_a_text_with_a_key_twice_is_no_json(self):
        assert await value_of("exact_match", '{"a": 2, "a": 1}', {"a": 1}) == 0.0

    async def test_case_counts_unless_it_is_ignored(self):
        assert await value_of("exact_match", "STRASSE", "straße", ignore_case=True) == 1.0
        assert await value_of("exact_match", {"a": "X"}, {"a": "x"}, ignore_case=True) == 1.0
        assert await value_of("exact_match", {"A": "x"}, {"a": "x"}, ignore_case=True) == 0.0

    async def test_outer_space_counts_if_it_is_not_trimmed(self):
        assert await value_of("exact_match", "Paris ", "Paris", trim=False) == 0.0

    async def test_ways_to_write_a_character_are_the_same_if_normalized(self):
        assert await value_of("exact_match", "cafe\u0301", "café") == 0.0
        assert await value_of("exact_match", "cafe\u0301", "café", normalize="NFC") == 1.0
        assert await value_of("exact_match", "①", "1", normalize="NFKC") == 1.0

    async def test_bytes_are_the_same_if_all_are(self):
        image = Value.blob(b"\x00\x01", "image/png")
        assert await value_of("exact_match", image, image) == 1.0
        assert await value_of("exact_match", image, "x") == 0.0

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: (
                st.lists(inner | st.text("ab"), max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3)
            ),
            max_leaves=8,
        )
    )
    async def test_every_document_but_a_text_matches_itself_written_otherwise(self, document):
        spaced = Value(json.dumps(document, indent=1, sort_keys=True), "text")
        assert await value_of("exact_match", spaced, [document]) == 1.0


class TestIncludes:
    @pytest.mark.parametrize(
        ("output", "expected", "settings", "value"),
        [
            ("It is PARIS.", "paris", {}, 1),
            ("It is PARIS.", "paris", {"ignore_case": False}, 0),
            ("die Straße", "STRASSE", {}, 1),
            ("red and blue", ["red", "green"], {}, 1),
            ("red and blue", ["red", "green"], {"mode": "all"}, 0),
            ("red and blue", ["red", "blue"], {"mode": "all"}, 1),
            ("anything", "", {}, 0),
            ("", "", {}, 1),
            ({"city": "Paris"}, "paris", {}, 1),
            ("the total is 15", 15, {}, 1),
            ("cafe\u0301", "café", {"normalize": "NFC"}, 1),
        ],
    )
    async def test_what_is_held(self, output, expected, settings, value):
        assert await value_of("includes", output, expected, **settings) == value

    async def test_it_says_what_is_missing(self):
        assert (await score_of("includes", "red", "blue")).explanation == "missing: 'blue'"
        assert (await score_of("includes", "red", ["red", "blue"], mode="all")).explanation == "missing: 'blue'"
        assert len((await score_of("includes", "red", "x" * 10_000)).explanation) < 200

    async def test_bytes_hold_no_text(self):
        failure = failure_of(await score_of("includes", Value.blob(b"abc", "image/png"), "a"))
        assert failure.reason == "NOT_TEXT"
        assert "image/png" in failure.message
        assert failure_of(await score_of("includes", "a", Value.blob(b"a", "image/png"))).reason == "NOT_TEXT"


class TestLevenshtein:
    @pytest.mark.parametrize(
        ("output", "expected", "settings", "value"),
        [
            ("kitten", "sitting", {}, 1 - 3 / 7),
            ("Hello", "hello", {}, 0.8),
            ("Hello", "hello", {"ignore_case": True}, 1),
            ("kitten", ["dog", "sitting", "mitten"], {}, 1 - 1 / 6),
            (Value("[1, 2]", "json"), [[1, 2]], {}, 1 - 1 / 6),
            (Value("0.10", "json"), Value("[0.10]", "json"), {}, 1),
        ],
    )
    async def test_what_can_stay(self, output, expected, settings, value):
        assert await value_of("levenshtein", output, expected, **settings) == pytest.approx(value, abs=1e-12)

    @given(st.text("ab\u0301é", max_size=12), st.text("ab\u0301é", max_size=12))
    async def test_it_is_the_same_both_ways_and_1_only_for_the_same_text(self, left, right):
        there, back = await value_of("levenshtein", left, right), await value_of("levenshtein", right, left)
        assert there == back
        assert there is not None
        assert 0.0 <= there <= 1.0
        assert (there == 1.0) == (left == right)

    async def test_very_long_texts_that_are_much_alike_have_a_score(self):
        text = "abcdefgh" * 25_000
        assert await value_of("levenshtein", text, text) == 1.0
        found = await value_of("levenshtein", "x" + text[2:], text)
        assert found == pytest.approx(1 - 2 / len(text), abs=1e-12)

    async def test_very_long_texts_that_are_not_are_errored_at_once(self):
        failure = failure_of(await score_of("levenshtein", "ab" * 100_000, "cd" * 100_000))
        assert failure.reason == "TEXT_TOO_LONG"
        assert "200,000" in failure.message

    async def test_many_long_expected_texts_take_no_longer_than_one(self):
        failure = failure_of(await score_of("levenshtein", "ab" * 5_000, ["cd" * 5_000] * 50))
        assert failure.reason == "TEXT_TOO_LONG"

    async def test_bytes_are_no_text(self):
        assert failure_of(await score_of("levenshtein", Value.blob(b"a", "image/png"), "a")).reason == "NOT_TEXT"
        assert failure_of(await score_of("levenshtein", "a", Value.blob(b"a", "image/png"))).reason == "NOT_TEXT"


class TestNumericDiff:
    @pytest.mark.parametrize(
        ("output", "expected", "value"),
        [
            (42, 42, 1),
            (" 42\n", 42, 1),
            ("42.0", "42", 1),
            ("4.2e1", 42, 1),
            ("+42", 42, 1),
            (-4, -5, 1 - 1 / 9),
            ("\u22124", -4, 1),
            (0, 0, 1),
            ("-0", 0, 1),
            (0, 10, 0),
            (5, -5, 0),
            (9, [100, 10], 1 - 1 / 19),
            (9, ["none", 10], 1 - 1 / 19),
            (1, Value("1e999999999", "json"), 0),
            (Value("1e400", "json"), Value("3e400", "json"), 0.5),
            ("٤٢", 42, 1),
            ("４２．５", "42.5", 1),  # noqa: RUF001
        ],
    )
    async def test_how_far_numbers_are(self, output, expected, value):
        assert await value_of("numeric_diff", output, expected) == pytest.approx(value, abs=1e-12)

    @pytest.mark.parametrize(
        "output",
        ["abc", "", "42 apples", "1,234", "0x10", "1_000", "nan", "inf", "--1", "٤٢ x", True, None, "1" * 20_000],
    )
    async def test_what_is_no_number_scores_0_and_says_so(self, output):
        score = await score_of("numeric_diff", output, 42)
        assert score.value == 0.0
        assert score.explanation.startswith("not a number: ")
        assert len(score.explanation) < 200

    async def test_an_expected_answer_that_is_no_number_is_the_datasets_fault(self):
        failure = failure_of(await score_of("numeric_diff", 42, "forty-two"))
        assert failure.reason == "EXPECTED_INVALID"
        assert "'forty-two'" in failure.message

    async def test_bytes_are_no_number(self):
        assert await value_of("numeric_diff", Value.blob(b"42", "image/png"), 42) == 0.0

    @given(st.integers(), st.integers())
    def test_only_equal_numbers_score_1(self, left, right):
        task = ScoreTask(0, 1, Item("i", "", str(right)), Output(str(left)))
        found = numeric_diff(task, NumericDiffSettings())
        assert isinstance(found, Score)
        assert found.value is not None
        assert 0.0 <= found.value <= 1.0
        assert (found.value == 1.0) == (left == right)

    async def test_the_last_of_many_digits_counts(self):
        found = await value_of("numeric_diff", str(10**30 + 1), str(10**30))
        assert found == math.nextafter(1.0, 0.0)


@given(st.text(), st.sampled_from(["none", "NFC", "NFKC"]), st.booleans(), st.booleans())
def test_a_prepared_text_does_not_change_when_it_is_prepared_again(text, normalize, trim, ignore_case):
    prepare = preparation(ignore_case=ignore_case, trim=trim, normalize=normalize)
    assert prepare(prepare(text)) == prepare(text)
