"""Regular expressions in the settings of a scorer."""

from __future__ import annotations

from evalbus import SettingsInvalid
from evalbus_server.model.patterns import Pattern


def pattern_setting(pattern: str, path: str, *, ignore_case: bool = False) -> Pattern:
    """A pattern of the settings.

    Raises:
        SettingsInvalid: it is none that RE2 knows.
    """
    try:
        return Pattern(pattern, ignore_case=ignore_case)
    except ValueError as error:
        raise SettingsInvalid(f"{path}: {error}", path) from None
