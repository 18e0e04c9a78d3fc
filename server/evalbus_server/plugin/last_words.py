"""What a process printed last, short enough for a message: of a Python traceback the error and where it came from."""

from __future__ import annotations

import re

LINES = 5
"""So many lines are quoted of what is no traceback."""
QUOTED = 1000
"""So many characters are quoted at most."""

_GREETING = "evalbus: serving "
"""With this the SDK says that a plugin is ready: that is no news of how it ended."""
_FRAME = re.compile(r'^ +File "(?P<file>.+)", line (?P<line>\d+)')
_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?P<said>[A-Za-z_]\w*(?:: .*)?)$")
_NOT_THE_AUTHORS = ("/site-packages/", "/dist-packages/", "/lib/python3", "/scorer_sdk/python/evalbus/", "<frozen ")


def quoted(tail: str, folder: str = "") -> str:
    """The last words as one line; *folder* is where the process runs, whose files are named without it."""
    lines = [line.rstrip() for line in tail.splitlines() if line.strip() and not line.startswith(_GREETING)]
    said = _error(lines, folder) or " | ".join(line.strip() for line in lines[-LINES:])
    return said if len(said) <= QUOTED else f"…{said[-QUOTED:]}"


def _error(lines: list[str], folder: str) -> str:
    """The error that the lines end with, and the line of the author's own code that it came from; "" if it is none."""
    error = _ERROR.match(lines[-1]) if lines else None
    frames = [frame for line in lines[:-1] if (frame := _FRAME.match(line))]
    if error is None or not frames or not lines[-2].startswith(" "):
        return ""
    own = [frame for frame in frames if not any(part in frame["file"] for part in _NOT_THE_AUTHORS)]
    frame = (own or frames)[-1]
    file = frame["file"].removeprefix(f"{folder.rstrip('/')}/") if folder else frame["file"]
    return f"{error['said']} ({file} line {frame['line']})"
