"""Numbers as people read them."""

import pytest

from evalbus_server.cli.figures import length_of_time, number, plain, share


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (1.0, "1"), (0.68650, "0.6865"), (12.0, "12"), (345.678, "345.68"), (-0.5, "-0.5000")],
)
def test_a_number_shows_as_many_digits_as_tell_something(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (1.0, "100.0 %"), (0.9999, "99.9 %"), (0.0, "0.0 %"), (0.0001, "0.1 %"), (0.5516, "55.2 %")],
)
def test_a_share_is_all_or_none_only_if_it_is(value, text):
    assert share(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12 ms"), (4.25, "4.2 s"), (59.6, "1 min 00 s"), (61, "1 min 01 s"), (3725, "1 h 02 min")],
)
def test_a_length_of_time_has_its_largest_units(seconds, text):
    assert length_of_time(seconds) == text


def test_a_text_of_somebody_else_cannot_steer_the_terminal():
    assert plain("a\x1b[2Jb\n  c\x00 größer\u009b") == "a�[2Jb c� größer�"
