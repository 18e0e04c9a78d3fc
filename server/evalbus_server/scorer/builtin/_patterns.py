"""Regular expressions that cannot hang: RE2 reads every text once, whatever the pattern."""

from __future__ import annotations

from typing import Any, TypeAlias

import re2  # type: ignore[import-untyped]

from evalbus import SettingsInvalid

Pattern: TypeAlias = Any
"""A compiled RE2 pattern, which is used like one of `re`. The package has no types."""

MOST_WORK = 5_000_000_000
"""Characters of a text times steps of a pattern: at worst some seconds, in which the interpreter is free."""


def compiled(pattern: str, *, ignore_case: bool = False) -> Pattern:
    """A pattern ready for use.

    Raises:
        ValueError: it is none that RE2 knows; the text says why.
    """
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise ValueError(f"{pattern!r} is no pattern: {text}; the syntax is RE2's, without lookaround") from None


def pattern_setting(pattern: str, path: str, *, ignore_case: bool = False) -> Pattern:
    """A pattern of the settings.

    Raises:
        SettingsInvalid: it is none that RE2 knows.
    """
    try:
        return compiled(pattern, ignore_case=ignore_case)
    except ValueError as error:
        raise SettingsInvalid(f"{path}: {error}", path) from None


def affordable(pattern: Pattern, text: str) -> bool:
    """Whether the text can be searched in good time even if the pattern is a bad one."""
    return len(text) * int(pattern.programsize) <= MOST_WORK
