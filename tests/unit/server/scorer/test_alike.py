"""Scorers that say how alike two texts are, how complete, how long, and in which tone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import Direction, ScorerBench, ScoreStatus, SettingsInvalid, Value
from evalbus_server.scorer.builtin import BUILTINS
from tests.unit.server.scorer.asking import failure_of, score_of, value_of
from tests.unit.server.scorer.test_vectors import rows

ALIKE = ["similarity", "content_similarity", "textual_difference", "f1", "rouge_l", "bleu", "chrf", "keyword_coverage", "completeness"]  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
class TestAll:
    async def test_the_same_text_scores_1(self, name):
        assert await value_of(name, "The quick brown fox", "The quick brown fox") == 1.0

    async def test_texts_that_share_nothing_score_0(self, name):
        assert await value_of(name, "zzz", "quick brown") == 0.0

    async def test_of_several_expected_texts_the_nearest_counts(self, name):
        near = await value_of(name, "quick brown fox", "quick brown dog")
        assert near is not None
        assert 0 < near < 1
        assert await value_of(name, "quick brown fox", ["zzz", "quick brown dog", "yyy"]) == near

    async def test_without_an_expected_answer_it_skips(self, name):
        assert (await score_of(name, "quick")).status is ScoreStatus.SKIPPED

    async def test_an_empty_output_is_not_like_a_text(self, name):
        assert await value_of(name, "", "quick brown fox") == 0.0

    async def test_bytes_are_no_text(self, name):
        image = Value.blob(b"a", "image/png")
        assert failure_of(await score_of(name, image, "a")).reason == "NOT_TEXT"
        assert failure_of(await score_of(name, "a", image)).reason == "NOT_TEXT"

    async def test_what_is_not_all_alike_says_why(self, name):
        if name != "similarity":
            assert (await score_of(name, "quick brown fox", "quick brown dog")).explanation


@given(st.sampled_from(ALIKE), st.text("ab cé,東", max_size=15), st.text("ab cé,東", max_size=15))
async def test_every_measure_stays_in_its_range_and_gives_the_same_again(name, left, right):
    bench = ScorerBench(BUILTINS[name])  # refuses a value that is out of range
    first = await score_of(name, left, right)
    assert (await bench.score(left, left)).status is ScoreStatus.SKIPPED
    assert first == await score_of(name, left, right)


@pytest.mark.parametrize("row", rows("sacrebleu.jsonl"), ids=lambda row: f"{row['scorer']} {row['settings']}")
async def test_bleu_and_chrf_are_those_of_sacrebleu(row):
    found = await value_of(row["scorer"], row["output"], row["expected"], **row["settings"])
    assert found == pytest.approx(row["score"], abs=1e-9)


class TestSimilarity:
    @pytest.mark.parametrize(
        ("method", "value"),
        [
            ("jaro", 0.9444444444),
            ("jaro_winkler", 0.9611111111),
            ("damerau_levenshtein", 1 - 1 / 6),
            ("sorted_words", 1 - 2 / 12),
        ],
    )
    async def test_each_method_has_its_value(self, method, value):
        assert await value_of("similarity", "MARTHA", "MARHTA", method=method) == pytest.approx(value, abs=1e-9)

    async def test_words_may_come_in_another_order(self):
        assert await value_of("similarity", "Ann Lee", "Lee Ann", method="sorted_words") == 1.0
        assert await value_of("similarity", "Ann B. Lee", "Lee Ann", method="shared_words") == 1.0

    @pytest.mark.parametrize("method", ["damerau_levenshtein", "sorted_words", "shared_words"])
    async def test_very_long_texts_are_errored_at_once(self, method):
        failure = failure_of(await score_of("similarity", "ab" * 100_000, "cd" * 100_000, method=method))
        assert failure.reason == "TEXT_TOO_LONG"


class TestSharedWords:
    @pytest.mark.parametrize(
        ("output", "expected", "value"),
        [
            ("The cat sat.", "a cat sat", 1),
            ("cat", "cat cat cat", 0.5),
            ("3.0 apples", "3 apples", 1),
            ("-5", "5", 0),
            ("東京", "東京都", 0.8),
        ],
    )
    async def test_f1(self, output, expected, value):
        assert await value_of("f1", output, expected) == pytest.approx(value, abs=1e-9)

    async def test_an_expected_text_that_says_nothing_is_skipped(self):
        assert (await score_of("f1", "cat", "the")).status is ScoreStatus.SKIPPED
        assert (await score_of("rouge_l", "cat", "...")).status is ScoreStatus.SKIPPED

    @pytest.mark.parametrize(("measure", "value"), [("precision", 4 / 6), ("recall", 4 / 5), ("f1", 8 / 11)])
    async def test_rouge_l(self, measure, value):
        output, expected = "police killed the gunman last night", "the police killed the gunman"
        found = await value_of("rouge_l", output, expected, measure=measure)
        assert found == pytest.approx(value, abs=1e-9)

    async def test_the_order_of_words_counts_in_rouge_l(self):
        assert await value_of("rouge_l", "gunman the killed police", "police killed the gunman") == 0.25

    async def test_very_long_texts_are_errored_at_once(self):
        failure = failure_of(await score_of("rouge_l", "a b " * 20_000, "c d " * 20_000))
        assert failure.reason == "TEXT_TOO_LONG"
        assert "40,000" in failure.message


@pytest.mark.parametrize("name", ["bleu", "chrf"])
class TestTranslation:
    async def test_a_text_that_is_too_long_is_errored(self, name):
        assert failure_of(await score_of(name, "a" * 100_001, "a")).reason == "TEXT_TOO_LONG"

    async def test_an_empty_expected_text_asks_for_an_empty_output(self, name):
        for output, expected in (("", ""), (" ", ""), ("", [" \n", "x"])):
            assert await value_of(name, output, expected) == 1.0
        assert await value_of(name, "a cat", "") == 0.0
        assert await value_of(name, "", "a cat") == 0.0

    async def test_orders_that_nobody_means_are_refused(self, name):
        for order in (0, 11):
            with pytest.raises(SettingsInvalid, match="order"):
                await score_of(name, "a", "a", order=order)


class TestTextOverlap:
    async def test_very_long_texts_that_are_much_alike_have_a_score(self):
        text = "abcdefgh" * 25_000
        found = await value_of("textual_difference", "x" + text[1:], text)
        assert found == pytest.approx(1 - 2 / (2 * len(text)), abs=1e-12)
        assert await value_of("content_similarity", text, text[::-1]) == 0.0

    async def test_very_long_texts_that_are_not_are_errored_at_once(self):
        failure = failure_of(await score_of("textual_difference", "ab" * 100_000, "cd" * 100_000))
        assert failure.reason == "TEXT_TOO_LONG"

    async def test_pairs_are_counted_the_same_in_chunks(self):
        text = "abcdefghij" * 20_000
        pairs = len(text) - 1
        found = await value_of("content_similarity", text + "k", text)
        assert found == pytest.approx(2 * pairs / (2 * pairs + 1), abs=1e-12)


class TestCoverage:
    async def test_they_say_what_is_missing(self):
        score = await score_of("keyword_coverage", "apples", "apples, oranges and bananas")
        assert score.value == pytest.approx(1 / 3)
        assert score.explanation == "missing: 'oranges', 'bananas'"

    async def test_stop_words_may_be_others(self):
        assert await value_of("keyword_coverage", "der Hund", "der Hund", stop_words=["der"]) == 1.0
        assert await value_of("keyword_coverage", "eine Katze", "der Hund", stop_words=["der"]) == 0.0

    async def test_an_expected_text_of_stop_words_is_never_met(self):
        assert (await score_of("keyword_coverage", "no", "yes")).status is ScoreStatus.SKIPPED

    async def test_completeness_takes_other_forms_of_a_word(self):
        assert await value_of("completeness", "He jumps", "he jump") == 1.0
        assert await value_of("completeness", "cat", "cats are here") == pytest.approx(1 / 3)
        assert await value_of("completeness", "understanding", "stand") == 0.0

    async def test_very_many_words_that_differ_are_errored(self):
        left = " ".join(f"word{n}" for n in range(3_000))
        right = " ".join(f"other{n}" for n in range(3_000))
        assert failure_of(await score_of("completeness", left, right)).reason == "TEXT_TOO_LONG"


class TestTone:
    async def test_a_text_that_turns_is_not_steady(self):
        assert await value_of("tone", "I love it. I love it.") == 1.0
        assert await value_of("tone", "I love it. I hate it.") == 0.0

    async def test_a_negation_turns_a_word_round(self):
        assert await value_of("tone", "It is not good", "It is so bad", compared_with="expected") == 1.0

    async def test_the_tone_of_another_text_may_be_wanted(self):
        assert await value_of("tone", "What a wonderful day", reference="Such a terrific meal") == 1.0
        assert await value_of("tone", "What a terrible day", reference="Such a terrific meal") == 0.0
        assert (await score_of("tone", "fine", compared_with="expected")).status is ScoreStatus.SKIPPED

    @pytest.mark.parametrize("text", ["これは素晴らしいです。", "Это прекрасно!", "", "42", "👍"])
    async def test_a_text_in_another_script_or_without_words_is_skipped(self, text):
        assert (await score_of("tone", text)).status is ScoreStatus.SKIPPED

    async def test_a_reference_that_cannot_be_read_is_refused(self):
        with pytest.raises(SettingsInvalid, match="reference"):
            await score_of("tone", "fine", reference="素晴らしい")

    async def test_accents_are_latin_letters(self):
        assert await value_of("tone", "C'est très fin, un café à la crème") == 1.0


class TestProse:
    @pytest.mark.parametrize(
        ("output", "settings", "value"),
        [
            ("12345", {"at_most": 5}, 1),
            ("123456", {"at_most": 5}, 0),
            ("123456", {"at_most": 3, "outside": "closeness"}, 0.5),
            ("12", {"at_least": 4, "outside": "closeness"}, 0.5),
            ("", {"at_least": 1}, 0),
            ("two words", {"at_least": 2, "at_most": 2, "unit": "words"}, 1),
            ("東京", {"at_least": 2, "at_most": 2, "unit": "words"}, 1),
            ("a\nb\n", {"at_most": 2, "unit": "lines"}, 1),
            ("", {"at_most": 0}, 1),
        ],
    )
    async def test_how_long_it_is(self, output, settings, value):
        assert await value_of("length", output, **settings) == value

    async def test_limits_that_say_nothing_are_refused(self):
        for settings in ({}, {"at_least": 5, "at_most": 4}, {"at_least": -1}):
            with pytest.raises(SettingsInvalid):
                await score_of("length", "a", **settings)

    @pytest.mark.parametrize(
        ("formula", "value"),
        [("flesch_reading_ease", 116.145), ("flesch_kincaid_grade", -1.45), ("automated_grade", -5.085)],
    )
    async def test_how_hard_it_is_to_read(self, formula, value):
        found = await value_of("readability", "The cat sat on the mat.", formula=formula)
        assert found == pytest.approx(value, abs=1e-3)

    async def test_a_grade_is_better_when_it_is_lower(self):
        opened = await ScorerBench(BUILTINS["readability"], {"formula": "flesch_kincaid_grade"}).open()
        (declared,) = opened.ready.scores
        assert declared.direction is Direction.LOWER_IS_BETTER
        assert (declared.minimum, declared.maximum) == (None, None)

    async def test_another_script_cannot_be_read(self):
        assert (await score_of("readability", "東京は日本の首都です。")).status is ScoreStatus.SKIPPED
        assert (await score_of("readability", "")).status is ScoreStatus.SKIPPED
