"""How the program ends: an exit code, and the reason as the last line on stderr. Imports nothing heavy."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import typer

from evalbus import CallFailed, EvalbusError
from evalbus_server.cli.figures import plain
from evalbus_server.errors import Reason, ServerError, StoreTrouble, Unreachable


class ExitCode(IntEnum):
    """What the exit codes mean; the first, second and fourth are verdicts."""

    PASS = 0
    FAIL = 1
    REFUSED = 2
    """Wrong usage, file, experiment or settings: nothing ran."""
    INCONCLUSIVE = 3
    TROUBLE = 4
    """It could not be carried out: a plugin or server is unreachable, a run was aborted, the database has trouble."""
    INTERRUPTED = 130


_TROUBLE = frozenset(
    {Reason.PLUGIN_UNREACHABLE, Reason.PLUGIN_START_FAILED, Reason.SERVER_UNREACHABLE, Reason.SERVER_STOPPING}
    | {Reason.TOO_MANY_RUNS, Reason.INTERNAL}
    | {reason for reason in Reason if reason.startswith("DATABASE_")}
)
"""What a server says when it could not do something; for any other reason it would not."""


class Ending(Exception):
    """The command is over, with an exit code and a reason to tell."""

    def __init__(self, code: ExitCode, reason: str, message: str) -> None:
        """*reason* is a constant for programs, *message* one line for people."""
        super().__init__(message)
        self.code = code
        self.reason = reason


def guarded(command: Callable[[], Any], *, as_json: bool) -> int:
    """Run a command and return its exit code. Whatever it raises becomes one line on stderr."""
    try:
        code = command()
    except typer.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, typer.Abort):
        ending = _interrupted()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return ExitCode.PASS
    except Exception as error:  # the edge of the program: nobody is left to catch it
        ending = ending_of(error)
        if _wants_traceback():
            raise
    else:
        if code != ExitCode.INTERRUPTED:  # which typer makes of Ctrl-C
            return code if isinstance(code, int) else ExitCode.PASS
        ending = _interrupted()
    tell(ending, as_json=as_json)
    return ending.code


def _interrupted() -> Ending:
    return Ending(ExitCode.INTERRUPTED, "INTERRUPTED", "interrupted")


def ending_of(error: Exception) -> Ending:
    """The exit code and the line of an error."""
    match error:
        case Ending():
            return error
        case Unreachable() | StoreTrouble():
            return Ending(ExitCode.TROUBLE, error.reason, str(error))
        case ServerError():
            return Ending(ExitCode.REFUSED, error.reason, str(error))
        case typer.TyperException():
            return Ending(ExitCode.REFUSED, "USAGE", _usage(error))
        case CallFailed():
            would_not = error.reason in Reason.__members__ and error.reason not in _TROUBLE
            return Ending(ExitCode.REFUSED if would_not else ExitCode.TROUBLE, error.reason, str(error))
        case EvalbusError():
            return Ending(ExitCode.REFUSED, "REFUSED", str(error))
        case OSError():
            return Ending(ExitCode.TROUBLE, "IO", str(error))
    said = f"{type(error).__name__}: {error}"
    message = f"a fault of evalbus itself: {said}; EVALBUS_LOG=debug shows where, please report it"
    return Ending(ExitCode.TROUBLE, "INTERNAL", message)


def tell(ending: Ending, *, as_json: bool) -> None:
    """Write the reason as the last line on stderr."""
    sys.stdout.flush()
    message = plain(str(ending))
    if as_json:
        print(json.dumps({"error": {"reason": str(ending.reason), "message": message}}), file=sys.stderr)
    else:
        print(f"evalbus: {message}", file=sys.stderr)
    sys.stderr.flush()


def _usage(error: typer.TyperException) -> str:
    """What was wrong with the words of the command line, and where help is."""
    message = error.format_message()
    if isinstance(error, typer.BadParameter) and message.startswith("Invalid value"):  # and no missing one
        message = _value(error)
    message = message.strip().rstrip(".?").replace(". Did you mean", "; did you mean")
    context = getattr(error, "ctx", None)
    command = "evalbus" if context is None else context.command_path
    first = message[:1] if message[1:2].isupper() else message[:1].lower()
    return f"{first}{message[1:]}; see {command} --help"


def _value(error: typer.BadParameter) -> str:
    """The option, unless the message names it, and what is wrong with its value, in our words."""
    hint = error.param_hint or ("" if error.param is None else error.param.get_error_hint())
    option = (hint if isinstance(hint, str) else " / ".join(hint)).strip("'")
    message = str(error.message)
    if error.__cause__ is not None and type(error.__cause__).__name__ == "ValidationError":
        from evalbus_server.model.faults import said

        message = said(error.__cause__)  # type: ignore[arg-type]  # pydantic is not imported for its name alone
    return message if not option or option in message else f"{option}: {message}"


def _wants_traceback() -> bool:
    return os.environ.get("EVALBUS_LOG", "").strip().lower() == "debug"
