"""The console command `evalbus`: hands over to the server's command line, or says what to install.

It is the one module of this package that may know `evalbus_server`.
"""

import sys

INSTALL_HINT = "evalbus: the command line needs the server: pip install 'evalbus[server]'"


def main() -> None:
    """Run the command line, or exit with code 2 when the extra `server` is not installed."""
    try:
        from evalbus_server import cli  # here, since a plugin's environment lacks what it imports
    except ModuleNotFoundError as error:
        if _is_ours(error.name):
            raise
        print(INSTALL_HINT, file=sys.stderr)
        raise SystemExit(2) from None
    cli.main()


def _is_ours(module: str | None) -> bool:
    """Tell a module that we forgot to ship, which is a fault, from an extra that is not installed."""
    return module is not None and module.partition(".")[0] in {"evalbus", "evalbus_server"}
