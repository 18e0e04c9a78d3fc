"""How fast a run goes, and when it will be done."""

import pytest

from evalbus_server.cli.pace import WINDOW, Pace


def test_nothing_is_known_before_the_first_second():
    pace = Pace()
    assert pace.rate is None
    pace.note(0.0, 0)
    pace.note(0.5, 100)
    assert pace.rate is None
    assert pace.remaining(10) is None


def test_the_rate_is_of_the_last_seconds_only():
    pace = Pace()
    for second in range(100):
        pace.note(float(second), second * 10 if second < 50 else 500 + (second - 50) * 2)
    assert pace.rate == pytest.approx(2.0)
    assert len(pace._seen) <= WINDOW + 2


def test_a_run_that_stands_still_has_no_end_in_sight():
    pace = Pace()
    pace.note(0.0, 5)
    pace.note(5.0, 5)
    assert pace.rate == 0.0
    assert pace.remaining(10) is None


def test_the_rest_takes_as_long_as_the_rate_says():
    pace = Pace()
    pace.note(0.0, 0)
    pace.note(2.0, 40)
    assert pace.remaining(100) == pytest.approx(5.0)
    assert pace.remaining(0) is None
