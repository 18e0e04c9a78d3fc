"""How a run is presented when it is over: its document or its report, the exit code, and the reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

from rich.console import Console
from rich.text import Text

from evalbus_server.cli.exits import Ending, ExitCode
from evalbus_server.cli.report import Document, console, notes_of, print_json, print_report, reason_of
from evalbus_server.model.summary import Summary
from evalbus_server.runner.changes import in_force
from evalbus_server.wire.jsonform import summary_document

HALTED = ("PAUSED", "CANCELLED", "INTERRUPTED", "ABORTED")
VERDICTS = {"PASS": ExitCode.PASS, "FAIL": ExitCode.FAIL, "INCONCLUSIVE": ExitCode.INCONCLUSIVE}


def conclude(  # noqa: PLR0913  # how a run is presented
    summary: Summary, where: str, *, as_json: bool, own: bool = True, silent: bool = False, cause: str = ""
) -> int:
    """Print a run that is over, and return the exit code.

    *where* is the options that lead to it; *own*: this command carried it out; *silent*: all but the reason has been said;
    *cause* is why trials errored.

    Raises:
        Ending: it did not pass; with the code and the reason.
    """
    document = document_of(summary)
    if not silent:
        present(document, where, as_json=as_json)
    code = code_of(document, own=own)
    if code is not ExitCode.PASS:
        told = reason_of(document)
        if cause:
            head = told.removesuffix(cause.partition(",")[0])  # how many errored is said once
            told = f"{told}; " if head == told else head
            told += f"{cause}; see {_errored(document, where)}"
        raise Ending(code, _constant(document), told)
    return code


def document_of(summary: Summary) -> Document:
    """The document of a run, whose experiment has the limits that are in force."""
    run = summary.run
    if run.limits_json and run.experiment_json:
        run = replace(run, experiment_json=in_force(run).canonical_json())
    return summary_document(replace(summary, run=run))


def present(document: Document, where: str, *, as_json: bool, settings: bool = False) -> None:
    """Print a run: its document, or its report, with its *settings* too if they are wanted, and what to type next."""
    if as_json:
        print_json({**document, "notes": list(notes_of(document))})
        return
    out = console()
    print_report(out, document, settings=settings)
    _print_next(out, document, where)


def code_of(document: Document, *, own: bool) -> ExitCode:
    """The exit code for a run that is over."""
    if document["state"] == "ABORTED":
        return ExitCode.TROUBLE
    if document["state"] == "INTERRUPTED" and own:
        return ExitCode.INTERRUPTED
    return VERDICTS.get(document["verdict"], ExitCode.INCONCLUSIVE)


def _as_typed() -> str:
    """How this command was called, if by its path: then it is not among those that a shell finds by name."""
    typed = sys.argv[0] if sys.argv else ""
    return typed if os.sep in typed and not os.path.isabs(typed) else "evalbus"


def _constant(document: Document) -> str:
    if document["state"] == "COMPLETED":
        return str(document["verdict"])
    return str(document.get("reason") or "").partition(":")[0] or str(document["state"])


def _limits_met(document: Document) -> Iterator[str]:
    """The limit that ended a run, which it would only meet again."""
    reason, _, told = str(document.get("reason") or "").partition(":")
    if reason == "BUDGET":
        yield "limits.tokens" if "tokens" in told else "limits.cost"
    elif reason in ("DEADLINE", "MAX_ERRORS"):
        yield f"limits.{reason.lower()}"


def _errored(document: Document, where: str) -> str:
    return f"{_as_typed()} runs results {document['run']}{where} --outcome errored"


def _print_next(out: Console, document: Document, where: str) -> None:
    run, evalbus = document["run"], _as_typed()
    lines = [f"{evalbus} runs results {run}{where}", f"{evalbus} runs show {run}{where} --json"]
    if document["state"] in HALTED:
        lines.insert(0, f"{evalbus} runs resume {run}{where}")
        lines[:0] = [f"{evalbus} runs set {run} {limit}=…{where}" for limit in _limits_met(document)]
    for label, line in zip_longest(("next",), lines, fillvalue=""):
        out.print(Text(f"{label:9}{line}", "dim"), soft_wrap=True)
