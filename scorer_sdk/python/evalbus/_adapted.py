"""The names of scorers of other libraries, and what serves them."""

from __future__ import annotations

LIBRARIES = ("autoevals", "deepeval", "ragas", "inspect_ai")
"""Those whose scorers are known by `LIBRARY.NAME`."""
PYTHON = "python:"
"""What the name of a plain function begins with."""

OF_LIBRARIES = (
    f"; of another library there is {', '.join(f'{each}.NAME' for each in LIBRARIES)}, {PYTHON}MODULE.FUNCTION"
)
"""What is said of a name that looks as if it were of one."""


def looks_adapted(use: str) -> bool:
    """Whether a name is none of a builtin, and perhaps a misspelt one of another library."""
    return "." in use or ":" in use


def is_adapted(use: str | None) -> bool:
    """Whether a name means a scorer of another library, which a process of its own serves.

    A builtin's name has neither dot nor colon.
    """
    if use is None:
        return False
    return use.startswith(PYTHON) or (use.partition(".")[0] in LIBRARIES and "." in use)


def adapter_command(use: str, python: str = "") -> tuple[str, ...]:
    """Program and arguments of that process; *python* is the interpreter, "" for the server's own."""
    return (python or "python", "-m", "evalbus.adapters", use)
