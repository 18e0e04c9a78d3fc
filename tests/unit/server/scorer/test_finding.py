"""Scorers that look for texts, patterns, answers, choices and numbers in an output."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import Item, Score, ScorerBench, ScoreStatus, SettingsInvalid, Value
from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.scorer.builtin._numbers import NumberReader, NumberSettings
from evalbus_server.scorer.builtin._words import words_of
from tests.unit.server.scorer.asking import failure_of, score_of, value_of

IMAGE = Value.blob(b"a", "image/png")


class TestParts:
    @pytest.mark.parametrize(
        ("name", "output", "expected", "settings", "value"),
        [
            ("excludes", "all is well", "error", {}, 1),
            ("excludes", "an ERROR", "error", {}, 0),
            ("excludes", "an ERROR", "error", {"ignore_case": False}, 1),
            ("excludes", "red and blue", ["green", "blue"], {}, 0),
            ("excludes", "red", "blue", {"texts": ["red"]}, 0),
            ("excludes", {"city": "Paris"}, "paris", {}, 0),
            ("starts_with", "Paris is it", "Paris", {}, 1),
            ("starts_with", " Paris is it", "Paris", {}, 1),
            ("starts_with", " Paris", "Paris", {"trim": False}, 0),
            ("starts_with", "paris", "Paris", {}, 0),
            ("starts_with", "paris", "Paris", {"ignore_case": True}, 1),
            ("starts_with", "It is Paris", ["She", "It"], {}, 1),
            ("starts_with", "", "", {}, 1),
            ("ends_with", "It is Paris\n", "Paris", {}, 1),
            ("ends_with", "It is Paris.", "Paris", {}, 0),
            ("ends_with", "x", "", {}, 0),
        ],
    )
    async def test_what_stands_where(self, name, output, expected, settings, value):
        assert await value_of(name, output, expected, **settings) == value

    async def test_they_say_what_they_found(self):
        assert (await score_of("excludes", "an error", "error")).explanation == "found: 'error'"
        assert (await score_of("starts_with", "no", "yes")).explanation == "begins with 'no'"
        assert (await score_of("ends_with", "oh no", "yes")).explanation == "ends with 'oh no'"
        assert len((await score_of("ends_with", "x" * 10_000, "y" * 9_000)).explanation) < 200

    async def test_unwanted_texts_of_the_settings_need_no_expected_answer(self):
        assert await value_of("excludes", "fine", texts=["sorry"]) == 1.0
        assert (await score_of("excludes", "fine")).status is ScoreStatus.SKIPPED

    async def test_an_empty_unwanted_text_is_refused(self):
        with pytest.raises(SettingsInvalid, match="texts"):
            await score_of("excludes", "fine", texts=[""])

    @pytest.mark.parametrize("name", ["excludes", "starts_with", "ends_with"])
    async def test_bytes_are_no_text(self, name):
        assert failure_of(await score_of(name, IMAGE, "a")).reason == "NOT_TEXT"
        assert failure_of(await score_of(name, "a", IMAGE)).reason == "NOT_TEXT"


class TestRegex:
    @pytest.mark.parametrize(
        ("output", "pattern", "settings", "value"),
        [
            ("order 1234", r"\d{4}", {}, 1),
            ("order 12", r"\d{4}", {}, 0),
            ("order 1234", r"\d{4}", {"match": "whole"}, 0),
            ("1234", r"\d{4}", {"match": "whole"}, 1),
            ("ab", "a|b", {"match": "whole"}, 0),
            ("ABC", "abc", {}, 0),
            ("ABC", "abc", {"ignore_case": True}, 1),
            ("ABC", "(?i)abc", {}, 1),
            ("Größe", r"\p{L}+", {"match": "whole"}, 1),
        ],
    )
    async def test_what_matches(self, output, pattern, settings, value):
        assert await value_of("regex", output, pattern=pattern, **settings) == value
        assert await value_of("regex", output, pattern, **settings) == value

    async def test_the_answer_is_what_matched(self):
        assert (await score_of("regex", "order 1234", pattern=r"\d+")).answer == Value("1234")

    async def test_of_several_expected_patterns_any_will_do(self):
        assert await value_of("regex", "b", ["a", "b"]) == 1.0

    @pytest.mark.parametrize("pattern", ["(a", "a(?=b)", r"(a)\1", "[z-a]", "x{5000}"])
    async def test_a_bad_pattern_is_refused_before_the_run_and_named(self, pattern):
        with pytest.raises(SettingsInvalid, match=r"settings\.pattern: .* is no pattern"):
            await score_of("regex", "a", pattern=pattern)

    async def test_an_empty_pattern_which_every_text_matches_says_nothing(self):
        with pytest.raises(SettingsInvalid, match=r"settings\.pattern: it is empty"):
            await score_of("regex", "a", pattern="")
        assert await value_of("regex", "a", "") == 0.0
        assert await value_of("regex", "", "") == 1.0
        assert await value_of("regex", "a", ["", "a"]) == 1.0

    async def test_a_bad_expected_pattern_is_the_items_fault(self):
        assert failure_of(await score_of("regex", "a", "(a")).reason == "EXPECTED_INVALID"

    async def test_without_any_pattern_it_skips(self):
        assert (await score_of("regex", "a")).status is ScoreStatus.SKIPPED

    async def test_bytes_are_no_text(self):
        assert failure_of(await score_of("regex", IMAGE, pattern="a")).reason == "NOT_TEXT"
        assert failure_of(await score_of("regex", "a", IMAGE)).reason == "NOT_TEXT"


class TestMatch:
    @pytest.mark.parametrize(
        ("output", "expected", "settings", "value"),
        [
            ("The answer is Paris.", "Paris", {}, 1),
            ("Paris it is", "Paris", {}, 0),
            ("Paris it is", "Paris", {"location": "begin"}, 1),
            ("I say Paris it is", "paris", {"location": "any"}, 1),
            ("'Paris!'", "paris", {"location": "exact"}, 1),
            ("'Paris!'", "paris", {"location": "exact", "ignore_punctuation": False}, 0),
            ("...", "...", {"location": "exact"}, 1),
            ("x", "", {}, 0),
            ("", "", {}, 1),
            ("1,234.50 $", "1234.5", {"numeric": True, "location": "exact"}, 1),
            ("first 38, then 8", "8", {"numeric": True}, 1),
            ("first 8, then 38", "8", {"numeric": True}, 0),
            ("first 8, then 38", "8", {"numeric": True, "location": "begin"}, 1),
            ("first 8, then 38", "8", {"numeric": True, "location": "any"}, 1),
            ("none", "8", {"numeric": True, "location": "begin"}, 0),
            ("It is eight", ["8", "eight"], {"numeric": True}, 1),
        ],
    )
    async def test_where_it_stands(self, output, expected, settings, value):
        assert await value_of("match", output, expected, **settings) == value

    async def test_the_answer_is_the_number(self):
        found = await score_of("match", "It is $1,234.50", "7", numeric=True)
        assert found.answer == Value("1234.50")
        assert found.explanation == "the number is '1234.50'"


class TestAnswer:
    @pytest.mark.parametrize(
        ("output", "expected", "settings", "value", "answer"),
        [
            ("Let me see.\nANSWER: 42", "42", {}, 1, "42"),
            ("ANSWER: 41\nno,\nANSWER: 42", "42", {}, 1, "42"),
            ("ANSWER: 41\nno,\nANSWER: 42", "42", {"which": "first"}, 0, "41"),
            ("Antwort: ja, Paris ", "ja, paris", {"marker": "Antwort"}, 1, "ja, Paris"),
            ("ANSWER: B) because", "B", {"take": "letter"}, 1, "B"),
            ("ANSWER: Blue", "B", {"take": "letter"}, 0, None),
            ("ANSWER: yes \n", "yes", {"take": "word"}, 1, "yes"),
            ("42", "42", {}, 0, None),
            ("**Answer:** 42", "42", {}, 1, "42"),
            ("**ANSWER: 42**", "42", {}, 1, "42"),
            ("ANSWER: __init__", "__init__", {}, 1, "__init__"),
            ("**Answer:**\n\n42\nThat is it.", "42", {}, 1, "42"),
            ("**Answer**:\n**42**", "42", {}, 1, "42"),
            ("ANSWER:\nB\n", "B", {"take": "letter"}, 1, "B"),
            ("ANSWER:\nyes", "yes", {"take": "word"}, 1, "yes"),
            ("ANSWER:\nANSWER: 42", "42", {}, 1, "42"),
            ("ANSWER:\n41\nANSWER: 42\n43", "42", {}, 1, "42"),
            ("ANSWER:", "42", {}, 0, None),
            ("Answer: 42.", "42", {}, 0, "42."),
            ("Answer: **42.**", "42", {"ignore_punctuation": True}, 1, "42."),
            ("Answer: Paris!", "paris", {"ignore_punctuation": True}, 1, "Paris!"),
            ("Answer: -5.", "5", {"ignore_punctuation": True, "numeric": True}, 1, "-5."),
            ("Answer: $1,000.00.", "1000", {"numeric": True}, 1, "$1,000.00."),
            ("Answer: **-5.**", ["4", "-5.0"], {"numeric": True}, 1, "-5."),
            ("Answer: 5 apples", "5", {"numeric": True}, 0, "5 apples"),
            ("Answer: five", ["5", "five"], {"numeric": True}, 1, "five"),
            ("<a>1,000</a>", "1000", {"pattern": "<a>(.*)</a>", "numeric": True}, 1, "1,000"),
            ("x=1, y=2", ["1", "2"], {"pattern": r"x=(\d), y=(\d)", "groups": "all"}, 1, "12"),
            ("x=1, y=3", ["1", "2"], {"pattern": r"x=(\d), y=(\d)", "groups": "all"}, 0, "13"),
            ("x=1, y=3", ["1", "2"], {"pattern": r"x=(\d), y=(\d)"}, 1, "1"),
        ],
    )
    async def test_what_is_found_and_whether_it_is_expected(self, output, expected, settings, value, answer):
        score = await score_of("answer_match", output, expected, **settings)
        assert score.value == value
        assert score.answer == (None if answer is None else Value(answer))

    async def test_bad_settings_are_refused(self):
        for settings in ({"pattern": "(a"}, {"pattern": "a"}, {"marker": " "}):
            with pytest.raises(SettingsInvalid, match=rf"settings\.{next(iter(settings))}"):
                await score_of("answer_match", "a", "a", **settings)

    async def test_a_marker_is_no_pattern(self):
        assert await value_of("answer_match", "A.B: 1", "1", marker="A.B") == 1.0
        assert await value_of("answer_match", "AxB: 1", "1", marker="A.B") == 0.0


async def chosen(output: Any, expected: Any, choices: Any = ("Paris", "Rome", "New York", "B"), **more: Any) -> Score:
    item = Item("i1", "", Value.of(expected), choices=choices)
    return await ScorerBench(BUILTINS["multiple_choice"], more).score(item, output)


class TestMultipleChoice:
    @pytest.mark.parametrize(
        ("output", "expected", "value", "answer"),
        [
            ("A", "A", 1, "A"),
            ("(a)", "A", 1, "A"),
            ("A.", "Paris", 1, "A"),
            ("A) Paris, of course", "A", 1, "A"),
            ("Paris", "A", 1, "A"),
            ("new york", "C", 1, "C"),
            ("I think it is\n**ANSWER: C**", "C", 1, "C"),
            ("ANSWER: A\nNo: ANSWER: C", "C", 1, "C"),
            ("ANSWER: C and A", "A,C", 1, "A, C"),
            ("ANSWER: C", "A,C", 0, "C"),
            ("ANSWER: A, B, C", "A,C", 0, "A, B, C"),
            ("A, C", [["A", "C"]], 1, "A, C"),
            ("A", ["A", "C"], 1, "A"),
            (["A", "C"], "A, C", 1, "A, C"),
            ("A C", "A,C", 1, "A, C"),
            ("A, and C.", "A,C", 1, "A, C"),
            ("(A) and (C)", "A,C", 1, "A, C"),
            ("Paris or New York", "A,C", 1, "A, C"),
            ("A. Wrong. It is C", "A", 0, None),
            ("A rome", "A", 0, None),
            ("ANSWER: not A", "A", 0, None),
            ("So:\n**Answer:**\n\nC", "C", 1, "C"),
            ("ANSWER:\nA\nANSWER: C", "C", 1, "C"),
            ("A) Paris is wrong.\nAnswer:\nC", "C", 1, "C"),
            ("ANSWER:\nI do not know", "A", 0, None),
            ("I do not know", "A", 0, None),
            ("E", "A", 0, None),
            ("ANSWER: E", "A", 0, None),
            ("", "A", 0, None),
            ("B", "B", 1, "B"),
        ],
    )
    async def test_which_choices_are_named(self, output, expected, value, answer):
        score = await chosen(output, expected)
        assert score.value == value, score
        assert score.answer == (None if answer is None else Value(answer))

    async def test_a_choice_may_hold_a_word_that_joins(self):
        choices = ("rock and roll", "jazz", "rock")
        assert (await chosen("Rock and Roll", "A", choices=choices)).value == 1.0
        assert (await chosen("ANSWER: rock and roll, jazz", "A,B", choices=choices)).value == 1.0
        assert (await chosen("rock and jazz", "B,C", choices=choices)).value == 1.0

    async def test_an_item_without_choices_is_skipped(self):
        assert (await chosen("A", "A", choices=())).status is ScoreStatus.SKIPPED

    async def test_choices_may_be_mapped(self):
        inputs = {"choices": ["Oslo", "Bern"]}
        found = await ScorerBench(BUILTINS["multiple_choice"]).score(Item("i1", "", "B"), "Bern", inputs=inputs)
        assert found.value == 1.0

    async def test_an_expected_answer_that_is_no_choice_is_the_items_fault(self):
        assert failure_of(await chosen("A", "E")).reason == "EXPECTED_INVALID"


class TestLastNumber:
    @pytest.mark.parametrize(
        ("text", "settings", "found"),
        [
            ("from 10-5 to 7", {}, ["10", "5", "7"]),
            ("x=-9", {}, ["-9"]),
            ("3 - 5", {}, ["3", "5"]),
            ("3 -5", {}, ["3", "-5"]),
            ("1,234 and 1,234,567.5, or 12,34", {}, ["1234", "1234567.5", "12", "34"]),
            ("1,234", {"thousands": False}, ["1", "234"]),
            ("$5, 5€, -$5, $-5, US$7", {}, ["5", "5", "-5", "-5", "7"]),
            ("$5, 5€ and 6", {"currency": False}, ["6"]),
            ("60% of 7 %", {}, ["60%", "7%"]),
            ("60%", {"percent": "ignore"}, ["60"]),
            ("60%", {"percent": "divide"}, ["0.60"]),
            ("v2.0, 17abc, abc17, 1.2.3, 5th, 1_000", {}, []),
            ("so .5", {}, ["0.5"]),
            ("so ...5", {}, ["5"]),
            ("答案是42。", {}, ["42"]),
            ("é5 5é", {}, []),
            ("1e3 and 2E-2", {}, ["1E+3", "0.02"]),
            ("٤٢ و ٦٠٪ و ١٬٢٣٤٫٥", {}, ["42", "60%", "1234.5"]),  # noqa: RUF001
            ("価格は１，２３４．５円 ४२", {}, ["1234.5", "42"]),  # noqa: RUF001
            ("x²", {}, []),
            ("1.234,50 € oder 12,5", {"decimal": "comma"}, ["1234.50", "12.5"]),
            ("1'234,5 und 1\N{NO-BREAK SPACE}234", {"decimal": "comma"}, ["1234.5", "1234"]),
            ("1.234,5", {"decimal": "comma", "thousands": False}, ["1", "234.5"]),
            ("٣٫١٤ و ١٬٢٣٤٫٥", {"decimal": "comma"}, ["3.14", "1234.5"]),  # noqa: RUF001
            ("1,2,3 so ,5", {"decimal": "comma"}, ["0.5"]),
        ],
    )
    def test_which_numbers_are_found(self, text, settings, found):
        assert [str(number) for number in NumberReader(NumberSettings(**settings)).all(text)] == found

    @given(st.integers(), st.sampled_from(["{}", "It is {}.", "({})", "**{}**", "so: {}!", "{},"]))
    async def test_a_number_is_found_in_any_decoration(self, number, sentence):
        assert await value_of("last_number", sentence.format(number), number) == 1.0
        assert await value_of("last_number", sentence.format(number), number + 1) == 0.0

    async def test_the_last_one_counts_and_is_told(self):
        score = await score_of("last_number", "3 apples and 4 pears make 7", "8")
        assert score.value == 0.0
        assert score.answer == Value("7")
        assert await value_of("last_number", "7 of 8", ["7", "8"]) == 1.0

    async def test_percent_is_read_alike_on_both_sides(self):
        assert await value_of("last_number", "33.5%", "0.335", percent="divide") == 1.0
        assert await value_of("last_number", "33.5%", "33.5%") == 1.0
        assert await value_of("last_number", "33.5%", "33.5") == 0.0
        assert await value_of("last_number", "33.5%", "33.5", percent="ignore") == 1.0

    async def test_with_a_decimal_comma_the_dataset_may_have_numbers_as_json_has_them(self):
        for expected in (1234.5, "1234.5", "1.234,5", "1234,5"):
            assert await value_of("last_number", "Das macht 1.234,50 €.", expected, decimal="comma") == 1.0
        assert await value_of("last_number", "1,234", 1.234, decimal="comma") == 1.0
        assert await value_of("last_number", "1.234", 1.234, decimal="comma") == 0.0
        assert await value_of("last_number", "1.234", "1.234", decimal="comma") == 1.0

    @pytest.mark.parametrize(("expected", "settings"), [("$5", {"currency": False}), ("1,234", {"thousands": False})])
    async def test_what_is_no_number_by_the_settings_is_not_expected_either(self, expected, settings):
        assert failure_of(await score_of("last_number", "5", expected, **settings)).reason == "EXPECTED_INVALID"

    async def test_an_output_without_a_number_scores_0(self):
        score = await score_of("last_number", "none at all", "8")
        assert (score.value, score.explanation) == (0.0, "no number in the output")

    async def test_an_expected_answer_that_is_no_number_is_the_datasets_fault(self):
        assert failure_of(await score_of("last_number", "8", "eight")).reason == "EXPECTED_INVALID"


class TestToleranceOfNumericDiff:
    @pytest.mark.parametrize(
        ("output", "expected", "settings", "value"),
        [
            (9.5, 10, {"absolute": 0.5}, 1),
            (9.4, 10, {"absolute": 0.5, "outside": "zero"}, 0),
            (9, 10, {"relative": 0.1}, 1),
            (11, 10, {"relative": 0.1}, 1),
            (0.3, 0.1, {"absolute": 0.2}, 1),
            (0.1, 0, {"relative": 0.5}, 0),
            (-9, -10, {"relative": 0.1}, 1),
            (5, [100, 5.4], {"absolute": 0.5}, 1),
            (5, 10, {"absolute": 0, "outside": "zero"}, 0),
        ],
    )
    async def test_what_is_near_enough(self, output, expected, settings, value):
        assert await value_of("numeric_diff", output, expected, **settings) == value

    async def test_a_tolerance_that_is_none_is_refused(self):
        for settings in ({"absolute": -1}, {"relative": -0.1}):
            with pytest.raises(SettingsInvalid):
                await score_of("numeric_diff", 1, 1, **settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat's (new) hat!", ["the", "cat's", "new", "hat"]),
        ("New-York", ["new", "york"]),
        ("3.0 apples, 1,000 pears, 007, -5, 0.50", ["3", "apples", "1000", "pears", "7", "-5", "0.5"]),
        ("3rd v2", ["3rd", "v2"]),
        ("東京 is", ["東", "京", "is"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("-0 -0.0 ٣٤", ["0", "0", "٣٤"]),
    ],
)
def test_what_the_words_of_a_text_are(text, words):
    assert words_of(text) == words


async def test_only_words_count_if_an_exact_match_is_asked_so():
    assert await value_of("exact_match", "The answer: 3.0!", "answer 3", words=True) == 1.0
    assert await value_of("exact_match", "-5", "5", words=True) == 0.0
    assert await value_of("exact_match", "the", "a", words=True) == 0.0
    assert await value_of("exact_match", {"a": "The cat."}, {"a": "cat"}, words=True) == 1.0
