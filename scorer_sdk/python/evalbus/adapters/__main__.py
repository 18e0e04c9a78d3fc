"""`python -m evalbus.adapters NAME`: serve one scorer of another library."""

from __future__ import annotations

import sys

from evalbus import serve
from evalbus.adapters import AdapterError, find


def main(arguments: list[str]) -> int:
    """Serve until asked to end. 2: there is no such scorer, and one line on stderr says why."""
    if len(arguments) != 1:
        print("evalbus: name one scorer: python -m evalbus.adapters autoevals.Factuality", file=sys.stderr)
        return 2
    try:
        plugin = find(arguments[0])
    except AdapterError as error:
        print(f"evalbus: {error}", file=sys.stderr)
        return 2
    serve(plugin)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
