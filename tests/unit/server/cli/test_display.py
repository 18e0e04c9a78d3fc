"""Live progress: on a terminal, and nowhere else."""

import io

from rich.console import Console

from evalbus_server.cli.display import Display
from evalbus_server.model.run import Counts
from evalbus_server.runner.line import Progress

NEWS = Progress(Counts(200, 80, 10, 3, 2), 100, 32, [("intent", 95, 0.6865), ("tone", 0, None)])


def shown(display: Display) -> str:
    file = io.StringIO()
    Console(file=file, width=100).print(display._render())
    return file.getvalue()


def test_it_shows_counts_by_outcome_and_the_means_that_are_known():
    display = Display("support", clock=lambda: 0.0)
    display.show(NEWS)
    text = shown(display)
    for part in ("support", "95 of 200", "48%", "passed 80", "failed 10", "errored 3", "skipped 2", "in flight 32"):
        assert part in text
    assert "intent 0.6865" in text
    assert "tone" not in text


def test_rate_and_time_left_come_once_they_are_known():
    now = 0.0
    display = Display("support", clock=lambda: now)
    display.show(Progress(Counts(200), 0, 0, []))
    assert "/s" not in shown(display) and "left" not in shown(display)
    now = 5.0
    display.show(NEWS)
    text = shown(display)
    assert "19/s" in text
    assert "5.5 s left" in text


def test_a_stopping_run_says_so_below_the_numbers():
    display = Display("support", console=Console(file=io.StringIO(), force_terminal=True))
    display.show(NEWS)
    display.notice("stopping")
    assert shown(display).rstrip().endswith("stopping")


def test_nothing_is_written_where_there_is_no_terminal():
    file = io.StringIO()
    with Display("support", console=Console(file=file)) as display:
        display.show(NEWS)
    assert file.getvalue() == ""


def test_on_a_terminal_it_is_gone_afterwards():
    file = io.StringIO()
    with Display("support", console=Console(file=file, force_terminal=True, width=100)) as display:
        display.show(NEWS)
        display._live.refresh()
    text = file.getvalue()
    assert "95 of 200" in text
    assert text.endswith("\x1b[2K")  # the last thing is a line erased
