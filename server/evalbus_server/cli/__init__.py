"""The command line: one file a command group, and beside them the work that they ask for."""

from evalbus_server.cli.main import main

__all__ = ["main"]
