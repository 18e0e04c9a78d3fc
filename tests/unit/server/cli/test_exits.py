"""Exit codes, and the one line that says why."""

import json

import pytest
import typer

from evalbus import CallFailed, PluginInvalid
from evalbus_server.cli.exits import Ending, ExitCode, guarded
from evalbus_server.errors import Invalid, NotFound, Reason, StoreTrouble, Unfit, Unreachable


def raising(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Invalid(Reason.EXPERIMENT_INVALID, "no"), 2),
        (NotFound(Reason.RUN_NOT_FOUND, "no"), 2),
        (Unfit(Reason.NOTHING_TO_RUN, "no"), 2),
        (Unreachable(Reason.PLUGIN_START_FAILED, "no"), 4),
        (StoreTrouble(Reason.DATABASE_LOCKED, "no"), 4),
        (PluginInvalid("no"), 2),
        (CallFailed("RUN_NOT_FOUND", "no", "NOT_FOUND"), 2),
        (CallFailed("DATABASE_READ_ONLY", "no", "FAILED_PRECONDITION"), 4),
        (CallFailed("", "no", "UNAVAILABLE"), 4),
        (typer.BadParameter("no"), 2),
        (Ending(ExitCode.FAIL, "FAIL", "no"), 1),
        (KeyboardInterrupt(), 130),
        (OSError(28, "No space left on device"), 4),
        (ZeroDivisionError("no"), 4),
        (typer.Exit(3), 3),
    ],
)
def test_each_error_has_its_exit_code(error, code):
    assert guarded(raising(error), as_json=False) == code


def test_a_command_that_ends_well_ends_with_what_it_returns():
    assert guarded(lambda: None, as_json=False) == 0
    assert guarded(lambda: ExitCode.INCONCLUSIVE, as_json=False) == 3


def test_the_reason_is_one_line_on_stderr(capsys):
    guarded(raising(Invalid(Reason.EXPERIMENT_INVALID, "first\nsecond")), as_json=False)
    assert capsys.readouterr() == ("", "evalbus: first second\n")


def test_with_json_the_reason_is_a_document_on_stderr(capsys):
    guarded(raising(Invalid(Reason.EXPERIMENT_INVALID, "größer")), as_json=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err) == {"error": {"reason": "EXPERIMENT_INVALID", "message": "größer"}}


def test_a_fault_of_ours_says_that_it_is_one(capsys):
    guarded(raising(ZeroDivisionError("division by zero")), as_json=False)
    assert "a fault of evalbus itself: ZeroDivisionError" in capsys.readouterr().err


def test_a_fault_of_ours_shows_where_if_that_is_wanted(monkeypatch):
    monkeypatch.setenv("EVALBUS_LOG", "debug")
    with pytest.raises(ZeroDivisionError):
        guarded(raising(ZeroDivisionError("no")), as_json=False)
