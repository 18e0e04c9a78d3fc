"""Values as people write them: lengths of time, error limits, paths, reducers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbus_server.model.bounds import Limits
from evalbus_server.model.paths import format_path, parse_path
from evalbus_server.model.reducers import parse_reducer
from evalbus_server.model.written import ErrorLimit, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("5m", 300), ("2h", 7200), ("250ms", 0.25), ("1.5s", 1.5), ("1h30m", 5400), ("1d", 86400)],
)
def test_a_length_of_time_has_its_unit(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "60", "s", "-1s", "1 s", "1e3s", "\u0661s", "1S", "1s2", "999999d"])
def test_other_texts_are_no_lengths_of_time(text):
    with pytest.raises(ValueError, match=r"not a length of time|more than 100 years"):
        parse_duration(text)


@settings(deadline=None)
@given(st.floats(min_value=0, max_value=3e9))
def test_a_length_of_time_is_written_so_that_it_reads_back_the_same(seconds):
    assert parse_duration(format_duration(seconds)) == seconds


@settings(deadline=None)
@given(st.floats(min_value=0, max_value=1))
def test_a_share_is_written_so_that_it_reads_back_the_same(share):

    limits = Limits(max_errors=ErrorLimit(share=share))
    assert Limits.model_validate(limits.model_dump(mode="json")) == limits


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(0, 99), st.text(max_size=8)), min_size=1, max_size=5))
def test_a_path_is_written_so_that_it_reads_back_the_same(steps):
    assert parse_path(format_path(steps)) == tuple(steps)


@pytest.mark.parametrize("text", ["", ".a", "a..b", "a.", "a[", "a[x]", "a]b", 'a["b', "a[1]b"])
def test_other_texts_are_no_paths(text):
    with pytest.raises(ValueError, match="path"):
        parse_path(text)


def test_a_reducer_is_a_name_and_maybe_a_number():
    assert parse_reducer("majority") == ("majority", None)
    assert parse_reducer("at_least( 2 )") == ("at_least", 2)
