"""Logging: events with ids, sizes and states on stderr, never content. Set up once, by whoever owns the process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

import structlog

from evalbus_server.errors import Invalid, Reason

VARIABLE = "EVALBUS_LOG"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up(default: str, *, lines_for_programs: bool = False, environ: Mapping[str, str] = os.environ) -> None:
    """Log from the level of $EVALBUS_LOG on, else from *default*.

    *lines_for_programs*: one JSON document a line where stderr is no terminal, as for a server.

    Raises:
        Invalid: the variable names no level.
    """
    name = environ.get(VARIABLE, "").strip().lower() or default
    if name not in LEVELS:
        message = f"{VARIABLE}: there is no level {name!r}; set it to {', '.join(LEVELS)}"
        raise Invalid(Reason.REQUEST_INVALID, message, field=VARIABLE)
    terminal = sys.stderr.isatty()
    rendered: list[Any] = [
        structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=structlog.dev.plain_traceback)
    ]
    if lines_for_programs and not terminal:
        rendered = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[name]),
        logger_factory=structlog.WriteLoggerFactory(_Stderr()),  # type: ignore[arg-type]  # all it needs of a file
    )


def set_up_once(default: str) -> None:
    """The same inside a program of somebody else, unless that has set up its own logging."""
    if not structlog.is_configured():
        set_up(default)


class _Stderr:
    """Whatever stderr is at the moment: a live display puts itself in its place, and tests do."""

    def write(self, text: str) -> int:
        """Write to it."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush it."""
        sys.stderr.flush()
