"""Regular expressions that cannot hang: RE2 reads every text once, whatever the pattern."""

from __future__ import annotations

from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]

MOST_WORK = 5_000_000_000
"""Characters of a text times steps of a pattern: at worst some seconds, in which the interpreter is free."""


class Pattern:
    """A pattern ready for use, on texts as UTF-8: what matched is decoded, and no place has to be translated."""

    __slots__ = ("_compiled", "groups", "longest", "written")

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        """Compile it.

        Raises:
            ValueError: it is none that RE2 knows; the text says why.
        """
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = not ignore_case
        try:
            self._compiled = re2.compile(pattern, options)
        except re2.error as error:
            said = error.args[0] if error.args else error
            text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
            raise ValueError(f"{pattern!r} is no pattern: {text}; the syntax is RE2's, without lookaround") from None
        self.written = pattern
        self.groups: int = self._compiled.groups
        self.longest: int = MOST_WORK // max(int(self._compiled.programsize), 1)
        """Characters of a text that can be searched in good time even if the pattern is a bad one."""

    def search(self, text: str) -> Match | None:
        """What matches first, anywhere."""
        return _match(self._compiled.search(text.encode()))

    def whole(self, text: str) -> Match | None:
        """The match of the whole text."""
        return _match(self._compiled.fullmatch(text.encode()))

    def last(self, text: str) -> Match | None:
        """What matches last."""
        last = None
        for last in self._compiled.finditer(text.encode()):  # noqa: B007  # the last one is wanted
            pass
        return _match(last)


class Match(NamedTuple):
    """What a pattern found."""

    text: str
    groups: tuple[str, ...]
    """Those that took part."""


def _match(found: Any) -> Match | None:
    if found is None:
        return None
    return Match(found.group().decode(), tuple(group.decode() for group in found.groups() if group is not None))
