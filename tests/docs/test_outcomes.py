"""The page of outcomes has every word that a user may meet, and no word that does not exist."""

import re
from enum import Enum

import pytest

from evalbus import CallFailed, FailureCategory, FailureOrigin, ScoreStatus
from evalbus_server.cli.exits import ending_of
from evalbus_server.errors import Reason
from evalbus_server.model.run import Outcome, RunState, Verdict
from tests.docs.pages import PAGES, ROOT

PAGE = PAGES["docs/outcomes.md"]
SECTIONS: dict[str, type[Enum]] = {
    "Outcomes of trials": Outcome,
    "Scores": ScoreStatus,
    "Run states": RunState,
    "Verdicts": Verdict,
    "Failure categories": FailureCategory,
    "Reasons of errors": Reason,
}
RUN_REASONS = {"CANCELLED", "PAUSED", "INTERRUPTED", "STOPPED", "DEADLINE", "MAX_ERRORS", "BUDGET"}
COMMAND_LINE = {"USAGE", "TRIAL_FAILED", "IO"}
OTHERS = {"SETUP_FAILED", "VALUE_ERROR", "EVALBUS_TOKEN", "EVALBUS_LOG", "SIGTERM", "JSON", "TLS", "RUN"}


def first_cells(section: str) -> list[str]:
    """The words in capitals that begin a row."""
    return re.findall(r"^\| ([A-Z][A-Z_]+) \|", PAGE.section(section), re.MULTILINE)


@pytest.mark.parametrize(("section", "words"), SECTIONS.items(), ids=SECTIONS)
def test_a_section_has_a_row_for_each_word(section, words) -> None:
    told = first_cells(section)
    wanted = [word.name for word in words]
    if words is RunState:
        wanted += sorted(RUN_REASONS)
    assert sorted(told) == sorted(wanted), f"{PAGE.name}, {section}: one row for each"


def test_every_origin_of_a_failure_is_named() -> None:
    for origin in FailureOrigin:
        if origin is not FailureOrigin.UNSPECIFIED:
            assert origin.name in PAGE.section("Failure categories")


def test_a_reason_stands_with_the_exit_code_that_the_command_line_gives_it() -> None:
    told = {row[0]: int(row[1]) for row in PAGE.table("table: reasons")}
    assert told == {reason.value: ending_of(CallFailed(reason, "")).code for reason in Reason}


def test_the_reasons_of_failures_and_runs_stand_in_the_program() -> None:
    text = "".join(
        path.read_text()
        for folder in ("server/evalbus_server", "scorer_sdk/python/evalbus")
        for path in (ROOT / folder).rglob("*.py")
    )
    for reason in {*first_cells("Reasons of failures"), *RUN_REASONS, *COMMAND_LINE}:
        assert re.search(rf"\"{reason}[\":]", text) or reason in FailureCategory.__members__, reason


def test_the_program_makes_no_reason_of_failures_that_is_not_told() -> None:
    """Constants that stand in a Failure, or in the name of one."""
    told = {*first_cells("Reasons of failures"), *Reason.__members__, *FailureCategory.__members__, "SETUP_FAILED"}
    made = re.compile(r"(?:Failure\(|unjudged\()[^)]*?\"([A-Z]+(?:_[A-Z]+)+)\"", re.DOTALL)
    for folder in ("server/evalbus_server", "scorer_sdk/python/evalbus"):
        for path in (ROOT / folder).rglob("*.py"):
            unknown = set(made.findall(path.read_text())) - told
            assert not unknown, f"{PAGE.name}, Reasons of failures: say what {unknown} of {path} means"


def test_no_word_in_capitals_is_unknown() -> None:
    known = {name for words in SECTIONS.values() for name in words.__members__} | RUN_REASONS | COMMAND_LINE | OTHERS
    known |= {*first_cells("Reasons of failures"), *FailureOrigin.__members__}
    prose = re.sub(r"\([^)]*\.md[^)]*\)", "", PAGE.prose)
    assert set(re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)*\b", prose)) <= known, f"{PAGE.name} speaks of what does not exist"
