"""Scorers of other libraries, and plain Python functions, as scorer plugins.

    python -m evalbus.adapters autoevals.Factuality

serves one of them, in a process and an environment of its own: nothing that a library does to its process can harm the
server. The name is `LIBRARY.NAME` with one of `LIBRARIES`, or `python:MODULE.FUNCTION`. In an experiment, `use:` takes the
same name and starts this.
"""

from evalbus._adapted import LIBRARIES
from evalbus.adapters._adapter import AdapterError
from evalbus.adapters._find import find

__all__ = ["LIBRARIES", "AdapterError", "find"]
