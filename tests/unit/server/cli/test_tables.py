"""Tables: whole in a pipe, fitted to a terminal, and names and numbers whole everywhere."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from evalbus_server.cli.report import print_report
from evalbus_server.cli.tables import INDENT, LEAST, Column, Table, right
from tests.unit.server.cli.test_report import SCORE, document, printed

LONG = "an answer that goes on and on " * 4


def lines(table: Table, room: int | None) -> list[str]:
    return [line.plain for line in table.lines(room)]


def results(name: str = "ticket-0042") -> Table:
    table = Table("item", *right("epoch"), "outcome", Column("what", text=True), Column("started", spare=True))
    table.add_row(name, "1", "FAILED", LONG, "2026-05-04 10:00")
    table.add_row("b", "10", Text("PASSED"), "", "2026-05-04 10:01")
    return table


def test_where_nobody_says_how_wide_it_may_be_nothing_is_cut():
    out = io.StringIO()
    results("x" * 300).print(Console(file=out, width=80))
    header, rule, first, second = out.getvalue().splitlines()

    assert "x" * 300 in first and LONG.rstrip() in first and first.endswith("2026-05-04 10:00")
    assert second.startswith(f"b{' ' * 299}   ") and header.endswith("started")
    assert len(rule) >= len(first)


def test_numbers_are_set_to_the_right_below_their_names():
    assert lines(results(), None)[0][:31] == "item          epoch   outcome  "
    assert lines(results(), None)[3][:31] == "b                10   PASSED   "


def test_long_texts_are_cut_first_then_columns_go_that_are_spare():
    wide, narrow = lines(results(), 100), lines(results(), 50)

    assert all(len(line) <= 100 for line in wide) and wide[2].endswith("2026-05-04 10:00") and "…" in wide[2]
    assert all(len(line) <= 50 for line in narrow) and "started" not in narrow[0] and narrow[2].endswith("…")
    assert narrow[2].startswith("ticket-0042")


def test_a_name_that_leaves_no_room_takes_a_line_of_its_own():
    name = "a-name-that-is-whole/" * 2
    found = lines(results(name), 60)

    assert found[0] == "item"
    assert found[1].startswith("  epoch  outcome  what")
    assert found[3] == name
    assert found[4].startswith("      1  FAILED   an answer")
    assert all(len(line) <= 60 for line in found)


def test_texts_are_cut_alike():
    table = Table("item", Column("input", text=True), Column("expected", text=True))
    table.add_row("a", "x" * 60, "y" * 90)
    _, _, row = lines(table, 70)
    assert row == f"a      {'x' * 29}…   {'y' * 29}…"


def test_a_row_that_cannot_fit_at_all_is_a_paragraph():
    table = Table("item", *right("epoch"), *(f"judge{n}.faithfulness" for n in range(5)), Column("what", text=True))
    table.add_row("m001", "1", *(f"0.{n}5" for n in range(5)), LONG)
    assert lines(table, 60) == [
        "m001",
        "  epoch 1   judge0.faithfulness 0.05",
        "  judge1.faithfulness 0.15   judge2.faithfulness 0.25",
        "  judge3.faithfulness 0.35   judge4.faithfulness 0.45",
        f"  what {LONG[:52]}…",
    ]


@pytest.mark.parametrize("room", [10, 20, 37])
def test_what_cannot_fit_is_wider_rather_than_cut(room):
    found = "\n".join(lines(results(), room))
    assert "ticket-0042" in found and "FAILED" in found and "10" in found


def test_the_scores_of_a_run_fit_80_columns_whatever_their_names():
    out = io.StringIO()
    key = "a-judge-with-a-long-name.faithfulness"
    assert "skipped" in printed(document())  # which a narrow terminal does without, if nothing is
    terminal = Console(file=out, width=80, force_terminal=True, color_system=None, legacy_windows=False)
    print_report(terminal, document(scores={key: SCORE}))
    shown = out.getvalue()

    assert f"\n{key}\n" in shown and "0.6268 – 0.7407" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


@given(
    st.lists(st.tuples(st.text("ab漢 ", max_size=30), st.text("xy漢", max_size=60), st.integers(0, 10**6)), max_size=5),
    st.integers(1, 120),
)
def test_names_and_numbers_are_whole_at_any_width(rows, room):
    table = Table("name", Column("text", text=True), *right("n"), Column("last", spare=True))
    for name, text, number in rows:
        table.add_row(name, text, str(number), "spare")
    found = lines(table, room)
    fits = all(cell_len(line) <= room for line in found)

    for name, _, number in rows:
        assert any(line.startswith(name.rstrip()) for line in found)
        assert any(str(number) in line.split() for line in found)
    longest = max([cell_len(name) for name, _, _ in rows], default=0)
    assert fits or room < max(longest, INDENT + 5 + LEAST)
