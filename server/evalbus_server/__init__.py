"""The evaluation server of evalbus: datasets to targets, outputs to scorers, results to the store and to watchers.

`run` and `run_async` carry out one experiment inside a program of one's own, such as a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalbus_server.embed import RunReport, TrialResult, run, run_async
    from evalbus_server.model.run import Outcome, RunState, Verdict

__all__ = ["Outcome", "RunReport", "RunState", "TrialResult", "Verdict", "run", "run_async"]

_HOMES = {
    **dict.fromkeys(("RunReport", "TrialResult", "run", "run_async"), "evalbus_server.embed"),
    **dict.fromkeys(("Outcome", "RunState", "Verdict"), "evalbus_server.model.run"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for only now: `evalbus --help` must not pay for a server."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
